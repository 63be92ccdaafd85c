from __future__ import annotations

from agent.settings import Settings
from agent.types import Problem
from agent.wiring.planned_calls import plan_in_words

PROBLEM = Problem("t", "b")


def test_the_plan_names_a_locating_call_only_where_one_may_come() -> None:
    once = "1 call; if that fails, 1 repair (5 of 8 measured runs), then up to 40 steps (4 of 6)"
    after = f"{once}; if no test shows the fix, 1 call for a test"
    located = f"plan: at most 1 locating call first, then {after}"
    assert plan_in_words(Settings(), PROBLEM) == located
    only = f"plan: at most 1 locating call first, then {once}"
    assert plan_in_words(Settings(locate="always", max_calls=1), PROBLEM) == only
    assert plan_in_words(Settings(locate="never"), PROBLEM) == f"plan: {after}"
    assert plan_in_words(Settings(max_calls=1), PROBLEM) == f"plan: {once}"
    assert plan_in_words(Settings(locate="never", tests=False), PROBLEM) == f"plan: {once}"
