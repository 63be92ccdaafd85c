"""What second runs leave of a test that fails before the patch and passes after it."""

from __future__ import annotations

from dataclasses import replace

from agent.types import Execution
from agent.verify.judging.execution import ChangedCode, RunAgain, SecondRuns
from tests.support.validation import run_of

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


def doubt(patched: RunAgain, undone: RunAgain | None = None, *, given: bool = False) -> str:
    return SecondRuns(again("failed", test=Execution()), patched, undone).why_unrelated(
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


def test_a_test_that_passes_with_the_functions_of_the_base_does_not_rest_on_them() -> None:
    assert doubt(again(test=LINE), again("failed", test=Execution())) == ""
    assert "without the changed functions" in doubt(again(test=LINE), again(test=Execution()))


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
