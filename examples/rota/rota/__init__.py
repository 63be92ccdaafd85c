"""Plan recurring shifts."""

from rota.model import Rule, Shift, Unit
from rota.planner import expand, next_due
from rota.report import hours_by_person

__all__ = ["Rule", "Shift", "Unit", "expand", "hours_by_person", "next_due"]
