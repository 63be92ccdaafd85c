"""A whole evaluation of patches: read the inputs, judge in threads, write the report."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from agent.datasets import (
    InputProblem,
    Prediction,
    RowSelection,
    ScoringInstance,
    check_folder,
    find_repository,
    read_instances,
    read_predictions,
)
from agent.errors import ConfigurationError, SandboxUnavailable
from agent.evaluation.patches.instance import Means, Order, score
from agent.evaluation.patches.report import (
    ErrorKind,
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


@dataclass(frozen=True, slots=True)
class ScoringOutcome:
    """The report, and whether the run was interrupted."""

    report: RunReport
    interrupted: bool


@dataclass(frozen=True, slots=True)
class _Inputs:
    """Rows and predictions by id (None for a row's own patch), and unusable entries."""

    rows: Mapping[str, ScoringInstance | InputProblem]
    predictions: Mapping[str, Prediction | None]
    problems: tuple[InputProblem, ...]

    @property
    def names(self) -> list[str]:
        """The ids that have a row and a prediction, in the order of the rows."""
        return [name for name in self.rows if name in self.predictions]


def evaluate(
    plan: ScoringPlan,
    make_means: Callable[[Callable[[str], None], threading.Event], Means],
    reporter: Reporter,
) -> ScoringOutcome:
    """Judge all predictions and write the report.

    `make_means` takes a function that reports long steps, and the event that ends them. Raises
    ConfigurationError for inputs that cannot be used, and SandboxUnavailable for a full disk.
    """
    started = time.monotonic()
    check_folder(plan.repositories)
    if not plan.output.absolute().parent.is_dir():
        raise ConfigurationError(f"--output {plan.output}: there is no such folder; make it")
    with _stopped_by_signals() as stop:
        try:
            means = make_means(lambda text: reporter(Notice(text)), stop)
            inputs = _read_inputs(plan)
            for problem in inputs.problems:
                reporter(Notice(f"{problem.place}: {problem.reason}", "warning"))
            plan.folder.mkdir(parents=True, exist_ok=True)
            with locked(plan.folder / "lock"):
                scored = _judge_all(plan, inputs, means, reporter, stop)
                report = _report(plan, inputs, scored, time.monotonic() - started)
                replace_file(plan.output, [_json(report)])
        except OSError as error:
            raise SandboxUnavailable(
                f"{error.filename or plan.folder}: {error.strerror or error}: repair this and run "
                "the same command again; finished results are kept"
            ) from None
        words = _in_words(scored, len(inputs.names))
        reporter(StageFinished(STAGE, report.seconds, words, not report.pending_ids))
        return ScoringOutcome(report, stop.is_set() and bool(report.pending_ids))


def _read_inputs(plan: ScoringPlan) -> _Inputs:
    """Read predictions and rows. Raises ConfigurationError."""
    predictions: Mapping[str, Prediction | None] = {}
    problems: list[InputProblem] = []
    if plan.predictions is not None:
        read = read_predictions(plan.predictions)
        predictions, problems = read.by_id, list(read.problems)
        if not predictions:
            reason = f" ({problems[0].reason})" if problems else ""
            raise ConfigurationError(f"--predictions {plan.predictions}: no usable entry{reason}")
    rows: dict[str, ScoringInstance | InputProblem] = {}
    for row in read_instances(plan.dataset, ScoringInstance, plan.selection):
        name = row.instance_id
        # A bad row is the outcome of its prediction; without one it does not count.
        if isinstance(row, ScoringInstance) or (name in predictions and name not in rows):
            rows[name] = row
        else:
            problems.append(row)
    _check_ids(plan, rows)
    if plan.predictions is None:
        predictions = dict.fromkeys(rows)
    elif plan.selection == RowSelection():
        place = str(plan.predictions)
        problems += [
            InputProblem(
                "unknown-instance", place, f"{name}: no such instance in {plan.dataset}", name
            )
            for name in predictions
            if name not in rows
        ]
    return _Inputs(rows, predictions, tuple(problems))


def _check_ids(plan: ScoringPlan, rows: Mapping[str, object]) -> None:
    """Check that all named ids exist and that a row is selected. Raises ConfigurationError."""
    missing = sorted(plan.selection.ids.difference(rows))
    if missing:
        names = " --id ".join(missing[:_SHOWN_IDS])
        more = f" and {len(missing) - _SHOWN_IDS} more" if len(missing) > _SHOWN_IDS else ""
        raise ConfigurationError(
            f"--id {names}{more}: no such instance in {plan.dataset}; correct the id or leave it "
            "out"
        )
    if not rows:
        raise ConfigurationError(
            f"--dataset {plan.dataset}: no row is selected; give another --match or --slice"
        )


# ----------------------------------------------------------------------------------- the workers


def _judge_all(
    plan: ScoringPlan, inputs: _Inputs, means: Means, reporter: Reporter, stop: threading.Event
) -> list[Scored]:
    """Judge until all is done, or until `stop` is set, which ends the instances under way."""
    names, results = inputs.names, list[Scored]()
    reporter(StageStarted(STAGE, f"{len(names):,} predictions"))
    judge = partial(_judge, plan, inputs, means, stop)
    waiting, running = iter(names), set[Future[Scored]]()
    with ThreadPoolExecutor(plan.workers, "patchshot-evaluate") as pool:
        while True:
            while len(running) < plan.workers and not stop.is_set():
                name = next(waiting, None)
                if name is None:
                    break
                running.add(pool.submit(judge, name))
            if not running:
                return results
            done, running = wait(running, _POLL_SECONDS, FIRST_COMPLETED)
            for scored in (future.result() for future in done):
                if scored.error == "stopped":
                    continue
                results.append(scored)
                level = "warning" if scored.outcome == "error" else "info"
                text = f"{scored.instance_id}: {scored.outcome} ({scored.reason})"
                text += ", by an earlier run" if scored.kept else ""
                reporter(Notice(text, level))
                reporter(StageProgress(STAGE, len(results), len(names)))


def _judge(
    plan: ScoringPlan, inputs: _Inputs, means: Means, stop: threading.Event, name: str
) -> Scored:
    """Judge one instance in a thread. The result has every problem but an OSError."""
    prediction, row = inputs.predictions[name], inputs.rows[name]
    folder = ResultFolder(plan.folder, name, fresh=plan.fresh)
    if isinstance(row, InputProblem) or not (row.fail_to_pass or row.pass_to_pass):
        reason = f"{plan.dataset}: FAIL_TO_PASS, PASS_TO_PASS: no test decides"
        if isinstance(row, InputProblem):
            reason = f"{row.place}: {row.reason}"
        scored = _without_run(name, prediction, "row", reason)
        folder.write(scored, prediction.patch if prediction else "")
        return scored
    chosen = prediction or _gold(row)
    order = Order(row, chosen, find_repository(plan.repositories, row.repo))
    try:
        return score(order, means, folder, stop)
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001  (a bug must cost one instance, not hundreds)
        why = f"internal error, please report it: {type(error).__name__}: {error}"
        return _without_run(name, chosen, "crash", why)


def _gold(row: ScoringInstance) -> Prediction:
    return Prediction(instance_id=row.instance_id, model_name_or_path=GOLD, model_patch=row.patch)


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


# ------------------------------------------------------------------------------------ the report


def _report(plan: ScoringPlan, inputs: _Inputs, scored: list[Scored], seconds: float) -> RunReport:
    verdicts = None
    if plan.run is not None:
        given = ((name, inputs.predictions[name]) for name in inputs.names)
        read = ((name, read_own(plan.run, name, one.patch)) for name, one in given if one)
        verdicts = {name: verdict for name, verdict in read if verdict is not None}
    return make_report(list(inputs.rows), inputs.names, scored, inputs.problems, verdicts, seconds)


def _in_words(scored: list[Scored], total: int) -> str:
    earlier = sum(one.kept for one in scored)
    resolved = sum(one.outcome == "resolved" for one in scored)
    by_earlier_run = f" ({earlier:,} by an earlier run)" if earlier else ""
    return f"{len(scored):,} of {total:,} judged{by_earlier_run}, {resolved:,} resolved"


def _json(report: RunReport) -> bytes:
    data = report.model_dump(mode="json")
    for name, entry in report.instances.items():
        if entry.tests_status is None:
            data["instances"][name].pop("tests_status")
    return (json.dumps(data, indent=2) + "\n").encode("ascii")


@contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C and SIGTERM set."""
    stop = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {name: signal.signal(name, on_signal) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
