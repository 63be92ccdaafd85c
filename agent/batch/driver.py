"""The driver decides which instance is next, how to handle the end of an attempt, and when to stop.

A `BatchEngine` runs the jobs. The driver's decisions depend only on the journal, so that a killed
run continues in the same way.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.batch.journal import Failed, Finished, Journal, SetAside, Started
from agent.batch.messages import AttemptEnded, BatchEngine, SolveJob
from agent.batch.progress import Progress, RunCounts
from agent.batch.run_folder import TaskFile
from agent.datasets import PredictionsWriter, SolverTask, find_repository, folder_name
from agent.errors import Status
from agent.results import kept as files

# After this many attempts in a row without a result, the instances are not the cause. The number is
# at least twice that of the workers, because attempts that run together fail for the same cause.
_HOPELESS = 5

# How many pending instances are searched for one whose project nobody is indexing.
_LOOK_AHEAD = 256


@dataclass(frozen=True, slots=True)
class DriverOptions:
    """Options of a driver. `run` is the folder of the run; `flags` make the workers' settings."""

    run: Path
    repositories: Path
    flags: dict[str, Any]
    workers: int
    max_tries: int


@dataclass(slots=True)
class Driver:
    """One run over the tasks of a file. `stop_reason` and `stop_status` say why it ended early."""

    orders: DriverOptions
    tasks: TaskFile
    journal: Journal
    predictions: PredictionsWriter
    progress: Progress
    engine: BatchEngine | None = None
    counts: RunCounts = field(init=False)
    stop_reason: str = ""
    stop_status: Status | None = None
    kept: int = 0  # predictions of instances that are not selected
    _pending: deque[int] = field(default_factory=deque)
    _running: dict[str, int] = field(default_factory=dict)  # position by id
    _indexed: set[str] = field(default_factory=set)  # projects
    _indexing: dict[str, str] = field(default_factory=dict)  # instance by project
    _tries: Counter[int] = field(default_factory=Counter)  # of this run
    _in_a_row: int = 0
    _cancelling: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        self.counts = RunCounts(len(self.tasks))

    async def run(self) -> None:
        """Continue where the journal ends, until nothing is left or the run has to stop.

        Raises OSError if the journal cannot be written.
        """
        assert self.engine is not None
        self._restore()
        self.predictions.write(now=True)
        self._fill()
        async with aclosing(self.engine.as_completed()) as completed:
            async for job, ended in completed:
                self._take(job, ended)
                self.predictions.write()
                self._fill()
        if self._cancelling is not None:
            await self._cancelling
        self.predictions.write(now=True)

    @property
    def pending(self) -> int:
        """The number of instances that have yet to start, or to start again."""
        return len(self._pending)

    # --------------------------------------------------------------------------------- stopping

    def interrupt(self) -> None:
        """Handle Ctrl-C: the first lets running instances finish, the second stops them."""
        if self.stop_status is not Status.INTERRUPTED:
            number = len(self._running)
            self._stop(Status.INTERRUPTED, "interrupted")
            self.progress.note(
                f"finishing {number} running instance{'s' * (number != 1)}; once more to stop them"
            )
        else:
            self.cancel()

    def cancel(self) -> None:
        """Stop the running instances. The next run starts them again."""
        self._stop(Status.INTERRUPTED, "interrupted")
        if self._cancelling is None and self.engine is not None:
            self._cancelling = asyncio.create_task(self.engine.cancel())

    def _stop(self, status: Status, reason: str) -> None:
        """Start no further instance."""
        self.counts.draining = True
        if self.stop_status is None or status is Status.INTERRUPTED:
            self.stop_status, self.stop_reason = status, reason

    # --------------------------------------------------------------------------------- choosing

    def _restore(self) -> None:
        """Read from the journal which instances are finished and which are left."""
        for position, name in enumerate(self.tasks.ids):
            history = self.journal.state.histories.get(name)
            if history is None:
                self._pending.append(position)
                continue
            folder = self._folder(name)
            result = files.read_result(folder) if history.finished else None
            if history.finished is not None and result is not None:
                self.predictions.put(name, result.diff)
                self.counts.finish(history.finished.status, history.finished.verdict, fresh=False)
            elif history.crashes >= self.orders.max_tries:
                self.predictions.put(name, files.read_patch(folder))
                self.counts.give_up(name, "set-aside", history.reason)
            else:
                self._pending.append(position)
        self._keep_others()

    def _keep_others(self) -> None:
        """Keep the predictions of instances that are not selected."""
        selected = frozenset(self.tasks.ids)
        for name, history in self.journal.state.histories.items():
            if name in selected:
                continue
            folder = self._folder(name)
            result = files.read_result(folder) if history.finished else None
            if result is not None:
                self.predictions.put(name, result.diff)
            elif history.crashes >= self.orders.max_tries:
                self.predictions.put(name, files.read_patch(folder))
            else:
                continue
            self.kept += 1

    def on_stage(self, job: SolveJob, stage: str) -> None:
        """Let the other instances of a project start once it has been indexed."""
        if stage == "retrieve":
            self._warm(job)
            self._fill()

    def _warm(self, job: SolveJob) -> None:
        self._indexed.add(job.task.repo)
        self._indexing.pop(job.task.repo, None)

    def _fill(self) -> None:
        while self.stop_status is None and len(self._running) < self.orders.workers:
            position = self._next()
            if position is None:
                return
            self._begin(position)

    def _next(self) -> int | None:
        """Take the first pending instance whose project no worker is indexing at the moment."""
        for ahead in range(min(len(self._pending), _LOOK_AHEAD)):
            position = self._pending[ahead]
            if not self._indexing or self.tasks[position].repo not in self._indexing:
                del self._pending[ahead]
                return position
        return None

    def _begin(self, position: int) -> None:
        task = self.tasks[position]
        repository = find_repository(self.orders.repositories, task.repo)
        if repository is None:
            self._unusable(task, f"no repository {task.repo} in {self.orders.repositories}")
            return
        assert self.engine is not None
        attempt = self.journal.state.histories[task.instance_id].attempts + 1
        self.journal.append(Started(id=task.instance_id, attempt=attempt))
        self._running[task.instance_id] = position
        self._tries[position] += 1
        if task.repo not in self._indexed:
            self._indexing[task.repo] = task.instance_id
        self.engine.submit(
            SolveJob(
                task=task,
                repository=str(repository.resolve()),
                folder=str(self._folder(task.instance_id).resolve()),
                flags=self.orders.flags,
                attempt=attempt,
            )
        )

    def _folder(self, name: str) -> Path:
        return self.orders.run / "instances" / folder_name(name)

    # ---------------------------------------------------------------------------------- judging

    def _take(self, job: SolveJob, ended: AttemptEnded) -> None:
        """Act on the end of an attempt."""
        name = job.task.instance_id
        position = self._running.pop(name)
        if self._indexing.get(job.task.repo) == name:
            del self._indexing[job.task.repo]  # the next instance tries
        if ended.blame == "none":
            self._finish(job, ended)
            return
        self.journal.append(
            Failed(
                id=name,
                attempt=job.attempt,
                blame=ended.blame,
                status=ended.status,
                reason=ended.message,
            )
        )
        match ended.blame:
            case "row":
                self._unusable(job.task, ended.message)
            case "budget":
                self._pending.appendleft(position)
                self._stop(Status.BUDGET, ended.message)
                self._say(name, f"waits: {ended.message}")
            case "stopped":
                self._pending.appendleft(position)
                self._say(name, "stopped")
            case _:
                self._failed(job, ended, position)

    def _finish(self, job: SolveJob, ended: AttemptEnded) -> None:
        name = job.task.instance_id
        self.journal.append(
            Finished(
                id=name,
                attempt=job.attempt,
                status=ended.status,
                verdict=ended.verdict,
                seconds=ended.seconds,
            )
        )
        result = files.read_result(Path(job.folder))
        self.predictions.put(name, result.diff if result else "")
        self.counts.finish(ended.status, ended.verdict, fresh=True)
        self._in_a_row = 0
        self._warm(job)
        words = [ended.status.value, *([ended.verdict] if ended.verdict else [])]
        accepted = ended.status is Status.ACCEPTED
        if not accepted:
            words.append(_first_line(ended.message))
        self._say(name, f"{', '.join(words)} [{ended.seconds:.1f} s]", ok=accepted)

    def _failed(self, job: SolveJob, ended: AttemptEnded, position: int) -> None:
        """Handle an attempt that crashed or that failed because of its environment."""
        name, reason = job.task.instance_id, _first_line(ended.message)
        crashes = self.journal.state.histories[name].crashes
        self._in_a_row += 1
        if ended.blame == "crash" and crashes >= self.orders.max_tries:
            self.journal.append(SetAside(id=name, tries=crashes, reason=ended.message))
            self.predictions.put(name, files.read_patch(Path(job.folder)))
            self.counts.give_up(name, "set-aside", reason)
            self._say(name, f"set aside after {crashes} tries: {reason}")
        elif ended.blame == "environment" and self._tries[position] >= self.orders.max_tries:
            self.counts.give_up(name, "left", reason)
            self._say(name, f"left for the next run: {reason}")
        else:
            self._pending.append(position)
            self._say(name, f"to be tried again: {reason}")
        if self._in_a_row >= max(_HOPELESS, 2 * self.orders.workers):
            self._stop(ended.status, f"{self._in_a_row} attempts in a row have failed: {reason}")

    def _unusable(self, task: SolverTask, reason: str) -> None:
        name = task.instance_id
        reason = reason.removeprefix(f"{name}: ")  # `_say` prints the name
        self.counts.give_up(name, "row", reason)
        self._say(name, f"cannot be used: {reason}")

    def _say(self, name: str, outcome: str, *, ok: bool = False) -> None:
        if not ok:
            self.counts.failures.append(f"{name}: {outcome}")
        self.progress.ended(name, outcome, ok=ok)


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]
