"""Reports, JUnit files and exit codes: outcomes, what agrees, and every way of not agreeing."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.types import Outcome
from agent.verify import reports
from agent.verify.reports import (
    COMMAND_ID,
    Report,
    agreement,
    clean,
    make_run,
    read_junit,
    read_report,
)
from sandbox.types import Ended, RunResult
from tests.support.validation import result_of, run_plugin, signed

# ---------------------------------------------------------------------------------- outcomes

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


def test_an_exit_code_that_contradicts_the_report_is_said() -> None:
    good = lines(BEGIN, *phases("a", "passed", "passed", "passed"), finish(0))
    bad = lines(BEGIN, *phases("a", "passed", "failed", "passed"), finish(0))
    assert make_run((), result_of(report=good), own_runner=True).ended == "exited"
    assert (
        make_run((), result_of(report=good, exit_code=1), own_runner=True).ended == "inconsistent"
    )
    assert make_run((), result_of(report=bad), own_runner=True).ended == "inconsistent"


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


# --------------------------------------------------------------------------------- agreement

Junit = dict[str, Outcome] | None

PASSED, FAILED, SKIPPED, ERROR = Outcome.PASSED, Outcome.FAILED, Outcome.SKIPPED, Outcome.ERROR

GOOD = Report(
    begun=1,
    statuses=(1,),
    outcomes={"t/a.py::x": PASSED, "t/a.py::C::y": FAILED, "t/a.py::z[1.5]": SKIPPED},
    collected=3,
    started=3,
    failed=1,
    junit=True,
)
SAME = {"t.a.x": PASSED, "t.a.C.y": FAILED, "t.a.z[1.5]": SKIPPED}


def but(**changes: object) -> Report:
    return dataclasses.replace(GOOD, **changes)  # type: ignore[arg-type]


def test_three_accounts_that_agree() -> None:
    assert agreement(GOOD, SAME, 1) == ()
    assert agreement(but(junit=False), None, 1) == ()


@pytest.mark.parametrize(
    ("report", "junit", "code", "words"),
    [
        (but(statuses=()), SAME, 1, "the process ended before its tests did"),
        (but(begun=2, statuses=(1, 1)), SAME, 1, "it began 2 times and finished 2 times"),
        (but(foreign=2, unreadable=2), SAME, 1, "lines that our plugin did not write: 2"),
        (but(unreadable=1), SAME, 1, "lines that cannot be read: 1"),
        (but(in_flight=("q",)), SAME, 1, "tests that were started and never came to a result: 1"),
        (but(collected=4), SAME, 1, "of 4 collected tests 3 were run"),
        (but(failed=0), SAME, 1, "pytest counts no failure, its reports show 1"),
        (GOOD, SAME, 0, "the process exited with 0, its tests finished with 1"),
        (but(statuses=(0,)), SAME, 0, "the exit code says that all is well, and this failed: 1"),
        (GOOD, None, 1, "pytest's JUnit file is missing, or is no XML"),
        (
            GOOD,
            {**SAME, "t.a.C.y": PASSED},
            1,
            "the report says 1 failed, 1 passed, 1 skipped, the JUnit file 2 passed, 1 skipped",
        ),
        (
            GOOD,
            {"t.a.x": PASSED},
            1,
            "the report says 1 failed, 1 passed, 1 skipped, the JUnit file 1 passed",
        ),
    ],
)
def test_each_way_not_to_agree(report: Report, junit: Junit, code: int, words: str) -> None:
    assert words in agreement(report, junit, code)


@pytest.mark.parametrize(
    ("report", "junit", "code"),
    [
        (but(collected=5, stopped=True), SAME, 1),  # --stepwise, session.shouldstop
        (but(failed=2), SAME, 1),  # pytest-cov: too little coverage is one more
        (but(collected=None), SAME, 1),  # pytest-xdist: the controller collects nothing
        (but(statuses=(2,)), None, 2),  # interrupted: no file is written
        (GOOD, {"own": PASSED, "name": FAILED, "given": SKIPPED}, 1),
        (
            Report(1, (0,), {"u": SKIPPED}, junit=True, unexpected=frozenset({"u"})),
            {"u": PASSED},  # a test that passes although it is marked to fail
            0,
        ),
    ],
)
def test_what_projects_do_is_no_disagreement(report: Report, junit: Junit, code: int) -> None:
    assert agreement(report, junit, code) == ()


# ------------------------------------------------------------------------------------------- JUnit

BOMB = b'<!DOCTYPE x [<!ENTITY a "b">]><testsuite><testcase name="&a;"/></testsuite>'
OUTSIDE = b'<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><testsuite>&a;</testsuite>'


@pytest.mark.parametrize("data", [b"", b"no", b"<a>", BOMB, OUTSIDE, b"\xff\xfe", b"<a/>" * 2])
def test_a_file_that_is_none(data: bytes) -> None:
    assert read_junit(data) is None


@given(st.binary(max_size=300))
def test_reading_a_file_never_raises(data: bytes) -> None:
    read_junit(data)


SUITE = """
import pytest

def test_plain(): pass
def test_red(): assert 0
@pytest.mark.parametrize("value", ["a/b.c", "x::y", "\\\\x07", "[deep]", "\\xe9"])
def test_many(value): assert value != "x::y"
class TestInner:
    class TestMore:
        def test_deep(self): pass
