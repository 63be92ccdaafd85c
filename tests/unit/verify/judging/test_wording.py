"""How failures are told to the model: all ids, grouped by what they say."""

from __future__ import annotations

import pytest

from agent.verify.judging.wording import assertion, failure_texts
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


def test_forty_tests_are_all_named() -> None:
    said = {f"tests/test_a.py::test_{n}": f"E   assert {n} == 0" for n in range(40)}
    text = failure_texts(run_of(dict.fromkeys(said, "failed"), failures=said), tuple(said))
    assert all(f"assert {n} == 0\n  tests/test_a.py: test_{n}\n" in text for n in range(3, 40))
    assert all(f"tests/test_a.py::test_{n}:\nE   assert {n} == 0" in text for n in range(3))


def test_long_assertions_are_cut_so_that_all_tests_are_named() -> None:
    said = {f"t/a.py::test_{n}": f"E   assert {'x' * 300} == {n}" for n in range(40)}
    text = failure_texts(run_of(dict.fromkeys(said, "failed"), failures=said), tuple(said))
    names = ", ".join(f"test_{n}" for n in range(3, 40))
    assert text.startswith(f"assert {'x' * 143}...\n  t/a.py: {names}\n\n")
    assert len(text) < 2700


def test_one_failure_is_told_once() -> None:
    run = run_of({"t.py::a": "failed"}, failures={"t.py::a": "E   assert 0"})
    assert failure_texts(run, ("t.py::a",)) == "t.py::a:\nE   assert 0"


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
        ("E   AssertionError\nE   assert a == b, with a = 1", "assert a == b, with a = 1"),
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
