from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from agent.types import Outcome
from agent.verify.reports import COMMAND_ID, clean, make_run, read_report
from sandbox.types import Ended
from tests.support.validation import result_of

BEGIN = {"event": "begin", "runner": "pytest 8"}


def lines(*values: dict[str, object]) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def start(test: str) -> dict[str, object]:
    return {"event": "start", "id": test}


def result(
    test: str, phase: str, outcome: str, text: str = "", *, xfail: bool = False
) -> dict[str, object]:
    return {
        "event": "result",
        "id": test,
        "phase": phase,
        "outcome": outcome,
        "xfail": xfail,
        "text": text,
    }


def finish(status: int = 0) -> dict[str, object]:
    return {"event": "finish", "status": status}


def phases(test: str, *outcomes: str) -> list[dict[str, object]]:
    names = ("setup", "call", "teardown")
    return [result(test, phase, outcome) for phase, outcome in zip(names, outcomes, strict=False)]


def test_the_phases_of_a_test_make_one_outcome() -> None:
    data = lines(
        BEGIN,
        *phases("passes", "passed", "passed", "passed"),
        *phases("fails", "passed", "failed", "passed"),
        result("setup", "setup", "failed"),
        *phases("teardown", "passed", "passed", "failed"),
        *phases("both", "passed", "failed", "failed"),
        result("skips", "setup", "skipped"),
        result("module", "collect", "failed"),
        result("expected", "call", "skipped", xfail=True),
        result("unexpected", "call", "passed", xfail=True),
        finish(1),
    )
    report = read_report(data)
    assert report.outcomes == {
        "passes": Outcome.PASSED,
        "fails": Outcome.FAILED,
        "setup": Outcome.ERROR,
        "teardown": Outcome.ERROR,
        "both": Outcome.FAILED,
        "skips": Outcome.SKIPPED,
        "module": Outcome.ERROR,
        "expected": Outcome.SKIPPED,
        "unexpected": Outcome.SKIPPED,
    }
    assert report.complete


def test_a_report_without_its_last_line_is_not_complete() -> None:
    begun = lines(BEGIN, start("a"), *phases("a", "passed", "passed", "passed"), start("b"))
    crashed = make_run(("pytest",), result_of(report=begun, exit_code=3), own_runner=True)
    assert crashed.ended == "incomplete"
    assert crashed.outcomes == {"a": Outcome.PASSED, "b": Outcome.ERROR}
    assert crashed.failures == {"b": "the run ended during this test"}
    left = make_run(("pytest",), result_of(report=begun), own_runner=True)
    assert (left.ended, left.outcomes) == ("incomplete", {"a": Outcome.PASSED})
    assert left.failures == crashed.failures
    assert left.channels.disagreements == ("the process ended before its tests did",)


def test_a_test_at_the_time_limit_is_named_but_has_no_outcome() -> None:
    result = result_of(report=lines(BEGIN, start("slow")), exit_code=None, ended=Ended.WALL_LIMIT)
    run = make_run(("pytest",), result, own_runner=True)
    assert (run.ended, run.outcomes) == ("wall-limit", {})
    assert list(run.failures) == ["slow"]


def test_a_crash_is_the_error_of_the_test_it_happened_in() -> None:
    result = result_of(report=lines(BEGIN, start("a")), exit_code=None, ended=Ended.SIGNALLED)
    run = make_run(("pytest",), result, own_runner=True)
    assert (run.ended, run.outcomes) == ("signalled", {"a": Outcome.ERROR})


def test_an_exit_code_that_contradicts_the_report_is_said() -> None:
    good = lines(BEGIN, *phases("a", "passed", "passed", "passed"), finish(0))
    bad = lines(BEGIN, *phases("a", "passed", "failed", "passed"), finish(0))
    assert make_run((), result_of(report=good), own_runner=True).ended == "exited"
    assert (
        make_run((), result_of(report=good, exit_code=1), own_runner=True).ended == "inconsistent"
    )
    assert make_run((), result_of(report=bad), own_runner=True).ended == "inconsistent"


def test_a_clean_exit_without_a_report_is_not_believed() -> None:
    assert make_run((), result_of(), own_runner=True).ended == "incomplete"
    assert make_run((), result_of(exit_code=4), own_runner=True).ended == "exited"


def test_a_command_that_reports_nothing_is_one_test() -> None:
    passed = make_run(("make",), result_of(), own_runner=False, opaque=True)
    failed = make_run(("make",), result_of(exit_code=2), own_runner=False, opaque=True)
    killed = make_run(
        ("make",),
        result_of(exit_code=None, ended=Ended.WALL_LIMIT),
        own_runner=False,
        opaque=True,
    )
    missing = make_run(("mkae",), result_of(exit_code=127), own_runner=False, opaque=True)
    assert missing.outcomes == {}
    assert passed.outcomes == {COMMAND_ID: Outcome.PASSED}
    assert failed.outcomes == {COMMAND_ID: Outcome.FAILED}
    assert killed.outcomes == {}


def test_a_command_that_runs_pytest_twice_must_finish_twice() -> None:
    once = [BEGIN, *phases("a", "passed", "passed", "passed"), finish(0)]
    twice = lines(*once, *once)
    cut = lines(*once, BEGIN)
    assert make_run((), result_of(report=twice), own_runner=False, opaque=True).ended == "exited"
    assert make_run((), result_of(report=cut), own_runner=False, opaque=True).ended == "incomplete"


def test_a_foreign_line_makes_a_report_incomplete() -> None:
    for foreign in (b"hello\n", b'{"event": "result"}\n', b'{"event": "finish", "status": "0"}\n'):
        report = read_report(lines(BEGIN) + foreign + lines(finish(0)))
        assert report.unreadable == 1
        assert not report.complete


@given(st.binary(max_size=200))
def test_reading_never_raises(data: bytes) -> None:
    read_report(data)


def test_output_is_made_safe_to_print() -> None:
    assert clean("\x1b[31mred\x1b[0m\x07\r\nnext\u202e") == "red\nnext"
    run = make_run((), result_of(b"\x1b]0;title\x07out"), own_runner=True)
    assert "\x1b" not in run.output_tail
    assert "\x07" not in run.output_tail
