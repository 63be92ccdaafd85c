import datetime as dt

from rota import Rule, Shift, Unit, expand, next_due


def shift(first, rule=None):
    return Shift("ada", first, dt.time(8), 8, rule)


def days(slots):
    return [slot.begin.date().isoformat() for slot in slots]


def test_single_shift_inside_and_outside():
    one = shift(dt.date(2024, 3, 5))
    assert days(expand(one, dt.date(2024, 3, 1), dt.date(2024, 3, 31))) == ["2024-03-05"]
    assert days(expand(one, dt.date(2024, 4, 1), dt.date(2024, 4, 30))) == []


def test_weekly():
    weekly = shift(dt.date(2024, 3, 1), Rule(Unit.WEEK, every=2))
    assert days(expand(weekly, dt.date(2024, 3, 1), dt.date(2024, 3, 31))) == [
        "2024-03-01",
        "2024-03-15",
        "2024-03-29",
    ]


def test_monthly_in_the_middle_of_the_month():
    monthly = shift(dt.date(2024, 1, 15), Rule(Unit.MONTH))
    assert days(expand(monthly, dt.date(2024, 1, 1), dt.date(2024, 4, 1))) == [
        "2024-01-15",
        "2024-02-15",
        "2024-03-15",
    ]


def test_month_without_that_day_uses_its_last():
    monthly = shift(dt.date(2023, 1, 31), Rule(Unit.MONTH))
    assert days(expand(monthly, dt.date(2023, 2, 1), dt.date(2023, 2, 28))) == ["2023-02-28"]


def test_count_and_until():
    thrice = shift(dt.date(2024, 3, 1), Rule(Unit.DAY, count=3))
    assert len(list(expand(thrice, dt.date(2024, 1, 1), dt.date(2024, 12, 31)))) == 3
    until = shift(dt.date(2024, 3, 1), Rule(Unit.DAY, until=dt.date(2024, 3, 4)))
    assert days(expand(until, dt.date(2024, 3, 3), dt.date(2024, 12, 31))) == [
        "2024-03-03",
        "2024-03-04",
    ]


def test_next_due():
    weekly = shift(dt.date(2024, 3, 1), Rule(Unit.WEEK))
    assert next_due(weekly, dt.date(2024, 3, 2)) == dt.date(2024, 3, 8)
    assert next_due(shift(dt.date(2024, 3, 1)), dt.date(2024, 3, 2)) is None
