"""What the step-by-step mode is told of the attempts before it: each one once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from agent.run.attempts import Attempt
from agent.run.prompting import describe_failure
from agent.types import ValidationReport, Verdict
from agent.types.protocols import TokenCounter

# A line of a failure report that lists the failing tests of one file.
_TESTS = re.compile(r"  (?P<path>[^\s:]+): (?P<names>\S.*)")

_SHORT = 120  # characters of a paragraph that may stand twice

_NOT_JUDGED = (
    "The tests could not be judged: what they report on the unchanged code is not readable"
)


def describe_attempts(attempts: Sequence[Attempt], counter: TokenCounter) -> str:
    """The thought, the diff, the test and the reason of each attempt; equal ones are told once."""
    told: dict[str, list[int]] = {}
    for number, attempt in enumerate(attempts, 1):
        told.setdefault(_describe(attempt, counter), []).append(number)
    known: dict[str, int] = {}
    parts = []
    for text, numbers in told.items():
        parts.append(f"{_numbers(numbers)}: {_without_known(text, known)}")
        known |= {block: numbers[0] for block in _blocks(text) if block not in known}
    return "\n\n".join(parts)


def _blocks(text: str) -> list[str]:
    """Return the paragraphs of a text, and the lists of tests below one file each."""
    found = text.split("\n\n")
    return [*found, *(line for line in text.split("\n") if _TESTS.match(line))]


def _without_known(text: str, known: Mapping[str, int]) -> str:
    """Return a text without the long paragraphs and the lists of tests that stood before."""
    parts = []
    for block in text.split("\n\n"):
        if len(block) > _SHORT and block in known:
            parts.append(f"[the same as of reply {known[block]}]")
        else:
            parts.append("\n".join(_without_tests(line, known) for line in block.split("\n")))
    return "\n\n".join(parts)


def _without_tests(line: str, known: Mapping[str, int]) -> str:
    """Return a line `  path: a, b` without the tests that a reply before failed too."""
    match = _TESTS.match(line)
    before = [(block, number) for block, number in known.items() if _TESTS.match(block)]
    for block, number in before if match is not None else ():
        assert match is not None
        other = _TESTS.match(block)
        if other is None or other["path"] != match["path"]:
            continue
        old, names = set(other["names"].split(", ")), match["names"].split(", ")
        new = [name for name in names if name not in old]
        if len(names) - len(new) > 1:
            same = f"{len(names) - len(new)} that reply {number} failed too"
            return f"  {match['path']}: {', '.join([*new, same])}"
    return line


def _numbers(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"Reply {numbers[0]}"
    return f"Replies {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}, which are the same"


def _describe(attempt: Attempt, counter: TokenCounter) -> str:
    if attempt.asks_for_code:
        return f"no edit: {attempt.reason}."
    if attempt.parse_failure is not None:
        return f"no usable patch ({attempt.parse_failure.kind})."
    parts = []
    proposal = attempt.proposal
    if proposal is not None and proposal.thought:
        parts.append(proposal.thought)
    if attempt.patch is not None:
        parts.append(attempt.patch.diff.decode("utf-8", "replace").strip())
    test = proposal.reproduction_test if proposal else None
    if test is not None:
        parts.append(f"Its reproduction test:\n\n{test.path}:\n{test.content.strip()}\n")
    parts.append(_why(attempt, counter))
    return "\n".join(parts)


def _why(attempt: Attempt, counter: TokenCounter) -> str:
    if attempt.report is not None and _is_unjudged(attempt.report):
        return f"{_NOT_JUDGED}. It may well be right."
    return describe_failure(attempt, counter)


def _is_unjudged(report: ValidationReport) -> bool:
    """Whether no patch could have been accepted: the tests of the base gave nothing to compare."""
    base = report.before
    if report.verdict is not Verdict.SUSPECT or base is None:
        return False
    return not base.outcomes or base.ended != "exited"
