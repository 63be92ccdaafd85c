"""A whole run of `agent batch`: checks, run folder, driver, signals, summary and exit code."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from agent import __version__
from agent.batch.driver import BatchPlan, Driver
from agent.batch.progress import Progress, Summary, replies_in_words
from agent.batch.run_folder import (
    JOURNAL,
    RUN,
    TASKS,
    Fingerprint,
    Journal,
    RunEnded,
    RunStarted,
    TaskFile,
    claim_run_folder,
)
from agent.batch.worker import BatchEngine, LocalEngine
from agent.datasets import (
    PredictionsWriter,
    check_folder,
    check_output,
    choose_form,
    read_tasks,
)
from agent.errors import ConfigurationError, ProviderError, SandboxUnavailable, Status
from agent.settings import Settings, load

if TYPE_CHECKING:
    from agent.llm import Price

# A worker lives this many times the time limit of a solve, and some seconds more: it may wait for
# a core, which does not count for the limit of the solve.
_LIVES, _MARGIN_SECONDS = 3.0, 180.0

# Time limit for fetching the list of models, if only the server knows the price.
_LIST_SECONDS = 10.0


def run_batch(plan: BatchPlan, progress: Progress) -> Summary:
    """Solve all instances that are left.

    Raises ConfigurationError before anything is paid, and SandboxUnavailable if the disk is full.
    """
    settings, model = _check_settings(plan.flags)
    check_folder(plan.repositories)
    check_output(plan.output)
    folder = plan.folder
    if folder.absolute() == plan.output.absolute():
        raise ConfigurationError(f"--output {plan.output}: is the run's folder; name a file")
    try:
        with claim_run_folder(folder):
            return _run_claimed(plan, settings, model, progress)
    except OSError as error:
        raise SandboxUnavailable(
            f"{error.filename or folder}: {error.strerror or error}: repair this and run the same "
            "command again; paid replies are kept"
        ) from None


def _check_settings(flags: Mapping[str, Any]) -> tuple[Settings, str]:
    """Return the settings of every worker, and a text that names the model and its address.

    Raises ConfigurationError for settings with which no worker could start.
    """
    from agent.llm import without_credentials
    from agent.verify.environments import read_spec
    from agent.wiring import endpoint, solve_options

    settings = load(flags)
    if settings.environments is not None:
        read_spec(settings.environments)
    solve_options(settings)
    chosen = endpoint(settings)
    return settings, f"{chosen.model} at {without_credentials(chosen.base_url)}"


async def _check_price(settings: Settings) -> None:
    """Check that the price of a call is known, which a limit of the total cost needs.

    A server that does not answer passes. Raises ConfigurationError.
    """
    try:
        price = await _price(settings)
    except ProviderError:
        return
    if price is None:
        raise ConfigurationError(
            "--max-total-cost is set, but the model's price is not known: set PATCHSHOT_PRICES "
            "to IN,OUT (US dollars per million tokens)"
        )


async def _price(settings: Settings) -> Price | None:
    """Find the price as `agent solve` does. Raises ProviderError, ConfigurationError."""
    from agent.llm import find_price, read_price
    from agent.wiring import Connections, make_clock

    if settings.prices is not None:
        return read_price(settings.prices)
    async with AsyncExitStack() as stack:
        connections = Connections(stack, time_left=make_clock(_LIST_SECONDS))
        chosen = await connections.choose(settings)
        return chosen.price or find_price(chosen.chat.model)


def _run_claimed(plan: BatchPlan, settings: Settings, model: str, progress: Progress) -> Summary:
    folder, order = plan.folder, dict[str, None]()
    fingerprint = Fingerprint.of(settings, plan.dataset, model)
    with contextlib.ExitStack() as stack:
        journal = stack.enter_context(contextlib.closing(Journal(folder / JOURNAL)))
        rows = read_tasks(plan.dataset, plan.selection, order)
        tasks = stack.enter_context(TaskFile(folder / TASKS, rows))
        name = plan.name or f"patchshot+{model.partition(' at ')[0]}"
        predictions = PredictionsWriter(
            plan.output, choose_form(plan.output, plan.form), name, order
        )
        seconds = _LIVES * settings.timeout + _MARGIN_SECONDS
        driver = Driver(
            plan, tasks, journal, predictions, progress, LocalEngine(), settings.max_cost, seconds
        )
        _check_same(plan, driver, fingerprint)
        _check_rows(plan, driver)
        return asyncio.run(_drive(plan, settings, fingerprint, driver))


def _check_same(plan: BatchPlan, driver: Driver, fingerprint: Fingerprint) -> None:
    """Check the fingerprint, which may not change once something was paid or has a result.

    Raises ConfigurationError.
    """
    histories = driver.journal.histories.values()
    is_bound = driver.spent.replies > 0 or any(history.finished for history in histories)
    words = "going on all the same" if is_bound else "nothing was paid so far, the run now has"
    for difference in fingerprint.check(plan.folder / RUN, force=plan.force or not is_bound):
        driver.progress.note(f"{words}: {difference}")


def _check_rows(plan: BatchPlan, driver: Driver) -> None:
    tasks = driver.tasks
    for bad in tasks.bad:
        driver.progress.note(f"{bad.place}: {bad.reason}; left out")
        driver.counts.give_up(bad.place, "row", bad.reason)
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
    plan: BatchPlan, settings: Settings, fingerprint: Fingerprint, driver: Driver
) -> Summary:
    if plan.total_cost is not None:
        await _check_price(settings)
    with _engine(plan, settings, driver.tasks) as engine:
        driver.engine = engine
        fingerprint.save(plan.folder / RUN)
        return await _driven(plan, driver)


@contextlib.contextmanager
def _engine(plan: BatchPlan, settings: Settings, tasks: TaskFile) -> Iterator[BatchEngine]:
    """Open the engine. Raises ConfigurationError if there is no such cluster."""
    if plan.engine == "local":
        yield LocalEngine()
        return
    from agent.batch.ray_tasks import open_cluster

    commits = defaultdict[str, list[str]](list)
    for position in range(len(tasks)):
        commits[tasks[position].repo].append(tasks[position].base_commit)
    with open_cluster(plan.address, settings, plan.flags, commits, verbose=plan.verbose) as engine:
        yield engine


async def _driven(plan: BatchPlan, driver: Driver) -> Summary:
    journal = driver.journal
    begun, earlier = time.monotonic(), driver.spent
    journal.append(
        RunStarted(
            version=__version__,
            time=datetime.now(UTC).isoformat(timespec="seconds"),
            instances=len(driver.tasks),
        )
    )
    if plan.total_cost is not None and earlier.unpriced:
        replies = replies_in_words(earlier.unpriced)
        driver.progress.note(f"{replies} of earlier runs without a price: not counted")
    driver.progress.begin(driver.counts, driver.spent_in_words)
    try:
        with _signals(driver):
            await driver.run()
    finally:
        driver.progress.close()
    seconds = time.monotonic() - begun
    with contextlib.suppress(OSError):  # a full disk was reported before
        journal.append(RunEnded(seconds=round(seconds, 3)))
    return summary_of(driver, replies=driver.spent.replies - earlier.replies, seconds=seconds)


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


def summary_of(driver: Driver, *, replies: int, seconds: float) -> Summary:
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
        cost_usd=round(driver.spent.cost_usd, 6),
        unpriced=driver.spent.unpriced,
        replies=replies,
        seconds=round(seconds, 3),
        predictions=driver.predictions.name,
        run=str(driver.plan.folder),
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
