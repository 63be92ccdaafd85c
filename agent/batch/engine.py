"""The seam between the driver and whatever runs its jobs: processes here, other machines later."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from agent.batch.messages import Answer, Ended, Job, Report


class Broker(Protocol):
    """The driver as an engine sees it: it hears every report of a worker and may answer it."""

    async def hear(self, job: Job, report: Report) -> Answer | None:
        """Take a report of the worker of `job`; the answer that it waits for, None for none.

        Raises OSError when what must be kept cannot be: the run has to stop.
        """
        ...

    async def gone(self, job: Job) -> None:
        """The worker of `job` is there no more: what it had leave for, it will not pay."""
        ...


class Engine(Protocol):
    """Runs jobs, each in a place of its own, whose end costs that job alone."""

    def submit(self, job: Job) -> None:
        """Start a job; the driver submits no more at once than it has been told to."""
        ...

    def as_completed(self) -> AsyncGenerator[tuple[Job, Ended], None]:
        """Jobs as they end, those submitted meanwhile included, until none is under way.

        Closed before that, it leaves no worker behind.
        A job whose worker died without a word ends with blame "crash". Raises what `Broker.hear`
        raises.
        """
        ...

    async def cancel(self) -> None:
        """Ask all jobs to stop, and soon make them; they still come out of `as_completed`."""
        ...
