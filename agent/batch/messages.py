"""Messages between the driver and its workers, and the protocols of both sides of an engine.

Messages are JSON lines. The driver sends a `SolveJob`, then an `Answer` to each `Ask` and `Pace`,
and a `SlotGranted` to each `SlotRequest`. Closing the worker's input asks it to end. A worker
reports what it does and ends with `AttemptEnded`; a worker that exits without it has crashed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Annotated, Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from agent.datasets import SolverTask
from agent.errors import Status
from agent.types import Usage


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SolveJob(_Message):
    """One instance for one worker. `attempt` counts all starts of the instance, from 1.

    `sandbox_tried`: another worker has already checked the sandbox of this machine. `remote`: the
    folder is not the driver's, so a paid reply must reach the driver before it is used.
    """

    task: SolverTask
    repository: str
    folder: str
    flags: dict[str, Any]
    attempt: int = 1
    sandbox_tried: bool = False
    remote: bool = False


class Answer(_Message):
    """Whether the worker may go on, and the reason if it may not.

    `later`: not yet; the worker has to ask again, so that its other messages are heard meanwhile.
    """

    granted: bool
    reason: str = ""
    later: bool = False


class SlotGranted(_Message):
    """A run of tests may start."""

    kind: Literal["slot-granted"] = "slot-granted"


class SlotRequest(_Message):
    """Ask for a CPU slot for a run of tests; other answers may come before `SlotGranted`."""

    kind: Literal["slot-request"] = "slot-request"


class SlotReleased(_Message):
    """Give a CPU slot back."""

    kind: Literal["slot-released"] = "slot-released"


class Pace(_Message):
    """Ask whether a request may be sent. The answer is always yes, but it may come late."""

    kind: Literal["pace"] = "pace"


class Ask(_Message):
    """Ask whether a call may be paid. `worst_usd` is None if no price is known.

    `again`: the last answer was `later`.
    """

    kind: Literal["ask"] = "ask"
    sha256: str
    worst_usd: float | None
    again: bool = False


class Paid(_Message):
    """A reply is on the disk, which settles its grant.

    `exchange` is the line of the recording if the disk is another machine's. Such a message is
    answered once the driver has written the line to its own disk.
    """

    kind: Literal["paid"] = "paid"
    sha256: str
    cost_usd: float | None
    input_tokens: int
    output_tokens: int
    exchange: str | None = None


class Dropped(_Message):
    """A granted call has ended without a reply. `charged`: it may have cost something."""

    kind: Literal["dropped"] = "dropped"
    sha256: str
    charged: bool


class EarlierReplies(_Message):
    """Prompt hash, cost, input and output tokens of the replies of earlier attempts."""

    kind: Literal["earlier-replies"] = "earlier-replies"
    replies: tuple[tuple[str, float | None, int, int], ...]


class StageDone(_Message):
    """A stage of the pipeline has finished."""

    kind: Literal["stage"] = "stage"
    stage: str
    seconds: float
    summary: str


Blame = Literal["none", "row", "environment", "crash", "budget", "stopped"]
"""What is to blame if an attempt has no final result.

"none": it has one. "row": its repository, commit or text cannot be used. "environment": provider,
sandbox or settings failed, which can hit any instance. "crash": the worker died, hung, or had a
bug. "budget": the driver refused a call. "stopped": the worker was asked to stop.
"""


class AttemptEnded(_Message):
    """The last message of a worker."""

    kind: Literal["ended"] = "ended"
    status: Status
    blame: Blame
    message: str
    verdict: str | None = None
    usage: Usage | None = None
    seconds: float = 0.0


WorkerReport = (
    Pace
    | Ask
    | Paid
    | Dropped
    | EarlierReplies
    | StageDone
    | SlotRequest
    | SlotReleased
    | AttemptEnded
)

REPORTS: TypeAdapter[WorkerReport] = TypeAdapter(
    Annotated[WorkerReport, Field(discriminator="kind")]
)

ANSWERS: TypeAdapter[Answer | SlotGranted] = TypeAdapter(Answer | SlotGranted)


def encode_line(message: BaseModel) -> bytes:
    """Return a message as it is sent."""
    return message.model_dump_json().encode("utf-8") + b"\n"


class ReportHandler(Protocol):
    """The driver as an engine sees it: it receives every report of a worker and may answer."""

    async def handle(self, job: SolveJob, report: WorkerReport) -> Answer | None:
        """Handle a report of the worker of `job`. Return the answer that the worker waits for, if
        any.

        Raises OSError if the journal cannot be written; the run then has to stop.
        """
        ...

    async def worker_exited(self, job: SolveJob) -> None:
        """Handle the exit of the worker of `job`: it will not pay the calls that were granted to
        it.
        """
        ...


class BatchEngine(Protocol):
    """Runs each job in a process of its own, so that a crash costs one job only."""

    def submit(self, job: SolveJob) -> None:
        """Start a job."""
        ...

    def as_completed(self) -> AsyncGenerator[tuple[SolveJob, AttemptEnded], None]:
        """Yield jobs as they end, until none is left, also those submitted meanwhile.

        A generator that is closed early leaves no worker behind. A job whose worker died without
        an `AttemptEnded` ends with blame "crash". Raises what `ReportHandler.handle`
        raises.
        """
        ...

    async def cancel(self) -> None:
        """Ask all jobs to stop, and kill them soon; `as_completed` still yields them."""
        ...
