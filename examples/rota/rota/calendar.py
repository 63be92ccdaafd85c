"""Arithmetic on calendar dates."""

from __future__ import annotations

import calendar
import datetime as dt


def days_in_month(year: int, month: int) -> int:
    return calendar.monthrange(year, month)[1]


def add_months(day: dt.date, months: int) -> dt.date:
    """Move ``day`` by whole months; a day that the month lacks becomes its last day."""
    index = day.year * 12 + day.month - 1 + months
    year, month = divmod(index, 12)
    return day.replace(
        year=year, month=month + 1, day=min(day.day, days_in_month(year, month + 1))
    )


def month_bounds(year: int, month: int) -> tuple[dt.date, dt.date]:
    """First and last day of a month."""
    return dt.date(year, month, 1), dt.date(year, month, days_in_month(year, month))
