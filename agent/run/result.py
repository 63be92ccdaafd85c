"""The results of a run: the `Ledger` of its attempts, and the `SolveResult` that `--json` prints.

The caller of `agent.run.pipeline.solve` holds the `Ledger`. The best patch so far can then be
written however the run ends: at a limit, by Ctrl-C, or by a crash of a later stage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pydantic import BaseModel, ConfigDict

from agent.errors import Status
from agent.run.attempts import Attempt, furthest
from agent.types import (
    AppliedPatch,
    ContextBundle,
    Problem,
    Ranking,
    Repair,
    TestRun,
    Usage,
    ValidationReport,
)


@dataclass(slots=True)
class Ledger:
    """Collects the attempts, times and usage of a run.

    `on_better` is called whenever the best patch changes, and `on_record` with all attempts after
    each record. `waited`: seconds that the run spent waiting for other runs on the machine. They do
    not count for its time limit, which `on_wait` extends.
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


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class EditSummary(_Model):
    """One applied edit: where it is, and how its location was found."""

    path: str
    tier: str
    line: int
    path_as_written: str | None  # the path in the reply, if it differs


class RepairSummary(_Model):
    """A mistake in the reply that was corrected without another call. `edit` counts from 1."""

    name: str
    note: str
    saved: str
    edit: int | None

    @classmethod
    def of(cls, repair: Repair) -> RepairSummary:
        """Convert a repair, with its edit counted from 1."""
        edit = None if repair.edit is None else repair.edit + 1
        return cls(name=repair.name, note=repair.note, saved=repair.saved, edit=edit)


class TestSummary(_Model):
    """Counts of one test run.

    `channels` are the accounts of the run that were read, `disagreements` say where they differ.
    `cached`: the result of an earlier run of the same tree, command and environment.
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
        """Count the outcomes of a run; None for None."""
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
    The verdict rests on the tests `fail_to_pass` and `pass_to_pass`. `known_missed` are the given
    tests without their expected outcome. `outdated` are existing tests that fail and that the reply
    calls outdated: id, why, the assertion `shown`, and the `refusal` ("" where they are excused).
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
    outdated: list[dict[str, str]] = []
    notes: list[str]
    seconds: float

    @classmethod
    def of(cls, report: ValidationReport | None) -> ValidationSummary | None:
        """Convert a report, without the texts that only a repair needs; None for None."""
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
            outdated=[asdict(one) for one in report.outdated],
            notes=list(report.notes),
            seconds=round(report.seconds, 3),
        )


class AttemptSummary(_Model):
    """One attempt without the model's texts.

    `failure_kinds`: a `ParseKind`, or the `ApplyKind` of each edit that could not be applied.
    `missing`: code that the reply said it was not shown.
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
        """Summarise an attempt."""
        return cls(
            kind=attempt.kind,
            status=attempt.status.value,
            reason=attempt.reason,
            reader=attempt.proposal.reader if attempt.proposal else None,
            failure_kinds=_failure_kinds(attempt),
            missing=list(attempt.missing),
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
    """The cost of the run; the fields are those of `agent.types.Usage`."""

    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    estimated: bool = False


class Published(_Model):
    """What `--branch` and `--pr` made: a branch, its commit, and the address of the request."""

    branch: str
    commit: str
    pull_request: str | None


class SolveResult(_Model):
    """The result of `solve` and `apply`: the contract of `--json`.

    `commit` is the base. `written`: the files that `--apply` wrote. `published`: what `--branch`
    and `--pr` made.
    """

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
    issue: dict[str, str] | None = None  # its title, body and source
    written: list[str] = []
    published: Published | None = None

    @property
    def deciding(self) -> ValidationSummary | None:
        """The validation that the verdict comes from."""
        judged = [one.validation for one in self.attempts if one.validation is not None]
        return next((one for one in reversed(judged) if one.verdict == self.verdict), None)


def as_printed(
    result: SolveResult, *, accept_unverified: bool, redact: Callable[[str], str]
) -> SolveResult:
    """Return a result as the user is told it."""
    update: dict[str, object] = {"message": redact(result.message)}
    if result.status is Status.UNVERIFIED and accept_unverified:
        update |= {"status": Status.ACCEPTED, "exit_code": 0}
    return result.model_copy(update=update)


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
    issue: Problem | None = None,
) -> SolveResult:
    """Return the result of a run that ended with `status`, with the diff of the best attempt."""
    best = ledger.best
    usage = ledger.usage()
    cost = None if usage.cost_usd is None else round(usage.cost_usd, 6)
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
        usage=UsageSummary(**asdict(replace(usage, cost_usd=cost))),
        timings={stage: round(s, 3) for stage, s in ledger.timings.items()},
        model=model,
        commit=commit,
        dirty=dirty,
        receipt=dict(receipt) if receipt is not None else None,
        notes=list(notes),
        issue={"title": issue.title, "body": issue.body, "source": issue.source} if issue else None,
    )
