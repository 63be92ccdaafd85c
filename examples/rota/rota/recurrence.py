"""Steps from one occurrence of a rule to the next."""

from __future__ import annotations

import datetime as dt

from rota.calendar import add_months
from rota.model import Rule, Unit


def following(rule: Rule, current: dt.date) -> dt.date:
    """The date on which ``rule`` falls next after the occurrence on ``current``."""
    if rule.unit is Unit.DAY:
        return current + dt.timedelta(days=rule.every)
    if rule.unit is Unit.WEEK:
        return current + dt.timedelta(weeks=rule.every)
    return add_months(current, rule.every)


def exhausted(rule: Rule, made: int, candidate: dt.date) -> bool:
    """Whether ``candidate`` lies beyond the rule, ``made`` occurrences having been made."""
    if rule.count is not None and made >= rule.count:
        return True
    return rule.until is not None and candidate > rule.until


def describe(rule: Rule | None) -> str:
    """The rule in words, for lists and mails."""
    if rule is None:
        return "once"
    name = rule.unit.value
    often = f"every {name}" if rule.every == 1 else f"every {rule.every} {name}s"
    if rule.count is not None:
        often += f", {rule.count} times"
    if rule.until is not None:
        often += f", until {rule.until.isoformat()}"
    return often
