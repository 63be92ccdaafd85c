"""Readers never raise, whatever the sandbox gives them: the output belongs to hostile code."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.types import Outcome
from agent.verify import runners as registry
from agent.verify.reports import collected, read_cases
from agent.verify.runners.base import Suite
from sandbox.types import Ended
from tests.support.runners import read

SUITES = [Suite(name, "", ("x",)) for name in sorted(registry.RUNNERS)]

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["testResults", "assertionResults", "tests", "passes", "failures", "event", "id",
             "outcome", "Action", "Package", "Test", "Output", "name", "status", "err", "file",
             "ancestorTitles", "title", "failureMessages", "message", "text", "fullTitle"]
        ),
        inner | st.sampled_from(["run", "pass", "fail", "output", "begin", "finish", "passed"]),
        max_size=5,
    ),
    max_leaves=12,
)  # fmt: skip

# Pieces of what the runners print, in any order.
PIECES = st.lists(
    st.sampled_from(
        [b"running 1 test\n", b"test a ... ok\n", b"test a ... FAILED\n", b"failures:\n",
         b"---- a stdout ----\n", b"test result: ok. 1 passed; 0 failed; 0 ignored\n",
         b"     Running unittests src/lib.rs (target/deps/a-0123456789abcdef)\n",
         b"a/test_a.py[2] \n", b"test_a ok\n", b"test_b F [FAIL]\n",
         b"____ a/test_a.py:test_b ____\n",
         b"tests finished: 1 passed, in 0.1 seconds\n", b"\x1e./TEST-a.xml\n",
         b"<testsuite><testcase name='a' classname='b.C'/></testsuite>\n", b"<!DOCTYPE x>\n",
         b"\xff\xfe\n", b"\x1b[31m\n", b"\x00\n"]
    ),
    max_size=12,
).map(b"".join)  # fmt: skip


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.runner)
@settings(deadline=None)
@given(
    report=st.binary(max_size=200)
    | PIECES
    | st.lists(JSON, max_size=6).map(
        lambda all_: b"\n".join(json.dumps(one).encode() for one in all_)
    )
    | JSON.map(lambda one: b"\x1e./r.json\n" + json.dumps(one).encode()),
    stdout=st.binary(max_size=100) | PIECES,
    exit_code=st.none() | st.integers(0, 255),
    ended=st.sampled_from(Ended),
)
def test_no_output_makes_a_reader_raise(
    suite: Suite, report: bytes, stdout: bytes, exit_code: int | None, ended: Ended
) -> None:
    run = read(suite, report=report, stdout=stdout, exit_code=exit_code, ended=ended)
    assert all(isinstance(outcome, Outcome) for outcome in run.outcomes.values())
    if ended is not Ended.EXITED:
        assert run.ended == ended
    again = read(suite, report=report, stdout=stdout, exit_code=exit_code, ended=ended)
    assert again == run


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.runner)
def test_long_lines_take_no_time(suite: Suite) -> None:
    for unit in (b"_", b"test a ", b"a/b.py", b" ", b"[", b"{", b"<a>", b"ok "):
        data = unit * (1_000_000 // len(unit))
        read(suite, report=data, stdout=data)


def test_xml_with_entities_is_refused_and_deep_xml_is_no_trouble() -> None:
    bomb = b'<!DOCTYPE a [<!ENTITY b "c">]><testsuite><testcase name="&b;"/></testsuite>'
    assert read_cases(bomb) is None
    external = b'<!DOCTYPE a SYSTEM "file:///etc/passwd"><testsuite/>'
    assert read_cases(external) is None
    assert read_cases(b"<a>" * 2000 + b"</a>" * 2000) == ()
    assert read_cases(b"") is None
    assert read_cases(b'<?xml version="1.0" encoding="nonsense"?><a/>') is None


def test_collected_files_come_in_order_of_their_names() -> None:
    data = b"forged before\x1e./b.xml\n2\n\x1e./a.xml\n1\x1e"
    assert list(collected(data)) == [("", b""), ("a.xml", b"1"), ("b.xml", b"2\n")]


def test_of_several_outcomes_of_one_test_the_worst_counts() -> None:
    lines = [
        {"Action": "pass", "Package": "m", "Test": "TestA"},
        {"Action": "fail", "Package": "m", "Test": "TestA"},
        {"Action": "pass", "Package": "m", "Test": "TestA"},
        {"Action": "fail", "Package": "m"},
    ]
    suite = Suite("go", "", settings={"module": "m"})
    report = b"\n".join(json.dumps(line).encode() for line in lines)
    assert read(suite, report=report, exit_code=1).outcomes == {".::TestA": Outcome.FAILED}


@settings(deadline=None)
@given(st.text(), st.sampled_from(SUITES))
def test_any_name_can_be_made_an_id(name: str, suite: Suite) -> None:
    assert isinstance(registry.runner_of(suite).test_id(suite, name), str)
