"""What a run has made: attempts as they happen, and the `SolveResult` that `--json` prints.

A `Ledger` is kept by the caller of `agent.pipeline.solve`, so that the best patch so far can be
written whatever ends the run: a limit, Ctrl-C, or a crash of a later stage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from agent.errors import Status
from agent.types import (
    AppliedPatch,
    ApplyFailure,
    Completion,
    ContextBundle,
    ParseFailure,
    PatchProposal,
    Ranking,
    Repair,
    TestRun,
    Usage,
    ValidationReport,
    Verdict,
)

AttemptKind = Literal["one-shot", "repair", "iterative", "saved-reply"]

_VERDICT_STATUS = {
    Verdict.VERIFIED: Status.ACCEPTED,
    Verdict.NOT_REGRESSED: Status.ACCEPTED,
    Verdict.UNVERIFIED: Status.UNVERIFIED,
    Verdict.REGRESSED: Status.BROKEN,
    Verdict.BROKEN_SYNTAX: Status.BROKEN,
    Verdict.SUSPECT: Status.SUSPECT,
}
_VERDICT_RANK = {
    Verdict.BROKEN_SYNTAX: 1,
    Verdict.SUSPECT: 2,  # below an honest failure: nobody wants to be handed a cheat
    Verdict.REGRESSED: 3,
    Verdict.UNVERIFIED: 4,
    Verdict.NOT_REGRESSED: 5,
    Verdict.VERIFIED: 6,
}
_FAILURE_RANK = {Status.NOT_APPLIED: -1, Status.UNPARSEABLE: -2, Status.NO_EDIT: -3}


@dataclass(frozen=True, slots=True)
class Attempt:
    """One reply and how far it came. Later fields are None where an earlier step failed."""

    kind: AttemptKind
    completion: Completion | None = None
    proposal: PatchProposal | None = None
    parse_failure: ParseFailure | None = None
    apply_failure: ApplyFailure | None = None
    patch: AppliedPatch | None = None
    report: ValidationReport | None = None

    @property
    def status(self) -> Status:
        """How the run would end if this attempt were its last."""
        if self.report is not None:
            return _VERDICT_STATUS[self.report.verdict]
        if self.apply_failure is not None:
            return Status.NOT_APPLIED
        if self.parse_failure is not None:
            no_edit = self.parse_failure.kind in ("empty", "no-edit")
            return Status.NO_EDIT if no_edit else Status.UNPARSEABLE
        return Status.UNVERIFIED  # applied, its validation was cut off

    @property
    def reason(self) -> str:
        """Why it was not accepted, or the verdict's reason; precise enough for a repair call."""
        if self.report is not None:
            return self.report.reason
        if self.apply_failure is not None:
            return self.apply_failure.reason
        if self.parse_failure is not None:
            return self.parse_failure.reason
        return "the patch applies; it was not validated"

    @property
    def rank(self) -> tuple[int, int]:
        """Orders attempts by how far they came: by verdict, then by how little fails newly."""
        if self.patch is None:
            return (_FAILURE_RANK[self.status], 0)
        if self.report is None:
            return (0, 0)
        return (_VERDICT_RANK[self.report.verdict], -len(self.report.newly_failing))


def furthest(attempts: Sequence[Attempt]) -> Attempt | None:
    """The attempt that came furthest; of equals the later one, which knew more."""
    ranked = max(enumerate(attempts), key=lambda pair: (pair[1].rank, pair[0]), default=None)
    return None if ranked is None else ranked[1]


