"""Jobs, rows and a scripted engine for the tests of `agent.batch`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agent.batch import AttemptEnded, Blame, SolveJob
from agent.datasets import SolverTask
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


def ended(
    blame: Blame = "none", status: Status = Status.ACCEPTED, message: str = "why"
) -> AttemptEnded:
    """A last word."""
    verdict = "verified" if status is Status.ACCEPTED else None
    return AttemptEnded(status=status, blame=blame, message=message, verdict=verdict, seconds=1.0)


class ScriptedEngine:
    """An engine whose attempts end as `script` says, with what workers write.

    An attempt with a result leaves a `result.json` whose diff names the instance. `on_end` is
    called in the thread of the attempt; `most` is how many ran at once.
    """

    def __init__(
        self,
        script: Callable[[SolveJob], AttemptEnded] | Sequence[AttemptEnded],
        *,
        on_end: Callable[[SolveJob], None] = lambda _job: None,
    ) -> None:
        self._rest = [] if callable(script) else list(script)
        self._script = script if callable(script) else lambda _job: self._rest.pop(0)
        self._on_end = on_end
        self._lock = threading.Lock()
        self._running = 0
        self.submitted: list[str] = []
        self.attempts: list[int] = []
        self.most = 0
        self.cancelled = threading.Event()

    def attempt(self, job: SolveJob) -> AttemptEnded:
        """End as the script says."""
        with self._lock:
            self.submitted.append(job.task.instance_id)
            self.attempts.append(job.attempt)
            self._running += 1
            self.most = max(self.most, self._running)
            result = self._script(job)
        time.sleep(0.05)  # attempts that start together are together
        if result.blame == "none":
            leave_result(Path(job.folder), job.task.instance_id, result.status)
        Path(job.folder).mkdir(parents=True, exist_ok=True)
        self._on_end(job)
        with self._lock:
            self._running -= 1
        return result

    def cancel(self) -> None:
        """Remember it."""
        self.cancelled.set()


def leave_result(folder: Path, name: str, status: Status = Status.ACCEPTED) -> None:
    """What a worker leaves behind."""
    folder.mkdir(parents=True, exist_ok=True)
    result = make_record(Ledger(), status=status, message="why")
    result = result.model_copy(update={"diff": f"diff of {name}"})
    files.write_result(folder, result, result.diff.encode())
