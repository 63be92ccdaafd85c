"""Worker processes that measure instances in parallel, and the JSON messages to and from them.

A crash inside a parser or an embedding library must cost one instance, not the run.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import Future, as_completed
from functools import partial
from typing import Any

from pydantic import BaseModel, ConfigDict

from agent.datasets import GoldInstance
from agent.errors import ConfigurationError, PatchshotError
from agent.evaluation.retrieval.gold import Gold
from agent.evaluation.retrieval.result_files import BudgetRow, RetrievalRow
from agent.shared.workers import WorkerFailed, WorkerPool, WorkerProcess

_FROZEN = ConfigDict(frozen=True, extra="forbid")


class WorkerStart(BaseModel):
    """The first frame: settings as flags, presets, further budgets, number of the worker."""

    model_config = _FROZEN

    flags: dict[str, Any]
    presets: tuple[str, ...]
    number: int
    workers: int
    budgets: tuple[int, ...] = ()


class MeasureJob(BaseModel):
    """One instance. `presets` are those that need a row; the gold answer is always returned."""

    model_config = _FROZEN

    instance: GoldInstance
    repository: str
    presets: tuple[str, ...]


class PresetRow(BaseModel):
    """A row of a preset, and the same ranking at further budgets."""

    model_config = _FROZEN

    preset: str
    row: RetrievalRow
    budgets: BudgetRow


class MeasureReply(BaseModel):
    """The reply to a job or to the start.

    `skipped` says why some or all presets have no row. `fatal` says why no job can succeed.
    `notices` are messages for the user.
    """

    model_config = _FROZEN

    rows: tuple[PresetRow, ...] = ()
    gold: Gold = Gold()
    kinds: tuple[str, ...] = ()
    skipped: str = ""
    fatal: str = ""
    notices: tuple[str, ...] = ()


JOB_SECONDS = 900.0
"""Time limit of one instance under all presets."""

_START_SECONDS = 120.0
_STOP_SECONDS = 3.0  # to remove temporary folders


def measure_all(
    jobs: Sequence[MeasureJob], starts: Sequence[WorkerStart], *, seconds: float = JOB_SECONDS
) -> Generator[tuple[MeasureJob, MeasureReply], None, None]:
    """Yield replies as they come, from one worker for each of `starts`.

    An instance that takes longer than `seconds`, or on which a worker dies, is skipped with that
    reason. Raises ConfigurationError or PatchshotError if no instance can be measured. No worker
    outlives the iteration, however it ends.
    """
    with WorkerPool([_Worker(start, seconds) for start in starts], "evaluate") as pool:
        futures: dict[Future[MeasureReply], MeasureJob] = {
            pool.submit(partial(_Worker.measure, job=job)): job for job in jobs
        }
        for future in as_completed(futures):
            reply = future.result()
            if reply.fatal:
                raise ConfigurationError(reply.fatal)
            yield futures[future], reply


class _Worker:
    """One process. It starts on first use and restarts after it has died."""

    def __init__(self, start: WorkerStart, seconds: float) -> None:
        self._start = start
        self._seconds = seconds
        self._process: WorkerProcess | None = None
        self._lock = threading.Lock()
        self._stopped = False

    def measure(self, job: MeasureJob) -> MeasureReply:
        if self._process is None:
            reply = self._open()
            if reply.fatal:
                return reply
        return self._ask(job.model_dump_json().encode(), self._seconds)

    def stop(self) -> None:
        """End the process, from any thread; a job under way is then skipped."""
        with self._lock:
            self._stopped = True
            process = self._process
        if process is not None:
            process.stop()

    def _open(self) -> MeasureReply:
        with self._lock:
            if self._stopped:
                return MeasureReply(skipped="stopped")
            # The working directory stays: paths and the configuration file are relative to it. The
            # environment is the user's own, because it holds the keys.
            self._process = WorkerProcess(
                "agent.evaluation.retrieval.worker", environment=os.environ, grace=_STOP_SECONDS
            )
        reply = self._ask(self._start.model_dump_json().encode(), _START_SECONDS)
        if reply.skipped and not self._stopped:
            raise PatchshotError(
                f"a worker process of the evaluation did not start ({reply.skipped}); "
                "see its message above, or try --workers 1"
            )
        return reply

    def _ask(self, request: bytes, seconds: float) -> MeasureReply:
        process = self._process
        if process is None:
            return MeasureReply(skipped="stopped")
        try:
            return MeasureReply.model_validate_json(process.ask([request], seconds))
        except WorkerFailed as failure:
            self._process = None
            late = f"took longer than {seconds:g} s"
            return MeasureReply(skipped=late if failure.late else str(failure))
        except ValueError:
            process.stop()
            self._process = None
            return MeasureReply(skipped="the worker process gave an answer that cannot be read")
