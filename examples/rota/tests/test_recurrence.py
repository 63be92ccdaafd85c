import datetime as dt

import pytest

from rota.model import Rule, Unit
from rota.recurrence import describe, exhausted, following


@pytest.mark.parametrize(
    ("unit", "every", "expected"),
    [
        (Unit.DAY, 3, dt.date(2024, 2, 18)),
        (Unit.WEEK, 1, dt.date(2024, 2, 22)),
        (Unit.MONTH, 2, dt.date(2024, 4, 15)),
    ],
)
def test_following(unit, every, expected):
    assert following(Rule(unit, every), dt.date(2024, 2, 15)) == expected


def test_exhausted():
    assert exhausted(Rule(Unit.DAY, count=2), 2, dt.date(2024, 1, 1))
    assert not exhausted(Rule(Unit.DAY, count=2), 1, dt.date(2024, 1, 1))


def test_describe():
    assert describe(None) == "once"
    assert describe(Rule(Unit.WEEK, 2, count=4)) == "every 2 weeks, 4 times"


def test_rule_must_advance():
    with pytest.raises(ValueError, match="advance"):
        Rule(Unit.DAY, every=0)
