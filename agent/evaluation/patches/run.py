"""A whole evaluation of patches: read the inputs, judge in threads, write the report."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from agent.datasets import (
    InputProblem,
    Prediction,
    RowIndex,
    RowSelection,
    ScoringInstance,
    check_folder,
    find_repository,
    read_predictions,
)
from agent.errors import ConfigurationError, SandboxUnavailable
from agent.evaluation.patches.instance import Means, Order, score
from agent.evaluation.patches.report import (
    ErrorKind,
    OwnVerdict,
    ResultFolder,
    RunReport,
    Scored,
    make_report,
    read_own,
)
from agent.shared.files import locked, replace_file
from agent.types.events import Notice, StageFinished, StageProgress, StageStarted

if TYPE_CHECKING:
    from agent.types.protocols import Reporter

STAGE = "score"

GOLD = "gold"
"""The value of `--predictions` that selects the rows' own patches, as in the harness."""

_POLL_SECONDS = 0.2
_SHOWN_IDS = 5


@dataclass(frozen=True, slots=True)
class ScoringPlan:
    """What to evaluate. `run` is the run folder of `agent batch` with our verdicts, if any.

    `folder` keeps the results of instances; with `fresh`, earlier results are ignored.
    """

    predictions: Path | None  # None: GOLD
    dataset: Path
    repositories: Path
    output: Path
    folder: Path
    run: Path | None = None
    selection: RowSelection = field(default_factory=RowSelection)
    workers: int = 1
    fresh: bool = False


@dataclass(slots=True)
class Interrupts:
    """`drain`: no further instance starts; `stop`: running instances are ended too."""

    drain: threading.Event = field(default_factory=threading.Event)
    stop: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True)
class ScoringOutcome:
    """The report, and whether the run was interrupted."""

    report: RunReport
    interrupted: bool


def evaluate(
    plan: ScoringPlan,
    make_means: Callable[[Callable[[str], None], threading.Event], Means],
    reporter: Reporter,
) -> ScoringOutcome:
    """Judge all predictions and write the report.

    `make_means` takes a function that reports long steps, and the event that ends them. Raises
    ConfigurationError for inputs that cannot be used, and SandboxUnavailable for a full disk.
    """
    check_folder(plan.repositories)
    if not plan.output.absolute().parent.is_dir():
        raise ConfigurationError(f"--output {plan.output}: there is no such folder; make it")
    try:
        with _signals(reporter) as interrupts:
            means = make_means(lambda text: reporter(Notice(text)), interrupts.stop)
            run = _Run(plan, means, reporter, interrupts)
            plan.folder.mkdir(parents=True, exist_ok=True)
            with locked(plan.folder / "lock"):
                return run.evaluated()
    except OSError as error:
        raise SandboxUnavailable(
            f"{error.filename or plan.folder}: {error.strerror or error}: repair this and run the "
            "same command again; finished results are kept"
        ) from None


