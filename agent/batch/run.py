"""A whole run of `agent batch`: checks, run folder, driver, signals, summary and exit code."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from agent import __version__
from agent.batch.driver import BatchPlan, Driver
from agent.batch.progress import Progress, Summary
from agent.batch.run_folder import (
    JOURNAL,
    RUN,
    TASKS,
    Fingerprint,
    Journal,
    RunStarted,
    claim_run_folder,
)
from agent.batch.worker import BatchEngine, LocalEngine
from agent.datasets import (
    InputProblem,
    PredictionsWriter,
    SolverTask,
    check_folder,
    check_output,
    read_entries,
)
from agent.errors import ConfigurationError, ProviderError, SandboxUnavailable, Status
from agent.settings import Settings, load
from agent.shared.files import replace_file
from agent.shared.terminal import counted

# A worker lives this many times the time limit of a solve, and some seconds more: it may wait for
# a core, which does not count for the limit of the solve.
_LIVES, _MARGIN_SECONDS = 3.0, 180.0

# Time limit for fetching the list of models, if only the server knows the price.
_LIST_SECONDS = 10.0


def run_batch(plan: BatchPlan, progress: Progress) -> Summary:
    """Solve all instances that are left.

    Raises ConfigurationError before anything is written, unless the run folder has other inputs,
    and SandboxUnavailable if the disk is full.
    """
    settings, model = _check_settings(plan.flags)
    check_folder(plan.repositories)
    check_output(plan.output)
    folder = plan.folder
    if folder.absolute() == plan.output.absolute():
        raise ConfigurationError(f"--output {plan.output}: is the run's folder; name a file")
    fingerprint = Fingerprint.of(settings, plan.dataset, model)
    rows = list(read_entries(plan.dataset, SolverTask, plan.selection))
    tasks = [row for row in rows if not isinstance(row, InputProblem)]
    bad_rows = [row for row in rows if isinstance(row, InputProblem)]
    _check_tasks(plan, tasks, bad_rows)
    if plan.total_cost is not None:
        asyncio.run(_check_price(settings))
    name = plan.name or f"patchshot+{model.partition(' at ')[0]}"
    try:
        with (
            _engine(plan, settings) as engine,
            claim_run_folder(folder),
            contextlib.closing(Journal(folder / JOURNAL)) as journal,
        ):
            predictions = PredictionsWriter(plan.output, name, [t.instance_id for t in tasks])
            seconds = _LIVES * settings.timeout + _MARGIN_SECONDS
            driver = Driver(
                plan, tasks, journal, predictions, progress, engine, settings.max_cost, seconds
            )
            _check_same(plan, driver, fingerprint)
            for bad in bad_rows:
                progress.note(f"{bad.place}: {bad.reason}; left out")
                driver.counts.give_up(bad.place, "row", bad.reason)
            replace_file(
                folder / TASKS, (task.model_dump_json().encode() + b"\n" for task in tasks)
            )
            fingerprint.save(folder / RUN)
            return asyncio.run(_drive(driver))
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


def _check_tasks(
    plan: BatchPlan, tasks: Sequence[SolverTask], bad_rows: Sequence[InputProblem]
) -> None:
    why = "".join(f"; {bad.place}: {bad.reason}" for bad in bad_rows[:1])
    unknown = sorted(plan.selection.ids.difference(task.instance_id for task in tasks))
    if unknown:
        raise ConfigurationError(
            f"--id {unknown[0]}: no usable instance in {plan.dataset}{why or '; look at its ids'}"
        )
    if not tasks:
        why = why or "; see --id, --slice, --match and the file"
        raise ConfigurationError(f"{plan.dataset}: no usable row is selected{why}")


async def _check_price(settings: Settings) -> None:
    """Check that the price of a call is known, which a limit of the total cost needs.

    A server that does not answer passes. Raises ConfigurationError.
    """
    from agent.llm import read_price
    from agent.wiring import Connections, make_clock

    if settings.prices is not None:
        read_price(settings.prices)
        return
    try:
        async with contextlib.AsyncExitStack() as stack:
            connections = Connections(stack, time_left=make_clock(_LIST_SECONDS))
            _, price = await connections.choose(settings)
    except ProviderError:
        return
    if price is None:
        raise ConfigurationError(
            "--max-total-cost is set, but the model's price is not known: set PATCHSHOT_PRICES "
            "to IN,OUT (US dollars per million tokens)"
        )


@contextlib.contextmanager
def _engine(plan: BatchPlan, settings: Settings) -> Iterator[BatchEngine]:
    """Open the engine. Raises ConfigurationError if there is no such cluster."""
    if plan.engine == "local":
        yield LocalEngine()
        return
    from agent.batch.ray_tasks import open_cluster

    with open_cluster(plan, settings) as engine:
        yield engine


def _check_same(plan: BatchPlan, driver: Driver, fingerprint: Fingerprint) -> None:
    """Check the fingerprint, which may not change once something was paid or has a result.

    Raises ConfigurationError.
    """
    histories = driver.journal.histories.values()
    is_bound = driver.spent.replies > 0 or any(history.finished for history in histories)
    words = "going on all the same" if is_bound else "nothing was paid so far, the run now has"
    for difference in fingerprint.check(plan.folder / RUN, force=plan.force or not is_bound):
        driver.progress.note(f"{words}: {difference}")


async def _drive(driver: Driver) -> Summary:
    begun, earlier, progress = time.monotonic(), driver.spent, driver.progress
    driver.journal.append(
        RunStarted(
            version=__version__,
            time=datetime.now(UTC).isoformat(timespec="seconds"),
            instances=len(driver.tasks),
        )
    )
    if driver.plan.total_cost is not None and earlier.unpriced:
        replies = counted(earlier.unpriced, "reply", "replies")
        progress.note(f"{replies} of earlier runs without a price: not counted")
    progress.begin(driver.counts, driver.spent_in_words)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, driver.interrupt)
    loop.add_signal_handler(signal.SIGTERM, driver.cancel)
    try:
        await driver.run()
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        loop.remove_signal_handler(signal.SIGTERM)
        progress.close()
    seconds = time.monotonic() - begun
    return summary_of(driver, replies=driver.spent.replies - earlier.replies, seconds=seconds)


def summary_of(driver: Driver, *, replies: int, seconds: float) -> Summary:
    """Return the summary of a run."""
    counts, spent = driver.counts, driver.spent
    code, message = _ending(driver)
    return Summary(
        instances=counts.total,
        finished=counts.finished,
        fresh=counts.fresh,
        accepted=counts.statuses[Status.ACCEPTED.value],
        verified=counts.verdicts["verified"],
        statuses=dict(sorted(counts.statuses.items())),
        verdicts=dict(sorted(counts.verdicts.items())),
        unsolved=tuple(counts.unsolved),
        pending=len(driver.pending),
        kept=driver.kept,
        cost_usd=round(spent.cost_usd, 6),
        unpriced=spent.unpriced,
        replies=replies,
        seconds=round(seconds, 3),
        predictions=str(driver.predictions.path),
        run=str(driver.plan.folder),
        exit_code=code,
        message=message,
    )


_ENDINGS = (
    ("left", Status.PROVIDER, "left for another run"),
    ("set-aside", Status.CRASHED, "set aside"),
    ("row", Status.USAGE, "could not be used"),
)


def _ending(driver: Driver) -> tuple[int, str]:
    """Return the exit code and the message of the gravest problem."""
    failure, status = driver.predictions.failure, driver.stop_status
    if failure is not None:
        return (
            Status.SANDBOX.exit_code,
            f"{driver.predictions.path} could not be written ({failure.strerror or failure}): "
            "repair this and run again; the results are kept",
        )
    if status is not None and driver.pending:
        again = ": the same command goes on from here" if status is Status.INTERRUPTED else ""
        return status.exit_code, driver.stop_reason + again
    for kind, status, words in _ENDINGS:
        unsolved = [one for one in driver.counts.unsolved if one.kind == kind]
        if unsolved:
            first = f"{unsolved[0].instance}: {unsolved[0].reason}"
            return status.exit_code, f"{len(unsolved)} {words}: {first}"
    return 0, ""
