"""A whole evaluation of patches: read the inputs, judge in threads, write the report."""

from __future__ import annotations

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
    check_output,
    find_repository,
    folder_name,
    read_entries,
)
from agent.errors import ConfigurationError, SandboxUnavailable
from agent.evaluation.patches.instance import Means, Order, build_environments, score
from agent.evaluation.patches.report import (
    RESULT,
    ErrorKind,
    RunReport,
    Scored,
    as_json,
    make_report,
    read_own,
    write_scored,
)
from agent.shared.files import locked, replace_file
from agent.types.events import Notice, StageFinished, StageProgress, StageStarted

if TYPE_CHECKING:
    from agent.types.protocols import Reporter

STAGE = "score"

GOLD = "gold"
"""The value of `--predictions` that selects the rows' own patches, as in the harness."""

_POLL_SECONDS = 0.2


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


def evaluate(
    plan: ScoringPlan,
    make_means: Callable[[Callable[[str], None], threading.Event], Means],
    reporter: Reporter,
) -> RunReport:
    """Judge all predictions and write the report; ids are pending if the run was interrupted.

    `make_means` takes a function that reports long steps, and the event that ends them. Raises
    ConfigurationError for inputs that cannot be used, and SandboxUnavailable for a full disk.
    """
    started = time.monotonic()
    check_folder(plan.repositories)
    check_output(plan.output)
    if plan.output == plan.folder:
        raise ConfigurationError(
            f"--output {plan.output}: that is the name of the folder of results"
        )
    with _stopped_by_signals() as stop:
        try:
            means = make_means(lambda text: reporter(Notice(text)), stop)
            ids, orders, problems = _read_inputs(plan)
            for problem in problems:
                reporter(Notice(f"{problem.place}: {problem.reason}", "warning"))
            build_environments(orders.values(), means, stop)
            plan.folder.mkdir(parents=True, exist_ok=True)
            with locked(plan.folder / "lock"):
                scored = _judge_all(plan, orders, means, reporter, stop)
                report = make_report(
                    ids,
                    list(orders),
                    scored,
                    problems,
                    time.monotonic() - started,
                    compared=plan.run is not None,
                )
                replace_file(plan.output, [as_json(report.model_dump(mode="json"))])
        except OSError as error:
            raise SandboxUnavailable(
                f"{error.filename or plan.folder}: {error.strerror or error}: repair this and run "
                "the same command again; finished results are kept"
            ) from None
    earlier, resolved = sum(one.kept for one in scored), report.resolved_instances
    words = f"{len(scored):,} of {len(orders):,} judged"
    words += f" ({earlier:,} by an earlier run)" if earlier else ""
    whole = not report.pending_ids
    reporter(StageFinished(STAGE, report.seconds, f"{words}, {resolved:,} resolved", whole))
    return report


def _read_inputs(
    plan: ScoringPlan,
) -> tuple[list[str], Mapping[str, Order | InputProblem], list[InputProblem]]:
    """Return all selected ids, those with a prediction as orders or as unusable rows, and other
    problems. Raises ConfigurationError.
    """
    predictions: dict[str, Prediction] = {}
    problems: list[InputProblem] = []
    if plan.predictions is not None:
        for entry in read_entries(plan.predictions, Prediction, option="--predictions"):
            if isinstance(entry, InputProblem):
                problems.append(entry)
            else:
                predictions[entry.instance_id] = entry
        if not predictions:
            reason = f" ({problems[0].reason})" if problems else ""
            raise ConfigurationError(f"--predictions {plan.predictions}: no usable entry{reason}")
    ids: dict[str, None] = {}
    orders: dict[str, Order | InputProblem] = {}
    for row in read_entries(plan.dataset, ScoringInstance, plan.selection):
        name = row.instance_id
        prediction = predictions.get(name)
        if isinstance(row, InputProblem):
            # A bad row is the outcome of its prediction; without one it does not count.
            if prediction is None or name in ids:
                problems.append(row)
                continue
            orders[name] = row
        elif prediction is not None:
            orders[name] = Order(row, prediction, find_repository(plan.repositories, row.repo))
        elif plan.predictions is None:
            gold = Prediction(instance_id=name, model_name_or_path=GOLD, model_patch=row.patch)
            orders[name] = Order(row, gold, find_repository(plan.repositories, row.repo))
        ids[name] = None
    _check_ids(plan, ids)
    if plan.selection == RowSelection():
        unknown = (name for name in predictions if name not in ids)
        words = f"no such instance in {plan.dataset}"
        problems += [InputProblem(str(plan.predictions), f"{name}: {words}") for name in unknown]
    return list(ids), orders, problems


