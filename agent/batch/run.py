"""A run from its beginning to its summary: checks, the folder, the driver, signals, exit codes.

What lies in the folder of a run: `place`.
"""

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
from agent.batch.checks import check_price, check_settings, hash_of
from agent.batch.dataset import Selection, read_tasks
from agent.batch.driver import Driver, Orders
from agent.batch.engine import Engine
from agent.batch.fingerprint import Fingerprint, check, fingerprint, keep
from agent.batch.journal import Journal, RunEnded, RunStarted
from agent.batch.local import LocalEngine
from agent.batch.place import JOURNAL, RUN, TASKS, claimed
from agent.batch.predictions import Form, Predictions, check_output, form_of
from agent.batch.progress import Progress
from agent.batch.spool import Spool
from agent.batch.tally import Summary, replies_in_words
from agent.batch.treasury import Bounds, Treasury
from agent.errors import ConfigurationError, SandboxUnavailable, Status
from agent.evaluation.repositories import check_folder
from agent.settings import Settings

# Beside the run's own limit: starting, reading the repository, removing private copies.
_MARGIN_SECONDS = 180.0
_TURN_MARGIN_SECONDS = 60.0  # beside the limit of a run of tests: copies, and the way to us

EngineName = Literal["local", "ray"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked of one invocation. `run` None: beside the output, `preds.run`.

    `flags` make the settings, here and in the workers: plain JSON values. `name` is what
    `model_name_or_path` says. `address` is of the Ray cluster, whose chatter is `verbose`.
    """

    dataset: Path
    repositories: Path
    output: Path
    flags: Mapping[str, Any]
    run: Path | None = None
    form: Form | None = None
    selection: Selection = field(default_factory=Selection)
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


def run(plan: Plan, progress: Progress) -> Summary:
    """Solve what is left to solve. Raises ConfigurationError before anything is paid for.

    Raises SandboxUnavailable when the disk is full.
    """
    settings, model = check_settings(plan.flags)
    check_folder(plan.repositories)
    check_output(plan.output)
    folder = plan.folder
    if folder.absolute() == plan.output.absolute():
        raise ConfigurationError(f"--output {plan.output}: is the run's folder; name a file")
    try:
        with claimed(folder):
            found = fingerprint(settings, hash_of(plan.dataset), model)
            return _claimed(plan, settings, found, progress)
    except OSError as error:
        raise SandboxUnavailable(
            f"{error.filename or folder}: {error.strerror or error}: see to it and run the same "
            "command again; what was paid is kept"
        ) from None


def _claimed(plan: Plan, settings: Settings, found: Fingerprint, progress: Progress) -> Summary:
    folder, order = plan.folder, dict[str, None]()
    with contextlib.ExitStack() as stack:
        journal = stack.enter_context(contextlib.closing(Journal(folder / JOURNAL)))
        _check_same(plan, journal, found, progress)
        rows = read_tasks(plan.dataset, plan.selection, order)
        spool = stack.enter_context(Spool(folder / TASKS, rows))
        _check_rows(plan, spool, progress)
        name = plan.name or f"patchshot+{found.model.partition(' at ')[0]}"
        form = form_of(plan.output, plan.form)
        predictions = Predictions(plan.output, form, name, order)
        orders = Orders(folder, plan.repositories, dict(plan.flags), plan.workers, plan.max_tries)
        driver = Driver(orders, spool, journal, predictions, progress)
        for bad in spool.bad:
            driver.tally.give_up(bad.place, "row", bad.reason)
        return asyncio.run(_drive(plan, settings, found, driver))


def _check_same(plan: Plan, journal: Journal, found: Fingerprint, progress: Progress) -> None:
    """Nothing binds a run in which nothing was paid for. Raises ConfigurationError."""
    bound = journal.state.bound
    words = "going on all the same" if bound else "nothing was paid so far, the run now has"
    for difference in check(plan.folder / RUN, found, force=plan.force or not bound):
        progress.note(f"{words}: {difference}")


def _check_rows(plan: Plan, spool: Spool, progress: Progress) -> None:
    for bad in spool.bad:
        progress.note(f"{bad.place}: {bad.reason}; left out")
    unknown = sorted(plan.selection.ids.difference(spool.ids))
    if unknown:
        raise ConfigurationError(
            f"--id {unknown[0]}: no such instance in {plan.dataset}; look at its ids"
        )
    if not spool.ids:
        raise ConfigurationError(
            f"{plan.dataset}: no usable row is selected; see --id, --slice, --match and the file"
        )


async def _drive(plan: Plan, settings: Settings, found: Fingerprint, driver: Driver) -> Summary:
    if plan.bounds.total_cost is not None:
        await check_price(settings)
    treasury = Treasury(driver.journal, plan.bounds, driver.on_stage)
    async with _engine(plan, settings, driver, treasury) as engine:
        driver.engine = engine
        keep(plan.folder / RUN, found)
        return await _driven(plan, driver, treasury)


@contextlib.asynccontextmanager
async def _engine(
    plan: Plan, settings: Settings, driver: Driver, treasury: Treasury
) -> AsyncIterator[Engine]:
    """What runs the jobs. Raises ConfigurationError where there is no such cluster."""
    seconds = settings.timeout + _MARGIN_SECONDS
    turn_seconds = settings.test_timeout + _TURN_MARGIN_SECONDS
    if plan.engine == "local":
        yield LocalEngine(treasury, seconds, turn_seconds=turn_seconds)
        return
    from agent.batch.ray_engine import make_setup, open_engine, shipped_flags

    async with open_engine(
        treasury,
        plan.address,
        plan.folder,
        make_setup(plan.folder, settings, seconds, turn_seconds),
        shipped_flags(settings, plan.flags),
        note=driver.progress.note,
        verbose=plan.verbose,
    ) as engine:
        yield engine


async def _driven(plan: Plan, driver: Driver, treasury: Treasury) -> Summary:
    journal = driver.journal
    begin, before = time.monotonic(), _replies(journal)
    journal.append(
        RunStarted(
            version=__version__,
            time=datetime.now(UTC).isoformat(timespec="seconds"),
            instances=len(driver.spool),
        )
    )
    if plan.bounds.total_cost is not None and journal.state.unpriced:
        earlier = replies_in_words(journal.state.unpriced)
        driver.progress.note(f"{earlier} of earlier runs without a price: not counted")
    driver.progress.begin(driver.tally, treasury.spent_in_words)
    try:
        with _signals(driver):
            await driver.run()
    finally:
        driver.progress.close()
    seconds = time.monotonic() - begin
    with contextlib.suppress(OSError):  # a full disk was said before
        journal.append(RunEnded(seconds=round(seconds, 3)))
    replies = _replies(journal) - before
    return summary_of(driver, cost=treasury.spent_usd, replies=replies, seconds=seconds)


def _replies(journal: Journal) -> int:
    return journal.state.settled.total()


@contextlib.contextmanager
def _signals(driver: Driver) -> Iterator[None]:
    """Ctrl-C drains, then stops; SIGTERM stops."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, driver.interrupt)
    loop.add_signal_handler(signal.SIGTERM, driver.cancel)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        loop.remove_signal_handler(signal.SIGTERM)


def summary_of(driver: Driver, *, cost: float, replies: int, seconds: float) -> Summary:
    """What came of it."""
    tally = driver.tally
    code, message = _ending(driver)
    return Summary(
        instances=tally.total,
        finished=tally.finished,
        fresh=tally.fresh,
        accepted=tally.accepted,
        verified=tally.verified,
        statuses=dict(sorted(tally.statuses.items())),
        verdicts=dict(sorted(tally.verdicts.items())),
        unsolved=tuple(tally.unsolved),
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
    """The exit code, the gravest first, and why."""
    tally, failure = driver.tally, driver.predictions.failure
    if failure is not None:
        place = driver.predictions.name
        return (
            Status.SANDBOX.exit_code,
            f"{place} could not be written ({failure.strerror or failure}): see to it and run "
            "again; the results are kept",
        )
    if driver.stop_status is not None and driver.pending:
        again = ": the same command goes on from here"
        interrupted = driver.stop_status is Status.INTERRUPTED
        return driver.stop_status.exit_code, driver.stop_reason + again * interrupted
    if tally.count("left"):
        return (
            Status.PROVIDER.exit_code,
            f"{tally.count('left')} left for another run: {_first(driver, 'left')}",
        )
    if tally.count("set-aside"):
        return (
            Status.CRASHED.exit_code,
            f"{tally.count('set-aside')} set aside: {_first(driver, 'set-aside')}",
        )
    if tally.count("row"):
        return (
            Status.USAGE.exit_code,
            f"{tally.count('row')} could not be used: {_first(driver, 'row')}",
        )
    return 0, ""


def _first(driver: Driver, kind: str) -> str:
    unsolved = next(item for item in driver.tally.unsolved if item.kind == kind)
    return f"{unsolved.instance}: {unsolved.reason}"
