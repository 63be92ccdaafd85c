"""A whole run of `agent batch`: checks, run folder, driver, signals, summary and exit code."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from agent import __version__
from agent.batch.checks import (
    Fingerprint,
    check_fingerprint,
    check_price,
    check_settings,
    hash_dataset,
    make_fingerprint,
    save_fingerprint,
)
from agent.batch.driver import Driver, DriverOptions
from agent.batch.journal import Journal, RunEnded, RunStarted
from agent.batch.local.local_engine import LocalEngine
from agent.batch.messages import BatchEngine
from agent.batch.progress import Progress, Summary, replies_in_words
from agent.batch.run_folder import JOURNAL, RUN, TASKS, TaskFile, claim_run_folder
from agent.batch.shared_budget import Bounds, SharedBudget
from agent.datasets import (
    PredictionsForm,
    PredictionsWriter,
    RowSelection,
    check_folder,
    check_output,
    choose_form,
    read_tasks,
)
from agent.errors import ConfigurationError, SandboxUnavailable, Status
from agent.settings import Settings

# Seconds added to the time limit of a solve: starting, reading the repository, removing private
# copies.
_MARGIN_SECONDS = 180.0
_SLOT_MARGIN_SECONDS = 60.0  # added to the time limit of a run of tests: private copies

EngineName = Literal["local", "ray"]


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """One invocation. `run` None stands for `preds.run` beside the output.

    `flags` are plain JSON values that make the settings, here and in the workers. `name` becomes
    `model_name_or_path`. `address` is that of the Ray cluster, whose messages `verbose` shows.
    """

    dataset: Path
    repositories: Path
    output: Path
    flags: Mapping[str, Any]
    run: Path | None = None
    form: PredictionsForm | None = None
    selection: RowSelection = field(default_factory=RowSelection)
    workers: int = 1
    bounds: Bounds = field(default_factory=Bounds)
    max_tries: int = 2
    name: str | None = None
    force: bool = False
    engine: EngineName = "local"
    address: str = "auto"
    verbose: bool = False

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return self.run or self.output.with_suffix(".run")


def run_batch(plan: BatchPlan, progress: Progress) -> Summary:
    """Solve all instances that are left.

    Raises ConfigurationError before anything is paid, and SandboxUnavailable if the disk is full.
    """
    settings, model = check_settings(plan.flags)
    check_folder(plan.repositories)
    check_output(plan.output)
    folder = plan.folder
    if folder.absolute() == plan.output.absolute():
        raise ConfigurationError(f"--output {plan.output}: is the run's folder; name a file")
    try:
        with claim_run_folder(folder):
            found = make_fingerprint(settings, hash_dataset(plan.dataset), model)
            return _run_claimed(plan, settings, found, progress)
    except OSError as error:
        raise SandboxUnavailable(
            f"{error.filename or folder}: {error.strerror or error}: repair this and run the same "
            "command again; paid replies are kept"
        ) from None


def _run_claimed(
    plan: BatchPlan, settings: Settings, found: Fingerprint, progress: Progress
) -> Summary:
    folder, order = plan.folder, dict[str, None]()
    with contextlib.ExitStack() as stack:
        journal = stack.enter_context(contextlib.closing(Journal(folder / JOURNAL)))
        _check_same(plan, journal, found, progress)
        rows = read_tasks(plan.dataset, plan.selection, order)
        tasks = stack.enter_context(TaskFile(folder / TASKS, rows))
        _check_rows(plan, tasks, progress)
        name = plan.name or f"patchshot+{found.model.partition(' at ')[0]}"
        form = choose_form(plan.output, plan.form)
        predictions = PredictionsWriter(plan.output, form, name, order)
        orders = DriverOptions(
            folder, plan.repositories, dict(plan.flags), plan.workers, plan.max_tries
        )
        driver = Driver(orders, tasks, journal, predictions, progress)
        for bad in tasks.bad:
            driver.counts.give_up(bad.place, "row", bad.reason)
        return asyncio.run(_drive(plan, settings, found, driver))


def _check_same(plan: BatchPlan, journal: Journal, found: Fingerprint, progress: Progress) -> None:
    """Check the fingerprint, which may not change once something was paid. Raises
    ConfigurationError.
    """
    bound = journal.state.bound
    words = "going on all the same" if bound else "nothing was paid so far, the run now has"
    for difference in check_fingerprint(plan.folder / RUN, found, force=plan.force or not bound):
        progress.note(f"{words}: {difference}")


def _check_rows(plan: BatchPlan, tasks: TaskFile, progress: Progress) -> None:
    for bad in tasks.bad:
        progress.note(f"{bad.place}: {bad.reason}; left out")
    unknown = sorted(plan.selection.ids.difference(tasks.ids))
    if unknown:
        raise ConfigurationError(
            f"--id {unknown[0]}: no such instance in {plan.dataset}; look at its ids"
        )
    if not tasks.ids:
        raise ConfigurationError(
            f"{plan.dataset}: no usable row is selected; see --id, --slice, --match and the file"
        )


async def _drive(
    plan: BatchPlan, settings: Settings, found: Fingerprint, driver: Driver
) -> Summary:
    if plan.bounds.total_cost is not None:
        await check_price(settings)
    budget = SharedBudget(driver.journal, plan.bounds, driver.on_stage)
    async with _engine(plan, settings, driver, budget) as engine:
        driver.engine = engine
        save_fingerprint(plan.folder / RUN, found)
        return await _driven(plan, driver, budget)


@contextlib.asynccontextmanager
async def _engine(
    plan: BatchPlan, settings: Settings, driver: Driver, budget: SharedBudget
) -> AsyncIterator[BatchEngine]:
    """Open the engine. Raises ConfigurationError if there is no such cluster."""
    seconds = settings.timeout + _MARGIN_SECONDS
    slot_seconds = settings.test_timeout + _SLOT_MARGIN_SECONDS
    if plan.engine == "local":
        yield LocalEngine(budget, seconds, slot_seconds=slot_seconds)
        return
    from agent.batch.ray.ray_engine import make_setup, open_engine, shipped_flags

    async with open_engine(
        budget,
        plan.address,
        plan.folder,
        make_setup(plan.folder, settings, seconds, slot_seconds),
        shipped_flags(settings, plan.flags),
        note=driver.progress.note,
        verbose=plan.verbose,
    ) as engine:
        yield engine


async def _driven(plan: BatchPlan, driver: Driver, budget: SharedBudget) -> Summary:
    journal = driver.journal
    begin, before = time.monotonic(), _replies(journal)
    journal.append(
        RunStarted(
            version=__version__,
            time=datetime.now(UTC).isoformat(timespec="seconds"),
            instances=len(driver.tasks),
        )
    )
    if plan.bounds.total_cost is not None and journal.state.unpriced:
        earlier = replies_in_words(journal.state.unpriced)
        driver.progress.note(f"{earlier} of earlier runs without a price: not counted")
    driver.progress.begin(driver.counts, budget.spent_in_words)
    try:
        with _signals(driver):
            await driver.run()
    finally:
        driver.progress.close()
    seconds = time.monotonic() - begin
    with contextlib.suppress(OSError):  # a full disk was reported before
        journal.append(RunEnded(seconds=round(seconds, 3)))
    replies = _replies(journal) - before
    return summary_of(driver, cost=budget.spent_usd, replies=replies, seconds=seconds)


def _replies(journal: Journal) -> int:
    return journal.state.settled.total()


@contextlib.contextmanager
def _signals(driver: Driver) -> Iterator[None]:
    """Handle Ctrl-C (drain, then stop) and SIGTERM (stop)."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, driver.interrupt)
    loop.add_signal_handler(signal.SIGTERM, driver.cancel)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        loop.remove_signal_handler(signal.SIGTERM)