@dataclass(slots=True)
class Ledger:
    """Collects what a run makes. `on_better` is called whenever the best patch changes.

    `waited`: seconds in which the run stood still because others had the machine. They do not count
    for its time limit, which `on_wait` moves.
    """

    on_better: Callable[[AppliedPatch], None] | None = None
    attempts: list[Attempt] = field(default_factory=list)
    timings: dict[str, float] = field(default_factory=dict)
    ranking: Ranking | None = None
    bundle: ContextBundle | None = None
    usage: Callable[[], Usage] = Usage
    waited: float = 0.0
    on_wait: Callable[[float], None] | None = None

    def record(self, attempt: Attempt, *, replacing_last: bool = False) -> None:
        """Keep an attempt. `replacing_last`: the same attempt, further on (validated now)."""
        before = self.best
        if replacing_last:
            self.attempts.pop()
        self.attempts.append(attempt)
        after = self.best
        if self.on_better is None or after is None or after.patch is None:
            return
        if before is None or before.patch is not after.patch:
            self.on_better(after.patch)

    def spend(self, stage: str, seconds: float) -> None:
        """Add to a stage's time."""
        self.timings[stage] = self.timings.get(stage, 0.0) + seconds

    def wait(self, seconds: float) -> None:
        """Add to what does not count. Called in the thread of the run's loop."""
        self.waited += seconds
        if self.on_wait is not None:
            self.on_wait(seconds)

    @property
    def best(self) -> Attempt | None:
        """The best attempt that holds a patch."""
        return furthest([attempt for attempt in self.attempts if attempt.patch is not None])


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class EditSummary(_Model):
    """One edit that was applied: where, and how its place was found."""

    path: str
    tier: str
    line: int
    path_as_written: str | None  # the reply's own path, where it means another


class RepairSummary(_Model):
    """A slip of the reply that was put right without another call. `edit` counts from 1."""

    name: str
    note: str
    saved: str
    edit: int | None

    @classmethod
    def of(cls, repair: Repair) -> RepairSummary:
        """For people: edits are numbered as in reasons."""
        edit = None if repair.edit is None else repair.edit + 1
        return cls(name=repair.name, note=repair.note, saved=repair.saved, edit=edit)


class TestSummary(_Model):
    """Counts of one test run.

    `channels` are the accounts of it that were read, `disagreements` where they differ. `cached`:
    taken from an earlier run of the same tree, command and surroundings.
    """

    __test__ = False  # not a test class

    command: list[str]
    passed: int
    failed: int
    skipped: int
    seconds: float
    ended: str
    channels: list[str]
    disagreements: list[str]
    cached: bool

    @classmethod
    def of(cls, run: TestRun | None) -> TestSummary | None:
        """The counts of a run; None for none."""
        if run is None:
            return None
        outcomes = list(run.outcomes.values())
        return cls(
            command=list(run.command),
            passed=outcomes.count("passed"),  # type: ignore[arg-type]
            failed=sum(outcome in ("failed", "error") for outcome in outcomes),
            skipped=outcomes.count("skipped"),  # type: ignore[arg-type]
            seconds=round(run.seconds, 3),
            ended=run.ended,
            channels=list(run.channels.read),
            disagreements=list(run.channels.disagreements),
            cached=run.cached,
        )


class ValidationSummary(_Model):
    """The verdict and its evidence.

    `whole` is the run with the patch's own changes to tests and configuration, where it has any.
    `fail_to_pass` and `pass_to_pass` are the ids on which the verdict rests; `known_missed` those
    of the given ones that do not do what they should.
    """

    verdict: str
    reason: str
    backend: str
    interpreter: str
    runner: str
    selected: list[dict[str, str]]
    before: TestSummary | None
    after: TestSummary | None
    reproduction_before: TestSummary | None
    reproduction_after: TestSummary | None
    whole: TestSummary | None
    newly_failing: list[str]
    newly_passing: list[str]
    fail_to_pass: list[str]
    pass_to_pass: list[str]
    known_missed: list[str]
    notes: list[str]
    seconds: float

    @classmethod
    def of(cls, report: ValidationReport | None) -> ValidationSummary | None:
        """The report without texts that only a repair needs; None for none."""
        if report is None:
            return None
        return cls(
            verdict=report.verdict.value,
            reason=report.reason,
            backend=report.backend,
            interpreter=report.interpreter,
            runner=report.runner,
            selected=[{"path": t.path, "reason": t.reason} for t in report.selected],
            before=TestSummary.of(report.before),
            after=TestSummary.of(report.after),
            reproduction_before=TestSummary.of(report.reproduction_before),
            reproduction_after=TestSummary.of(report.reproduction_after),
            whole=TestSummary.of(report.whole),
            newly_failing=list(report.newly_failing),
            newly_passing=list(report.newly_passing),
            fail_to_pass=list(report.fail_to_pass),
            pass_to_pass=list(report.pass_to_pass),
            known_missed=list(report.known_missed),
            notes=list(report.notes),
            seconds=round(report.seconds, 3),
        )


