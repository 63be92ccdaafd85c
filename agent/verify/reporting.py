"""The report on a patch, from what its runs showed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

from agent.types import KnownTests, SyntaxProblem, ValidationReport, Verdict
from agent.verify.judging.compare import KnownJudgement, is_whole, passing_in_both
from agent.verify.judging.execution import SecondRuns
from agent.verify.judging.reproduction import Judgement, Standing
from agent.verify.judging.verdict import VerdictEvidence, decide
from agent.verify.judging.wording import how_it_ended, listed, needs, number
from agent.verify.plan import Plan, PlanRuns, SteadyComparison
from agent.verify.runners import STANDS_IN, runner_of
from agent.verify.runners.base import PYTHON, Suite, Tools


@dataclass(frozen=True, slots=True)
class Proof:
    """What second runs leave of the tests that fail before the patch and pass after it.

    `new_tests` judges those that the patch brought. Of the project's, `passing` count, `flaky` gave
    another result once more, and `unrelated` do not depend on the change.
    """

    new_tests: Judgement | None = None
    passing: tuple[str, ...] = ()
    flaky: tuple[str, ...] = ()
    unrelated: tuple[str, ...] = ()
    again: tuple[SecondRuns, ...] = ()
    loose: tuple[str, ...] = ()


def broken_syntax(
    problems: tuple[SyntaxProblem, ...], backend: str, seconds: float
) -> ValidationReport:
    """Return the report for files that no longer parse."""
    lines = [f"{p.path}, line {p.line}: {p.message}" for p in problems]
    reason = "\n".join(["The patch leaves files that do not parse:", *lines])
    return ValidationReport(
        Verdict.BROKEN_SYNTAX, reason, backend, syntax_problems=problems, seconds=seconds
    )


def first_report(plan: Plan, suite: Suite, tools: Tools, backend: str) -> ValidationReport:
    """Return a report with what is known before anything is run."""
    runner = f"{suite.runner}: {suite.why}"
    notes = (*plan.notes, *tools.toolchain.notes)
    report = ValidationReport(Verdict.UNVERIFIED, "", backend, runner=runner, notes=notes)
    python = tools.interpreter
    if python is None:
        return report
    about = f"{python.path} (Python {python.version}): {python.why}"
    if STANDS_IN in suite.settings:
        note = f"{suite.why}; name another interpreter with --python"
        return replace(report, interpreter=about, notes=(*notes, note))
    return replace(report, interpreter=about)


def final_report(
    report: ValidationReport,
    plan: Plan,
    runs: PlanRuns,
    evidence: VerdictEvidence,
    notes: tuple[str, ...],
) -> ValidationReport:
    """Return the report with the verdict, and with the runs and lists that it rests on."""
    verdict, reason = decide(evidence)
    new, known, comparison = evidence.new_tests, evidence.known, evidence.comparison
    proving = new.tests if new is not None and new.standing is Standing.PROVES else ()
    fixed = tuple(sorted({*evidence.proof, *proving} - {*evidence.lost}))
    kept = passing_in_both(runs.before, runs.after) if runs.before and runs.after else ()
    failing = comparison.newly_failing if comparison else ()
    if verdict is not Verdict.VERIFIED:
        failing = (*failing, *evidence.outdated.accepted)
    return replace(
        report,
        outdated=evidence.outdated.findings,
        verdict=verdict,
        reason=reason,
        selected=plan.selected if runs.by_files else (),
        before=runs.before,
        after=runs.after,
        reproduction_before=runs.new_before,
        reproduction_after=runs.new_after,
        whole=runs.whole,
        newly_failing=tuple(sorted({*failing, *evidence.lost})),
        newly_passing=fixed,
        lacks_test=verdict is Verdict.NOT_REGRESSED and evidence.is_open,
        fail_to_pass=known.fixed if known else fixed,
        pass_to_pass=known.kept if known else kept,
        known_missed=known.missed if known else (),
        notes=(*report.notes, *notes),
    )


def without_tests(steady: SteadyComparison | None, tests: Sequence[str]) -> SteadyComparison | None:
    """Return the comparison without failures that are excused."""
    if steady is None or not tests:
        return steady
    failing = steady.comparison.newly_failing
    left = tuple(test for test in failing if test not in tests)
    return replace(steady, comparison=replace(steady.comparison, newly_failing=left))


def report_notes(
    runs: PlanRuns,
    steady: SteadyComparison | None,
    known: KnownTests | None,
    judged: KnownJudgement | None,
    proof: Proof,
) -> tuple[str, ...]:
    """Return what the user should know beside the verdict. No prompt contains the notes.

    The names and messages of given tests stay secret. Only ids that no run knows are named: they
    are the user's own and most often misspelt.
    """
    notes = _cut_short(runs, known)
    if judged is not None and judged.absent:
        notes.append(f"not found on the base or with the patch: {listed(judged.absent)}")
    if known is None:
        notes.extend(unmet_needs(runs))
    for tests, words in (
        (steady.flaky_failures if steady else (), "flaky, not held against the patch"),
        (proof.flaky, "flaky, not counted for the patch"),
        (proof.unrelated, "passing newly without the changed code, not counted for the patch"),
    ):
        if tests:
            what = number(len(tests), "test") if known else listed(tests)
            notes.append(f"{words}: {what}")
    return tuple(notes)


def unmet_needs(runs: PlanRuns) -> tuple[str, ...]:
    """Return what the project's tests lack here, such as a network or a database."""
    found = chain.from_iterable(needs(run) for run in (runs.before, runs.after) if run is not None)
    return tuple(dict.fromkeys(found))


def missing_tool(suite: Suite, tools: Tools) -> str:
    """Return why the suite cannot be run at all here, or ""."""
    if PYTHON in runner_of(suite).programs(suite) and tools.interpreter is None:
        return tools.problem
    if tools.toolchain.missing:
        return f"{suite.why}, and {listed(tools.toolchain.missing)} is not installed here"
    return ""


def _cut_short(runs: PlanRuns, known: KnownTests | None) -> list[str]:
    """Return a note for each run of the project's tests that ended early."""
    both = (("on the base", runs.before), ("with the patch", runs.after))
    return [
        f"{where} the run of the project's tests "
        f"{f'ended with {run.ended}' if known else how_it_ended(run)}; what came later is not known"
        for where, run in both
        if run is not None and not is_whole(run)
    ]
