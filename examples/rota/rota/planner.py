"""Turns shifts into the slots of a period."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator

from rota.model import Shift, Slot
from rota.recurrence import exhausted, following


def _slot(shift: Shift, day: dt.date) -> Slot:
    begin = dt.datetime.combine(day, shift.begins)
    return Slot(shift.person, begin, begin + dt.timedelta(hours=shift.hours))


def expand(shift: Shift, start: dt.date, end: dt.date) -> Iterator[Slot]:
    """The slots of ``shift`` that begin between ``start`` and ``end``, both included."""
    if shift.rule is None:
        if start <= shift.first <= end:
            yield _slot(shift, shift.first)
        return
    day, made = shift.first, 0
    while day <= end and not exhausted(shift.rule, made, day):
        if day >= start:
            yield _slot(shift, day)
        made += 1
        day = following(shift.rule, day)


def next_due(shift: Shift, today: dt.date) -> dt.date | None:
    """The first day on or after ``today`` on which ``shift`` is worked, if there is one."""
    if shift.rule is None:
        return shift.first if shift.first >= today else None
    day, made = shift.first, 0
    while not exhausted(shift.rule, made, day):
        if day >= today:
            return day
        made += 1
        day = following(shift.rule, day)
    return None


def plan(shifts: Iterable[Shift], start: dt.date, end: dt.date) -> list[Slot]:
    """All slots of a period, in the order in which they begin."""
    slots = [slot for shift in shifts for slot in expand(shift, start, end)]
    return sorted(slots, key=lambda slot: (slot.begin, slot.person))
