"""The results of a run: attempts as they happen, and the `SolveResult` that `--json` prints.

The caller of `agent.pipeline.solve` holds the `Ledger`. The best patch so far can then be written
however the run ends: at a limit, by Ctrl-C, or by a crash of a later stage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from agent.errors import Status
from agent.patching import can_continue
from agent.types import (
    AppliedPatch,
    ApplyFailure,
    Completion,
    ContextBundle,
    ParseFailure,
    PatchProposal,
    Problem,
    Ranking,
    Repair,
    ReplaceSymbol,
    ReproductionTest,
    TestRun,
    Usage,
    ValidationReport,
    Verdict,
    WrongTest,
)

AttemptKind = Literal["one-shot", "sample", "more-code", "repair", "iterative", "saved-reply"]
"""`sample`: a reply of `--samples` that was not chosen; the chosen one is `one-shot`. `more-code`:
the reply to a call with the code that the reply before had asked for.
"""

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
    Verdict.SUSPECT: 2,  # below an honest failure
    Verdict.REGRESSED: 3,
    Verdict.UNVERIFIED: 4,
    Verdict.NOT_REGRESSED: 5,
    Verdict.VERIFIED: 6,
}
# Characters of the reason why a reply takes a test back.
_REASON_SHOWN = 300

_FAILURE_RANK = {
    Status.ALREADY_FIXED: -1,
    Status.NOT_APPLIED: -1,
    Status.UNPARSEABLE: -2,
    Status.NO_EDIT: -3,
}


@dataclass(frozen=True, slots=True)
class Attempt:
    """One reply and how far it came. Later fields are None where an earlier step failed.

    `ended`: why the iterative mode ended, "" where the model finished it.
    """

    kind: AttemptKind
    completion: Completion | None = None
    proposal: PatchProposal | None = None
    parse_failure: ParseFailure | None = None
    apply_failure: ApplyFailure | None = None
    patch: AppliedPatch | None = None
    report: ValidationReport | None = None
    ended: str = ""

    @property
    def status(self) -> Status:
        """The status of the run if this attempt were its last."""
        if self.report is not None:
            return _VERDICT_STATUS[self.report.verdict]
        if self.apply_failure is not None:
            there = self.apply_failure.is_already_there
            return Status.ALREADY_FIXED if there else Status.NOT_APPLIED
        if self.parse_failure is not None:
            no_edit = self.parse_failure.kind in ("empty", "no-edit", "needs-code")
            return Status.NO_EDIT if no_edit else Status.UNPARSEABLE
        return Status.UNVERIFIED  # the patch applies, but its validation was cut off

    @property
    def reason(self) -> str:
        """Why the attempt was rejected, or the reason of the verdict. A repair prompt quotes it."""
        if self.report is not None:
            return self.report.reason
        if self.apply_failure is not None:
            return self.apply_failure.reason
        if self.parse_failure is not None:
            return self.parse_failure.reason
        return "the patch applies; it was not validated"

    @property
    def summary(self) -> str:
        """The outcome before validation, such as "2 edits in 1 file"."""
        if self.asks_for_code:
            return f"asks for code ({len(self.missing)} name{'s' * (len(self.missing) != 1)})"
        if self.parse_failure is not None:
            return f"{self.parse_failure.kind} reply"
        if self.patch is None:
            return "does not apply"
        edits, files = len(self.patch.edits), len(self.patch.changes)
        return f"{edits} edit{'s' * (edits != 1)} in {files} file{'s' * (files != 1)}"

    @property
    def missing(self) -> tuple[str, ...]:
        """The code that the reply said it was not shown."""
        said = self.proposal or self.parse_failure
        return said.missing if said else ()

    @property
    def asks_for_code(self) -> bool:
        """Whether the reply asks for code before it edits, which is not a failure."""
        return self.parse_failure is not None and self.parse_failure.kind == "needs-code"

    @property
    def is_cut_off(self) -> bool:
        """Whether the reply ends in the middle of its answer, so that it can be continued."""
        failure, said = self.parse_failure, self.completion
        cut = failure is not None and failure.kind == "truncated"
        return cut and said is not None and can_continue(said.text)

    @property
    def wrong_tests(self) -> tuple[WrongTest, ...]:
        """The tests of earlier replies that the reply takes back."""
        return self.proposal.wrong_tests if self.proposal else ()

    @property
    def rank(self) -> tuple[int, int]:
        """Sort key of attempts: the verdict, then the number of new failures."""
        if self.patch is None:
            return (_FAILURE_RANK[self.status], 0)
        if self.report is None:
            return (0, 0)
        return (_VERDICT_RANK[self.report.verdict], -len(self.report.newly_failing))


def lasting_tests(attempts: Sequence[Attempt]) -> tuple[ReproductionTest, ...]:
    """Return the reproduction tests of all replies but the last, newest first.

    A test lasts until a later reply takes its path back with a reason.
    """
    found: list[ReproductionTest] = []
    refuted: set[str] = set()
    for attempt in reversed(attempts):
        test = attempt.proposal.reproduction_test if attempt.proposal else None
        if attempt.kind == "sample":  # what the chosen reply did not write is no promise of it
            continue
        if attempt is not attempts[-1] and test is not None and test.path not in refuted:
            found.append(test)
        refuted.update(wrong.path for wrong in attempt.wrong_tests)
    return tuple(found)


def with_kept_test(proposal: PatchProposal, earlier: Sequence[Attempt]) -> PatchProposal:
    """Return the proposal with the test of an earlier reply that only asked for code.

    A test of the proposal itself comes first. Tests of replies with edits are `lasting_tests`.
    """
    if proposal.reproduction_test is not None or any(one.proposal for one in earlier):
        return proposal
    refuted = {wrong.path for wrong in proposal.wrong_tests}
    for attempt in reversed(earlier):
        test = attempt.parse_failure.reproduction_test if attempt.parse_failure else None
        if test is not None and test.path not in refuted:
            return replace(proposal, reproduction_test=test)
    return proposal


def with_edited_tests(proposal: PatchProposal) -> PatchProposal:
    """Return the proposal with the edited versions of its outdated tests as further edits."""
    tests = [(one.id.partition("[")[0].partition("::"), one) for one in proposal.outdated_tests]
    edits = tuple(
        ReplaceSymbol(path, name.replace("::", "."), one.replacement)
        for (path, _, name), one in tests
        if name and one.replacement.strip()
    )
    return replace(proposal, edits=(*proposal.edits, *dict.fromkeys(edits)))


def describe_wrong_test(wrong: WrongTest) -> str:
    """Return the note by which the user learns that a reply takes a test back."""
    reason = " ".join(wrong.reason.split())[:_REASON_SHOWN]
    return f"the reply takes its earlier test {wrong.path} back: {reason}"


def furthest(attempts: Sequence[Attempt]) -> Attempt | None:
    """Return the attempt with the highest rank; of equal ones the later."""
    ranked = max(enumerate(attempts), key=lambda pair: (pair[1].rank, pair[0]), default=None)
    return None if ranked is None else ranked[1]


_SEEMS_FIXED = "the issue seems to be fixed already"


def outcome(attempts: Sequence[Attempt]) -> tuple[Status, str]:
    """Return the status and the message of a run that ended by itself, after these attempts.

    The status is that of the best patch; without one, that of the last attempt. If the best
    attempt is not what ended the run, the message says first what did.
    """
    last, best = attempts[-1], furthest(attempts)
    assert best is not None
    if best.patch is None:
        return _without_patch(attempts)
    if best.status is Status.ACCEPTED:
        return best.status, best.reason
    if is_repeated(attempts):
        return best.status, _both_sides(last, best)
    if best is last and not last.ended:
        return best.status, best.reason
    end = last.ended or f"the last attempt ({last.kind}) failed: {_first_line(last.reason)}"
    return best.status, f"{end}; the best patch: {best.reason}"


def is_repeated(attempts: Sequence[Attempt]) -> bool:
    """Whether the last attempt is a patch that was refused before for the same failing tests."""
    last = attempts[-1]
    if last.patch is None or last.report is None or not last.report.newly_failing:
        return False
    return any(
        one.kind != "sample"
        and one.patch is not None
        and one.report is not None
        and one.patch.changes == last.patch.changes
        and one.report.newly_failing == last.report.newly_failing
        for one in attempts[:-1]
    )


def _both_sides(last: Attempt, best: Attempt) -> str:
    """Say that model and tests disagree, with the words of the model and of the tests."""
    tests, thought = best.reason, last.proposal.thought if last.proposal else ""
    first, _, rest = tests.partition("\n")
    model = f' The model says: "{" ".join(thought.split())[:_REASON_SHOWN]}"' if thought else ""
    return (
        f"two replies gave the same patch, and the same tests fail; {first}{model}\n{rest}".strip()
    )


def _without_patch(attempts: Sequence[Attempt]) -> tuple[Status, str]:
    last = attempts[-1]
    there = [attempt for attempt in attempts if attempt.status is Status.ALREADY_FIXED]
    if there and last.status in (Status.ALREADY_FIXED, Status.NO_EDIT):
        failure = there[-1].apply_failure
        assert failure is not None
        first = failure.failures[0]
        return Status.ALREADY_FIXED, f"{_SEEMS_FIXED} ({first.path}: {first.reason})"
    asked = sum(attempt.asks_for_code for attempt in attempts if attempt.kind != "sample")
    if last.asks_for_code and asked > 1:
        return (
            last.status,
            f"the model asked for code {asked} times and edited nothing; {last.reason}",
        )
    if last.ended and last.parse_failure is None:
        return last.status, f"{last.ended}; {last.reason}"
    return last.status, last.ended or last.reason


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0].removesuffix(".")


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
    model_config = ConfigDict(frozen=True, extra="forbid")


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
    """The cost of the run. `cost_usd` is null when a price is unknown."""

    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None


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
        issue={"title": issue.title, "body": issue.body, "source": issue.source} if issue else None,
    )
