"""The page lists the results of every case of the suite, and of nothing else."""

from __future__ import annotations

from collections import Counter

from tests.attack.cases import LEVELS, RunCase
from tests.attack.table import CASES, PAGE, page_with, recorded, render


def test_the_page_is_up_to_date() -> None:
    """`python -m tests.attack.table` writes the table again."""
    assert PAGE.read_text() == page_with(render())


def test_every_case_was_run_and_none_got_through() -> None:
    seen, _ = recorded()
    assert set(seen) == {case.name for case in CASES}
    got_through = [(name, column) for name, by in seen.items() for column, result in by.items()
                   if result == "failed"]  # fmt: skip
    assert got_through == []
    assert [name for name, by in seen.items() if "passed" not in by.values()] == []


def test_names_are_unique_and_levels_known() -> None:
    assert [name for name, n in Counter(case.name for case in CASES).items() if n > 1] == []
    assert {case.level for case in CASES} == set(LEVELS)


def test_what_has_no_control_says_why() -> None:
    without = [case for case in CASES if isinstance(case, RunCase) and case.control]
    assert all(case.control.strip() for case in without)
    assert len(without) < len([case for case in CASES if isinstance(case, RunCase)]) * 2 / 3
