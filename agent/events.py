"""Frozen progress events. Steps emit them; `agent.console` renders them to stderr.

A `Reporter` (see `agent.protocols`) is any callable that takes one event. Events carry facts, never
formatted text, so that another front end can show them its own way.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StageStarted:
    """A stage of the pipeline begins. `stage` is one of the names of DESIGN's data flow."""

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
    """Something the user should know: a degradation, a retry, a skipped part."""

    message: str
    level: str = "info"  # "info", "warning"


Event = StageStarted | StageProgress | StageFinished | Notice
