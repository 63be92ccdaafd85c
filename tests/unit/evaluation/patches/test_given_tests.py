"""Which given tests a run passes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.evaluation.patches import GivenIds, Results
from agent.verify.runners import runner_of
from agent.verify.runners.base import Suite
from tests.support.validation import run_of

RUN = run_of(
    {
        "tests/test_a.py::test_ok": "passed",
        "tests/test_a.py::test_red": "failed",
        "tests/test_a.py::test_setup": "error",
        "tests/test_a.py::test_skip": "skipped",
        "tests/test_a.py::test_xfail": "skipped",
        "tests/test_a.py::test_p[one two]": "passed",
        "tests/test_a.py::test_p[one three]": "passed",
        "tests/test_a.py::test_q[x y]": "passed",
        "tests/test_a.py::test_q[x z]": "failed",
        "tests/test_a.py::test_path[/tmp/a/b]": "passed",
        "tests/test_broken.py": "error",
    }
)


@pytest.mark.parametrize(
    ("name", "succeeds", "known"),
    [
        ("tests/test_a.py::test_ok", True, True),
        ("tests/test_a.py::test_red", False, True),
        ("tests/test_a.py::test_setup", False, True),
        ("tests/test_a.py::test_skip", False, True),
        ("tests/test_a.py::test_xfail", True, True),
        ("tests/test_a.py::test_p[one two]", True, True),
        ("tests/test_a.py::test_p[one", True, True),  # as the harness cuts it
        ("tests/test_a.py::test_q[x", False, True),  # one of those it may mean is red
        ("tests/test_a.py::test_path[/b]", True, True),
        ("test_ok", True, True),
        ("tests/test_a.py::test_none", False, False),
        ("tests/test_a.py::test", False, False),
        ("tests/test_broken.py::test_any", False, True),
        ("", False, False),
    ],
)
def test_what_counts_as_success(name: str, succeeds: bool, known: bool) -> None:
    run = replace(RUN, expected_failures=("tests/test_a.py::test_xfail",))

    results = Results(run)

    assert (results.succeeds(name), results.knows(name)) == (succeeds, known)


def test_the_names_of_other_runners() -> None:
    suite = Suite("django", "", settings={"labels-from": "tests"})
    run = run_of({"tests/app/tests.py::Case::test_x": "passed"})

    results = Results(run, lambda name: runner_of(suite).test_id(suite, name))

    assert results.succeeds("test_x (app.tests.Case)")
    assert results.succeeds("test_x (app.tests.Case.test_x)")
    assert not results.succeeds("test_y (app.tests.Case)")


def test_given_ids_are_split_by_success() -> None:
    ok, red, absent = (f"tests/test_a.py::{name}" for name in ("test_ok", "test_red", "test_no"))
    assert Results(RUN).split([red, ok, absent]) == GivenIds(success=(ok,), failure=(red, absent))
