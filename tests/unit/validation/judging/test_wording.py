"""How failures are told to the model: all ids, grouped by what they say."""

from __future__ import annotations

from agent.validation.judging.wording import failure_texts
from tests.support.validation import run_of


def test_every_failing_test_is_named_under_its_assertion() -> None:
    said = {
        "t/a.py::test_1": "E   assert 1 == 2",
        "t/a.py::test_2[x]": "line\n" * 90 + "E   assert 3 == 4",
        "t/b.py::test_3": "E   assert 3 == 4",
    }
    text = failure_texts(run_of(dict.fromkeys(said, "failed"), failures=said), tuple(said))
    assert text.startswith(
        "assert 3 == 4\n  t/a.py: test_2[x]\n  t/b.py: test_3\n\nassert 1 == 2\n  t/a.py: test_1\n"
        "\nt/a.py::test_2[x]:\nline\n"
    )
    assert text.count("line") < 25


def test_forty_tests_are_all_named() -> None:
    said = {f"tests/test_a.py::test_{n}": f"E   assert {n} == 0" for n in range(40)}
    text = failure_texts(run_of(dict.fromkeys(said, "failed"), failures=said), tuple(said))
    assert all(f"assert {n} == 0\n  tests/test_a.py: test_{n}\n" in text for n in range(40))


def test_one_failure_is_told_once() -> None:
    run = run_of({"t.py::a": "failed"}, failures={"t.py::a": "E   assert 0"})
    assert failure_texts(run, ("t.py::a",)) == "t.py::a:\nE   assert 0"
