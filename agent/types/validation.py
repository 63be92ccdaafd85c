"""Runs of tests, and the verdict on a patch."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


class Outcome(enum.StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"  # in set-up, tear-down or collection
    SKIPPED = "skipped"  # expected failures too


BAD_OUTCOMES: Final = (Outcome.FAILED, Outcome.ERROR)


@dataclass(frozen=True, slots=True)
class Channels:
    read: tuple[str, ...] = ()  # of "report", "junit", "exit code"
    disagreements: tuple[str, ...] = ()  # clauses for people
    # Changes to the test runner that were found when the run ended. Those of the base do not count.
    traces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TestRun:
    command: tuple[str, ...]
    outcomes: Mapping[str, Outcome]  # by test id; empty when none could be read
    exit_code: int | None  # None: killed at a limit
    seconds: float
    ended: str  # "exited", "wall-limit", "cpu-limit", "output-limit", ...
    output_tail: str
    failures: Mapping[str, str] = field(default_factory=dict)  # test id -> the end of its report
    channels: Channels = Channels()
    cached: bool = False  # from an earlier run of the same base, command and environment
    expected_failures: tuple[str, ...] = ()  # skipped tests that were marked to fail and did


@dataclass(frozen=True, slots=True)
class CommandRun:
    output: str  # stdout, then stderr
    exit_code: int | None = None  # None: it did not run, or was killed at a limit
    ended: str = "exited"
    written: Mapping[str, bytes | None] = field(default_factory=dict)  # None: deleted
    left_out: tuple[str, ...] = ()  # changed, but large, a link, or one too many


@dataclass(frozen=True, slots=True)
class SelectedTest:
    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class KnownTests:
    fail_to_pass: tuple[str, ...] = ()
    pass_to_pass: tuple[str, ...] = ()


class Verdict(enum.StrEnum):
    """The result of validation. The policy accepts VERIFIED and NOT_REGRESSED only."""

    VERIFIED = "verified"  # a test failed before and passes after, and none fails newly
    NOT_REGRESSED = "not-regressed"  # no test fails newly, but none shows the fix
    UNVERIFIED = "unverified"  # no test could be run; only the syntax was checked
    REGRESSED = "regressed"  # tests fail newly, or the reply's own test still fails
    BROKEN_SYNTAX = "broken-syntax"  # an edited file no longer parses
    SUSPECT = "suspect"  # the report of the tests cannot be trusted


@dataclass(frozen=True, slots=True)
class SyntaxProblem:
    path: str
    line: int
    message: str


@dataclass(frozen=True, slots=True)
class OutdatedFinding:
    id: str
    why: str
    shown: str  # its assertion with the values
    refusal: str = ""  # why it is not accepted as outdated


@dataclass(frozen=True, slots=True)
class ValidationReport:
    verdict: Verdict
    reason: str  # one paragraph, used in the repair prompt too
    backend: str  # sandbox backend, "none" when nothing was run
    syntax_problems: tuple[SyntaxProblem, ...] = ()
    selected: tuple[SelectedTest, ...] = ()
    before: TestRun | None = None
    after: TestRun | None = None
    reproduction_before: TestRun | None = None
    reproduction_after: TestRun | None = None
    newly_failing: tuple[str, ...] = ()
    newly_passing: tuple[str, ...] = ()
    evidence: str = ""  # of VERIFIED: "given" (named or red before), "independent" or "own"
    lacks_test: bool = False  # a reproduction test that holds would make it VERIFIED
    outdated: tuple[OutdatedFinding, ...] = ()
    whole: TestRun | None = None  # with the patch's own changes to tests and configuration
    fail_to_pass: tuple[str, ...] = ()  # failed on the base, pass with the source change
    pass_to_pass: tuple[str, ...] = ()
    known_missed: tuple[str, ...] = ()  # the `KnownTests` without their expected outcome
    interpreter: str = ""
    runner: str = ""  # the test framework, and why it was chosen
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
