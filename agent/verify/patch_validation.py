"""Validates one patch: chooses tests, plans and runs them, and reaches the verdict. Synchronous.

`PatchValidation.report` lists the steps in their order.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from agent.patching import check_syntax
from agent.types import (
    BAD_OUTCOMES,
    AppliedPatch,
    KnownTests,
    OutdatedTest,
    ReproductionTest,
    SelectedTest,
    SyntaxProblem,
    TestRun,
    ValidationReport,
    Verdict,
)
from agent.types.protocols import Snapshot
from agent.verify.choosing import TestFiles, accepted_by, choose_tests
from agent.verify.executor import SuiteExecutor, ValidationOptions
from agent.verify.judging.compare import (
    Comparison,
    by_id,
    is_whole,
    judge_known,
    known_paths,
    passing_in_both,
)
from agent.verify.judging.outdated import (
    OutdatedJudgement,
    assertion_place,
    declared_for,
    judge_outdated,
)
from agent.verify.judging.reading import (
    asks_for_runner,
    edited_inside,
    find_losses,
    why_weak,
)
from agent.verify.judging.reproduction import (
    Judgement,
    NameChecks,
    Standing,
    confirm,
    judge,
    with_source,
)
from agent.verify.judging.verdict import VerdictEvidence, decide, grade
from agent.verify.judging.wording import how_it_ended, listed, needs, number
from agent.verify.plan import Plan, PlanExecution, PlanRuns, make_plan
from agent.verify.reports import stable_id
from agent.verify.runners import STANDS_IN, runner_of, selects
from agent.verify.runners.base import PYTHON, Suite, Tools, is_this_python
from agent.verify.runners.javascript import BUILD_STEP

_GIVEN = "named by the tests that were given"


@dataclass(frozen=True, slots=True)
class PatchValidation:
    """Validates patches. It holds what they share."""

    executor: SuiteExecutor
    snapshot: Snapshot
    problem_text: str
    options: ValidationOptions
    backend: str
    test_files: dict[str, TestFiles] = field(default_factory=dict)  # by suite

    def report(
        self,
        patch: AppliedPatch,
        test: ReproductionTest | None,
        earlier: Sequence[ReproductionTest],
        outdated: Sequence[OutdatedTest],
        cancel: threading.Event,
    ) -> ValidationReport:
        """Run the tests and judge the patch. Raises ConfigurationError and SandboxError."""
        suite, tools = self.executor.suite([c.path for c in patch.changes], cancel)
        same = tools.interpreter is not None and is_this_python(tools.interpreter.version)
        problems = check_syntax(patch.changes, exact=same)
        if problems:
            return broken_syntax(problems, self.backend)
        known = self._known(suite)
        selected = self._selected(patch, suite, known)
        plan = make_plan(
            self.snapshot,
            patch,
            test,
            selected,
            own_tests=known is None,
            allow=self.options.allow,
            installed=tools.modules,
            issue=self.problem_text,
            earlier=earlier,
        )
        report = self._first_report(plan, suite, tools)
        missing = missing_tool(suite, tools)
        if missing:
            return replace(report, reason=f"No test could be run: {missing}.")
        execution = PlanExecution(self.executor, plan, suite, cancel)
        runs = execution.run_all()
        steady, flaky = execution.compare_steadily(runs)
        evidence = self._evidence(execution, runs, steady, known, outdated)
        return _final_report(report, plan, runs, evidence, _notes(evidence, flaky, known))

    def _known(self, suite: Suite) -> KnownTests | None:
        known, runner = self.options.known, runner_of(suite)
        stable = str if runner.signs else stable_id
        return by_id(known, lambda name: stable(runner.test_id(suite, name))) if known else None

    def _first_report(self, plan: Plan, suite: Suite, tools: Tools) -> ValidationReport:
        """Return the report with what is known before any run."""
        notes, python, about = [*plan.notes], tools.interpreter, ""
        for path in plan.new_paths if selects(suite) else ():
            if not runner_of(suite).targets(suite, [path], self.snapshot):
                notes.append(f"{path} was not run: it is no test of this suite ({suite.why})")
        if python:
            about = f"{python.path} (Python {python.version}): {python.why}"
            if STANDS_IN in suite.settings:
                notes.append(f"{suite.why}; name another interpreter with --python")
        report = ValidationReport(Verdict.UNVERIFIED, "", self.backend, interpreter=about)
        return replace(report, runner=f"{suite.runner}: {suite.why}", notes=tuple(notes))

    def _selected(
        self, patch: AppliedPatch, suite: Suite, known: KnownTests | None
    ) -> tuple[SelectedTest, ...]:
        paths = known_paths(known, self.snapshot.exists) if known else ()
        if paths:
            return tuple(SelectedTest(path, _GIVEN) for path in paths)
        key = repr(suite)
        if key not in self.test_files:
            self.test_files[key] = TestFiles(self.snapshot, accepted_by(suite, self.snapshot))
        files, issue = self.test_files[key], self.problem_text
        return choose_tests(files, patch.changes, issue, self.options.timeout)

    # ----------------------------------------------------------------------------- the evidence

    def _evidence(
        self,
        execution: PlanExecution,
        runs: PlanRuns,
        steady: Comparison | None,
        known: KnownTests | None,
        declared: Sequence[OutdatedTest],
    ) -> VerdictEvidence:
        plan, groups = execution.plan, execution.plan.groups
        failing = steady.newly_failing if steady else ()
        theirs = {} if known else declared_for(failing, declared)
        outdated = OutdatedJudgement()
        if theirs and runs.after is not None:
            signs = runner_of(execution.suite).signs
            outdated = judge_outdated(failing, theirs, runs.after, python=signs)
        failing = tuple(test for test in failing if test not in outdated.accepted)
        comparison = replace(steady, newly_failing=failing) if steady else None
        weak = find_losses(groups.tests, groups.source), asks_for_runner(groups.source)
        evidence = VerdictEvidence(
            before=runs.before,
            after=runs.after,
            comparison=comparison,
            proof=comparison.newly_passing if comparison else (),
            new_tests=self._new_tests(plan, runs),
            whole=runs.whole,
            only_tests=plan.only_tests,
            edited_tests=plan.edited_tests,
            weakened=" and ".join(filter(None, weak)),
            held=groups.held,
            tricks=tuple(f"{path}: {why}" for path, why in groups.hiding.items()),
            known=judge_known(known, runs.before, runs.after, failing) if known else None,
            needs="; ".join(_unmet_needs(runs.before, runs.after)),
            named_command=self.options.test_cmd is not None,
            outdated=outdated,
        )
        evidence = self._with_proof(execution, runs, evidence, known)
        inside = edited_inside(groups.source)
        proof = tuple(t for t in evidence.proof if t.rpartition("::")[2] not in inside)
        if known is not None:
            return replace(evidence, proof=proof)
        lost, silenced = execution.find_test_edits(runs, steady, evidence.flaky)
        return replace(evidence, proof=proof, lost=tuple(lost), silenced=tuple(silenced))

    def _with_proof(
        self,
        execution: PlanExecution,
        runs: PlanRuns,
        evidence: VerdictEvidence,
        known: KnownTests | None,
    ) -> VerdictEvidence:
        """Run what passes newly once more, unless the verdict is known without that."""
        new, passing = evidence.new_tests, evidence.proof
        refuted = new is not None and new.standing in (Standing.STILL_FAILS, Standing.SUSPECT)
        failing = evidence.comparison.newly_failing if evidence.comparison else ()
        if evidence.tricks or refuted or failing or execution.plan.only_tests:
            return evidence
        if known:
            tests = [test for test in known.fail_to_pass if test in passing]
            replays = execution.replay(runs, tests)
            # The tests are not named: they stay out of prompts.
            reasons = {replays.why_no_evidence(test) for test in tests} - {""}
            return replace(evidence, tricks=tuple(f"a test: {why}" for why in sorted(reasons)))
        proving = new.tests if new is not None and new.standing is Standing.PROVES else ()
        if not (proving or passing):
            return evidence
        again = execution.run_proof_again(runs, proving, passing)
        replays = execution.replay(runs, (*proving, *passing))
        plan, names = execution.plan, self._names(execution.plan)

        def why_not(test: str, before: TestRun | None) -> str:
            place = assertion_place(before.failures.get(test, "")) if before else ""
            judged = [c.path for c in plan.groups.source if f"/{place}".endswith(f"/{c.path}")]
            if judged:
                return f"the patch changes {judged[0]}, whose assertion fails on the base"
            return replays.why_no_evidence(test)

        def why_not_new(test: str) -> str:
            weak = why_weak(test, plan.new_tests, plan.groups.source, names)
            return why_not(test, runs.new_before) or weak

        steadily = [test for test in passing if test in again and again[test].is_steady(test)]
        doubts = {test: why_not(test, runs.before) for test in steadily}
        return replace(
            evidence,
            new_tests=confirm(new, again, why_not_new) if new is not None else None,
            proof=tuple(test for test in steadily if not doubts[test]),
            flaky=tuple(test for test in passing if test not in doubts),
            unrelated=tuple(test for test in steadily if doubts[test]),
            tricks=tuple(sorted({one.doubt for one in again.values()} - {""})),
        )

    def _new_tests(self, plan: Plan, runs: PlanRuns) -> Judgement | None:
        """Judge the tests that the patch brings or edits, by those that its edits make differ."""
        if runs.new_before is None or runs.new_after is None:
            return None
        before, after = _differing(runs, runs.new_before, runs.new_after)
        return with_source(judge(before, after, self._names(plan)), plan.earlier_tests)

    def _names(self, plan: Plan) -> NameChecks:
        return NameChecks(plan.groups.source, self.problem_text, tuple(self.snapshot.files))


def _differing(runs: PlanRuns, before: TestRun, after: TestRun) -> tuple[TestRun, TestRun]:
    """Return the runs of the new tests without those that the patch's edits leave as they were."""
    old, new = (run.outcomes if run else {} for run in (runs.before, runs.after))
    ids = {*before.outcomes, *after.outcomes}
    red = {test for test in ids if old.get(test) in BAD_OUTCOMES}
    built = {t for t in ids if t.endswith(BUILD_STEP) and after.outcomes.get(t) not in BAD_OUTCOMES}

    def is_same(test: str) -> bool:
        outcomes = before.outcomes.get(test), after.outcomes.get(test)
        return (old[test], new.get(test)) == outcomes

    left_out = red | built | set(filter(is_same, ids & old.keys()))
    if left_out == ids:  # they pass on the base already
        left_out = red
    first, second = (
        replace(run, outcomes={t: o for t, o in run.outcomes.items() if t not in left_out})
        for run in (before, after)
    )
    return first, second


