"""The driver decides which instance is next, what the end of an attempt means, and when to stop.

A `BatchEngine` runs the attempts, each in a thread. The decisions depend only on the journal and on
the replies in the folders, so that a killed run continues in the same way.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from agent.batch.progress import Progress, RunCounts, cost_in_words
from agent.batch.run_folder import INSTANCES, Failed, Finished, Journal, SetAside, Started
from agent.batch.worker import AttemptEnded, BatchEngine, SolveJob
from agent.datasets import (
    PredictionsWriter,
    RowSelection,
    SolverTask,
    find_repository,
    folder_name,
)
from agent.errors import Status
from agent.llm.recording import ChatExchange, parse_exchange
from agent.results import kept

# After this many attempts in a row without a result, the instances are not the cause. The number is
# at least twice that of the workers, because attempts that run together fail for the same cause.
_HOPELESS = 5


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """One invocation. `run` None stands for `preds.run` beside the output.

    `flags` are plain JSON values that make the settings, here and in the workers. `total_cost` (US
    dollars) and `per_minute` (model calls) are limits of all workers together. `name` becomes
    `model_name_or_path`. `address` is that of the Ray cluster.
    """

    dataset: Path
    repositories: Path
    output: Path
    flags: Mapping[str, Any]
    run: Path | None = None
    selection: RowSelection = field(default_factory=RowSelection)
    workers: int = 1
    total_cost: float | None = None
    per_minute: float | None = None
    max_tries: int = 2
    name: str | None = None
    force: bool = False
    engine: Literal["local", "ray"] = "local"
    address: str = "auto"

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return self.run or self.output.with_suffix(".run")


@dataclass(frozen=True, slots=True)
class Spending:
    """The replies of an instance, their dollars, and how many of them have no price."""

    replies: int = 0
    cost_usd: float = 0.0
    unpriced: int = 0


def read_spending(folder: Path) -> Spending:
    """Return what the recorded replies in the folder of an instance cost."""
    try:
        with (folder / kept.EXCHANGES).open("rb") as file:
            exchanges = [parse_exchange(line) for line in file if line.endswith(b"\n")]
    except OSError:  # the next attempt reports it
        return Spending()
    costs = [one.reply.usage.cost_usd for one in exchanges if isinstance(one, ChatExchange)]
    return Spending(len(costs), sum(cost or 0.0 for cost in costs), costs.count(None))


@dataclass(slots=True)
class _Running:
    position: int
    job: SolveJob
    held_usd: float


@dataclass(slots=True)
class Driver:
    """One run over `tasks`. `stop_reason` and `stop_status` say why it ended early.

    `instance_cost` is the limit of one instance in US dollars, `seconds` the life of a worker.
    """

    plan: BatchPlan
    tasks: Sequence[SolverTask]
    journal: Journal
    predictions: PredictionsWriter
    progress: Progress
    engine: BatchEngine
    instance_cost: float | None = None
    seconds: float = 3600.0
    counts: RunCounts = field(init=False)
    stop_reason: str = ""
    stop_status: Status | None = None
    kept: int = 0  # predictions of instances that are not selected
    pending: deque[int] = field(default_factory=deque)  # positions that have yet to start
    spending: dict[str, Spending] = field(default_factory=dict)  # by instance
    _running: dict[asyncio.Future[AttemptEnded], _Running] = field(default_factory=dict)
    _tries: Counter[int] = field(default_factory=Counter)  # of this run
    _too_small: dict[int, float] = field(default_factory=dict)  # budgets that were used up
    _in_a_row: int = 0
    _cancelling: asyncio.Future[None] | None = None

    def __post_init__(self) -> None:
        self.counts = RunCounts(len(self.tasks))
        for name in {*(task.instance_id for task in self.tasks), *self.journal.histories}:
            self.spending[name] = read_spending(self._folder(name))

    async def run(self) -> None:
        """Continue where the journal ends, until nothing is left or the run has to stop.

        Raises OSError if the journal cannot be written.
        """
        self._restore()
        self.predictions.write()
        with ThreadPoolExecutor(self.plan.workers) as pool:
            try:
                self._fill(pool)
                while self._running:
                    done, _ = await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
                    for ended in sorted(done, key=lambda one: self._running[one].position):
                        self._take(self._running.pop(ended), ended.result())
                    self.predictions.write()
                    self._fill(pool)
            except BaseException:
                await asyncio.to_thread(self.engine.cancel)
                raise
        if self._cancelling is not None:
            await self._cancelling
        self.predictions.write()

    @property
    def spent(self) -> Spending:
        """What all runs in the folder have spent."""
        every = self.spending.values()
        return Spending(
            sum(one.replies for one in every),
            sum(one.cost_usd for one in every),
            sum(one.unpriced for one in every),
        )

    def spent_in_words(self) -> str:
        """Return what was spent as text."""
        return cost_in_words(self.spent.cost_usd, self.spent.unpriced)

    # --- stopping

    def interrupt(self) -> None:
        """Handle Ctrl-C: the first lets running instances finish, the second stops them."""
        if self.stop_status is Status.INTERRUPTED:
            self.cancel()
            return
        self._stop(Status.INTERRUPTED, "interrupted")
        running = f"{len(self._running)} running"
        self.progress.note(f"finishing the instances under way ({running}); once more to stop them")

    def cancel(self) -> None:
        """Stop the running instances. The next run starts them again."""
        self._stop(Status.INTERRUPTED, "interrupted")
        if self._cancelling is None:
            loop = asyncio.get_running_loop()
            self._cancelling = loop.run_in_executor(None, self.engine.cancel)

    def _stop(self, status: Status, reason: str) -> None:
        """Start no further instance."""
        if self.stop_status is None or status is Status.INTERRUPTED:
            self.stop_status, self.stop_reason = status, reason

    # --- choosing

    def _restore(self) -> None:
        """Read from the journal which instances are finished and which are left.

        The predictions of instances that are not selected stay.
        """
        for position, task in enumerate(self.tasks):
            if not self._is_settled(task.instance_id, selected=True):
                self.pending.append(position)
        for name in sorted(self.journal.histories.keys() - {one.instance_id for one in self.tasks}):
            self.kept += self._is_settled(name, selected=False)

    def _is_settled(self, name: str, *, selected: bool) -> bool:
        """Whether an instance is finished or set aside; its prediction is put."""
        history = self.journal.histories.get(name)
        if history is None:
            return False
        folder, finished = self._folder(name), history.finished
        record = kept.read_result(folder) if finished else None
        if finished is not None and record is not None:
            self.predictions.put(name, record.diff)
            if selected:
                self.counts.finish(finished.status, finished.verdict, fresh=False)
        elif history.crashes >= self.plan.max_tries:
            self.predictions.put(name, kept.read_patch(folder))
            if selected:
                self.counts.give_up(name, "set-aside", history.reason)
        else:
            return False
        return True

    def _fill(self, pool: ThreadPoolExecutor) -> None:
        while self.pending and self.stop_status is None and len(self._running) < self.plan.workers:
            position = self.pending[0]
            budget = self._budget(position)
            if budget is not None and budget <= self._too_small.get(position, 0.0):
                if not self._running:
                    self._stop(
                        Status.BUDGET,
                        f"--max-total-cost {self.plan.total_cost:g}: {self.spent_in_words()} are "
                        "spent, and the next call may cost more than what is left; raise it",
                    )
                return
            self.pending.popleft()
            self._begin(pool, position, budget)

    def _budget(self, position: int) -> float | None:
        """Return the dollars that an instance may spend of the total, None without a total.

        The workers share what is left. An instance that needs more gets all of it the next time.
        """
        total = self.plan.total_cost
        if total is None:
            return None
        held = sum(running.held_usd for running in self._running.values())
        left = max(0.0, total - self.spent.cost_usd - held)
        if position in self._too_small:
            return left
        return left / max(1, min(self.plan.workers - len(self._running), len(self.pending)))

    def _begin(self, pool: ThreadPoolExecutor, position: int, budget: float | None) -> None:
        task, plan = self.tasks[position], self.plan
        repository = find_repository(plan.repositories, task.repo)
        if repository is None:
            self._unusable(
                task,
                f"no repository {task.repo}: {plan.repositories} has no folder "
                f"{task.repo.replace('/', '__')}",
            )
            return
        own = self.instance_cost
        is_less = budget is not None and (own is None or budget < own)
        attempt = self.journal.histories[task.instance_id].attempts + 1
        self.journal.append(Started(id=task.instance_id, attempt=attempt))
        self._tries[position] += 1
        job = SolveJob(
            task=task,
            repository=str(repository.resolve()),
            folder=str(self._folder(task.instance_id).resolve()),
            flags=dict(plan.flags),
            attempt=attempt,
            budget_usd=budget if is_less else None,
            request_seconds=plan.workers * 60 / plan.per_minute if plan.per_minute else 0,
            seconds=self.seconds,
        )
        running = asyncio.get_running_loop().run_in_executor(pool, self.engine.attempt, job)
        held = (budget if is_less else own) if budget is not None else 0.0
        self._running[running] = _Running(position, job, held or 0.0)

    def _folder(self, name: str) -> Path:
        return self.plan.folder / INSTANCES / folder_name(name)

    # --- judging

    def _take(self, running: _Running, ended: AttemptEnded) -> None:
        job, position = running.job, running.position
        name, blame, status = job.task.instance_id, ended.blame, ended.status
        self.spending[name] = read_spending(Path(job.folder))
        if blame == "none":
            self._finish(job, ended)
            return
        self.journal.append(
            Failed(id=name, attempt=job.attempt, blame=blame, status=status, reason=ended.message)
        )
        match blame:
            case "row":
                self._unusable(job.task, ended.message)
            case "budget":
                self.pending.appendleft(position)
                self._too_small[position] = job.budget_usd or 0.0
                self.progress.ended(name, f"waits: {ended.message}")
            case "stopped":
                self.pending.appendleft(position)
                self.progress.ended(name, "stopped")
            case _:
                self._failed(job, ended, position)

    def _finish(self, job: SolveJob, ended: AttemptEnded) -> None:
        name, status, verdict = job.task.instance_id, ended.status, ended.verdict
        self.journal.append(
            Finished(
                id=name,
                attempt=job.attempt,
                status=status,
                verdict=verdict,
                seconds=ended.seconds,
            )
        )
        record = kept.read_result(Path(job.folder))
        self.predictions.put(name, record.diff if record else "")
        self.counts.finish(status, verdict, fresh=True)
        self._in_a_row = 0
        why = "" if status is Status.ACCEPTED else _first_line(ended.message)
        words = ", ".join(filter(None, (status.value, verdict, why)))
        self.progress.ended(name, f"{words} [{ended.seconds:.1f} s]")

    def _failed(self, job: SolveJob, ended: AttemptEnded, position: int) -> None:
        """Handle an attempt that crashed or that failed because of its environment."""
        name, reason = job.task.instance_id, _first_line(ended.message)
        crashes = self.journal.histories[name].crashes
        self._in_a_row += 1
        if ended.blame == "crash" and crashes >= self.plan.max_tries:
            self.journal.append(SetAside(id=name, tries=crashes, reason=ended.message))
            self.predictions.put(name, kept.read_patch(Path(job.folder)))
            self.counts.give_up(name, "set-aside", reason)
            outcome = f"set aside after {crashes} tries: {reason}"
        elif ended.blame == "environment" and self._tries[position] >= self.plan.max_tries:
            self.counts.give_up(name, "left", reason)
            outcome = f"left for the next run: {reason}"
        elif ended.blame == "environment" and ended.status is Status.USAGE:
            # A wrong setting, or an environment that cannot be built, fails at every try.
            self.pending.appendleft(position)
            outcome = reason
            self._stop(ended.status, reason)
        else:
            self.pending.append(position)
            outcome = f"to be tried again: {reason}"
        self.progress.ended(name, outcome)
        if self._in_a_row >= max(_HOPELESS, 2 * self.plan.workers):
            self._stop(ended.status, f"{self._in_a_row} attempts in a row have failed: {reason}")

    def _unusable(self, task: SolverTask, reason: str) -> None:
        name = task.instance_id
        reason = reason.removeprefix(f"{name}: ")  # the progress prints the name
        self.counts.give_up(name, "row", reason)
        self.progress.ended(name, f"cannot be used: {reason}")


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]
