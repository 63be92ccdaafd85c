"""Which tests decide, by three runs."""

from __future__ import annotations

from agent.types import KnownTests, Outcome
from agent.types import TestRun as Run
from benchmarks.instances.verifying import Rejected, judge

KEPT = {f"t.py::kept_{n}": "passed" for n in range(60)}


def run(outcomes: dict[str, str], ended: str = "exited") -> Run:
    found = {name: Outcome(word) for name, word in outcomes.items()}
    return Run(("pytest",), found, 0, 1.0, ended, "")


def test_what_fails_before_and_passes_after_turns_and_the_rest_is_kept() -> None:
    before = {**KEPT, "t.py::bug": "failed", "t.py::setup": "error", "t.py::off": "skipped"}
    after = {**KEPT, "t.py::bug": "passed", "t.py::setup": "passed", "t.py::off": "passed"}

    found = judge(run(before), run(after), run(after))

    assert found == KnownTests(("t.py::bug", "t.py::setup"), tuple(sorted(KEPT)))


def test_a_test_that_passes_once_of_twice_decides_nothing() -> None:
    before = {**KEPT, "t.py::bug": "failed", "t.py::flake": "failed"}
    after = {**KEPT, "t.py::bug": "passed", "t.py::flake": "passed"}

    found = judge(run(before), run(after), run({**after, "t.py::flake": "failed"}))

    assert isinstance(found, KnownTests)
    assert found.fail_to_pass == ("t.py::bug",)


def test_too_many_flakes_nothing_that_turns_few_kept_and_cut_runs_are_rejected() -> None:
    before, after = {**KEPT, "t.py::bug": "failed"}, {**KEPT, "t.py::bug": "passed"}
    shaky = {name: "failed" if name.endswith("7") else word for name, word in after.items()}
    few = {"t.py::bug": "passed", "t.py::kept": "passed"}

    for runs in (
        (run(before), run(after), run(shaky)),
        (run(before), run(before), run(before)),
        (run({**few, "t.py::bug": "failed"}), run(few), run(few)),
        (run(before, "wall-limit"), run(after), run(after)),
        (run(before), run({}), run(after)),
    ):
        assert isinstance(judge(*runs), Rejected)
