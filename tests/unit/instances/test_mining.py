"""Which messages become issues, which commits are small repairs with a test, what decides them."""

from __future__ import annotations

import pytest

from agent.types import KnownTests, Outcome
from agent.types import TestRun as Run
from benchmarks.instances.messages import describe
from benchmarks.instances.parts import MOST_LINES, Parts, Touched, sort_parts
from benchmarks.instances.verifying import Rejected, judge

FAULT = (
    "Since the last release a shop without any item is shown as closed, and asking for its first "
    "item raises an IndexError instead of returning None."
)


def test_a_described_fault_is_an_issue() -> None:
    assert describe(f"Fix empty shops\n\n{FAULT}\n", "shop") == f"Fix empty shops\n\n{FAULT}\n"


def test_references_trailers_and_work_on_the_change_are_left_out() -> None:
    raw = (
        f"Fix empty shops (#123)\n\n{FAULT}\n\nThis was broken by 1a2b3c4d5e in gh-77.\n"
        "Fixes #12, closes owner/name#13.\n* add tests\n* address review comments\n"
        "Pull-request: https://example.org/owner/name/pull/9\nChange-Id: I99\n"
        "Signed-off-by: A <a@example.org>\n"
    )

    expected = f"Fix empty shops\n\n{FAULT}\n\nThis was broken by [elsewhere] in [elsewhere].\n"
    assert describe(raw, "shop") == expected


@pytest.mark.parametrize(
    "raw",
    [
        "Fix empty shops\n",  # a headline
        "Fix empty shops\n\nHandle the empty case too.\n",  # a place, no fault
        "Fix empty shops\n\n* raise an error instead\n* use a type\n* do not check\n* simplify\n",
        f"Bump version to 1.2.3\n\n{FAULT}\n",
        "Add shops by night\n\n" + "Shops may now be opened at night by whoever has a key. " * 3,
    ],
)
def test_what_tells_no_fault_is_no_issue(raw: str) -> None:
    assert describe(raw, "shop") is None


SOURCE = Touched("shop/cart.py", 6)
TEST = Touched("tests/test_cart.py", 20)


def test_source_and_test_are_told_apart_and_prose_is_left_out() -> None:
    data = Touched("tests/data/cart.txt", 3)
    prose = (
        Touched("CHANGES.rst", 2), Touched("docs/cart.txt", 9), Touched("news/1.bugfix", 1),
        Touched("docs/conf.py", 1),
    )  # fmt: skip

    found = sort_parts([TEST, data, *prose, SOURCE])

    assert found == Parts(
        ("shop/cart.py",), ("tests/data/cart.txt", "tests/test_cart.py"), ("tests/test_cart.py",)
    )


@pytest.mark.parametrize(
    "touched",
    [
        [SOURCE],
        [TEST],
        [SOURCE, Touched("tests/conftest.py", 3)],  # no test is run
        [TEST, Touched("shop/cart.py", MOST_LINES + 1)],
        [TEST, *(Touched(f"shop/{n}.py", 1) for n in range(4))],
        [TEST, SOURCE, Touched("setup.py", 1)],
        [TEST, SOURCE, Touched("pyproject.toml", 1)],
        [TEST, SOURCE, Touched("shop/table.json", 1)],
        [SOURCE, TEST, Touched("tests/picture.png", None)],
    ],
)
def test_other_commits_are_none(touched: list[Touched]) -> None:
    assert sort_parts(touched) is None


KEPT = {f"t.py::kept_{n}": "passed" for n in range(60)}


def run(outcomes: dict[str, str], ended: str = "exited") -> Run:
    found = {name: Outcome(word) for name, word in outcomes.items()}
    return Run(("pytest",), found, 0, 1.0, ended, "")


def test_what_fails_before_and_passes_after_turns_and_the_rest_is_kept() -> None:
    before = {**KEPT, "t.py::bug": "failed", "t.py::setup": "error", "t.py::off": "skipped"}
    after = {**KEPT, "t.py::bug": "passed", "t.py::setup": "passed", "t.py::off": "passed"}

    found = judge(run(before), run(after), run(after))

    assert found == KnownTests(("t.py::bug", "t.py::setup"), tuple(sorted(KEPT)))


def test_a_test_that_passes_once_of_twice_decides_nothing() -> None:
    before = {**KEPT, "t.py::bug": "failed", "t.py::flake": "failed"}
    after = {**KEPT, "t.py::bug": "passed", "t.py::flake": "passed"}

    found = judge(run(before), run(after), run({**after, "t.py::flake": "failed"}))

    assert isinstance(found, KnownTests)
    assert found.fail_to_pass == ("t.py::bug",)


def test_too_many_flakes_nothing_that_turns_few_kept_and_cut_runs_are_rejected() -> None:
    before, after = {**KEPT, "t.py::bug": "failed"}, {**KEPT, "t.py::bug": "passed"}
    shaky = {name: "failed" if name.endswith("7") else word for name, word in after.items()}
    few = {"t.py::bug": "passed", "t.py::kept": "passed"}

    for runs in (
        (run(before), run(after), run(shaky)),
        (run(before), run(before), run(before)),
        (run({**few, "t.py::bug": "failed"}), run(few), run(few)),
        (run(before, "wall-limit"), run(after), run(after)),
        (run(before), run({}), run(after)),
    ):
        assert isinstance(judge(*runs), Rejected)
