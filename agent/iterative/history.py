"""What the step-by-step mode is told of the attempts before it: each one once."""

from __future__ import annotations

from collections.abc import Sequence

from agent.attempts import Attempt
from agent.prompting import describe_failure
from agent.protocols import TokenCounter
from agent.types import ValidationReport, Verdict

_NOT_JUDGED = (
    "The tests could not be judged: what they report on the unchanged code is not readable"
)


def describe_attempts(attempts: Sequence[Attempt], counter: TokenCounter) -> str:
    """The thought, the diff, the test and the reason of each attempt; equal ones are told once."""
    told: dict[str, list[int]] = {}
    for number, attempt in enumerate(attempts, 1):
        told.setdefault(_describe(attempt, counter), []).append(number)
    return "\n\n".join(f"{_numbers(numbers)}: {text}" for text, numbers in told.items())


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
        parts.append(f"Its reproduction test {test.path}:\n{test.content.strip()}")
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
