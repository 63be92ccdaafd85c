"""What a run did: the `Ledger` of its attempts, and the `RunRecord`, the one description of a run.

A `RunRecord` is what `--json` prints and what is kept; reports and batches read it. The caller of
`agent.run.pipeline.solve` holds the `Ledger`. The best patch so far can then be written however the
run ends: at a limit, by Ctrl-C, or by a crash of a later stage.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, PlainSerializer

from agent.errors import Status
from agent.retrieval.context import Receipt
from agent.run.attempts import Attempt, furthest
from agent.types import (
    BAD_OUTCOMES,
    AppliedPatch,
    ContextBundle,
    Outcome,
    OutdatedFinding,
    Problem,
    Ranking,
    Repair,
    ReproductionTest,
    SelectedTest,
    TestRun,
    Usage,
)
from agent.types.events import StageFinished, StageStarted
from agent.types.protocols import Reporter


@dataclass(slots=True)
class Ledger:
    """Collects the attempts, times and usage of a run.

    `waited`: seconds of waiting for other runs, which do not count for the time limit.
    """

    on_better: Callable[[AppliedPatch], None] | None = None
    on_record: Callable[[Sequence[Attempt]], None] | None = None
    attempts: list[Attempt] = field(default_factory=list)
    timings: dict[str, float] = field(default_factory=dict)
    ranking: Ranking | None = None
    bundle: ContextBundle | None = None
    usage: Callable[[], Usage] = Usage
    waited: float = 0.0
    on_wait: Callable[[float], None] | None = None

    def record(self, attempt: Attempt, *, replacing_last: bool = False) -> None:
        """Add an attempt. `replacing_last`: it is the last attempt, validated or edited since."""
        before = self.best
        if replacing_last:
            self.attempts.pop()
        self.attempts.append(attempt)
        after = self.best
        if self.on_record is not None:
            self.on_record(self.attempts)
        if self.on_better is None or after is None or after.patch is None:
            return
        if before is None or before.patch is not after.patch:
            self.on_better(after.patch)

    def spend(self, stage: str, seconds: float) -> None:
        """Add to a stage's time."""
        self.timings[stage] = self.timings.get(stage, 0.0) + seconds

    def wait(self, seconds: float) -> None:
        """Add seconds that do not count. Must be called in the thread of the run's event loop."""
        self.waited += seconds
        if self.on_wait is not None:
            self.on_wait(seconds)

    @property
    def best(self) -> Attempt | None:
        """The best attempt that holds a patch."""
        return furthest([attempt for attempt in self.attempts if attempt.patch is not None])


@dataclass(frozen=True, slots=True)
class StageTimer:
    """Opens the stages of one run, and adds their times to its ledger."""

    reporter: Reporter
    ledger: Ledger

    @contextmanager
    def stage(self, name: str, detail: str = "") -> Iterator[list[str]]:
        """Report and time one stage. The caller appends a summary of what it made."""
        started = time.perf_counter()
        summary: list[str] = []
        finished = False
        self.reporter(StageStarted(name, detail))
        try:
            yield summary
            finished = True
        finally:
            seconds = time.perf_counter() - started
            self.ledger.spend(name, seconds)
            self.reporter(StageFinished(name, seconds, "; ".join(summary), finished))


class _Record(BaseModel):
    """Other versions write other fields: unknown ones are ignored, missing ones are empty."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", defer_build=True, from_attributes=True, allow_inf_nan=False
    )


class EditRecord(_Record):
    """One applied edit: where it is, how its location was found, the path in the reply if other."""

    path: str = ""
    tier: str = ""
    line: int = 0
    path_as_written: Annotated[str | None, BeforeValidator(lambda path: path or None)] = None


class TestCounts(_Record):
    """Counts of one test run. `cached`: it is the result of an earlier run of the same.

    `output` is the end of what a run printed that did not pass, at most 200 lines.
    """

    __test__ = False  # not a test class

    command: tuple[str, ...] = ()
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    ended: str = ""
    channels: tuple[str, ...] = ()
    disagreements: tuple[str, ...] = ()
    cached: bool = False
    output: str = ""


def _counted(run: Any) -> Any:
    if not isinstance(run, TestRun):
        return run
    outcomes = list(run.outcomes.values())
    passed = run.exit_code == 0 and not any(outcome in BAD_OUTCOMES for outcome in outcomes)
    return TestCounts(
        command=run.command,
        passed=outcomes.count(Outcome.PASSED),
        failed=sum(outcome in BAD_OUTCOMES for outcome in outcomes),
        skipped=outcomes.count(Outcome.SKIPPED),
        seconds=round(run.seconds, 3),
        ended=run.ended,
        channels=run.channels.read,
        disagreements=run.channels.disagreements,
        cached=run.cached,
        output="" if passed else run.output_tail,
    )


_Counts = Annotated[TestCounts | None, BeforeValidator(_counted)]


class ValidationRecord(_Record):
    """A `ValidationReport` with counts in the place of runs.

    `whole`: the run with the patch's own changes to tests. The verdict rests on `fail_to_pass` and
    `pass_to_pass`. `known_missed`: given tests without their expected outcome.
    """

    verdict: str = ""
    evidence: str = ""
    reason: str = ""
    backend: str = ""
    interpreter: str = ""
    runner: str = ""
    selected: tuple[SelectedTest, ...] = ()
    before: _Counts = None
    after: _Counts = None
    reproduction_before: _Counts = None
    reproduction_after: _Counts = None
    whole: _Counts = None
    newly_failing: tuple[str, ...] = ()
    newly_passing: tuple[str, ...] = ()
    fail_to_pass: tuple[str, ...] = ()
    pass_to_pass: tuple[str, ...] = ()
    known_missed: tuple[str, ...] = ()
    outdated: tuple[OutdatedFinding, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: Annotated[float, AfterValidator(lambda seconds: round(seconds, 3))] = 0.0


class AttemptRecord(_Record):
    """One attempt without the model's texts. `repairs` count edits from 1."""

    kind: str = ""
    status: str = ""
    reason: str = ""
    reader: str | None = None
    failure_kinds: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    edits: tuple[EditRecord, ...] = ()
    repairs: tuple[Repair, ...] = ()
    validation: ValidationRecord | None = None

    @classmethod
    def of(cls, attempt: Attempt) -> AttemptRecord:
        """Describe an attempt."""
        patch = attempt.patch
        return cls(
            kind=attempt.kind,
            status=attempt.status.value,
            reason=attempt.reason,
            reader=attempt.proposal.reader if attempt.proposal else None,
            failure_kinds=_failure_kinds(attempt),
            missing=tuple(attempt.missing),
            edits=tuple(map(EditRecord.model_validate, patch.edits if patch else ())),
            repairs=tuple(
                repair if repair.edit is None else replace(repair, edit=repair.edit + 1)
                for repair in (patch.repairs if patch else ())
            ),
            validation=ValidationRecord.model_validate(attempt.report) if attempt.report else None,
        )