def _check_ids(plan: ScoringPlan, ids: Mapping[str, None]) -> None:
    """Check that all named ids exist and that a row is selected. Raises ConfigurationError."""
    missing = sorted(plan.selection.ids.difference(ids))
    if missing:
        raise ConfigurationError(f"--id {missing[0]}: no such instance in {plan.dataset}")
    if not ids:
        raise ConfigurationError(
            f"--dataset {plan.dataset}: no row is selected; give another --match or --slice"
        )


# ----------------------------------------------------------------------------------- the workers


def _judge_all(
    plan: ScoringPlan,
    orders: Mapping[str, Order | InputProblem],
    means: Means,
    reporter: Reporter,
    stop: threading.Event,
) -> list[Scored]:
    """Judge until all is done, or until `stop` is set, which ends the instances under way."""
    results = list[Scored]()
    reporter(StageStarted(STAGE, f"{len(orders):,} predictions"))
    judge = partial(_judge, plan, means, stop)
    waiting, running = iter(orders.items()), set[Future[Scored | None]]()
    with ThreadPoolExecutor(plan.workers, "patchshot-evaluate") as pool:
        while True:
            while len(running) < plan.workers and not stop.is_set():
                item = next(waiting, None)
                if item is None:
                    break
                running.add(pool.submit(judge, *item))
            if not running:
                return results
            done, running = wait(running, _POLL_SECONDS, FIRST_COMPLETED)
            for scored in (future.result() for future in done):
                if scored is None:
                    continue
                results.append(scored)
                level = "warning" if scored.outcome == "error" else "info"
                text = f"{scored.instance_id}: {scored.outcome} ({scored.reason})"
                text += ", by an earlier run" if scored.kept else ""
                reporter(Notice(text, level))
                reporter(StageProgress(STAGE, len(results), len(orders)))


def _judge(
    plan: ScoringPlan,
    means: Means,
    stop: threading.Event,
    name: str,
    order: Order | InputProblem,
) -> Scored | None:
    """Judge one instance in a thread. The result has every problem but an OSError."""
    folder = plan.folder / "instances" / folder_name(name)
    if plan.fresh:
        (folder / RESULT).unlink(missing_ok=True)
    if isinstance(order, InputProblem):
        return _without_run(folder, name, "row", f"{order.place}: {order.reason}")
    if not (order.case.fail_to_pass or order.case.pass_to_pass):
        reason = f"{plan.dataset}: FAIL_TO_PASS, PASS_TO_PASS: no test decides"
        return _without_run(folder, name, "row", reason)
    try:
        scored = score(order, means, folder, stop)
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001  (a bug must cost one instance, not hundreds)
        why = f"internal error, please report it: {type(error).__name__}: {error}"
        return _without_run(folder, name, "crash", why)
    if scored is None or plan.run is None:
        return scored
    own = read_own(plan.run, name, order.prediction.patch)
    return scored.model_copy(update={"own": own})


def _without_run(folder: Path, name: str, error: ErrorKind, reason: str) -> Scored:
    """Write and return the result of an instance that could not be judged."""
    scored = Scored(instance_id=name, outcome="error", error=error, reason=reason)
    write_scored(folder, scored, "")
    return scored


@contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C and SIGTERM set."""
    stop = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    before = {name: signal.signal(name, on_signal) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
