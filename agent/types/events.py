"""Progress events. Steps emit them; `agent.shared.console` renders them to stderr."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class StageStarted:
    stage: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class StageProgress:
    stage: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class StageFinished:
    stage: str
    seconds: float
    summary: str = ""  # what the stage made: "412 files, 5,130 chunks"
    ok: bool = True


@dataclass(frozen=True, slots=True)
class Notice:
    message: str
    level: str = "info"  # "info", "warning"


@dataclass(frozen=True, slots=True)
class ModelCall:
    kind: Literal["chat", "embed"]
    model: str
    status: str  # "ok", "cut-off" (at the output limit), "cancelled", or the error's class
    seconds: float
    attempt: int = 1  # the number of the try that gave this result
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    texts: int | None = None  # the size of a batch
    error: str = ""


Event = StageStarted | StageProgress | StageFinished | Notice | ModelCall
