"""Judges existing tests that fail with the patch and that the reply calls outdated. Pure.

They pass on the base and fail twice with the patch, in Python by an assertion of a test; they are
all that fails newly, and few. They excuse failures and prove nothing: `judging.verdict` asks for a
reproduction that holds too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from agent.types import Outcome, OutdatedFinding, OutdatedTest, TestRun
from agent.verify.judging.wording import assertion, listed, number
from agent.verify.path_rules import is_test_side

MOST_SHARE = 4
"""At most one of so many tests of the same files may be outdated: a wrong patch fails most."""

_WHY_CHARS = 200

# Where a failure happened: the last line of pytest's long report, or the last frame of a short one.
_PLACE = re.compile(r"^(?P<path>[^\s:][^:\n]*):\d+: \w[^\n]*$", re.MULTILINE)
_FRAME = re.compile(
    r'^\s*File "(?P<path>(?!.*[/\\](?:unittest|site-packages|dist-packages)[/\\])[^"\n]+)"'
    r", line \d+, in ",
    re.MULTILINE,
)


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
        elif python and not _is_own(test, assertion_place(text)):
            refused = "it does not fail by an assertion of its own but by an error"
        findings.append(OutdatedFinding(test, why[:_WHY_CHARS], assertion(text), refused))
    files = {test.partition("::")[0] for test in declared}
    passing = (t.partition("::")[0] for t, o in after.outcomes.items() if o is Outcome.PASSED)
    around = sum(file in files for file in passing) + len(declared)
    refusals = [f"{one.id}: {one.refusal}" for one in findings if one.refusal]
    if left := sorted(set(failing) - declared.keys()):
        others = number(len(left), "other test")
        refusals.append(f"{others} that the reply does not name: {listed(left)}")
    if len(findings) * MOST_SHARE > around:
        share = f"at most one in {MOST_SHARE} may be outdated"
        refusals.append(f"their files have only {number(around, 'test')}, and {share}")
    return OutdatedJudgement(tuple(findings), around, next(iter(refusals), ""))


def assertion_place(text: str) -> str:
    """Return the file with the assertion that a failure report of Python ends in, or ""."""
    return failure_place(text) if is_assertion(assertion(text)) else ""


def failure_place(text: str) -> str:
    """Return the file that a failure report of Python ends in, or ""."""
    places = list(_PLACE.finditer(text)) or list(_FRAME.finditer(text))
    return places[-1]["path"] if places else ""


def is_assertion(error: str) -> bool:
    """Whether a test made the error itself; `raises` and `warns` fail with one of their own."""
    return error.startswith(("assert", "AssertionError")) or "DID NOT " in error


def _is_own(test: str, place: str) -> bool:
    if place.startswith("/"):  # of a traceback
        return place.endswith(f"/{test.partition('::')[0]}")
    return is_test_side(place)


# ------------------------------------------------------------------- which tests the reply names

_PRINTED = re.compile(r"(?P<method>\w+) \((?P<case>[\w.]+?)(?:\.(?P=method))?\)")  # by unittest


def declared_for(
    failing: Sequence[str], declared: Sequence[OutdatedTest]
) -> Mapping[str, OutdatedTest]:
    """Return the failing tests that are called outdated; an id covers all its parameters.

    A reply may name the end of an id, or more than the id, with any marks between its words, if
    that fits one function only.
    """
    matches = {one.id: one for one in declared if one.id in failing}
    for one in declared:
        name = _words(one.id)
        tests = [t for t in failing if name and _end_alike(name, _words(_function(t)))]
        if len(set(map(_function, tests))) == 1:
            matches = dict.fromkeys(tests, one) | matches
    return {test: matches[test] for test in failing if test in matches}


def _function(test: str) -> str:
    """Return an id without parameters; of Go, where a folder stands for the path, no subtests."""
    path, colons, name = test.partition("[")[0].partition("::")
    return f"{path}{colons}{name if PurePosixPath(path).suffix else name.partition('/')[0]}"


def _words(test: str) -> list[str]:
    named = _PRINTED.sub(r"\g<case>.\g<method>", test)
    return re.findall(r"\w+", re.sub(r"(?:/\w+\.go|\.\w+)::", "::", named))


def _end_alike(one: list[str], other: list[str]) -> bool:
    shorter = min(len(one), len(other))
    return one[-shorter:] == other[-shorter:]
