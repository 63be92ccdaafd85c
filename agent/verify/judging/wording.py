"""Phrases for reports and for the repair prompt: short and of bounded length. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from agent.types import TestRun
from agent.verify.reports import INCOMPLETE, INCONSISTENT
from sandbox import Ended

# Enough for the last frames and the assertion. A whole reason takes about 1,000 tokens.
_TEXT_LINES = 40
_TEXT_CHARS = 2400
_REASON_CHARS = 4000
_IDS = 5
_TEXTS = 3
_GROUP_LINES = 20

_ENDINGS = {
    Ended.SIGNALLED: "was killed by a signal",
    Ended.WALL_LIMIT: "hit its time limit",
    Ended.CPU_LIMIT: "hit its limit of processor time",
    Ended.OUTPUT_LIMIT: "hit its limit of output",
    Ended.MEMORY_LIMIT: "hit its limit of memory",
    Ended.PROCESS_LIMIT: "hit its limit of processes",
    Ended.DISK_LIMIT: "hit its limit of disk space",
    Ended.CANCELLED: "was cancelled",
    INCOMPLETE: "ended before its tests did",
    INCONSISTENT: "gave accounts that contradict each other",
}


def how_it_ended(run: TestRun) -> str:
    """Return a predicate for a sentence about a run, with the test that it stopped in."""
    if run.ended == Ended.EXITED:
        return f"ended with exit code {run.exit_code}"
    words = _ENDINGS.get(run.ended, f"ended with {run.ended}")
    if run.ended in (Ended.WALL_LIMIT, Ended.CPU_LIMIT):
        words += f" after {run.seconds:.0f} s"
    last = [test for test in run.failures if test not in run.outcomes]
    return f"{words} in {last[-1]}" if last else words


def listed(tests: Sequence[str], most: int = _IDS) -> str:
    """Return `a, b and 3 more`."""
    shown = ", ".join(tests[:most])
    return shown if len(tests) <= most else f"{shown} and {len(tests) - most} more"


def number(count: int, noun: str) -> str:
    """Return `1 test`, `2 tests` or `no test`."""
    return f"{count or 'no'} {noun}{'s' * (count > 1)}"


def failure_texts(run: TestRun, tests: Sequence[str]) -> str:
    """Return every test under the error that it failed with, then the ends of some reports.

    Tests that fail with the same words stand together, the largest group first. The first reports
    of the largest groups show where the error happened.
    """
    groups: dict[str, list[str]] = {}
    for test in tests:
        if run.failures.get(test):
            groups.setdefault(assertion(run.failures[test]), []).append(test)
    largest = sorted(groups.items(), key=lambda group: -len(group[1]))  # stable: then as they came
    texts: dict[str, str] = {}
    for _, members in largest[:_TEXTS]:
        text = f"{members[0]}:\n{tail(run.failures[members[0]], _GROUP_LINES)}"
        if not texts or sum(map(len, (*texts.values(), text))) <= _TEXTS_SIZE:
            texts[members[0]] = text
    told = [(said, t) for said, t in largest if len(t) > 1 or t[0] not in texts]
    return bounded("\n\n".join([*_named(told), *texts.values()]))


def _named(groups: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """Return all tests below what they say, which is shortened until the whole is short enough.

    Tests that then say the same stand together.
    """
    parts: list[str] = []
    for most in _ASSERTION_SIZES:
        merged: dict[str, list[str]] = {}
        for said, tests in groups:
            cut = said if len(said) <= most else f"{said[:most]}..."
            merged.setdefault(cut or "no message", []).extend(tests)
        parts = [f"{said}\n{_by_file(tests)}" for said, tests in merged.items()]
        if sum(map(len, parts)) <= _NAMED_CHARS:
            break
    return parts


def _by_file(tests: Sequence[str]) -> str:
    """Return the ids, each file written once."""
    files: dict[str, list[str]] = {}
    for test in tests:
        path, _, name = test.partition("::")
        files.setdefault(path, []).append(name)
    return "\n".join(f"  {path}: {', '.join(filter(None, names))}" for path, names in files.items())


_ASSERTION_CHARS = 400
_ASSERTION_SIZES = (400, 150, 25)
# Characters of all tests with their assertions, and of reports beyond the first: a second list of
# failures has room below.
_NAMED_CHARS = 1500
_TEXTS_SIZE = 1200

# Lines of a report that say nothing of the values: frames of a stack, and marks of Go and Rust.
_NO_VALUE = ("at ", "=== ", "--- ", "note: run with ")


def first_failure(run: TestRun, tests: Sequence[str]) -> str:
    """Return `a (assert 1 == 2) and 71 more`; the first few tests where no message is known."""
    said = next((test for test in tests if assertion(run.failures.get(test, ""))), None)
    if said is None:
        return listed(tests)
    more = f" and {len(tests) - 1} more" if len(tests) > 1 else ""
    return f"{said} ({assertion(run.failures[said])}){more}"


def assertion(text: str) -> str:
    """Return what a failure report says of the error, with the values, on one line.

    In Python it is the line of the error, and pytest's comparison if a message stands before that;
    in other languages, the report without stack and marks.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    marked = [line.strip()[1:].strip() for line in lines if line.strip().startswith("E ")]
    if marked:
        first = marked[0].startswith(("assert ", "AssertionError: assert "))
        compared = [line for line in marked[1:] if line.startswith("assert ") and not first]
        bare = bool(compared) and marked[0] == "AssertionError"
        said = compared[:1] if bare else [*marked[:1], *compared[:1]]
    else:
        said = (
            _of_traceback(lines) or _without_stack(lines) or [line.strip() for line in lines[-1:]]
        )
    return " ".join(said)[:_ASSERTION_CHARS].removesuffix(".")


def _of_traceback(lines: Sequence[str]) -> list[str]:
    """Return the line of the error below the last frame of a Python traceback."""
    frames = [n for n, line in enumerate(lines) if line.lstrip().startswith('File "')]
    below = lines[frames[-1] + 1 :] if frames else []
    return [line.strip() for line in below if not line.startswith(" ")][:1]


def _without_stack(lines: Sequence[str]) -> list[str]:
    """Return the lines up to a stack, without the marks around them; [] where there are none."""
    stripped = [line.strip() for line in lines]
    if not any(line.startswith(_NO_VALUE) for line in stripped):
        return []
    stack = next((n for n, line in enumerate(stripped) if line.startswith("at ")), len(stripped))
    return [line for line in stripped[:stack] if not line.startswith(_NO_VALUE)]


def tail(text: str, lines: int = _TEXT_LINES, chars: int = _TEXT_CHARS) -> str:
    """Return the last lines of a text, where errors are."""
    kept = "\n".join(text.rstrip().splitlines()[-lines:])
    return kept if len(kept) <= chars else "[...]" + kept[-chars:]


def bounded(text: str, chars: int = _REASON_CHARS) -> str:
    """Return the text, cut off where it is too long for a prompt."""
    return text if len(text) <= chars else text[:chars] + "\n[...]"
