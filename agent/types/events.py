"""Progress events. Steps emit them; `agent.shared.console` renders them to stderr.

A `Reporter` (`agent.types.protocols`) is any callable that takes one event. Events carry facts, not
formatted text, so that another front end can show them in its own way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class StageStarted:
    """A stage begins. `agent.shared.console` knows the names of stages."""

    stage: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class StageProgress:
    """`done` of `total` units (files, chunks, tests) of the running stage."""

    stage: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class StageFinished:
    """A stage ended after `seconds`; `summary` counts what it made ("412 files, 5,130 chunks")."""

    stage: str
    seconds: float
    summary: str = ""
    ok: bool = True


@dataclass(frozen=True, slots=True)
class Notice:
    """A message for the user: a degradation, a retry, a skipped part."""

    message: str
    level: str = "info"  # "info", "warning"


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One call of a chat model, or one try of one batch of an embedding model, as it ended.

    `status` is "ok", "cut-off" (at the output limit), "cancelled", or the error's class
    ("provider-unreachable") with its message in `error`. `attempt` is the number of the try that
    gave this result, from 1; `texts` is the size of a batch. Unknown figures are None.
    """

    kind: Literal["chat", "embed"]
    model: str
    status: str
    seconds: float
    attempt: int = 1
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    texts: int | None = None
    error: str = ""


Event = StageStarted | StageProgress | StageFinished | Notice | ModelCall