class AttemptSummary(_Model):
    """One attempt in short.

    `failure_kinds`: a `ParseKind`, or the `ApplyKind` of each edit that could not be applied.
    `missing`: code that the reply says it was not shown.
    """

    kind: str
    status: str
    reason: str
    reader: str | None
    failure_kinds: list[str] = []
    missing: list[str] = []
    edits: list[EditSummary]
    repairs: list[RepairSummary]
    validation: ValidationSummary | None

    @classmethod
    def of(cls, attempt: Attempt) -> AttemptSummary:
        """The attempt without the model's words."""
        told = attempt.proposal or attempt.parse_failure
        return cls(
            kind=attempt.kind,
            status=attempt.status.value,
            reason=attempt.reason,
            reader=attempt.proposal.reader if attempt.proposal else None,
            failure_kinds=_failure_kinds(attempt),
            missing=list(told.missing) if told else [],
            edits=[
                EditSummary(
                    path=e.path,
                    tier=e.tier.value,
                    line=e.line,
                    path_as_written=e.path_as_written or None,
                )
                for e in (attempt.patch.edits if attempt.patch else ())
            ],
            repairs=[RepairSummary.of(r) for r in (attempt.patch.repairs if attempt.patch else ())],
            validation=ValidationSummary.of(attempt.report),
        )


def _failure_kinds(attempt: Attempt) -> list[str]:
    if attempt.parse_failure is not None:
        return [attempt.parse_failure.kind]
    if attempt.apply_failure is not None:
        return [failure.kind for failure in attempt.apply_failure.failures]
    return []


class UsageSummary(_Model):
    """What the run cost. `cost_usd` is null where no price is known."""

    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None


class SolveResult(_Model):
    """The result of `solve` and `apply`: the contract of `--json`."""

    status: Status
    exit_code: int
    verdict: str | None
    message: str
    diff: str
    thought: str
    reproduction_test: dict[str, str] | None
    attempts: list[AttemptSummary]
    usage: UsageSummary
    timings: dict[str, float]
    model: str | None
    commit: str
    dirty: bool
    receipt: dict[str, Any] | None
    notes: list[str]


def summarise(
    ledger: Ledger,
    *,
    status: Status,
    message: str,
    model: str | None = None,
    commit: str = "",
    dirty: bool = False,
    receipt: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
) -> SolveResult:
    """The result of a run that ended with `status`; the diff is that of the best attempt."""
    best = ledger.best
    usage = ledger.usage()
    test = best.proposal.reproduction_test if best and best.proposal else None
    return SolveResult(
        status=status,
        exit_code=status.exit_code,
        verdict=best.report.verdict.value if best and best.report else None,
        message=message,
        diff=best.patch.diff.decode("utf-8", "replace") if best and best.patch else "",
        thought=best.proposal.thought if best and best.proposal else "",
        reproduction_test={"path": test.path, "content": test.content} if test else None,
        attempts=[AttemptSummary.of(a) for a in ledger.attempts],
        usage=UsageSummary(
            calls=usage.calls,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cost_usd=None if usage.cost_usd is None else round(usage.cost_usd, 6),
        ),
        timings={stage: round(s, 3) for stage, s in ledger.timings.items()},
        model=model,
        commit=commit,
        dirty=dirty,
        receipt=dict(receipt) if receipt is not None else None,
        notes=list(notes),
    )