class _Run:
    """One evaluation. Bad inputs are refused before anything is written."""

    def __init__(
        self, plan: ScoringPlan, means: Means, reporter: Reporter, interrupts: Interrupts
    ) -> None:
        """Reads the inputs. Raises ConfigurationError."""
        self._started = time.monotonic()
        self._plan = plan
        self._means = means
        self._reporter = reporter
        self._interrupts = interrupts
        self._problems: list[InputProblem] = []
        self._scored: list[Scored] = []
        predictions = self._predictions()
        wanted = None if predictions is None else predictions.keys()
        self._rows = RowIndex(plan.dataset, plan.selection, wanted)
        self._problems.extend(self._rows.problems)
        _check_ids(plan, self._rows.ids)
        self._given = dict.fromkeys(self._rows.ids) if predictions is None else predictions

    def evaluated(self) -> ScoringOutcome:
        """Judge the selected predictions and write the report."""
        predictions, rows = self._given, self._rows
        names = self._known(predictions, rows)
        self._reporter(StageStarted(STAGE, f"{len(names):,} predictions"))
        self._judge_all(names, predictions, rows)
        report = self._report(rows.ids, names, predictions, time.monotonic() - self._started)
        replace_file(self._plan.output, [_json(report)])
        words = self._in_words(len(names))
        self._reporter(StageFinished(STAGE, report.seconds, words, not report.pending_ids))
        return ScoringOutcome(report, self._interrupts.drain.is_set() and bool(report.pending_ids))

    def _in_words(self, total: int) -> str:
        """Return the final counts as text."""
        earlier = sum(one.kept for one in self._scored)
        resolved = sum(one.outcome == "resolved" for one in self._scored)
        taken = f" ({earlier:,} by an earlier run)" if earlier else ""
        return f"{len(self._scored):,} of {total:,} judged{taken}, {resolved:,} resolved"

    def _predictions(self) -> dict[str, Prediction | None] | None:
        """Return the predictions by id, None for the rows' own patches."""
        if self._plan.predictions is None:
            return None
        found = read_predictions(self._plan.predictions)
        self._problems.extend(found.problems)
        if not found.by_id:
            raise ConfigurationError(
                f"--predictions {self._plan.predictions}: no usable entry"
                + (f" ({found.problems[0].reason})" if found.problems else "")
            )
        return dict(found.by_id)

    def _known(self, predictions: Mapping[str, Prediction | None], rows: RowIndex) -> list[str]:
        """Return the ids of predictions whose rows are selected, and report the others."""
        filtered = self._plan.selection != RowSelection()
        for name in predictions:
            if not rows.has(name) and not filtered:
                reason = f"{name}: no such instance in {self._plan.dataset}"
                place = str(self._plan.predictions)
                self._problems.append(InputProblem("unknown-instance", place, reason, name))
        for problem in self._problems:
            self._reporter(Notice(f"{problem.place}: {problem.reason}", "warning"))
        return [name for name in rows.ids if name in predictions]

    # --------------------------------------------------------------------------------- the workers

    def _judge_all(
        self, names: Sequence[str], predictions: Mapping[str, Prediction | None], rows: RowIndex
    ) -> None:
        waiting, running = iter(names), set[Future[Scored]]()
        with ThreadPoolExecutor(self._plan.workers, "patchshot-evaluate") as pool:
            while True:
                while len(running) < self._plan.workers and not self._interrupts.drain.is_set():
                    name = next(waiting, None)
                    if name is None:
                        break
                    running.add(pool.submit(self._one, name, predictions[name], rows))
                if not running:
                    return
                done, running = wait(running, _POLL_SECONDS, FIRST_COMPLETED)
                for future in done:
                    self._take(future.result(), len(names))

    def _one(self, name: str, prediction: Prediction | None, rows: RowIndex) -> Scored:
        """Judge one instance in a thread. The result holds every problem, so nothing is raised."""
        case = rows.read(name)
        folder = ResultFolder(self._plan.folder, name, fresh=self._plan.fresh)
        if isinstance(case, InputProblem):
            scored = _without_run(name, prediction, "row", f"{case.place}: {case.reason}")
            folder.write(scored, prediction.patch if prediction else "")
            return scored
        chosen = prediction or _gold(case)
        repository = find_repository(self._plan.repositories, case.repo)
        order = Order(case, chosen, repository)
        try:
            return score(order, self._means, folder, self._interrupts.stop)
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001  (a bug must cost one instance, not hundreds)
            why = f"internal error, please report it: {type(error).__name__}: {error}"
            return _without_run(name, chosen, "crash", why)

    def _take(self, scored: Scored, total: int) -> None:
        if scored.error == "stopped":
            return
        self._scored.append(scored)
        level = "warning" if scored.outcome == "error" else "info"
        text = f"{scored.instance_id}: {scored.outcome} ({scored.reason})"
        text += ", by an earlier run" if scored.kept else ""
        self._reporter(Notice(text, level))
        self._reporter(StageProgress(STAGE, len(self._scored), total))

    def _report(
        self,
        ids: Sequence[str],
        names: Sequence[str],
        predictions: Mapping[str, Prediction | None],
        seconds: float,
    ) -> RunReport:
        return make_report(
            ids, names, self._scored, self._problems, self._own(names, predictions), seconds
        )

    def _own(
        self, names: Sequence[str], predictions: Mapping[str, Prediction | None]
    ) -> Mapping[str, OwnVerdict] | None:
        run = self._plan.run
        if run is None:
            return None
        found: dict[str, OwnVerdict] = {}
        for name in names:
            prediction = predictions[name]
            own = read_own(run, name, prediction.patch) if prediction else None
            if own is not None:
                found[name] = own
        return found


def _check_ids(plan: ScoringPlan, found: Sequence[str]) -> None:
    """Check that all named ids exist and that a row is selected. Raises ConfigurationError."""
    missing = sorted(plan.selection.ids.difference(found))
    if missing:
        names = " --id ".join(missing[:_SHOWN_IDS])
        more = f" and {len(missing) - _SHOWN_IDS} more" if len(missing) > _SHOWN_IDS else ""
        raise ConfigurationError(
            f"--id {names}{more}: no such instance in {plan.dataset}; correct the id or leave it "
            "out"
        )
    if not found:
        raise ConfigurationError(
            f"--dataset {plan.dataset}: no row is selected; give another --match or --slice"
        )


def _gold(case: ScoringInstance) -> Prediction:
    return Prediction(instance_id=case.instance_id, model_name_or_path=GOLD, model_patch=case.patch)


def _without_run(name: str, prediction: Prediction | None, error: ErrorKind, why: str) -> Scored:
    """Return the result of an instance that could not be judged."""
    return Scored(
        instance_id=name,
        outcome="error",
        error=error,
        reason=why,
        patch_is_None=prediction is not None and prediction.model_patch is None,
        patch_exists=bool(prediction and prediction.patch),
    )


def _json(report: RunReport) -> bytes:
    data = report.model_dump(mode="json")
    for name, entry in report.instances.items():
        if entry.tests_status is None:
            data["instances"][name].pop("tests_status")
    return (json.dumps(data, indent=2) + "\n").encode("ascii")


@contextmanager
def _signals(reporter: Reporter) -> Iterator[Interrupts]:
    """Handle Ctrl-C (drain, then stop) and SIGTERM (stop)."""
    interrupts = Interrupts()

    def on_interrupt(_number: int, _frame: FrameType | None) -> None:
        if interrupts.drain.is_set():
            interrupts.stop.set()
        interrupts.drain.set()

    def on_terminate(_number: int, _frame: FrameType | None) -> None:
        interrupts.drain.set()
        interrupts.stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return
    before = signal.signal(signal.SIGINT, on_interrupt), signal.signal(signal.SIGTERM, on_terminate)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGTERM, before[1])
