"""Jobs, rows and a scripted engine for the tests of `agent.batch`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any

from agent.batch.messages import AttemptEnded, Blame, SolveJob

from agent.datasets.instances import SolverTask
from agent.errors import Status
from agent.results import kept as files
from agent.run.record import Ledger, make_record


def make_task(number: int = 1, **other: Any) -> SolverTask:
    """Instance `number` of a shop."""
    values = {
        "instance_id": f"owner__shop-{number}",
        "repo": "owner/shop",
        "base_commit": "a" * 40,
        "problem_statement": f"issue {number}",
    }
    return SolverTask.model_validate({**values, **other})


def make_job(number: int = 1, folder: Path = Path("nowhere")) -> SolveJob:
    """A first attempt at instance `number`."""
    task = make_task(number)
    return SolveJob(task=task, repository="/nowhere", folder=str(folder), flags={})


def ended(
    blame: Blame = "none", status: Status = Status.ACCEPTED, message: str = "why"
) -> AttemptEnded:
    """A last word."""
    verdict = "verified" if status is Status.ACCEPTED else None
    return AttemptEnded(status=status, blame=blame, message=message, verdict=verdict, seconds=1.0)


class ScriptedEngine:
    """An engine whose jobs end as `script` says, one after the other, with what workers write.

    A job with a result leaves a `result.json` whose diff names the instance. `on_submit` and
    `on_end` are told; `most` is how many ran at once.
    """

    def __init__(
        self,
        script: Callable[[SolveJob], AttemptEnded] | Sequence[AttemptEnded],
        *,
        on_end: Callable[[SolveJob], None] = lambda _job: None,
    ) -> None:
        self._script = script if callable(script) else self._in_order(script)
        self._on_end = on_end
        self.running: list[SolveJob] = []
        self.submitted: list[str] = []
        self.most = 0
        self.cancelled = False

    @staticmethod
    def _in_order(words: Sequence[AttemptEnded]) -> Callable[[SolveJob], AttemptEnded]:
        rest = list(words)
        return lambda _job: rest.pop(0)

    def submit(self, job: SolveJob) -> None:
        """Remember the job."""
        self.running.append(job)
        self.submitted.append(job.task.instance_id)
        self.most = max(self.most, len(self.running))

    async def as_completed(self) -> AsyncGenerator[tuple[SolveJob, AttemptEnded], None]:
        """The oldest job first."""
        while self.running:
            await asyncio.sleep(0)
            job = self.running.pop(0)
            word = ended("stopped", Status.INTERRUPTED) if self.cancelled else self._script(job)
            if word.blame == "none":
                leave_result(Path(job.folder), job.task.instance_id, word.status)
            self._on_end(job)
            yield job, word

    async def cancel(self) -> None:
        """All that run end as stopped."""
        self.cancelled = True


def leave_result(folder: Path, name: str, status: Status = Status.ACCEPTED) -> None:
    """What a worker leaves behind."""
    folder.mkdir(parents=True, exist_ok=True)
    result = make_record(Ledger(), status=status, message="why")
    result = result.model_copy(update={"diff": f"diff of {name}"})
    files.write_result(folder, result, result.diff.encode())
