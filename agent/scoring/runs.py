"""What the runs of one instance say: of its prediction, and of its row. Synchronous."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agent.scoring.applying import Patched, merged
from agent.scoring.judging import Judged, judge
from agent.scoring.report import DatasetCheck
from agent.scoring.rows import Case
from agent.scoring.workbench import Workbench
from agent.types import FileChange, TestRun
from agent.validation.judging.compare import executed, is_whole
from agent.validation.judging.trust import lies, suspicion
from agent.validation.judging.wording import how_it_ended, listed, number

# Of what a run printed: the error and the summary.
_LAST_LINES = 4

_BASE, _GOLD, _PATCHED = "the base", "the base with the row's patch", "the patched tree"


@dataclass(frozen=True, slots=True)
class Trees:
    """Changes of the base commit, and whether it has a path. `gold` is why, where it fails."""

    tests: Patched
    patch: Patched
    gold: Patched | str | None
    exists: Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Findings:
    """What came of an instance. `blame`: nothing could be run, and it is not the prediction."""

    judged: Judged
    reason: str
    ended: str
    runner: str
    suspicion: str = ""
    check: DatasetCheck | None = None
    notes: tuple[str, ...] = ()
    blame: str = ""


def judge_runs(
    bench: Workbench, case: Case, trees: Trees, say: Callable[[str], None], *, check: bool
) -> Findings:
    """Run the given tests with the prediction, and on other trees where that is needed.

    `say` is told which run comes next. Raises SandboxError.
    """
    return _Runs(bench, case, trees, say).findings(check=check)


class _Runs:
    def __init__(
        self, bench: Workbench, case: Case, trees: Trees, say: Callable[[str], None]
    ) -> None:
        self._bench = bench
        self._case = case
        self._trees = trees
        self._say = say
        self._known: dict[str, TestRun] = {}
        given = (*case.fail_to_pass, *case.pass_to_pass)
        self._files = bench.files(given, trees.tests.changes)

    def findings(self, *, check: bool) -> Findings:
        checked = self._check() if check else None
        run = self._run(_PATCHED, self._trees.patch.changes)
        judged = self._judge(run)
        blame = "" if executed(run) else self._blame()
        doubt = self._doubt(run) if judged.resolved else ""
        return Findings(
            judged=judged,
            reason=_reason(judged, run, doubt),
            ended=run.ended,
            runner=self._bench.words,
            suspicion=doubt,
            check=checked,
            notes=_notes(judged, run, self._trees.gold),
            blame=blame,
        )

    def _run(self, where: str, changes: Sequence[FileChange]) -> TestRun:
        """Each tree is run once; equal trees, too."""
        if where not in self._known:
            self._say(where)
            whole = merged(changes, self._trees.tests.changes)
            self._known[where] = self._bench.run(self._files, whole, where)
        return self._known[where]

    def _base(self) -> TestRun:
        return self._run(_BASE, ())

    def _gold(self) -> TestRun | None:
        gold = self._trees.gold
        if not isinstance(gold, Patched):
            return None
        same = gold.changes == self._trees.patch.changes
        return self._run(_PATCHED if same else _GOLD, gold.changes)

    def _judge(self, run: TestRun) -> Judged:
        results = self._bench.results(run)
        return judge(self._case.fail_to_pass, self._case.pass_to_pass, results)

    def _check(self) -> DatasetCheck:
        """Whether the row holds what it says."""
        before, gold = self._judge(self._base()).status, self._gold()
        status = None if gold is None else self._judge(gold).status
        failing = () if status is None else (
            *status.FAIL_TO_PASS.failure, *status.PASS_TO_PASS.failure
        )  # fmt: skip
        early, never = before.FAIL_TO_PASS.success, before.PASS_TO_PASS.failure
        parts = (
            (early, "FAIL_TO_PASS pass without any patch"),
            (never, "PASS_TO_PASS do not pass without any patch"),
            (failing, "given tests fail with the row's own patch"),
        )
        problems = [f"{len(tests)} {words}: {listed(tests)}" for tests, words in parts if tests]
        if isinstance(self._trees.gold, str):
            problems.append(f"the row's own patch does not apply: {self._trees.gold}")
        return DatasetCheck(
            not_failing=early,
            not_passing=never,
            gold=None if self._trees.gold is None else status is not None and not failing,
            gold_failing=failing,
            problems=tuple(problems),
        )

    def _blame(self) -> str:
        """Why nothing could be run, where that is not for the prediction."""
        gold = self._gold()
        other = self._base() if gold is None else gold
        if executed(other):
            return ""
        tree = "without the prediction" if gold is None else "with the row's own patch"
        return f"no test can be run {tree} either: {how_it_ended(other)}; {_last_words(other)}"

    def _doubt(self, run: TestRun) -> str:
        """Why a run that looks well cannot be believed although that on the base can."""
        if not lies(run) and not run.channels.traces:
            return ""
        return suspicion(self._base(), run)


def _reason(judged: Judged, run: TestRun, doubt: str) -> str:
    parts = []
    for name, tests in (
        ("FAIL_TO_PASS", judged.status.FAIL_TO_PASS),
        ("PASS_TO_PASS", judged.status.PASS_TO_PASS),
    ):
        total = len(tests.success) + len(tests.failure)
        if total:
            parts.append(f"{len(tests.success)} of {total} {name} pass")
    if not is_whole(run):
        parts.append(how_it_ended(run))
    if doubt:
        parts.append(doubt)
    return "; ".join(parts)


def _last_words(run: TestRun) -> str:
    said = [line.strip() for line in run.output_tail.splitlines() if line.strip("=_- \t")]
    return " / ".join(said[-_LAST_LINES:])


def _notes(judged: Judged, run: TestRun, gold: Patched | str | None) -> tuple[str, ...]:
    notes = []
    if not executed(run):
        notes.append(f"no test ran: {how_it_ended(run)}; {_last_words(run)}")
    elif judged.absent:
        what = number(len(judged.absent), "given id")
        notes.append(f"{what} the run does not know: {listed(judged.absent)}")
    if isinstance(gold, str):
        notes.append(f"the row's own patch does not apply: {gold}")
    return tuple(notes)
