"""Sums for payroll."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from rota.calendar import month_bounds
from rota.model import Shift
from rota.planner import plan


def hours_by_person(shifts: Iterable[Shift], year: int, month: int) -> dict[str, float]:
    """Hours that each person works in a month, by the day on which a slot begins."""
    start, end = month_bounds(year, month)
    hours: dict[str, float] = defaultdict(float)
    for slot in plan(shifts, start, end):
        hours[slot.person] += slot.hours
    return dict(sorted(hours.items()))


def as_csv(hours: dict[str, float]) -> str:
    lines = ["person,hours"]
    lines += [f"{person},{value:.2f}" for person, value in hours.items()]
    return "\n".join(lines) + "\n"
