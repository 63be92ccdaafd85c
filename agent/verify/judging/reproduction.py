"""Judges the tests that a patch brings: the reply's reproduction test and new test files. Pure.

Such a test is evidence if it fails on the base and passes with the patch, for the issue's reason.
One that fails only because it uses a name that the patch adds counts if the issue mentions it.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from agent.repository import language_of
from agent.types import BAD_OUTCOMES, FileChange, Outcome, TestRun
from agent.verify.judging.compare import (
    collection_error,
    doubtful,
    failed,
    is_whole,
    suspicion,
    to_blame,
    was_collector,
)
from agent.verify.judging.outdated import failure_place, is_assertion
from agent.verify.judging.replays import SecondRuns
from agent.verify.judging.wording import (
    assertion,
    failure_texts,
    how_it_ended,
    listed,
    number,
    tail,
)

_MISSING_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_INTERPRETED = frozenset({"python", "javascript", "typescript", "tsx"})

# What names something that is missing: the last line of a traceback of CPython, errors of V8 and
# of TypeScript's compiler.
_MISSING_NAME = re.compile(
    r"(?:ImportError: cannot import name '(?P<imported>\w+)'"
    r"|ModuleNotFoundError: No module named '(?:\w+\.)*(?P<module>\w+)'"
    r"|AttributeError: .* has no attribute '(?P<attribute>\w+)'"
    r"|NameError: name '(?P<name>\w+)' is not defined"
    r"|TypeError: .* unexpected keyword argument '(?P<argument>\w+)'"
    r"|TypeError: (?:.*\.)?(?P<function>\w+)\)? is not a (?:function|constructor)"
    r"|ReferenceError: (?P<variable>\w+) is not defined"
    r"|does not provide an export named '(?P<export>\w+)'"
    r"|TS\d+: (?:Property|Cannot find name|.* has no exported member(?: named)?) '(?P<typed>\w+)')"
)

# The number of proving tests that a message names. The JSON result has all of them.
_SHOWN = 2


class Standing(enum.Enum):
    """What a new test shows about the patch."""

    PROVES = "fails before, passes after"
    NO_EVIDENCE = "passes after, and before too, or for another reason, or not once more"
    SUSPECT = "its run cannot be believed"
    STILL_FAILS = "fails, vanishes or skips itself with the patch"
    SAYS_NOTHING = "could not be run"


@dataclass(frozen=True, slots=True)
class Judgement:
    """`tests` are the ids that decide it; `text` explains it, first line first."""

    standing: Standing
    text: str
    tests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NameChecks:
    """What a name is to the target's `files`, the `source` of the patch and the `issue`'s text."""

    source: Sequence[FileChange] = ()
    issue: str = ""
    files: Sequence[str] = ()

    def in_repository(self, name: str) -> bool:
        """Whether a file or folder of the target has the name of a top-level module."""
        return any({name, f"{name}.py"} & set(path.split("/")) for path in self.files)

    def brought(self, name: str) -> bool:
        """Whether the source has the name with the patch and not before."""
        word = re.compile(_word(name).encode())

        def has(texts: Iterable[bytes | None]) -> bool:
            return any(text and word.search(text) for text in texts)

        new_file = has(c.path.encode() for c in self.source if c.before is None)
        before, after = (has(c.before for c in self.source), has(c.after for c in self.source))
        return new_file or (after and not before)

    def in_issue(self, name: str) -> bool:
        """Whether the issue mentions the name."""
        return re.search(_word(name), self.issue) is not None


def _word(name: str) -> str:
    return rf"(?<!\w){re.escape(name)}(?!\w)"


def judge(before: TestRun, after: TestRun, names: NameChecks) -> Judgement:
    """Compare the runs of the new tests."""
    ids = sorted({*before.outcomes, *after.outcomes})
    doubt = suspicion(before, after)
    if doubt and not any(outcome in BAD_OUTCOMES for outcome in after.outcomes.values()):
        return Judgement(Standing.SUSPECT, f"the reproduction test: {doubt}", tuple(ids))
    nothing = ""
    if _is_silent(before) and _is_silent(after):
        nothing = "gives no outcome that can be read, with or without the patch"
    elif not is_whole(after):
        text = f"The reproduction test {how_it_ended(after)} with the patch."
        return Judgement(Standing.STILL_FAILS, f"{text}\n\n{tail(after.output_tail)}", tuple(ids))
    elif not after.outcomes and all("::" not in test for test in ids):
        nothing = f"holds no test that runs ({how_it_ended(after)})"
    elif missing := _missing_module(after, names):
        nothing = f"needs {missing}, which is not installed"
    if nothing:
        return Judgement(Standing.SAYS_NOTHING, f"the reproduction test {nothing}")
    return _judge_outcomes(before, after, ids, names)


def why_not_red(run: TestRun, issue: str) -> str:
    """Return why a new test that ran on the base does not show the issue, or "".

    It shows it by an assertion, by an error in the project's code or one that the issue names, or
    by the lack of a name that the issue asks for.
    """
    if not run.outcomes or not is_whole(run):
        return f"no outcome of the test can be read: the run {how_it_ended(run)}"
    failing = sorted(test for test, outcome in run.outcomes.items() if outcome in BAD_OUTCOMES)
    if not failing:
        return "the test does not fail on the base"
    names = NameChecks(issue=issue)
    return next(filter(None, (_own_error(run, test, names) for test in failing)), "")


def _own_error(run: TestRun, test: str, names: NameChecks) -> str:
    """Return how a test fails by a mistake of its own, or ""."""
    text, path = run.failures.get(test, ""), test.partition("::")[0]
    error, place, name = assertion(text), failure_place(text), _missing_name(text)
    if name and names.in_issue(name):
        return ""
    if path == test:
        return f"{test} cannot be collected: {error}"
    own = f"/{place}".endswith(f"/{path}") or (place and f"/{path}".endswith(f"/{place}"))
    if not place:
        own = bool(name) or run.outcomes[test] is Outcome.ERROR
    kind = error.partition(":")[0].rpartition(".")[2]
    if not own or is_assertion(error) or kind == "Failed" or (kind and names.in_issue(kind)):
        return ""
    return f"{test} fails by an error of its own: {error}"


def confirm(
    found: Judgement,
    again: Mapping[str, SecondRuns],
    why_weak: Callable[[str], str],
) -> Judgement:
    """Judge tests that prove once more, by their second runs. One that holds proves for all."""
    if found.standing is not Standing.PROVES:
        return found
    steady = [test for test in found.tests if test in again and again[test].is_steady(test)]
    if not steady:
        text = f"the reproduction test gives other results once more: {listed(found.tests, _SHOWN)}"
        return Judgement(Standing.NO_EVIDENCE, text, found.tests)
    doubts = {test: why_weak(test) for test in steady}
    if all(doubts.values()):
        reasons = listed(sorted(set(doubts.values())), _SHOWN)
        text = f"the reproduction test is no evidence ({listed(steady, _SHOWN)}): {reasons}"
        return Judgement(Standing.NO_EVIDENCE, text, found.tests)
    return replace(found, tests=tuple(test for test in steady if not doubts[test]))


def with_source(found: Judgement, earlier: Sequence[str]) -> Judgement:
    """Say where a test that refutes the patch comes from, if from one of the `earlier` files."""
    paths = sorted({test.partition("::")[0] for test in found.tests}.intersection(earlier))
    if found.standing is not Standing.STILL_FAILS or not paths:
        return found
    first, _, rest = found.text.partition("\n")
    why = f"{listed(paths)} of an earlier attempt counts unless `wrong_tests` says why it is wrong."
    return replace(found, text=f"{first} {why}\n{rest}")


def _is_silent(run: TestRun) -> bool:
    """Whether nothing of a run can be read. A test that ends the process leaves a report behind."""
    return not run.outcomes and doubtful(run) and "report" not in run.channels.read


def _judge_outcomes(
    before: TestRun, after: TestRun, ids: list[str], names: NameChecks
) -> Judgement:
    passing = tuple(test for test in ids if after.outcomes.get(test) is Outcome.PASSED)
    bad = [test for test in ids if _still_bad(before, after, test)]
    if bad:
        blamed = to_blame(after, bad)
        was = "still fails" if any(failed(before, test) for test in bad) else "fails"
        text = f"The reproduction test {was} with the patch: {listed(blamed)}."
        details = failure_texts(after, blamed) or tail(after.output_tail)
        return Judgement(Standing.STILL_FAILS, f"{text}\n\n{details}", tuple(bad))
    if not passing:
        return Judgement(Standing.SAYS_NOTHING, "the reproduction test skips itself")
    proving = tuple(test for test in passing if failed(before, test))
    if not proving:
        text = f"the reproduction test passes on the base already ({listed(passing)})"
        return Judgement(Standing.NO_EVIDENCE, text, passing)
    # By why they failed on the base: one that needs no new name proves for all.
    needs = [_needed_names(before, test, names) for test in proving]
    text = f"{number(len(proving), 'test')} of the reproduction: {listed(proving, _SHOWN)}"
    lacked = sorted({name for needed in needs for name in needed or ()})
    words = f"on the base only for the lack of {listed(lacked, _SHOWN)}, which the patch brings"
    if () in needs:
        return Judgement(Standing.PROVES, text, proving)
    if any(map(names.in_issue, lacked)):
        return Judgement(Standing.PROVES, f"{text} ({words})", proving)
    why = f"fails {words} and the issue does not speak of"
    if not lacked:
        why = "does not compile on the base, and not for lack of a name"
    return Judgement(Standing.NO_EVIDENCE, f"the reproduction test {why}", proving)


def _needed_names(before: TestRun, test: str, names: NameChecks) -> tuple[str, ...] | None:
    """Return the names of the patch that a test lacked; None if it did not compile otherwise.

    Of a compiler's errors every word may be such a name.
    """
    collector = collection_error(before, test)
    text = before.failures.get(test) or before.failures.get(collector or "", "")
    if collector is not None and language_of(collector.partition("::")[0]) not in _INTERPRETED:
        words = set(re.findall(r"\w+", text))
        return tuple(sorted(filter(names.brought, words))) or None
    name = _missing_name(text)
    return (name,) if name and names.brought(name) else ()


def _missing_name(text: str) -> str:
    missing = list(_MISSING_NAME.finditer(text))
    return next(filter(None, missing[-1].groups()), "") if missing else ""


def _still_bad(before: TestRun, after: TestRun, test: str) -> bool:
    """Whether a test fails after the patch, or failed before it and is skipped or gone after it."""
    now = after.outcomes.get(test)
    if now in BAD_OUTCOMES:
        return True
    if now is Outcome.PASSED or before.outcomes.get(test) in (None, Outcome.SKIPPED):
        return False
    return not was_collector(after, test)


def _missing_module(run: TestRun, names: NameChecks) -> str:
    """Return the missing package that prevented the collection of all tests, or ""."""
    if any(outcome not in BAD_OUTCOMES or "::" in test for test, outcome in run.outcomes.items()):
        return ""
    texts = (run.failures.get(test, "") for test in sorted(run.outcomes))
    modules = next(filter(None, map(_MISSING_MODULE.findall, texts)), [""])
    package = modules[-1].partition(".")[0]
    return "" if names.in_repository(package) else package
