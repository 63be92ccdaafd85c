"""What is wrong with an entry of the input: a value, told with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

ProblemKind = Literal[
    "bad-prediction", "duplicate-prediction", "unknown-instance", "bad-row", "duplicate-row"
]


class Problem(BaseModel):
    """`place` is "preds.jsonl:7"; `instance_id` is "" where none could be read."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: ProblemKind
    place: str
    reason: str
    instance_id: str = ""

    def __init__(self, kind: ProblemKind, place: str, reason: str, instance_id: str = "") -> None:
        """By position too."""
        super().__init__(kind=kind, place=place, reason=reason, instance_id=instance_id)


def place_of(path: Path, number: int, *, row: bool = False) -> str:
    """Line or row `number` (from 1) of a file."""
    return f"{path}: row {number}" if row else f"{path}:{number}"
