"""What a patch changes in Python source, and the source with the base's functions."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from agent.types import Execution
from agent.verify.judging.execution import (
    ChangedCode,
    Replayed,
    Replays,
    RunAgain,
    SecondRuns,
    changed_code,
)
from tests.support.validation import edit, run_of

BASE = """\
import os

LIMIT = 1


class Box:
    size = 1

    def half(self):
        try:
            return self.size // 2
        except TypeError:
            return None


def double(n):
    return n * 2
"""


def changed(after: str, before: str = BASE) -> tuple[list[str], list[str], list[str]]:
    code = changed_code([edit("box.py", before, after)])
    return sorted(code.lines), sorted(code.new), sorted(code.names)


@pytest.mark.parametrize(
    "after",
    [
        BASE + "# fixed\n",
        BASE.replace("n * 2", "n  *  2  # fixed"),
        BASE.replace("def double(n):\n", 'def double(n):\n    """It is fixed."""\n\n'),
    ],
)
def test_what_does_nothing_does_not_count(after: str) -> None:
    assert changed(after) == ([], [], [])


def test_lines_of_functions_names_of_the_rest() -> None:
    after = BASE.replace("n * 2", "n * LIMIT").replace("LIMIT = 1", "LIMIT = 2")
    after = after.replace("size = 1", "size = 4")
    assert changed(after) == (["box.py:17"], [], ["LIMIT", "size"])


def test_the_head_of_a_handler_counts_and_not_the_block_below_it() -> None:
    after = BASE.replace("except TypeError", "except (TypeError, ValueError)")
    assert changed(after) == (["box.py:12"], [], [])


@pytest.mark.parametrize(
    ("old", "new"), [("double(n)", "double(n=1)"), ("def dou", "async def dou")]
)
def test_another_signature_concerns_the_whole_function(old: str, new: str) -> None:
    assert changed(BASE.replace(old, new)) == (["box.py:17"], [], [])


def test_a_new_function_is_new() -> None:
    assert changed(BASE + "\n\ndef treble(n):\n    return n * 3\n") == ([], ["box.py:21"], [])


def test_removed_lines_are_of_the_base() -> None:
    before = BASE.replace("    return n * 2", "    n += 1\n    return n * 2")
    change = edit("box.py", before, BASE)
    assert not changed_code([change]).lines
    assert changed_code([change], in_base=True).lines == {"box.py:17"}


def test_other_files_are_only_named() -> None:
    code = changed_code([edit("data.json", "1", "2")])
    assert (code.files, code.source, code.by_path) == ({"data.json"}, set(), {})


TEST = "tests/test_a.py::test"
CODE = ChangedCode(
    lines=frozenset({"a.py:2"}),
    new=frozenset({"a.py:9"}),
    names=frozenset({"LIMIT"}),
    files=frozenset({"a.py", "d.json"}),
    source=frozenset({"a.py"}),
)


def again(outcome: str = "passed", **executed: Execution) -> RunAgain:
    by_test = {"" if name == "outside" else TEST: found for name, found in executed.items()}
    return RunAgain(replace(run_of({TEST: outcome}), executed=by_test), CODE, ordered=True)


def doubt(patched: RunAgain, *, given: bool = False) -> str:
    return SecondRuns(again("failed", test=Execution()), patched).why_unrelated(
        TEST, lambda name: False, given=given
    )


LINE = Execution(lines=frozenset({"a.py:2"}))


def test_it_must_fail_and_pass_again() -> None:
    assert SecondRuns(again("failed"), again()).is_steady(TEST)
    assert not SecondRuns(again("passed"), again()).is_steady(TEST)
    assert not SecondRuns(again("failed"), again("failed")).is_steady(TEST)
    assert SecondRuns(None, again()).is_steady(TEST)


def test_lines_names_and_files_of_the_patch_are_evidence() -> None:
    for found in (
        LINE,
        Execution(names=frozenset({"LIMIT"})),
        Execution(read=frozenset({"d.json"})),
        Execution(lines=frozenset({"a.py:9"})),
    ):
        assert doubt(again(test=found)) == ""


def test_what_was_not_asked_for_is_none() -> None:
    assert doubt(again(test=Execution(lines=frozenset({"b.py:1"}), names=frozenset({"OTHER"}))))


def test_before_the_test_only_functions_that_were_there_count() -> None:
    assert doubt(again(outside=LINE, test=Execution())) == ""
    assert doubt(again(outside=Execution(lines=frozenset({"a.py:9"})), test=Execution()))


def test_a_test_of_the_reply_must_not_read_the_source() -> None:
    reads = replace(LINE, opened=frozenset({"a.py"}))
    assert doubt(again(test=reads)) == "it reads the text of a.py"
    assert doubt(again(test=reads), given=True) == ""


def test_without_a_record_only_the_projects_own_tests_count() -> None:
    assert doubt(again()) == "what it executes could not be recorded"
    assert doubt(again(), given=True) == ""
    assert doubt(replace(again(), ordered=False)) == ""


def test_the_projects_own_tests_need_no_evidence_but_no_counter_evidence_either() -> None:
    assert doubt(again(test=Execution()), given=True) == ""
    assert doubt(again(test=Execution(opened=frozenset({"d.json"}))), given=True)


def test_a_name_that_the_issue_mentions_may_be_used_by_the_test_alone() -> None:
    runs = SecondRuns(again("failed"), again(test=Execution()))
    assert runs.why_unrelated(TEST, lambda name: name == "LIMIT", given=False) == ""


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


def test_an_assertion_that_holds_for_another_value_asserts_nothing() -> None:
    passes = replayed(kind="passed", variant="bent")
    elsewhere = passes.model_copy(update={"line": 2})
    for bent, held in ((passes, True), (elsewhere, False), (replayed(variant="bent"), False)):
        assert bool(Replays((replayed(),), (bent,)).why_loose(bent.id)) is held
