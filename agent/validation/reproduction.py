"""Judges the tests that a patch brings with it: the reply's reproduction, and new test files. Pure.

Such a test is evidence when it fails on the base and passes with the patch. It is written by the
same hand as the patch: evidence, not proof.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from dataclasses import dataclass

from agent.types import Outcome, TestRun
from agent.validation.compare import failed, is_whole
from agent.validation.wording import (
    failure_texts,
    how_it_ended,
    listed,
    number,
    tail,
    to_blame,
)

_BAD = (Outcome.FAILED, Outcome.ERROR)

_MISSING_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")

# Of tests that prove the fix, the names of two say enough; the JSON result has them all.
_SHOWN = 2


class Standing(enum.Enum):
    """What a new test says about the patch."""

    PROVES = "fails before, passes after"
    PASSES_BEFORE = "passes before and after"
    STILL_FAILS = "fails, vanishes or skips itself with the patch"
    SAYS_NOTHING = "could not be run"


@dataclass(frozen=True, slots=True)
class Judgement:
    """`tests` are the ids that decide it; `text` explains it, first line first."""

    standing: Standing
    text: str
    tests: tuple[str, ...] = ()


def judge(before: TestRun, after: TestRun, in_repository: Callable[[str], bool]) -> Judgement:
    """Compare the runs of the new tests.

    `in_repository` says whether a top-level module is the target's own: a test that needs another
    one, which is not installed, can neither fail nor pass for the patch.
    """
    ids = sorted({*before.outcomes, *after.outcomes})
    if not is_whole(after):
        text = f"The reproduction test {how_it_ended(after)} with the patch."
        return Judgement(Standing.STILL_FAILS, f"{text}\n\n{tail(after.output_tail)}", tuple(ids))
    if not after.outcomes and all("::" not in test for test in ids):
        text = f"the reproduction test holds no test that runs ({how_it_ended(after)})"
        return Judgement(Standing.SAYS_NOTHING, text)
    missing = _missing_module(after, in_repository)
    if missing:
        text = f"the reproduction test needs {missing}, which is not installed"
        return Judgement(Standing.SAYS_NOTHING, text)
    return _judge_outcomes(before, after, ids)


def _judge_outcomes(before: TestRun, after: TestRun, ids: list[str]) -> Judgement:
    passing = [test for test in ids if after.outcomes.get(test) is Outcome.PASSED]
    bad = [test for test in ids if _still_bad(before, after, test)]
    if bad:
        blamed = to_blame(after, bad)
        was = "still fails" if any(failed(before, test) for test in bad) else "fails"
        text = f"The reproduction test {was} with the patch: {listed(blamed)}."
        details = failure_texts(after, blamed) or tail(after.output_tail)
        return Judgement(Standing.STILL_FAILS, f"{text}\n\n{details}", tuple(bad))
    proving = tuple(test for test in passing if failed(before, test))
    if proving:
        text = f"{number(len(proving), 'test')} of the reproduction"
        return Judgement(Standing.PROVES, f"{text}: {listed(proving, _SHOWN)}", proving)
    if passing:
        text = f"the reproduction test passes on the base already ({listed(passing)})"
        return Judgement(Standing.PASSES_BEFORE, text, tuple(passing))
    return Judgement(Standing.SAYS_NOTHING, "the reproduction test skips itself")


def _still_bad(before: TestRun, after: TestRun, test: str) -> bool:
    """Fails after; or failed before as a test of its own, and is skipped or gone after."""
    now = after.outcomes.get(test)
    if now in _BAD:
        return True
    if now is Outcome.PASSED or before.outcomes.get(test) in (None, Outcome.SKIPPED):
        return False
    return not _was_collector(after, test)


def _was_collector(run: TestRun, test: str) -> bool:
    """A module that could not be collected before: now its tests stand for it."""
    return any(known.startswith(f"{test}::") for known in run.outcomes)


def _missing_module(run: TestRun, in_repository: Callable[[str], bool]) -> str | None:
    """The package for the lack of which nothing could be collected at all."""
    if any(outcome not in _BAD or "::" in test for test, outcome in run.outcomes.items()):
        return None
    for test in sorted(run.outcomes):
        for name in reversed(_MISSING_MODULE.findall(run.failures.get(test, ""))):
            package = str(name).partition(".")[0]
            return None if in_repository(package) else package
    return None
