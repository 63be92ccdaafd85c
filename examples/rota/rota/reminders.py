"""Whom to remind of what, a few days ahead."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

from rota.model import Shift
from rota.planner import next_due
from rota.recurrence import describe


def due_within(shifts: Iterable[Shift], today: dt.date, days: int) -> list[tuple[dt.date, str]]:
    """Reminders for shifts that fall due within ``days`` of ``today``, soonest first."""
    limit = today + dt.timedelta(days=days)
    due = []
    for shift in shifts:
        day = next_due(shift, today)
        if day is not None and day <= limit:
            due.append((day, f"{shift.person}: {day.isoformat()} ({describe(shift.rule)})"))
    return sorted(due)
