"""How failures are told to the model, and what they say of a sandbox without a network."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.verify.judging.wording import assertion, failure_texts, needs, not_started
from tests.support.validation import run_of


def test_every_failing_test_is_named_under_its_assertion() -> None:
    said = {
        "t/a.py::test_1": "E   assert 1 == 2",
        "t/a.py::test_2[x]": "line\n" * 90 + "E   assert 3 == 4",
        "t/b.py::test_3": "E   assert 3 == 4",
    }
    text = failure_texts(run_of(dict.fromkeys(said, "failed"), failures=said), tuple(said))
    assert text.startswith(
        "assert 3 == 4\n  t/a.py: test_2[x]\n  t/b.py: test_3\n\nt/a.py::test_2[x]:\nline\n"
    )
    assert text.endswith("\n\nt/a.py::test_1:\nE   assert 1 == 2")
    assert text.count("assert 1 == 2") == 1
    assert text.count("line") < 25


def test_long_assertions_are_cut_so_that_all_tests_are_named() -> None:
    said = {f"t/a.py::test_{n}": f"E   assert {'x' * 300} == {n}" for n in range(40)}
    text = failure_texts(run_of(dict.fromkeys(said, "failed"), failures=said), tuple(said))
    names = ", ".join(f"test_{n}" for n in range(40))
    assert text.startswith(f"assert {'x' * 143}...\n  t/a.py: {names}\n\n")
    assert len(text) < 2700


TRACEBACK = """Traceback (most recent call last):
  File "/w/t.py", line 4, in test_x
    self.assertEqual(turn(), [1, 3])
  File "/usr/lib/python3.11/unittest/case.py", line 873, in assertEqual
    assertion_func(first, second)
AssertionError: Lists differ: [1, 2] != [1, 3]

First differing element 1:
2
3

- [1, 2]
+ [1, 3]
"""
NODE = """AssertionError [ERR_ASSERTION]: Expected values to be strictly equal:

90 !== 270

    at TestContext.<anonymous> (file:///w/test/turn.test.js:6:12)
    at Array.map (<anonymous>)"""
JEST = """Error: expect(received).toBe(expected) // Object.is equality

Expected: 270
Received: 90
    at Object.<anonymous> (turn.test.js:6:12)"""
GO = "=== RUN   TestRight\n    turn_test.go:7: got 90, want 270\n--- FAIL: TestRight (0.00s)\n"
RUST = """thread 'tests::right' panicked at src/lib.rs:9:9:
assertion `left == right` failed
  left: 90
 right: 270
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace"""
JAVA = """org.opentest4j.AssertionFailedError: expected: <270> but was: <90>
	at com.x.TurnTest.right(TurnTest.java:9)
	at java.base/java.util.ArrayList.forEach(ArrayList.java:1511)"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("E       assert 1 == 2\nE        +  where 1 = f()", "assert 1 == 2"),
        (
            "E   AssertionError: turns left\nE   assert 1 == 2",
            "AssertionError: turns left assert 1 == 2",
        ),
        ("E   ValueError: bad.\nE   more", "ValueError: bad"),
        (TRACEBACK, "AssertionError: Lists differ: [1, 2] != [1, 3]"),
        (
            NODE,
            "AssertionError [ERR_ASSERTION]: Expected values to be strictly equal: 90 !== 270",
        ),
        (
            JEST,
            "Error: expect(received).toBe(expected) // Object.is equality Expected: 270 "
            "Received: 90",
        ),
        (GO, "turn_test.go:7: got 90, want 270"),
        (
            RUST,
            "thread 'tests::right' panicked at src/lib.rs:9:9: assertion `left == right` failed "
            "left: 90 right: 270",
        ),
        (JAVA, "org.opentest4j.AssertionFailedError: expected: <270> but was: <90>"),
        ("one\nlast line", "last line"),
        ("", ""),
    ],
)
def test_an_assertion_is_told_with_its_values(text: str, said: str) -> None:
    assert assertion(text) == said


NETWORK = "the tests need the network or a server: the sandbox has none"
PACKAGE = "a package is not installed here"


def test_a_run_without_an_outcome_has_started_no_test() -> None:
    missing = run_of({}, output="prlimit: failed to execute pytst: No such", exit_code=127)
    assert not_started(missing) == (
        "it ended with exit code 127 and no test ran (failed to execute pytst: No such)"
    )
    lines = "cc x.c\nmake: *** No rule to make target 'tset'.  Stop."
    startless = run_of({"command": "failed"}, output=lines, exit_code=2)
    assert not_started(startless) == lines.splitlines()[1]
    assert not_started(run_of({"command": "failed"}, output="FAIL: 3 of 4", exit_code=2)) == ""


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("urllib.error.URLError: <urlopen error [Errno -2] Name or service not known>", NETWORK),
        ("caused by: Error: getaddrinfo ENOTFOUND example.com", NETWORK),
        ("dial tcp: lookup example.com: no such host", NETWORK),
        ("java.net.UnknownHostException: example.com", NETWORK),
        ('connection to server on socket "/var/run/postgresql/.s.PGSQL.5432" failed', NETWORK),
        ("Error: connect ECONNREFUSED 127.0.0.1:5432", NETWORK),
        ("go: example.com/x@v1: module lookup disabled by GOPROXY=off", PACKAGE),
        ("Error: Cannot find module 'left-pad'", PACKAGE),
    ],
)
def test_what_tests_lack_quotes_the_line(text: str, what: str) -> None:
    outcomes, failures = {"t.py::a": "failed", "t.py::b": "failed"}, {"t.py::a": f"x\n{text}\ny"}
    assert needs(run_of(outcomes, failures=failures)) == (f"{what} ({text})",)
    assert needs(run_of({}, exit_code=1, output=f"more\n{text}\n")) == (f"{what} ({text})",)
    assert needs(run_of({"t.py::a": "passed"}, output=text)) == ()


def test_a_runner_that_is_not_there_is_named_only_where_nothing_began() -> None:
    text = "collect.sh: 26: jest: not found"
    (note,) = needs(run_of({}, exit_code=127, output=text))
    assert "jest: not found" in note
    assert needs(run_of({}, exit_code=1, output=text)) == ()


@settings(deadline=None)
@given(st.dictionaries(st.text(min_size=1), st.text()), st.text())
def test_any_text_can_be_read(failures: dict[str, str], output: str) -> None:
    needs(run_of(dict.fromkeys(failures, "failed"), failures=failures, output=output))
