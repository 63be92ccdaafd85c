"""Judges existing tests that fail with the patch and that the reply calls outdated. Pure.

A right patch can break tests that assert what the issue calls wrong. Such a test counts as outdated
only if all of this holds:

- It passes on the base. With the patch it fails, twice; in Python by an assertion of the test
  itself and not by an error.
- It executes code that the patch changes, as far as that is recorded.
- All tests that fail newly are called outdated, and they are few (`MOST_SHARE`).

They excuse failures; they prove nothing. `judging.verdict` asks for a reproduction that holds too.

Replies name tests as the runs do (`tests/test_x.py::Case::test_y`), as unittest prints them
(`test_y (tests.test_x.Case)`), by dotted names, by the file of a Go test, by `FooTest#method`, with
other marks between the titles of JavaScript, or by a file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from agent.types import Outcome, OutdatedFinding, OutdatedTest, TestRun
from agent.verify.judging.execution import RunAgain
from agent.verify.judging.wording import assertion, listed, number
from agent.verify.path_rules import is_test_side

MOST_SHARE = 4
"""At most one of so many tests that execute the changed code may be outdated.

For each test that disagrees with the patch three agree with it. A patch that breaks what it touches
fails most of these tests, and so does one whose reproduction asserts the wrong thing.
"""

_SHOWN = 3

# Tests that the verdict lists for review. The JSON result has all of them.
_LISTED = 20
_WHY_CHARS = 200

# Where a failure happened: the last line of pytest's long report, or the last frame of a short one.
_PLACE = re.compile(r"^(?P<path>[^\s:][^:\n]*):\d+: (?P<what>\w[^\n]*)$", re.MULTILINE)
_FRAME = re.compile(r'^\s*File "(?P<path>[^"\n]+)", line \d+, in ', re.MULTILINE)
_ERROR = re.compile(r"^(?:\w+\.)*\w+(?=:|$)", re.MULTILINE)
_LIBRARY = re.compile(r"[/\\](?:unittest|site-packages|dist-packages)[/\\]")

# pytest.raises and pytest.warns, which fail with an exception of their own.
_DID_NOT = ("DID NOT RAISE", "DID NOT WARN")


@dataclass(frozen=True, slots=True)
class OutdatedRuns:
    """Further runs, which record what the project's tests execute on the base and patched."""

    base: RunAgain
    patched: RunAgain


@dataclass(frozen=True, slots=True)
class OutdatedJudgement:
    """What became of the tests that the reply calls outdated.

    `executing` counts the project's tests that execute the changed code, the outdated among them.
    `refusal` says why none of them is excused, "" where all are.
    """

    findings: tuple[OutdatedFinding, ...] = ()
    executing: int = 0
    refusal: str = ""

    @property
    def accepted(self) -> tuple[str, ...]:
        """The ids of the failing tests that are excused."""
        return () if self.refusal else tuple(finding.id for finding in self.findings)

    @property
    def review(self) -> str:
        """Return the list of them for the user's review."""
        lines = [f"- {one.id}: {one.why} ({one.shown})" for one in self.findings[:_LISTED]]
        more = len(self.findings) - _LISTED
        rest = [f"- and {more} more"] if more > 0 else []
        return "\n".join(["Called outdated by the reply, to be reviewed:", *lines, *rest])

    @property
    def words(self) -> str:
        """Return a sentence with their number and share, for the first line of the verdict."""
        count = len(self.findings)
        return (
            f"{number(count, 'existing test')} of {self.executing} that execute the changed code "
            f"{'asserts' if count == 1 else 'assert'} the old behaviour and "
            f"{'fails' if count == 1 else 'fail'}."
        )


def judge_outdated(
    failing: Sequence[str],
    declared: Mapping[str, OutdatedTest],
    after: TestRun,
    runs: OutdatedRuns,
) -> OutdatedJudgement:
    """Judge the `declared` tests among those that fail newly with the patch."""
    view = _View(after, runs)
    findings = []
    for test, one in sorted(declared.items()):
        why, shown = " ".join(one.why.split()), assertion(after.failures.get(test, ""))
        findings.append(OutdatedFinding(test, why[:_WHY_CHARS], shown, view.why_refused(test)))
    executing = view.executing(declared)
    refusal = _refusal(failing, findings, executing)
    return OutdatedJudgement(tuple(findings), executing, refusal)


def _refusal(failing: Sequence[str], findings: Sequence[OutdatedFinding], executing: int) -> str:
    refused = [finding for finding in findings if finding.refusal]
    if refused:
        reasons = [f"{finding.id}: {finding.refusal}" for finding in refused]
        return listed(reasons, _SHOWN).replace(", ", "; ")
    left = sorted(set(failing) - {finding.id for finding in findings})
    if left:
        return f"{number(len(left), 'other test')} that the reply does not name: {listed(left)}"
    if len(findings) * MOST_SHARE > executing:
        return (
            f"only {number(executing, 'test')} of the project execute the changed code, and at "
            f"most one in {MOST_SHARE} may be outdated"
        )
    return ""


