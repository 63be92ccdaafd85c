"""One patch on trial: what is run, what it shows, the verdict. Synchronous."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

from agent.patching.syntax import doubtful
from agent.protocols import Snapshot
from agent.repository.languages import language_of
from agent.types import (
    AppliedPatch,
    FileChange,
    KnownTests,
    ReproductionTest,
    SelectedTest,
    ValidationReport,
    Verdict,
)
from agent.validation.choosing.choice import TestChooser
from agent.validation.frameworks.base import PYTHON, Suite
from agent.validation.frameworks.interpreter import Tools
from agent.validation.frameworks.needs import needs
from agent.validation.frameworks.registry import STANDS_IN, framework_of
from agent.validation.frameworks.runners import is_this_python
from agent.validation.judging.compare import is_whole, passing_in_both
from agent.validation.judging.known import KnownJudgement, by_id, judge_known, known_paths
from agent.validation.judging.reproduction import Judgement, Names, Standing, judge
from agent.validation.judging.tricks import find_hiding, find_tricks
from agent.validation.judging.verdict import Evidence, decide
from agent.validation.judging.wording import how_it_ended, listed, number
from agent.validation.layout import is_test_side
from agent.validation.running.bench import Bench, ValidationOptions
from agent.validation.running.flakes import Changed, Steady, changed_in_whole, without_flakes
from agent.validation.running.plan import Plan, make_plan
from agent.validation.running.runs import Runs, run_plan
from agent.validation.syntax_only import broken_syntax

_GIVEN = "named by the tests that were given"


@dataclass(slots=True)
class Trial:
    """Shares what one validation is about. `choosers` are kept by the caller, by suite."""

    bench: Bench
    snapshot: Snapshot
    problem_text: str
    options: ValidationOptions
    backend: str
    cancel: threading.Event
    choosers: dict[str, TestChooser]

    def report(self, patch: AppliedPatch, test: ReproductionTest | None) -> ValidationReport:
        """Run and judge. Raises ConfigurationError and SandboxError."""
        suite, tools = self.bench.suite([c.path for c in patch.changes], self.cancel)
        asked = _to_ask(patch, tools)
        problems = self.bench.python_errors(asked, patch.changes, self.cancel) if asked else ()
        if problems:
            return broken_syntax(problems, self.backend, 0.0)
        known = self._known(suite)
        selected = self._selected(patch, suite, known)
        plan = make_plan(self.snapshot, patch, test, selected, own_tests=known is None)
        report = _opened(plan, suite, tools, self.backend)
        missing = _missing(suite, tools)
        if missing:
            return replace(report, reason=f"No test could be run: {missing}.")
        runs = run_plan(self.bench, plan, suite, self.cancel)
        steady = without_flakes(self.bench, plan, suite, runs, self.cancel)
        changed = Changed()
        if known is None:
            changed = changed_in_whole(self.bench, plan, suite, runs, steady, self.cancel)
        evidence = self._evidence(plan, runs, steady, changed, known)
        return _closed(report, plan, runs, evidence, _notes(runs, steady, known, evidence.known))

    def _known(self, suite: Suite) -> KnownTests | None:
        """The given tests under the ids that the suite's runs report."""
        known, framework = self.options.known, framework_of(suite)
        return by_id(known, lambda name: framework.test_id(suite, name)) if known else None

    def _selected(
        self, patch: AppliedPatch, suite: Suite, known: KnownTests | None
    ) -> tuple[SelectedTest, ...]:
        paths = known_paths(known, self.snapshot.exists) if known else ()
        if paths:
            return tuple(SelectedTest(path, _GIVEN) for path in paths)
        chooser = self.choosers.get(repr(suite))
        if chooser is None:
            most, seconds = self.options.max_test_files, self.options.timeout
            chooser = TestChooser(self.snapshot, self.problem_text, most, seconds, suite)
            self.choosers[repr(suite)] = chooser
        return chooser.choose(patch.changes)

    def _evidence(
        self,
        plan: Plan,
        runs: Runs,
        steady: Steady | None,
        changed: Changed,
        known: KnownTests | None,
    ) -> Evidence:
        comparison = steady.comparison if steady else None
        failing = comparison.newly_failing if comparison else ()
        hiding = find_hiding(plan.held)
        return Evidence(
            before=runs.a,
            after=runs.c,
            comparison=comparison,
            proof=comparison.newly_passing if comparison else (),
            new_tests=self._new_tests(plan, runs),
            whole=runs.d,
            lost=changed.lost,
            taken=changed.taken,
            only_tests=plan.only_tests,
            tricks=(*find_tricks(plan.source, self._source_texts()), *hiding),
            known=judge_known(known, runs.a, runs.c, failing) if known else None,
            needs="; ".join(_wants(runs)),
        )

    def _new_tests(self, plan: Plan, runs: Runs) -> Judgement | None:
        if runs.b is None or runs.c_new is None:
            return None
        return judge(
            runs.b, runs.c_new, Names(self._is_own, _Words(plan.source).are_new, self._asked)
        )

    def _asked(self, name: str) -> bool:
        """Whether the issue speaks of a name."""
        return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", self.problem_text) is not None

    def _is_own(self, name: str) -> bool:
        """Whether a top-level module is the target's: some file or folder of it has that name."""
        wanted = {name, f"{name}.py"}
        return any(not wanted.isdisjoint(path.split("/")) for path in self.snapshot.files)

    def _source_texts(self) -> chain[str]:
        """Python sources of the base, read only when somebody asks."""
        paths = (p for p in self.snapshot.files if p.endswith(".py") and not is_test_side(p))
        return chain.from_iterable([self.snapshot.text(path)] for path in paths)


