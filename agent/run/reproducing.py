"""A test from the issue alone: asked for without any patch, and run on the base.

`agent reproduce` prints it. For `--evidence independent` it grades an accepted patch; it rejects
none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agent.errors import BudgetExceeded, PatchshotError, Status
from agent.patching import read_test, schema_of_test, unified_diff
from agent.retrieval.context import CodeRequests
from agent.run.attempts import Attempt
from agent.run.calls import Calls
from agent.run.context_steps import ContextSteps
from agent.run.policy import SolveOptions
from agent.run.prompting import reproduction_prompt, second_reproduction_prompt
from agent.run.record import Ledger, StageTimer
from agent.settings import WIDER_TOKENS
from agent.types import (
    BAD_OUTCOMES,
    AppliedPatch,
    Completion,
    ContextBundle,
    FileChange,
    OutdatedTest,
    Problem,
    Prompt,
    ReproductionTest,
    TestRun,
    Verdict,
)
from agent.types.events import Notice
from agent.types.protocols import Services, Snapshot, Validator
from agent.verify import (
    find_test_hints,
    first_failure,
    is_test_side,
    new_test_file,
    why_not_red,
)


@dataclass(frozen=True, slots=True)
class Reproduction:
    """The test of the last reply. `reason` says how it fails, or why it does not show the issue."""

    test: ReproductionTest | None
    status: Status
    reason: str
    run: TestRun | None = None


async def reproduce(calls: Calls) -> Reproduction:
    """Ask for a test, and once more if it does not fail on the base for the issue's reason."""
    context, counter = calls.context, calls.services.counter
    hints = find_test_hints(context.problem, context.ranking, context.view, counter)

    def build(bundle: ContextBundle) -> Prompt:
        return reproduction_prompt(context.problem, bundle, hints, counter)

    completion = await calls.call(build, schema_of_test())
    tried = await _tried(completion, calls)
    if tried.test is None or tried.status in (Status.ACCEPTED, Status.UNVERIFIED):
        return tried
    calls.services.reporter(Notice(f"{tried.reason}; one second try", "warning"))
    output = tried.run.output_tail if tried.run else ""
    again = second_reproduction_prompt(
        build(context.bundle), completion, tried.reason, output, counter
    )
    try:
        return await _tried(await calls.send(again, schema_of_test()), calls)
    except BudgetExceeded:
        return tried


async def _tried(completion: Completion, calls: Calls) -> Reproduction:
    context = calls.context
    test = read_test(completion.text)
    if test is None:
        return Reproduction(None, Status.NO_EDIT, "the reply holds no test")
    placed = new_test_file(test, context.snapshot.exists)
    if isinstance(placed, str):
        return Reproduction(test, Status.BROKEN, f"{test.path}: {placed}")
    with context.timer.stage("validate") as note:
        run = await calls.services.validator.run_tests(as_patch(placed), [placed.path])
        reason = why_not_red(run, context.problem.text)
        note.append(reason or "it fails on the base")
    if not run.command:  # no runner could be started
        return Reproduction(placed, Status.UNVERIFIED, run.output_tail)
    if reason:
        return Reproduction(placed, Status.BROKEN, reason, run)
    failing = [test for test, outcome in run.outcomes.items() if outcome in BAD_OUTCOMES]
    words = f"fails on the base: {first_failure(run, failing)}"
    return Reproduction(placed, Status.ACCEPTED, words, run)


def as_patch(test: ReproductionTest) -> AppliedPatch:
    """Return the patch that adds a test."""
    file = FileChange(test.path, None, test.content.encode("utf-8", "surrogateescape"))
    return AppliedPatch((file,), unified_diff((file,)), ())


# ---------------------------------------------------------------------------- the grade of a patch


async def grade(
    attempt: Attempt,
    reproduction: Reproduction,
    validator: Validator,
    outdated: Sequence[OutdatedTest] = (),
) -> tuple[Attempt, Attempt | None]:
    """Return an accepted attempt with what the test shows, and what a repair is told, if it fails.

    The patch is run without its own tests, so that only the independent one can show the fix.
    """
    report, patch, test = attempt.report, attempt.patch, reproduction.test
    assert report is not None
    assert patch is not None
    if test is None or reproduction.status is not Status.ACCEPTED:
        return _with_line(attempt, f"No independent test: {reproduction.reason}."), None
    source = tuple(c for c in patch.changes if not is_test_side(c.path))
    other = await validator.validate(replace(patch, changes=source), test, (), outdated)
    first = other.reason.partition("\n")[0]
    if other.verdict is Verdict.VERIFIED and (report.lacks_test or report.evidence):
        base = other if report.lacks_test else report
        graded = replace(base, evidence="independent", notes=report.notes)
        line = f"An independent test fails on the base and passes with the patch: {test.path}."
        return _with_line(replace(attempt, report=graded), line), None
    if other.verdict is Verdict.REGRESSED and not other.newly_failing:
        told = f"A test that was written from the issue alone fails with your edits. {other.reason}"
        told += f"\n\nThe test, {test.path}:\n{test.content}"
        refuted = replace(report, verdict=Verdict.REGRESSED, reason=told)
        line = f"An independent test fails with the patch, which rejects nothing: {first}"
        return _with_line(attempt, line), replace(attempt, report=refuted)
    return _with_line(attempt, f"The independent test shows nothing: {first}"), None


async def grade_by_model(
    attempt: Attempt,
    problem: Problem,
    snapshot: Snapshot,
    services: Services,
    options: SolveOptions,
    ledger: Ledger,
) -> Attempt:
    """Return an attempt of `verify` with what an independent test shows, if it is accepted."""
    if not can_be_graded(attempt):
        return attempt
    timer = StageTimer(services.reporter, ledger)
    context = ContextSteps(problem, snapshot, snapshot, services, options.packing, ledger, timer)
    try:
        await context.rank()
        await context.pack(options.packing)
        requests = CodeRequests(snapshot, services.counter, services.chunker, WIDER_TOKENS)
        calls = Calls(services, context, requests, options.max_output_tokens)
        graded, _ = await grade(attempt, await reproduce(calls), services.validator)
    except PatchshotError as error:
        return _with_line(attempt, f"No independent test: {error}.")
    return graded


def can_be_graded(attempt: Attempt) -> bool:
    """Whether an independent test may say more of an attempt than is known."""
    given = attempt.report is not None and attempt.report.evidence == "given"
    return attempt.status is Status.ACCEPTED and not given


def _with_line(attempt: Attempt, line: str) -> Attempt:
    assert attempt.report is not None
    reason = f"{attempt.report.reason}\n{line}"
    return replace(attempt, report=replace(attempt.report, reason=reason))
