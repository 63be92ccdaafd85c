"""What passes between the evaluation and its worker processes, as frames of JSON."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from agent.evaluation.dataset import Instance
from agent.evaluation.gold import Gold
from agent.evaluation.rows import BudgetRow, Row

_FROZEN = ConfigDict(frozen=True, extra="forbid")


class Start(BaseModel):
    """The first frame: settings as flags, presets, further budgets, this worker's number of all."""

    model_config = _FROZEN

    flags: dict[str, Any]
    presets: tuple[str, ...]
    number: int
    workers: int
    budgets: tuple[int, ...] = ()


class Job(BaseModel):
    """One instance. `presets`: those without a row; the answer is worked out in any case."""

    model_config = _FROZEN

    instance: Instance
    repository: str
    presets: tuple[str, ...]


class PresetRow(BaseModel):
    """A row, the same ranking in further budgets, and the preset they were made with."""

    model_config = _FROZEN

    preset: str
    row: Row
    budgets: BudgetRow


class Reply(BaseModel):
    """What came of a job, or of the start. `skipped` says why nothing did, or not all: rows of
    other presets may be there.

    `fatal`: nothing can come of any job. `notices` are what the user should know.
    """

    model_config = _FROZEN

    rows: tuple[PresetRow, ...] = ()
    gold: Gold = Gold()
    kinds: tuple[str, ...] = ()
    skipped: str = ""
    fatal: str = ""
    notices: tuple[str, ...] = ()
