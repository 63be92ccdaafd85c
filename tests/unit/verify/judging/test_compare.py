from __future__ import annotations

import pytest

from agent.verify.judging.compare import Comparison, compare
from tests.support.validation import run_of

STATES = ("passed", "failed", "error", "skipped", None)


def outcome_of(before: str | None, after: str | None) -> Comparison:
    """Compare runs of one test `t`, beside one that passes in both."""
    runs = []
    for state in (before, after):
        outcomes = {"m::other": "passed"} | ({} if state is None else {"m::t": state})
        runs.append(run_of(outcomes))
    return compare(*runs)


@pytest.mark.parametrize("before", STATES)
@pytest.mark.parametrize("after", STATES)
def test_the_whole_table(before: str | None, after: str | None) -> None:
    found = outcome_of(before, after)
    bad = ("failed", "error")
    regressed = (before == "passed" and after != "passed") or (before is None and after in bad)
    fixed = before in bad and after == "passed"
    assert (found.newly_failing == ("m::t",)) is regressed
    assert (found.newly_passing == ("m::t",)) is fixed


def test_a_module_that_can_be_collected_now_fixed_its_tests() -> None:
    before = run_of({"m.py": "error", "n.py::b": "passed"})
    after = run_of({"m.py::a": "passed", "m.py::C::x": "passed", "n.py::b": "passed"})
    assert compare(before, after) == Comparison(
        newly_passing=("m.py::C::x", "m.py::a"), still_passing=1, still_red=0, executed=True
    )


def test_what_is_red_before_and_after_is_counted() -> None:
    before = run_of({"m::a": "failed", "m::b": "error", "m::c": "failed", "n::d": "passed"})
    after = run_of({"m::a": "passed", "m::b": "failed", "m::c": "skipped", "n::d": "failed"})
    assert compare(before, after).still_red == 1


def test_a_module_that_cannot_be_collected_any_more_fails_its_tests_only() -> None:
    before = run_of({"m.py::a": "passed", "m.py::b": "passed", "m.py::red": "failed"})
    after = run_of({"m.py": "error"})
    found = compare(before, after)
    assert found.newly_failing == ("m.py::a", "m.py::b")
    assert not found.executed


def test_a_red_test_of_a_module_that_was_not_collected_is_no_regression() -> None:
    before = run_of({"m.py": "error", "n.py::b": "passed"})
    after = run_of({"m.py::a": "failed", "n.py::b": "passed"})
    assert compare(before, after).newly_failing == ()


def test_a_run_cut_short_after_the_patch_lost_its_tests() -> None:
    before = run_of({"a": "passed", "b": "passed"})
    after = run_of({"a": "passed"}, ended="wall-limit", failures={"b": "here"})
    assert compare(before, after).newly_failing == ("b",)


def test_absence_says_nothing_where_both_runs_were_cut() -> None:
    before = run_of({"a": "passed", "b": "passed"}, ended="wall-limit")
    after = run_of({"a": "passed"}, ended="wall-limit")
    assert compare(before, after).newly_failing == ()
    worse = run_of({"a": "failed"}, ended="wall-limit")
    assert compare(before, worse).newly_failing == ("a",)


def test_a_test_that_hung_and_passes_now_is_fixed() -> None:
    before = run_of({"a": "passed"}, ended="wall-limit", failures={"b": "here"})
    after = run_of({"a": "passed", "b": "passed", "c": "passed"})
    assert compare(before, after).newly_passing == ("b",)