def summary_of(driver: Driver, *, cost: float, replies: int, seconds: float) -> Summary:
    """Return the summary of a run."""
    counts = driver.counts
    code, message = _ending(driver)
    return Summary(
        instances=counts.total,
        finished=counts.finished,
        fresh=counts.fresh,
        accepted=counts.accepted,
        verified=counts.verified,
        statuses=dict(sorted(counts.statuses.items())),
        verdicts=dict(sorted(counts.verdicts.items())),
        unsolved=tuple(counts.unsolved),
        pending=driver.pending,
        kept=driver.kept,
        cost_usd=round(cost, 6),
        unpriced=driver.journal.state.unpriced,
        replies=replies,
        seconds=round(seconds, 3),
        predictions=driver.predictions.name,
        run=str(driver.orders.run),
        exit_code=code,
        message=message,
    )


def _ending(driver: Driver) -> tuple[int, str]:
    """Return the exit code and the message of the gravest problem."""
    counts, failure = driver.counts, driver.predictions.failure
    if failure is not None:
        place = driver.predictions.name
        return (
            Status.SANDBOX.exit_code,
            f"{place} could not be written ({failure.strerror or failure}): repair this and run "
            "again; the results are kept",
        )
    if driver.stop_status is not None and driver.pending:
        again = ": the same command goes on from here"
        interrupted = driver.stop_status is Status.INTERRUPTED
        return driver.stop_status.exit_code, driver.stop_reason + again * interrupted
    if counts.count("left"):
        return (
            Status.PROVIDER.exit_code,
            f"{counts.count('left')} left for another run: {_first(driver, 'left')}",
        )
    if counts.count("set-aside"):
        return (
            Status.CRASHED.exit_code,
            f"{counts.count('set-aside')} set aside: {_first(driver, 'set-aside')}",
        )
    if counts.count("row"):
        return (
            Status.USAGE.exit_code,
            f"{counts.count('row')} could not be used: {_first(driver, 'row')}",
        )
    return 0, ""


def _first(driver: Driver, kind: str) -> str:
    unsolved = next(item for item in driver.counts.unsolved if item.kind == kind)
    return f"{unsolved.instance}: {unsolved.reason}"