@dataclass(frozen=True, slots=True)
class _View:
    """Answers for the runs of one patch."""

    after: TestRun
    runs: OutdatedRuns

    @property
    def _recorded(self) -> bool:
        return any(self.runs.patched.run.executed)  # "" is what happened outside of tests

    def why_refused(self, test: str) -> str:
        """Return why a failing test does not count as outdated, or ""."""
        if self.runs.patched.ordered and not self._recorded:
            return "what it executes could not be recorded"
        if self._recorded and not self._executes(test):
            return "it executes nothing of what the patch changes"
        for run in (self.after, self.runs.patched.run):
            if run.outcomes.get(test) is not Outcome.FAILED:
                return "it does not fail by an assertion each time"
            text = run.failures.get(test, "")
            if self.runs.patched.ordered and not is_own_assertion(test, text):
                return "it does not fail by an assertion of its own but by an error"
        return ""

    def executing(self, declared: Collection[str]) -> int:
        """Count the tests that execute the changed code and pass, and the declared ones.

        Where nothing is recorded, the tests of the same files count.
        """
        passing = [t for t, o in self.after.outcomes.items() if o is Outcome.PASSED]
        if self._recorded:
            return sum(map(self._executes, passing)) + len(declared)
        files = {test.partition("::")[0] for test in declared}
        return sum(test.partition("::")[0] in files for test in passing) + len(declared)

    def _executes(self, test: str) -> bool:
        done = self.runs.patched.reported(test) | self.runs.base.reported(test)
        return bool(done.lines or done.names or done.read)


def is_own_assertion(test: str, text: str) -> bool:
    """Whether a failure report of Python ends in an assertion of the test or of its helpers."""
    places = list(_PLACE.finditer(text))
    if places:  # pytest
        said = assertion(text)
        asserts = said.startswith(("assert", "AssertionError")) or places[-1]["what"] == (
            "AssertionError"
        )
        return is_test_side(places[-1]["path"]) and (asserts or any(w in said for w in _DID_NOT))
    frames = [m for m in _FRAME.finditer(text) if not _LIBRARY.search(m["path"])]
    if not frames or not frames[-1]["path"].endswith(f"/{test.partition('::')[0]}"):
        return False
    error = _ERROR.search(text, frames[-1].end())
    return error is not None and error[0] == "AssertionError"


# ------------------------------------------------------------------- which tests the reply names

_PRINTED = re.compile(r"(?P<method>\w+) \((?P<case>[\w.]+)\)")
_MARKS = re.compile(r"[\s.:#>›»]+")


def declared_for(
    failing: Sequence[str],
    declared: Sequence[OutdatedTest],
    as_run: Callable[[str], str] = str,
) -> Mapping[str, OutdatedTest]:
    """Return the failing tests that are called outdated; an id covers all its parameters.

    `as_run` converts names that the runner prints into ids. The closest name counts. A name without
    a path counts if it fits one function only.
    """
    found: dict[str, tuple[int, OutdatedTest]] = {}
    for one in declared:
        for rank, tests in enumerate(_meant(one.id, as_run(one.id), failing)):
            for test in tests:
                found.setdefault(test, (rank, one))
                if found[test][0] > rank:
                    found[test] = (rank, one)
    return {test: found[test][1] for test in failing if test in found}


def _meant(given: str, as_run: str, failing: Sequence[str]) -> tuple[list[str], ...]:
    """Return the tests that a name means: by the whole id, the function, the end, or the file."""
    names = {_plain(given), _plain(as_run)}
    whole = [test for test in failing if _plain(test) in names]
    function = [test for test in failing if _plain(_function(test)) in names]
    wanted = _words(given)
    end = [test for test in failing if _words(_function(test))[-len(wanted) :] == wanted]
    end += [test for test in failing if _in_folder(test, given)]
    if len({_function(test) for test in end}) > 1:
        end = []
    path = given.strip().removeprefix("./")
    return whole, function, end, [t for t in failing if t.partition("::")[0] == path]


def _plain(test: str) -> str:
    """Return an id with one mark between its names, of which models write several."""
    path, colons, name = test.strip().removeprefix("./").partition("::")
    return f"{path}{colons}{_MARKS.sub(' ', name).strip()}"


def _function(test: str) -> str:
    """Return an id without parameters; of Go, where a folder stands for the path, no subtests."""
    path, colons, name = test.partition("[")[0].partition("::")
    return f"{path}{colons}{name if PurePosixPath(path).suffix else name.partition('/')[0]}"


def _words(test: str) -> list[str]:
    printed = _PRINTED.fullmatch(test.strip())
    if printed is not None:
        case, method = printed["case"], printed["method"]
        test = f"{case.removesuffix(f'.{method}')}.{method}"
    path, colons, name = test.strip().partition("::")
    if colons:
        path = str(PurePosixPath(path).with_suffix("")) if path else ""
    return [word for word in re.split(r"[\s.:#>›»/]+", f"{path}{colons}{name}") if word]


def _in_folder(test: str, given: str) -> bool:
    """Whether `folder::TestX` is the `folder/file::TestX` of a reply."""
    path, colons, name = given.strip().partition("::")
    folder, _, function = _function(test).partition("::")
    return bool(colons) and PurePosixPath(path).parent == PurePosixPath(folder) and name == function


def placed_test(name: str, files: Collection[str]) -> str:
    """Return the id of a test with the path of its file, where that follows from a dotted name."""
    if "::" in name:
        return name
    words = _words(name)
    for end in range(len(words) - 1, 0, -1):
        stem = "/".join(words[:end])
        fits = [p for p in files if f"/{p.rpartition('.')[0]}".endswith(f"/{stem}")]
        if len(fits) == 1:
            return f"{fits[0]}::{'::'.join(words[end:])}"
    return name
