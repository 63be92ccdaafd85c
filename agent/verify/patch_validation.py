"""Validates one patch: chooses tests, plans and runs them, and reaches the verdict. Synchronous.

`PatchValidation.report` lists the steps in their order.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from agent.patching import doubtful
from agent.repository import language_of
from agent.types import (
    AppliedPatch,
    FileChange,
    KnownTests,
    OutdatedTest,
    ReproductionTest,
    SelectedTest,
    SyntaxProblem,
    TestRun,
    ValidationReport,
)
from agent.types.protocols import Snapshot
from agent.verify.choosing import TestChooser
from agent.verify.executor import SuiteExecutor, ValidationOptions
from agent.verify.judging.compare import (
    Comparison,
    by_id,
    judge_known,
    known_paths,
    passing_in_both,
)
from agent.verify.judging.outdated import (
    OutdatedJudgement,
    declared_for,
    judge_outdated,
)
from agent.verify.judging.reading import (
    TestReader,
    edited_inside,
    find_hidden_tests,
    find_losses,
    find_tricks,
)
from agent.verify.judging.reproduction import (
    Judgement,
    NameChecks,
    Standing,
    confirm,
    judge,
    with_source,
)
from agent.verify.judging.verdict import VerdictEvidence
from agent.verify.path_rules import is_test_side, steers_tests
from agent.verify.plan import Plan, PlanExecution, PlanRuns, SteadyComparison, TestEdits, make_plan
from agent.verify.reporting import (
    Proof,
    broken_syntax,
    final_report,
    first_report,
    missing_tool,
    report_notes,
    unmet_needs,
    without_tests,
)
from agent.verify.runners import runner_of
from agent.verify.runners.base import Suite, Tools, is_this_python

# How often everything is run once more with fewer files, where they do not fit the time limit.
_MOST_AGAIN = 2

# Tests whose execution is recorded to see how many an outdated test stands against: a report of
# 16 MiB holds as many accounts.
_MOST_TRACED = 1_000

_GIVEN = "named by the tests that were given"


@dataclass(slots=True)
class PatchValidation:
    """Holds what all patches of one validator share. `choosers` by suite belong to the caller."""

    executor: SuiteExecutor
    snapshot: Snapshot
    problem_text: str
    options: ValidationOptions
    backend: str
    cancel: threading.Event
    choosers: dict[str, TestChooser]

    def report(
        self,
        patch: AppliedPatch,
        test: ReproductionTest | None,
        earlier: Sequence[ReproductionTest] = (),
        outdated: Sequence[OutdatedTest] = (),
    ) -> ValidationReport:
        """Run the tests and judge the patch. Raises ConfigurationError and SandboxError."""
        suite, tools = self.executor.suite([c.path for c in patch.changes], self.cancel)
        problems = self._syntax_problems(patch, tools)
        if problems:
            return broken_syntax(problems, self.backend, 0.0)
        return self._report_of(suite, tools, patch, test, earlier, outdated)

    def _report_of(
        self,
        suite: Suite,
        tools: Tools,
        patch: AppliedPatch,
        test: ReproductionTest | None,
        earlier: Sequence[ReproductionTest],
        outdated: Sequence[OutdatedTest],
        *,
        again: int = _MOST_AGAIN,
    ) -> ValidationReport:
        """Report with this suite; with fewer files if the base's run hits its time limit."""
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
        report = first_report(plan, suite, tools, self.backend)
        missing = missing_tool(suite, tools)
        if missing:
            return replace(report, reason=f"No test could be run: {missing}.")
        execution = PlanExecution(self.executor, plan, suite, self.cancel)
        runs = execution.run_all()
        if again and self._needs_fewer(suite, runs, selected):
            left = again - 1
            return self._report_of(suite, tools, patch, test, earlier, outdated, again=left)
        steady = execution.compare_steadily(runs)
        tricks = self._tricks(plan)
        excused = OutdatedJudgement()
        if known is None and outdated:
            excused = self._outdated(execution, runs, steady, outdated)
        judged = without_tests(steady, excused.accepted)
        proof, edits = self._proof(execution, runs, judged, known, bool(tricks)), TestEdits()
        if known is None:
            edits = execution.find_test_edits(runs, steady, proof.flaky)
        evidence = self._evidence(plan, runs, judged, edits, known, proof, tricks)
        evidence = replace(evidence, outdated=excused)
        notes = report_notes(runs, steady, known, evidence.known, proof)
        return final_report(report, plan, runs, evidence, notes)

    def _syntax_problems(self, patch: AppliedPatch, tools: Tools) -> tuple[SyntaxProblem, ...]:
        """Return what the target's own Python cannot parse, where ours cannot tell."""
        if tools.interpreter is None or is_this_python(tools.interpreter.version):
            asked = doubtful(patch.changes)
        else:
            changed = (c.path for c in patch.changes if c.after is not None)
            asked = tuple(sorted(path for path in changed if language_of(path) == "python"))
        return self.executor.python_errors(asked, patch.changes, self.cancel) if asked else ()

    def _known(self, suite: Suite) -> KnownTests | None:
        """Return the given tests under the ids that the suite's runs report."""
        known, runner = self.options.known, runner_of(suite)
        return by_id(known, lambda name: runner.test_id(suite, name)) if known else None

    def _selected(
        self, patch: AppliedPatch, suite: Suite, known: KnownTests | None
    ) -> tuple[SelectedTest, ...]:
        paths = known_paths(known, self.snapshot.exists) if known else ()
        if paths:
            return tuple(SelectedTest(path, _GIVEN) for path in paths)
        return self._chooser(suite).choose(patch.changes)

    def _chooser(self, suite: Suite) -> TestChooser:
        chooser = self.choosers.get(repr(suite))
        if chooser is None:
            most, seconds = self.options.max_test_files, self.options.timeout
            chooser = TestChooser(self.snapshot, self.problem_text, seconds, suite, most)
            self.choosers[repr(suite)] = chooser
        return chooser

    def _needs_fewer(self, suite: Suite, runs: PlanRuns, selected: Sequence[SelectedTest]) -> bool:
        """Whether the run of the base hit its time limit; fewer files are chosen from then on."""
        if self.cancel.is_set() or runs.before is None or self.options.known:
            return False
        return self._chooser(suite).narrow(runs.before, selected)

    def _outdated(
        self,
        execution: PlanExecution,
        runs: PlanRuns,
        steady: SteadyComparison | None,
        declared: Sequence[OutdatedTest],
    ) -> OutdatedJudgement:
        """Judge the tests that fail newly and that the reply calls outdated."""
        failing = steady.comparison.newly_failing if steady else ()
        suite = execution.suite
        theirs = declared_for(failing, declared, lambda name: runner_of(suite).test_id(suite, name))
        if not theirs or runs.before is None or runs.after is None:
            return OutdatedJudgement()
        files = {test.partition("::")[0] for test in theirs}
        passing = sorted(
            passing_in_both(runs.before, runs.after),
            key=lambda test: (test.partition("::")[0] not in files, test),
        )
        traced = execution.run_outdated((*theirs, *passing[:_MOST_TRACED]))
        if traced is None:
            return OutdatedJudgement()
        return judge_outdated(failing, theirs, runs.after, traced)

    def _proof(
        self,
        execution: PlanExecution,
        runs: PlanRuns,
        steady: SteadyComparison | None,
        known: KnownTests | None,
        suspect: bool,
    ) -> Proof:
        """Run what passes newly once more, unless the verdict is known without that."""
        new = self._new_tests(execution.plan, runs)
        comparison = steady.comparison if steady else Comparison()
        passing = comparison.newly_passing
        refuted = new is not None and new.standing in (Standing.STILL_FAILS, Standing.SUSPECT)
        if suspect or refuted or comparison.newly_failing or execution.plan.only_tests:
            return Proof(new, passing)
        if known:
            replays = execution.replay(
                runs, [test for test in known.fail_to_pass if test in passing]
            )
            tests = known.fail_to_pass  # which are not named: they stay out of prompts
            reasons = {replays.why_loose(t) or replays.why_no_evidence(t) for t in tests} - {""}
            return Proof(new, passing, loose=tuple(f"a test: {why}" for why in sorted(reasons)))
        proving = new.tests if new is not None and new.standing is Standing.PROVES else ()
        if not (proving or passing):
            return Proof(new)
        again = execution.run_proof_again(runs, proving, passing)
        texts = b"\n".join(change.after or b"" for change in execution.plan.new_tests)

        def mentioned(name: str) -> bool:
            return self._issue_names(name) and name.encode() in texts

        replays = execution.replay(runs, (*proving, *passing))
        weak = self._reader(execution.plan, runs).why_weak

        def why_weak(test: str) -> str:
            return replays.why_no_evidence(test) or weak(test)

        steadily = [test for test in passing if test in again and again[test].is_steady(test)]
        doubts = {
            t: again[t].why_unrelated(t, mentioned, given=True) or replays.why_no_evidence(t)
            for t in steadily
        }
        return Proof(
            confirm(new, again, mentioned, why_weak) if new is not None else None,
            tuple(test for test in steadily if not doubts[test]),
            tuple(test for test in passing if test not in doubts),
            tuple(test for test in steadily if doubts[test]),
            tuple({id(one): one for one in again.values()}.values()),
            tuple(sorted(filter(None, map(replays.why_loose, (*proving, *passing))))),
        )

    def _evidence(
        self,
        plan: Plan,
        runs: PlanRuns,
        steady: SteadyComparison | None,
        edits: TestEdits,
        known: KnownTests | None,
        proof: Proof,
        tricks: tuple[str, ...],
    ) -> VerdictEvidence:
        comparison = steady.comparison if steady else None
        failing = comparison.newly_failing if comparison else ()
        inside = edited_inside(plan.source)
        return VerdictEvidence(
            before=runs.before,
            after=runs.after,
            comparison=comparison,
            proof=tuple(t for t in proof.passing if t.rpartition("::")[2] not in inside),
            new_tests=proof.new_tests,
            again=proof.again,
            whole=runs.whole,
            lost=edits.lost,
            silenced=edits.silenced,
            only_tests=plan.only_tests,
            edited_tests=plan.edited_tests,
            weakened=find_losses(plan.tests, plan.source).words,
            held=plan.held,
            tricks=(*tricks, *proof.loose),
            known=judge_known(known, runs.before, runs.after, failing) if known else None,
            needs="; ".join(unmet_needs(runs)),
            named_command=self.options.test_cmd is not None,
        )

    def _tricks(self, plan: Plan) -> tuple[str, ...]:
        """Return what makes the patch suspect whatever the runs show."""
        # With --allow, configuration is among the source.
        steering = (c for c in (*plan.source, *plan.configuration) if steers_tests(c.path))
        hidden = find_hidden_tests(tuple(steering))
        return (*find_tricks(plan.source, self._source_texts(plan)), *hidden, *plan.hiding)

    def _new_tests(self, plan: Plan, runs: PlanRuns) -> Judgement | None:
        """Judge the new tests. In Go their run has the project's tests of the package too."""
        if runs.new_before is None or runs.new_after is None:
            return None
        checks = NameChecks(self._is_own, _NewWords(plan.source).has, self._issue_names)
        theirs = runs.before.outcomes if runs.before else {}
        before, after = (_leaving_out(run, theirs) for run in (runs.new_before, runs.new_after))
        return with_source(judge(before, after, checks), plan.earlier_tests)

    def _reader(self, plan: Plan, runs: PlanRuns) -> TestReader:
        return TestReader(
            plan.new_tests,
            plan.source,
            self.problem_text,
            _NewWords(plan.source).has,
            self._issue_names,
        )

    def _issue_names(self, name: str) -> bool:
        return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", self.problem_text) is not None

    def _is_own(self, name: str) -> bool:
        """Whether a top-level module is the target's: a file or folder of it has that name."""
        wanted = {name, f"{name}.py"}
        return any(not wanted.isdisjoint(path.split("/")) for path in self.snapshot.files)

    def _source_texts(self, plan: Plan) -> chain[str]:
        """Return the sources of the base in the patch's languages, each read when asked for."""
        spoken = {language_of(change.path) for change in plan.source}
        paths = (p for p in self.snapshot.files if language_of(p) in spoken and not is_test_side(p))
        return chain.from_iterable([self.snapshot.text(path)] for path in paths)


class _NewWords:
    """The names that a patch adds to its source files and that those files lacked before."""

    def __init__(self, source: Sequence[FileChange]) -> None:
        self._before = b"\n".join(change.before or b"" for change in source)
        self._after = b"\n".join(change.after or b"" for change in source)
        self._paths = "\n".join(change.path for change in source if change.before is None)

    def has(self, name: str) -> bool:
        """Whether the patch adds the name, in a file or as the path of a new one."""
        word = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")
        if word.search(self._paths):
            return True
        data = word.pattern.encode()
        return bool(re.search(data, self._after)) and not re.search(data, self._before)


def _leaving_out(run: TestRun, tests: Collection[str]) -> TestRun:
    """Return the run without these single tests; what stands for a file or package stays."""
    outcomes = {t: o for t, o in run.outcomes.items() if "::" not in t or t not in tests}
    return replace(run, outcomes=outcomes) if len(outcomes) < len(run.outcomes) else run
