"""The values that the other modules work on."""

from __future__ import annotations

import datetime as dt
import enum
from dataclasses import dataclass


class Unit(enum.Enum):
    DAY = "day"
    WEEK = "week"
    MONTH = "month"


@dataclass(frozen=True)
class Rule:
    """How a shift repeats: every ``every`` units, at most ``count`` times, not after ``until``."""

    unit: Unit
    every: int = 1
    count: int | None = None
    until: dt.date | None = None

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError("a rule must advance by at least one unit")


@dataclass(frozen=True)
class Shift:
    """A shift that ``person`` works on ``first`` and again as ``rule`` says."""

    person: str
    first: dt.date
    begins: dt.time
    hours: float
    rule: Rule | None = None


@dataclass(frozen=True)
class Slot:
    """One occurrence of a shift."""

    person: str
    begin: dt.datetime
    end: dt.datetime

    @property
    def hours(self) -> float:
        return (self.end - self.begin).total_seconds() / 3600