def _failure_kinds(attempt: Attempt) -> tuple[str, ...]:
    if attempt.parse_failure is not None:
        return (attempt.parse_failure.kind,)
    if attempt.apply_failure is not None:
        return tuple(failure.kind for failure in attempt.apply_failure.failures)
    return ()


class Published(_Record):
    """What `--branch` and `--pr` made: a branch, its commit, and the address of the request."""

    branch: str
    commit: str
    pull_request: str | None


def _issue_as_json(issue: Problem | None) -> dict[str, str] | None:
    """Leave out the tests that decide: `attempts` has what became of them."""
    if issue is None:
        return None
    return {"title": issue.title, "body": issue.body, "source": issue.source}


class RunRecord(_Record):
    """One run, `apply` or `verify`: the contract of `--json`. `commit` is the base."""

    status: Status
    exit_code: int = 0
    verdict: str | None = None
    evidence: str | None = None
    message: str = ""
    diff: str = ""
    thought: str = ""
    reproduction_test: ReproductionTest | None = None
    attempts: tuple[AttemptRecord, ...] = ()
    usage: Usage = Usage()
    timings: dict[str, float] = {}
    model: str | None = None
    commit: str = ""
    dirty: bool = False
    receipt: Receipt | None = None
    notes: tuple[str, ...] = ()
    issue: Annotated[Problem | None, PlainSerializer(_issue_as_json)] = None
    written: tuple[str, ...] = ()
    published: Published | None = None

    @property
    def deciding(self) -> ValidationRecord | None:
        """The validation that the verdict comes from."""
        judged = [one.validation for one in self.attempts if one.validation is not None]
        return next((one for one in reversed(judged) if one.verdict == self.verdict), None)

    @property
    def headline(self) -> str:
        """The verdict, and what VERIFIED rests on, such as "VERIFIED (own test)"."""
        grades = {"given": "given tests", "independent": "independent test", "own": "own test"}
        shown = f" ({grades[self.evidence]})" if self.evidence in grades else ""
        return (self.verdict or self.status.value).upper().replace("_", "-") + shown

    def as_printed(self, *, accept_unverified: bool, redact: Callable[[str], str]) -> RunRecord:
        """Return the record as the user is told it."""
        update: dict[str, object] = {"message": redact(self.message)}
        if self.status is Status.UNVERIFIED and self.diff and accept_unverified:
            update |= {"status": Status.ACCEPTED, "exit_code": 0}
        return self.model_copy(update=update)


def make_record(
    ledger: Ledger,
    *,
    status: Status,
    message: str,
    model: str | None = None,
    commit: str = "",
    dirty: bool = False,
    receipt: Receipt | None = None,
    notes: Sequence[str] = (),
    issue: Problem | None = None,
) -> RunRecord:
    """Return the record of a run that ended with `status`, with the diff of the best attempt."""
    best = ledger.best
    usage = ledger.usage()
    cost = None if usage.cost_usd is None else round(usage.cost_usd, 6)
    return RunRecord(
        status=status,
        exit_code=status.exit_code,
        verdict=best.report.verdict.value if best and best.report else None,
        evidence=best.report.evidence or None if best and best.report else None,
        message=message,
        diff=best.patch.diff.decode("utf-8", "replace") if best and best.patch else "",
        thought=best.proposal.thought if best and best.proposal else "",
        reproduction_test=best.proposal.reproduction_test if best and best.proposal else None,
        attempts=tuple(map(AttemptRecord.of, ledger.attempts)),
        usage=replace(usage, cost_usd=cost),
        timings={stage: round(s, 3) for stage, s in ledger.timings.items()},
        model=model,
        commit=commit,
        dirty=dirty,
        receipt=receipt,
        notes=tuple(notes),
        issue=issue,
    )
