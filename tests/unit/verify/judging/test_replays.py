"""Tests that pass newly: once more, and as plain code."""

from __future__ import annotations

from typing import Literal

import pytest

from agent.types import TestRun as Run
from agent.verify.judging.replays import Replayed, Replays, SecondRuns
from tests.support.validation import run_of

TEST = "tests/test_a.py::test"


def again(outcome: str = "passed") -> Run:
    return run_of({TEST: outcome})


def test_it_must_fail_and_pass_again() -> None:
    assert SecondRuns(again("failed"), again()).is_steady(TEST)
    assert not SecondRuns(again("passed"), again()).is_steady(TEST)
    assert not SecondRuns(again("failed"), again("failed")).is_steady(TEST)
    assert SecondRuns(None, again()).is_steady(TEST)


def replayed(
    test: str = "test_a.py::test_new",
    kind: Literal["passed", "failed", "error", "skipped"] = "failed",
    variant: Literal["plain", "twice", "moved", "bent"] = "plain",
    *,
    reached: bool = True,
) -> Replayed:
    return Replayed(
        event="replay", id=test, variant=variant, kind=kind, error="", line=1, values=[],
        reached=reached,
        compared=kind == "failed",
    )  # fmt: skip


OLD = "test_old.py::test_old"


@pytest.mark.parametrize(
    ("base", "patched", "held"),
    [
        ([replayed()], [replayed()], True),
        ([replayed()], [replayed(kind="passed")], False),
        # What fails before the test's own code is a replay that cannot be run.
        ([replayed(kind="error", reached=False)], [replayed(kind="error", reached=False)], False),
        ([replayed(kind="error")], [replayed(kind="error")], False),
        # A passing test of the project decides whether replays work there.
        ([replayed(kind="error"), replayed(OLD, "passed")], [replayed(kind="error")], True),
        ([replayed(), replayed(OLD)], [replayed()], False),
        ([replayed(), replayed(OLD, "skipped")], [replayed()], True),
    ],
)
def test_a_replay_counts_where_it_can_be_run(
    base: list[Replayed], patched: list[Replayed], *, held: bool
) -> None:
    replays = Replays(tuple(base), tuple(patched), frozenset({OLD}))
    assert bool(replays.why_no_evidence("test_a.py::test_new")) is held


def test_what_disturbs_the_test_on_the_base_too_says_nothing() -> None:
    plain, passes = replayed(), replayed(kind="passed")
    red = replayed(kind="error", variant="moved").model_copy(update={"line": 3})
    assert not Replays((plain, red), (passes, red)).why_no_evidence(red.id)
    same = red.model_copy(update={"kind": "failed", "line": 1, "values": ["int 3"]})
    assert Replays((plain, same), (passes, same)).why_no_evidence(same.id)


def test_the_assertion_that_fails_must_be_reached_and_must_hold_for_one_value() -> None:
    passes = replayed(kind="passed", variant="twice")
    red, loose = replayed(variant="bent"), replayed(kind="passed", variant="bent")
    other = red.model_copy(update={"line": 7})
    for bent, words in ((red, ""), (other, "is not reached"), (loose, "for another value too")):
        found = Replays((replayed(),), (passes, bent)).why_no_evidence(bent.id)
        assert words in found if words else not found


@pytest.mark.parametrize(
    ("before", "now", "held"),
    [
        (["int 1", "int 2"], ["Sum 1", "int 2"], True),
        (["list [1]", "list [2]"], ["Some [1]", "list [2]"], True),
        (["int 1", "int 2"], ["int 2", "int 2"], False),
        # What a class of the project compares is known to its values only.
        (["Name 'a'", "str 'A'"], ["Name 'a'", "str 'A'"], False),
        (["list [v(1)]", "list [v(2)]"], ["list [v(1)]", "list [v(2)]"], False),
        (["str '0x'", "str '0x'"], ["str '0x'", "str '0x'"], False),
        (["int 1", "int 2"], [], False),
    ],
)
def test_an_assertion_must_see_other_values(
    before: list[str], now: list[str], *, held: bool
) -> None:
    base = replayed().model_copy(update={"values": before})
    bent = replayed(variant="bent").model_copy(update={"values": now})
    found = Replays((base,), (bent,)).why_no_evidence(bent.id)
    assert ("holds for what fails on the base" in found) is held
