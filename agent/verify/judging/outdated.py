"""Judges existing tests that fail with the patch and that the reply calls outdated. Pure.

A right patch can break tests that assert what the issue calls wrong. Such a test counts as outdated
only if all of this holds:

- It passes on the base. With the patch it fails, twice; in Python by an assertion of the test
  itself and not by an error.
- All tests that fail newly are called outdated, and they are few (`MOST_SHARE`).

They excuse failures; they prove nothing. `judging.verdict` asks for a reproduction that holds too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from agent.types import Outcome, OutdatedFinding, OutdatedTest, TestRun
from agent.verify.judging.wording import assertion, listed, number
from agent.verify.path_rules import is_test_side

MOST_SHARE = 4
"""At most one of so many tests of the same files may be outdated: a wrong patch fails most."""

# Tests that the verdict lists for review. The JSON result has all of them.
_LISTED = 20
_WHY_CHARS = 200

# Where a failure happened: the last line of pytest's long report, or the last frame of a short one.
_PLACE = re.compile(r"^(?P<path>[^\s:][^:\n]*):\d+: (?P<what>\w[^\n]*)$", re.MULTILINE)
_FRAME = re.compile(r'^\s*File "(?P<path>[^"\n]+)", line \d+, in ', re.MULTILINE)
_ERROR = re.compile(r"^(?:\w+\.)*\w+(?=:|$)", re.MULTILINE)
_LIBRARY = re.compile(r"[/\\](?:unittest|site-packages|dist-packages)[/\\]")


@dataclass(frozen=True, slots=True)
class OutdatedJudgement:
    """What became of the tests called outdated; `around` counts the tests of their files."""

    findings: tuple[OutdatedFinding, ...] = ()
    around: int = 0
    refusal: str = ""

    @property
    def accepted(self) -> tuple[str, ...]:
        """The ids of the failing tests that are excused."""
        return () if self.refusal else tuple(finding.id for finding in self.findings)

    @property
    def review(self) -> str:
        """Return the list of them for the user's review."""
        lines = [f"- {one.id}: {one.why} ({one.shown})" for one in self.findings[:_LISTED]]
        if len(self.findings) > _LISTED:
            lines.append(f"- and {len(self.findings) - _LISTED} more")
        return "\n".join(["Called outdated by the reply, to be reviewed:", *lines])

    @property
    def words(self) -> str:
        """Return a sentence with their number and share, for the first line of the verdict."""
        tests = number(self.around, "existing test")
        return f"Outdated are {len(self.findings)} of {tests} of their files."


def judge_outdated(
    failing: Sequence[str],
    declared: Mapping[str, OutdatedTest],
    after: TestRun,
    *,
    python: bool,
) -> OutdatedJudgement:
    """Judge the `declared` tests among those that fail newly with the patch, twice."""
    findings = []
    for test, one in sorted(declared.items()):
        why, text = " ".join(one.why.split()), after.failures.get(test, "")
        refused = ""
        if after.outcomes.get(test) is not Outcome.FAILED:
            refused = "it does not fail by an assertion each time"
        elif python and not is_own_assertion(test, text):
            refused = "it does not fail by an assertion of its own but by an error"
        findings.append(OutdatedFinding(test, why[:_WHY_CHARS], assertion(text), refused))
    files = {test.partition("::")[0] for test in declared}
    passing = [t for t, o in after.outcomes.items() if o is Outcome.PASSED]
    around = sum(test.partition("::")[0] in files for test in passing) + len(declared)
    return OutdatedJudgement(tuple(findings), around, _refusal(failing, findings, around))


def _refusal(failing: Sequence[str], findings: Sequence[OutdatedFinding], around: int) -> str:
    refused = next((one for one in findings if one.refusal), None)
    if refused is not None:
        return f"{refused.id}: {refused.refusal}"
    left = sorted(set(failing) - {finding.id for finding in findings})
    if left:
        return f"{number(len(left), 'other test')} that the reply does not name: {listed(left)}"
    if len(findings) * MOST_SHARE > around:
        return (
            f"their files have only {number(around, 'test')}, and at most one in {MOST_SHARE} may "
            "be outdated"
        )
    return ""


def is_own_assertion(test: str, text: str) -> bool:
    """Whether a failure report of Python ends in an assertion of the test or of its helpers."""
    places = list(_PLACE.finditer(text))
    if places:  # pytest; `raises` and `warns` fail with an exception of their own
        error, path, what = assertion(text), places[-1]["path"], places[-1]["what"]
        asserts = error.startswith(("assert", "AssertionError")) or what == "AssertionError"
        return is_test_side(path) and (asserts or "DID NOT " in error)
    frames = [m for m in _FRAME.finditer(text) if not _LIBRARY.search(m["path"])]
    if not frames or not frames[-1]["path"].endswith(f"/{test.partition('::')[0]}"):
        return False
    error_line = _ERROR.search(text, frames[-1].end())
    return error_line is not None and error_line[0] == "AssertionError"


def asserted_in(text: str, paths: Collection[str]) -> str:
    """Return which file holds the assertion of Python that failed, if it is one of `paths`."""
    places = list(_PLACE.finditer(text)) or [
        m for m in _FRAME.finditer(text) if not _LIBRARY.search(m["path"])
    ]
    if not places or not assertion(text).startswith(("assert", "AssertionError")):
        return ""
    last = f"/{places[-1]['path']}"
    return next((path for path in sorted(paths) if last.endswith(f"/{path}")), "")


# ------------------------------------------------------------------- which tests the reply names

_PRINTED = re.compile(r"(?P<method>\w+) \((?P<case>[\w.]+)\)")  # by unittest


def declared_for(
    failing: Sequence[str],
    declared: Sequence[OutdatedTest],
    as_run: Callable[[str], str] = str,
) -> Mapping[str, OutdatedTest]:
    """Return the failing tests that are called outdated; an id covers all its parameters.

    A reply may name the end of an id, with any marks between its words, if that fits one function
    only. `as_run` converts names that the runner prints into ids.
    """
    matches: dict[str, OutdatedTest] = {}
    for one in declared:
        for test in _meant((one.id, as_run(one.id)), failing):
            matches.setdefault(test, one)
    matches |= {one.id: one for one in declared if one.id in failing}
    return {test: matches[test] for test in failing if test in matches}


def _meant(names: Collection[str], failing: Sequence[str]) -> list[str]:
    ends = [words for words in map(_words, names) if words]
    tests = [t for t in failing if any(_words(_function(t))[-len(end) :] == end for end in ends)]
    return tests if len({_function(test) for test in tests}) == 1 else []


def _function(test: str) -> str:
    """Return an id without parameters; of Go, where a folder stands for the path, no subtests."""
    path, colons, name = test.partition("[")[0].partition("::")
    return f"{path}{colons}{name if PurePosixPath(path).suffix else name.partition('/')[0]}"


def _words(test: str) -> list[str]:
    printed = _PRINTED.fullmatch(test.strip())
    if printed is not None:
        case, method = printed["case"], printed["method"]
        test = f"{case.removesuffix(f'.{method}')}.{method}"
    path, colons, name = test.strip().removeprefix("./").partition("::")
    if colons and path:  # the id of a test of Go has the folder of its file
        place = PurePosixPath(path)
        path = str(place.parent if place.suffix == ".go" else place.with_suffix(""))
    return [word for word in re.split(r"[\s.:#>›»/]+", f"{path}{colons}{name}") if word]


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
