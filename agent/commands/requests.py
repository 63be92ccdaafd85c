"""What is asked of the commands that look: `search`, `context` and `index`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class InspectRequest:
    """What is asked of one invocation, beside the settings."""

    problem: str | None
    repo: Path
    commit: str | None
    dirty: str
    json: bool
    quiet: bool
    explain: bool = False


@dataclass(frozen=True, slots=True)
class PoolRequest:
    """What is asked of corpora beside the code. `by_model`: intents by the configured model."""

    corpora: tuple[str, ...] = ()
    at_least: float | None = None
    expand: str = "off"
    by_model: bool = False
    fresh: bool = False
    forget: bool = False
    show: bool = False
    drop: str | None = None


CODE_ALONE = PoolRequest()
"""Nothing beside the code."""
