import datetime as dt

from rota import Rule, Shift, Unit, hours_by_person
from rota.conflicts import conflicts
from rota.planner import plan
from rota.reminders import due_within
from rota.report import as_csv

ADA = Shift("ada", dt.date(2024, 5, 1), dt.time(8), 8, Rule(Unit.WEEK))
BEN = Shift("ben", dt.date(2024, 5, 2), dt.time(22), 6.5)


def test_hours():
    assert hours_by_person([ADA, BEN], 2024, 5) == {"ada": 40.0, "ben": 6.5}


def test_csv():
    assert as_csv({"ada": 40.0}) == "person,hours\nada,40.00\n"


def test_conflicts():
    double = Shift("ada", dt.date(2024, 5, 8), dt.time(15), 4)
    slots = plan([ADA, double], dt.date(2024, 5, 1), dt.date(2024, 5, 31))
    assert [(a.begin.day, b.begin.hour) for a, b in conflicts(slots)] == [(8, 15)]


def test_reminders():
    assert due_within([ADA, BEN], dt.date(2024, 5, 2), 6) == [
        (dt.date(2024, 5, 2), "ben: 2024-05-02 (once)"),
        (dt.date(2024, 5, 8), "ada: 2024-05-08 (every week)"),
    ]
