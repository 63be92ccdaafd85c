"""What passes between the driver and a worker: JSON lines, one message each.

The driver sends a `Job`, then an `Answer` to each `Ask` and `Pace`, and a `YourTurn` to each
`Turn`. Closing the worker's input asks
it to end. A worker reports what it does and ends with `Ended`; a worker that is gone without one
has crashed.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from agent.batch.dataset import Task
from agent.errors import Status
from agent.result import UsageSummary


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Job(_Message):
    """One instance for one worker. `attempt` counts all starts of the instance, from 1.

    `sandbox_tried`: another worker has made sure of the sandbox on this machine.
    `remote`: the folder is not the driver's own; what is paid has to travel before it is used.
    """

    task: Task
    repository: str
    folder: str
    flags: dict[str, Any]
    attempt: int = 1
    sandbox_tried: bool = False
    remote: bool = False


class Answer(_Message):
    """Whether the worker may go on, and why not."""

    granted: bool
    reason: str = ""


class YourTurn(_Message):
    """One more run of tests may start."""

    kind: Literal["your-turn"] = "your-turn"


class Turn(_Message):
    """May one more run of tests start? `YourTurn` comes when it may, other answers meanwhile."""

    kind: Literal["turn"] = "turn"


class TurnOver(_Message):
    """A run that might start has ended."""

    kind: Literal["turn-over"] = "turn-over"


class Pace(_Message):
    """May one more request be sent now? The answer waits for its turn and is always yes."""

    kind: Literal["pace"] = "pace"


class Ask(_Message):
    """May a call be paid? `worst_usd` is its worst case, None where no price is known."""

    kind: Literal["ask"] = "ask"
    sha256: str
    worst_usd: float | None


class Paid(_Message):
    """A reply is on the disk. What was granted for it is settled.

    `exchange`: the line of the tape, where it is on another machine's disk; this is answered once
    the driver has it on its own.
    """

    kind: Literal["paid"] = "paid"
    sha256: str
    cost_usd: float | None
    input_tokens: int
    output_tokens: int
    exchange: str | None = None


class Dropped(_Message):
    """A granted call ended without a reply. `charged`: it may have been paid nevertheless."""

    kind: Literal["dropped"] = "dropped"
    sha256: str
    charged: bool


class OnTape(_Message):
    """The replies of earlier attempts in order: hash of the prompt, cost, tokens in and out."""

    kind: Literal["on-tape"] = "on-tape"
    replies: tuple[tuple[str, float | None, int, int], ...]


class StageDone(_Message):
    """A stage of the pipeline has finished."""

    kind: Literal["stage"] = "stage"
    stage: str
    seconds: float
    summary: str


Blame = Literal["none", "row", "environment", "crash", "budget", "stopped"]
"""Why an attempt is not the last word on its instance.

"none": it is. "row": its repository, commit or text cannot be used. "environment": provider,
sandbox or settings failed, which can hit any instance. "crash": the worker died, hung, or had a
bug. "budget": the driver refused a call. "stopped": it was asked to stop.
"""


class Ended(_Message):
    """The worker's last word."""

    kind: Literal["ended"] = "ended"
    status: Status
    blame: Blame
    message: str
    verdict: str | None = None
    usage: UsageSummary | None = None
    seconds: float = 0.0


Report = Pace | Ask | Paid | Dropped | OnTape | StageDone | Turn | TurnOver | Ended

REPORTS: TypeAdapter[Report] = TypeAdapter(Annotated[Report, Field(discriminator="kind")])

ANSWERS: TypeAdapter[Answer | YourTurn] = TypeAdapter(Answer | YourTurn)


def line_of(message: BaseModel) -> bytes:
    """One message as it is sent."""
    return message.model_dump_json().encode("utf-8") + b"\n"