@pytest.fixture
def broken(): raise ValueError
def test_setup(broken): pass
@pytest.fixture
def late(): yield; raise ValueError
def test_teardown(late): pass
def test_both(late): assert 0
@pytest.mark.skip
def test_skip(): pass
@pytest.mark.xfail
def test_expected(): assert 0
@pytest.mark.xfail
def test_unexpected(): pass
@pytest.mark.xfail(strict=True)
def test_strict(): pass
def test_renamed(record_property): record_property("a", "b")
def test_subtests(subtests):
    for number in range(3):
        with subtests.test(number=number):
            assert number != 1
"""


def test_what_pytest_itself_writes_agrees_with_our_plugin(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "test_all.py").write_text(SUITE)
    (tmp_path / "test_broken.py").write_text("import surely_not_there\n")
    (tmp_path / "test_skipped.py").write_text("import pytest\npytest.importorskip('not_there')\n")
    result = run_plugin(tmp_path, "pkg/test_all.py", "test_broken.py", "test_skipped.py")
    run = make_run((), result, own_runner=True)
    assert run.channels.read == ("report", "junit", "exit code")
    assert run.channels.disagreements == ()
    assert run.ended == "exited"
    assert run.outcomes["pkg/test_all.py::test_many[x::y]"] is FAILED
    assert run.outcomes["pkg/test_all.py::test_unexpected"] is SKIPPED
    assert run.outcomes["test_broken.py"] is ERROR


# ------------------------------------------------------------------------------------------- seals

WRITTEN = [b'{"event": "begin"}', b'{"event": "start"}', b'{"event": "finish"}']


def test_signed_lines_come_back_as_they_were() -> None:
    key = reports.new_key()
    assert reports.verified(signed(WRITTEN, key), key).splitlines() == WRITTEN


@pytest.mark.parametrize("place", [0, 1, 2, 3])
@pytest.mark.parametrize(
    "forged", [b'{"event": "x"}\n', b'{"event": "x"}\t0123456789abcdef\n', b"\n"]
)
def test_a_line_without_a_seal_is_seen_wherever_it_stands(place: int, forged: bytes) -> None:
    key = reports.new_key()
    written = signed(WRITTEN, key).splitlines(keepends=True)
    data = b"".join([*written[:place], forged, *written[place:]])
    found = reports.verified(data, key).splitlines()
    assert found.count(reports.FOREIGN) == 1
    assert [line for line in found if line != reports.FOREIGN] == WRITTEN
    assert read_report(reports.verified(data, key)).foreign == 1


def test_lines_cannot_be_left_out_repeated_or_signed_with_another_key() -> None:
    key = reports.new_key()
    first, second, third = signed(WRITTEN, key).splitlines(keepends=True)
    for data in (first + third, second + first + third, first + first + second + third):
        assert reports.FOREIGN in reports.verified(data, key).splitlines()
    assert set(reports.verified(first + second, b"other").splitlines()) == {reports.FOREIGN}


# ------------------------------------------------------------------------- the runner is looked at


def test_a_runner_that_is_left_alone_leaves_no_trace(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "def pytest_runtest_call(item): pass\ndef pytest_runtest_setup(item): pass\n"
    )
    (tmp_path / "test_a.py").write_text(
        "import _pytest.runner, unittest\n"
        "def test_a(monkeypatch):\n"
        "    monkeypatch.setattr(_pytest.runner, 'runtestprotocol', None)\n"
        "    monkeypatch.undo()\n"
        "class Case(unittest.TestCase):\n"
        "    def test_b(self): self.assertEqual(1, 1)\n"
    )
    run = make_run((), run_plugin(tmp_path, "test_a.py"), own_runner=True)
    place = tmp_path / "conftest.py"
    by_pytest_itself = "_pytest.config.Config._getini_unknown_type"  # for py.path, at each start
    assert set(run.channels.traces) - {by_pytest_itself} == {
        f"pytest_runtest_{phase} of {place}" for phase in ("call", "setup")
    }


@pytest.mark.parametrize(
    ("code", "trace"),
    [
        ("_pytest.runner.runtestprotocol = print", "_pytest.runner.runtestprotocol"),
        (
            "_pytest.reports.TestReport.__init__.__code__ = (lambda self: None).__code__",
            "_pytest.reports.TestReport.__init__",
        ),
        ("import sys; sys.modules['_pytest.junitxml'] = sys", "_pytest.junitxml.LogXML"),
        ("import builtins; builtins.isinstance = isinstance.__call__", "builtins.isinstance"),
        (
            "import unittest; unittest.TestCase.fail = print",
            "unittest.case.TestCase.fail",
        ),
    ],
)
def test_what_is_changed_in_the_runner_is_named(tmp_path: Path, code: str, trace: str) -> None:
    (tmp_path / "test_a.py").write_text(
        "import _pytest.runner, _pytest.reports\ndef test_a(): pass\n"
        f"def test_last():\n    {code}\n"
    )
    result = run_plugin(tmp_path, "test_a.py")
    assert trace in read_report(result.report).traces


def test_a_report_that_is_too_long_is_not_believed() -> None:
    data = b'{"event": "begin", "runner": "x"}\n{"event": "start", "id": "t::a"}'
    result = RunResult(Ended.EXITED, 0, b"", b"", 1.0, data, report_dropped=9)
    run = make_run((), result, own_runner=True)
    assert run.ended == "incomplete"
    assert run.channels.disagreements[0] == "the report is longer than what is kept of one"
