"""Judges the tests that a patch brings with it: the reply's reproduction, and new test files. Pure.

Such a test is evidence when it fails on the base and passes with the patch. It is written by the
same hand as the patch: evidence, not proof. It has to fail for the issue's reason: one that fails
on the base only because it uses a name which the patch brings would fail there whatever it checks.
That is what a test of a new feature looks like, so it counts where the issue itself speaks of that
name, and shows nothing where it does not. (A test that cannot be collected or set up for a reason
of its own fails with the patch too.)
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from dataclasses import dataclass

from agent.types import Outcome, TestRun
from agent.validation.judging.compare import collection_error, failed, is_whole
from agent.validation.judging.trust import suspicion
from agent.validation.judging.wording import (
    failure_texts,
    how_it_ended,
    listed,
    number,
    tail,
    to_blame,
)

_BAD = (Outcome.FAILED, Outcome.ERROR)

_MISSING_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")

# The last line of a traceback that says which name is not there (CPython's own words).
_MISSING_NAME = re.compile(
    r"(?:ImportError: cannot import name '(?P<imported>\w+)'"
    r"|ModuleNotFoundError: No module named '(?:\w+\.)*(?P<module>\w+)'"
    r"|AttributeError: .* has no attribute '(?P<attribute>\w+)'"
    r"|NameError: name '(?P<name>\w+)' is not defined"
    r"|TypeError: .* unexpected keyword argument '(?P<argument>\w+)')"
)

# Of tests that prove the fix, the names of two say enough; the JSON result has them all.
_SHOWN = 2


class Standing(enum.Enum):
    """What a new test says about the patch."""

    PROVES = "fails before, passes after"
    NEEDS_NEW_NAME = "fails before for the lack of a name that the issue does not speak of"
    SUSPECT = "its run cannot be believed"
    PASSES_BEFORE = "passes before and after"
    STILL_FAILS = "fails, vanishes or skips itself with the patch"
    SAYS_NOTHING = "could not be run"


@dataclass(frozen=True, slots=True)
class Judgement:
    """`tests` are the ids that decide it; `text` explains it, first line first."""

    standing: Standing
    text: str
    tests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Names:
    """What is known of a name: each answers for one.

    `in_repository`: a top-level module is the target's own (a test that needs another one, which is
    not installed, can neither fail nor pass for the patch). `brought`: the patch's source has the
    name, and had it not before. `in_issue`: the issue speaks of it.
    """

    in_repository: Callable[[str], bool]
    brought: Callable[[str], bool] = lambda _: False
    in_issue: Callable[[str], bool] = lambda _: False


def judge(before: TestRun, after: TestRun, names: Names) -> Judgement:
    """Compare the runs of the new tests."""
    ids = sorted({*before.outcomes, *after.outcomes})
    doubt = suspicion(before, after)
    if doubt and not any(outcome in _BAD for outcome in after.outcomes.values()):
        return Judgement(Standing.SUSPECT, f"the reproduction test: {doubt}", tuple(ids))
    if not is_whole(after):
        text = f"The reproduction test {how_it_ended(after)} with the patch."
        return Judgement(Standing.STILL_FAILS, f"{text}\n\n{tail(after.output_tail)}", tuple(ids))
    if not after.outcomes and all("::" not in test for test in ids):
        text = f"the reproduction test holds no test that runs ({how_it_ended(after)})"
        return Judgement(Standing.SAYS_NOTHING, text)
    missing = _missing_module(after, names.in_repository)
    if missing:
        text = f"the reproduction test needs {missing}, which is not installed"
        return Judgement(Standing.SAYS_NOTHING, text)
    return _judge_outcomes(before, after, ids, names)


def _judge_outcomes(before: TestRun, after: TestRun, ids: list[str], names: Names) -> Judgement:
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
        return _judge_proof(before, proving, names)
    if passing:
        text = f"the reproduction test passes on the base already ({listed(passing)})"
        return Judgement(Standing.PASSES_BEFORE, text, tuple(passing))
    return Judgement(Standing.SAYS_NOTHING, "the reproduction test skips itself")


def _judge_proof(before: TestRun, proving: tuple[str, ...], names: Names) -> Judgement:
    """Why they failed on the base; one that failed for a reason of its own speaks for all."""
    needs = {test: _needed_name(before, test, names) for test in proving}
    strong = tuple(test for test in proving if not needs[test])
    text = f"{number(len(proving), 'test')} of the reproduction: {listed(proving, _SHOWN)}"
    if strong:
        return Judgement(Standing.PROVES, text, proving)
    wanted = sorted({name for name in needs.values() if name})
    words = f"on the base only for the lack of {listed(wanted, _SHOWN)}, which the patch brings"
    if any(map(names.in_issue, wanted)):
        return Judgement(Standing.PROVES, f"{text} ({words})", proving)
    text = f"the reproduction test fails {words} and the issue does not speak of"
    return Judgement(Standing.NEEDS_NEW_NAME, text, proving)


def _needed_name(before: TestRun, test: str, names: Names) -> str:
    """The name of the patch for the lack of which a test failed on the base, or ""."""
    collector = collection_error(before, test)
    text = before.failures.get(test) or before.failures.get(collector or "", "")
    found = list(_MISSING_NAME.finditer(text))
    name = next(filter(None, found[-1].groups()), "") if found else ""
    return name if name and names.brought(name) else ""


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
