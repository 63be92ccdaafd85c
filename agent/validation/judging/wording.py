"""Words for people and for the repair prompt: short, bounded, the first line a summary. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agent.types import TestRun
from agent.validation.judging.compare import collection_error
from agent.validation.reports.report import INCOMPLETE, INCONSISTENT
from sandbox.types import Ended

# Enough for the last frames and the assertion; some 1,000 tokens for the whole reason.
_TEXT_LINES = 40
_TEXT_CHARS = 2400
_REASON_CHARS = 4000
_IDS = 5
_TEXTS = 3

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
    """Predicate for a sentence about a run; the test it stood in, where that is known."""
    if run.ended == Ended.EXITED:
        return f"ended with exit code {run.exit_code}"
    words = _ENDINGS.get(run.ended, f"ended with {run.ended}")
    if run.ended in (Ended.WALL_LIMIT, Ended.CPU_LIMIT):
        words += f" after {run.seconds:.0f} s"
    last = [test for test in run.failures if test not in run.outcomes]
    return f"{words} in {last[-1]}" if last else words


def listed(tests: Sequence[str], most: int = _IDS) -> str:
    """`a, b and 3 more`."""
    shown = ", ".join(tests[:most])
    return shown if len(tests) <= most else f"{shown} and {len(tests) - most} more"


def number(count: int, noun: str) -> str:
    """`1 test`, `2 tests`, `no test`."""
    return f"{count or 'no'} {noun}{'s' * (count > 1)}"


def to_blame(run: TestRun, tests: Iterable[str]) -> tuple[str, ...]:
    """The tests, each module that could not be collected standing once for all of its own."""
    return tuple(dict.fromkeys(collection_error(run, test) or test for test in tests))


def failure_texts(run: TestRun, tests: Sequence[str]) -> str:
    """The ends of the first few failure reports, each under its test's id."""
    parts = [f"{test}:\n{tail(run.failures[test])}" for test in tests if run.failures.get(test)]
    return bounded("\n\n".join(parts[:_TEXTS]))


def tail(text: str, lines: int = _TEXT_LINES, chars: int = _TEXT_CHARS) -> str:
    """The last lines of a text: errors stand at the end."""
    kept = "\n".join(text.rstrip().splitlines()[-lines:])
    return kept if len(kept) <= chars else "[...]" + kept[-chars:]


def bounded(text: str, chars: int = _REASON_CHARS) -> str:
    """The text, its end cut off where it is too long for a prompt."""
    return text if len(text) <= chars else text[:chars] + "\n[...]"