class _Words:
    """Whether a patch brings a name: it stands in its source, and stood not in the same files."""

    def __init__(self, source: Sequence[FileChange]) -> None:
        self._before = b"\n".join(change.before or b"" for change in source)
        self._after = b"\n".join(change.after or b"" for change in source)
        self._paths = "\n".join(change.path for change in source if change.before is None)

    def are_new(self, name: str) -> bool:
        """Whether the patch has the name and the base has it not there."""
        word = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")
        if word.search(self._paths):
            return True
        data = word.pattern.encode()
        return bool(re.search(data, self._after)) and not re.search(data, self._before)


def _opened(plan: Plan, suite: Suite, tools: Tools, backend: str) -> ValidationReport:
    """A report that holds what is known before anything was run."""
    runner = f"{suite.framework}: {suite.why}"
    told = (*plan.notes, *tools.toolchain.notes)
    report = ValidationReport(Verdict.UNVERIFIED, "", backend, runner=runner, notes=told)
    python = tools.interpreter
    if python is None:
        return report
    about = f"{python.path} (Python {python.version}): {python.why}"
    if STANDS_IN in suite.settings:
        note = f"{suite.why}; name another interpreter with --python"
        return replace(report, interpreter=about, notes=(*told, note))
    return replace(report, interpreter=about)


def _closed(
    report: ValidationReport, plan: Plan, runs: Runs, evidence: Evidence, notes: tuple[str, ...]
) -> ValidationReport:
    """The report with its verdict, and the runs and lists that it rests on."""
    verdict, reason = decide(evidence)
    new, known, comparison = evidence.new_tests, evidence.known, evidence.comparison
    shown = new.tests if new is not None and new.standing is Standing.PROVES else ()
    fixed = tuple(sorted({*evidence.proof, *shown} - {*evidence.lost}))
    kept = passing_in_both(runs.a, runs.c) if runs.a and runs.c else ()
    failing = comparison.newly_failing if comparison else ()
    return replace(
        report,
        verdict=verdict,
        reason=reason,
        selected=plan.selected if runs.by_files else (),
        before=runs.a,
        after=runs.c,
        reproduction_before=runs.b,
        reproduction_after=runs.c_new,
        whole=runs.d,
        newly_failing=tuple(sorted({*failing, *evidence.lost})),
        newly_passing=fixed,
        fail_to_pass=known.fixed if known else fixed,
        pass_to_pass=known.kept if known else kept,
        known_missed=known.missed if known else (),
        notes=(*report.notes, *notes),
    )


def _notes(
    runs: Runs, steady: Steady | None, known: KnownTests | None, judged: KnownJudgement | None
) -> tuple[str, ...]:
    """What is to be known beside the verdict; no prompt has it.

    Of given tests no name and no word is told, but for names that no run knows: they are the
    user's own, and most often misspelt.
    """
    notes = _cut_short(runs, known)
    if judged is not None and judged.absent:
        notes.append(f"not found on the base or with the patch: {listed(judged.absent)}")
    if known is None:
        notes.extend(_wants(runs))
    for tests, words in (
        (steady.not_against if steady else (), "not held against the patch"),
        (steady.not_for if steady else (), "not counted for the patch"),
    ):
        if tests:
            what = number(len(tests), "test") if known else listed(tests)
            notes.append(f"flaky, {words}: {what}")
    return tuple(notes)


def _wants(runs: Runs) -> tuple[str, ...]:
    """What the project's tests lack here: network, a database."""
    found = chain.from_iterable(needs(run) for run in (runs.a, runs.c) if run is not None)
    return tuple(dict.fromkeys(found))


def _missing(suite: Suite, tools: Tools) -> str:
    """What cannot be run at all here, or ""."""
    if PYTHON in framework_of(suite).programs(suite) and tools.interpreter is None:
        return tools.problem
    if tools.toolchain.missing:
        return f"{suite.why}, and {listed(tools.toolchain.missing)} is not installed here"
    return ""


def _cut_short(runs: Runs, known: KnownTests | None) -> list[str]:
    """What was not seen of the project's tests: a verdict covers only what ran."""
    both = (("on the base", runs.a), ("with the patch", runs.c))
    return [
        f"{where} the run of the project's tests "
        f"{f'ended with {run.ended}' if known else how_it_ended(run)}; what came later is not known"
        for where, run in both
        if run is not None and not is_whole(run)
    ]


def _to_ask(patch: AppliedPatch, tools: Tools) -> tuple[str, ...]:
    """Python files on which the target's own grammar has the last word."""
    if tools.interpreter is None or is_this_python(tools.interpreter.version):
        return doubtful(patch.changes)
    changed = (c.path for c in patch.changes if c.after is not None)
    return tuple(sorted(path for path in changed if language_of(path) == "python"))