# ------------------------------------------------------------------------------------- the report


def broken_syntax(problems: tuple[SyntaxProblem, ...], backend: str) -> ValidationReport:
    """Return the report for files that no longer parse."""
    lines = [f"{p.path}, line {p.line}: {p.message}" for p in problems]
    reason = "\n".join(["The patch leaves files that do not parse:", *lines])
    return ValidationReport(Verdict.BROKEN_SYNTAX, reason, backend, syntax_problems=problems)


def _final_report(
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
        evidence=grade(evidence) if verdict is Verdict.VERIFIED else "",
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


def _notes(
    evidence: VerdictEvidence, flaky: Sequence[str], known: KnownTests | None
) -> tuple[str, ...]:
    """Return what the user should know beside the verdict. No prompt contains the notes.

    The names and messages of given tests stay secret, except ids that no run knows.
    """
    notes = [
        f"{where} the run of the project's tests "
        f"{f'ended with {run.ended}' if known else how_it_ended(run)}; what came later is not known"
        for where, run in (("on the base", evidence.before), ("with the patch", evidence.after))
        if run is not None and not is_whole(run)
    ]
    if evidence.known is not None and evidence.known.absent:
        notes.append(f"not found on the base or with the patch: {listed(evidence.known.absent)}")
    if known is None:
        notes.extend(_unmet_needs(evidence.before, evidence.after))
    for tests, words in (
        (flaky, "flaky, not held against the patch"),
        (evidence.flaky, "flaky, not counted for the patch"),
        (evidence.unrelated, "passing newly for another reason, not counted for the patch"),
    ):
        if tests:
            what = number(len(tests), "test") if known else listed(tests)
            notes.append(f"{words}: {what}")
    return tuple(notes)


def _unmet_needs(*runs: TestRun | None) -> tuple[str, ...]:
    """Return what the project's tests lack here, such as a network or a database."""
    return tuple(dict.fromkeys(chain.from_iterable(needs(run) for run in runs if run is not None)))


def missing_tool(suite: Suite, tools: Tools) -> str:
    """Return why the suite cannot be run at all here, or ""."""
    if PYTHON in runner_of(suite).needs and tools.interpreter is None:
        return tools.problem
    if tools.toolchain.missing:
        return f"{suite.why}, and {listed(tools.toolchain.missing)} is not installed here"
    return ""
