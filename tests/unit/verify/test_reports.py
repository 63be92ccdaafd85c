"""Reports and exit codes: outcomes, what agrees, and every way of not agreeing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.types import Outcome
from agent.verify import reports
from agent.verify.reports import (
    COMMAND_ID,
    clean,
    make_run,
    read_cases,
    read_report,
)
from sandbox.types import Command, Ended, RunResult
from tests.support.validation import result_of, run_plugin, signed

# ---------------------------------------------------------------------------------- outcomes

BEGIN = {"event": "begin"}


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


def test_the_phases_of_a_test_make_one_outcome() -> None:
    data = lines(
        BEGIN,
        result("passes", "call", "passed"),
        result("fails", "call", "failed"),
        result("setup", "setup", "failed"),
        result("teardown", "call", "passed"),
        result("teardown", "teardown", "failed"),
        result("both", "call", "failed"),
        result("both", "teardown", "failed"),
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
    begun = lines(BEGIN, start("a"), result("a", "call", "passed"), start("b"))
    crashed = make_run(Command(("pytest",)), result_of(report=begun, exit_code=3))
    assert crashed.ended == "incomplete"
    assert crashed.outcomes == {"a": Outcome.PASSED, "b": Outcome.ERROR}
    assert crashed.failures == {"b": "the run ended during this test"}
    left = make_run(Command(("pytest",)), result_of(report=begun))
    assert (left.ended, left.outcomes) == ("incomplete", {"a": Outcome.PASSED})
    assert left.failures == crashed.failures
    assert left.channels.disagreements == ("the process ended before its tests did",)


def test_an_exit_code_that_contradicts_the_report_is_said() -> None:
    good = lines(BEGIN, result("a", "call", "passed"), finish(0))
    bad = lines(BEGIN, result("a", "call", "failed"), finish(0))
    assert make_run(Command(()), result_of(report=good)).ended == "exited"
    assert make_run(Command(()), result_of(report=good, exit_code=1)).ended == "inconsistent"
    assert make_run(Command(()), result_of(report=bad)).ended == "inconsistent"


def test_a_command_that_reports_nothing_is_one_test() -> None:
    passed = make_run(Command(("make",)), result_of(), opaque=True)
    failed = make_run(Command(("make",)), result_of(exit_code=2), opaque=True)
    killed = make_run(
        Command(("make",)),
        result_of(exit_code=None, ended=Ended.WALL_LIMIT),
        opaque=True,
    )
    missing = make_run(Command(("mkae",)), result_of(exit_code=127), opaque=True)
    assert missing.outcomes == {}
    assert passed.outcomes == {COMMAND_ID: Outcome.PASSED}
    assert failed.outcomes == {COMMAND_ID: Outcome.FAILED}
    assert killed.outcomes == {}


def test_a_command_that_runs_pytest_twice_must_finish_twice() -> None:
    once = [BEGIN, result("a", "call", "passed"), finish(0)]
    twice = lines(*once, *once)
    cut = lines(*once, BEGIN)
    assert make_run(Command(()), result_of(report=twice), opaque=True).ended == "exited"
    assert make_run(Command(()), result_of(report=cut), opaque=True).ended == "incomplete"


def test_a_foreign_line_is_a_doubt() -> None:
    for foreign in (b"hello\n", b'{"event": "end"}\n', b'{"event": "finish", "status": "0"}\n'):
        report = read_report(lines(BEGIN) + foreign + lines(finish(0)))
        assert report.doubts == ["lines that our plugin did not write: 1"]


@given(st.binary(max_size=200))
def test_reading_never_raises(data: bytes) -> None:
    read_report(data)


def test_output_is_made_safe_to_print() -> None:
    assert clean("\x1b[31mred\x1b[0m\x07\r\nnext\u202e") == "red\nnext"
    run = make_run(Command(()), result_of(b"\x1b]0;title\x07out"))
    assert "\x1b" not in run.output_tail
    assert "\x07" not in run.output_tail


# --------------------------------------------------------------------------------- agreement

PASSED, FAILED, SKIPPED, ERROR = Outcome.PASSED, Outcome.FAILED, Outcome.SKIPPED, Outcome.ERROR

ONE = [start("a"), result("a", "call", "failed")]


@pytest.mark.parametrize(
    ("values", "code", "words"),
    [
        ([BEGIN, *ONE, finish(1)], 1, ""),
        ([BEGIN, *ONE, {**finish(1), "count": 1}], 1, ""),
        ([BEGIN, *ONE], 1, "the process ended before its tests did"),
        ([BEGIN, *ONE, finish(1)] * 2, 1, "it began and finished 2 times"),
        ([BEGIN, *ONE, start("q"), finish(1)], 1, "that were started and never came to a result"),
        ([BEGIN, *ONE, {**finish(1), "count": 4}], 1, "of 4 collected tests 1 were run"),
        ([BEGIN, *ONE, finish(1)], 0, "the process exited with 0, its tests finished with 1"),
        ([BEGIN, *ONE, finish(0)], 0, "the exit code says that all is well, and this failed: 1"),
    ],
)
def test_each_way_not_to_agree(values: list[dict[str, object]], code: int, words: str) -> None:
    run = make_run(Command(()), result_of(report=lines(*values), exit_code=code))
    doubts = "; ".join(run.channels.disagreements)
    assert words in doubts if words else not doubts


BOMB = b'<!DOCTYPE x [<!ENTITY a "b">]><testsuite><testcase name="&a;"/></testsuite>'
OUTSIDE = b'<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><testsuite>&a;</testsuite>'


@pytest.mark.parametrize("data", [b"", b"no", b"<a>", BOMB, OUTSIDE, b"\xff\xfe", b"<a/>" * 2])
def test_hostile_xml_is_not_read(data: bytes) -> None:
    assert read_cases(data) is None


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


def test_every_way_that_a_test_of_pytest_ends_is_reported(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "test_all.py").write_text(SUITE)
    (tmp_path / "test_broken.py").write_text("import surely_not_there\n")
    (tmp_path / "test_skipped.py").write_text("import pytest\npytest.importorskip('not_there')\n")
    result = run_plugin(tmp_path, "pkg/test_all.py", "test_broken.py", "test_skipped.py")
    run = make_run(Command(()), result)
    assert run.channels.read == ("report", "exit code")
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
    assert read_report(reports.verified(data, key)).doubts[0].endswith("did not write: 1")


def test_lines_cannot_be_left_out_repeated_or_signed_with_another_key() -> None:
    key = reports.new_key()
    first, second, third = signed(WRITTEN, key).splitlines(keepends=True)
    for data in (first + third, second + first + third, first + first + second + third):
        assert reports.FOREIGN in reports.verified(data, key).splitlines()
    assert set(reports.verified(first + second, b"other").splitlines()) == {reports.FOREIGN}


# ------------------------------------------------------------------------- the runner is looked at


def test_a_runner_that_is_left_alone_leaves_no_trace(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("def pytest_runtest_call(item): pass\n")
    (tmp_path / "test_a.py").write_text(
        "import _pytest.runner, unittest\n"
        "def test_a(monkeypatch):\n"
        "    monkeypatch.setattr(_pytest.runner, 'runtestprotocol', None)\n"
        "    monkeypatch.undo()\n"
        "class Case(unittest.TestCase):\n"
        "    def test_b(self): self.assertEqual(1, 1)\n"
    )
    run = make_run(Command(()), run_plugin(tmp_path, "test_a.py"))
    by_pytest_itself = "_pytest.config.Config._getini_unknown_type"  # for py.path, at each start
    assert set(run.channels.traces) - {by_pytest_itself} == set()


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
    data = b'{"event": "begin"}\n{"event": "start", "id": "t::a"}'
    result = RunResult(Ended.EXITED, 0, b"", b"", 1.0, data, report_dropped=9)
    run = make_run(Command(()), result)
    assert run.ended == "incomplete"
    assert run.channels.disagreements[0] == "the report is longer than what is kept of one"
