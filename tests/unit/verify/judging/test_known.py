"""Tests that are known to decide: reading them, judging by them, and keeping them to ourselves."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from agent.errors import ConfigurationError
from agent.types import KnownTests, ReproductionTest, ValidationReport, Verdict
from agent.verify.judging.compare import judge_known, read_known
from tests.support.sandboxes import require_bwrap
from tests.support.validation import edit, patch_of, run_of, validated

KNOWN = KnownTests(("t::fixed",), ("t::kept", "t::also"))
BEFORE = {"t::fixed": "failed", "t::kept": "passed", "t::also": "passed"}


@pytest.mark.parametrize(
    ("before", "after", "verdict", "missed"),
    [
        (BEFORE, dict.fromkeys(BEFORE, "passed"), Verdict.VERIFIED, ()),
        (BEFORE, {**BEFORE, "t::fixed": "passed", "t::other": "failed"}, Verdict.VERIFIED, ()),
        (BEFORE, BEFORE, Verdict.REGRESSED, ("t::fixed",)),
        (BEFORE, {**BEFORE, "t::fixed": "skipped"}, Verdict.REGRESSED, ("t::fixed",)),
        (BEFORE, {"t::kept": "passed", "t::also": "passed"}, Verdict.REGRESSED, ("t::fixed",)),
        (
            BEFORE,
            {**BEFORE, "t::fixed": "passed", "t::kept": "skipped"},
            Verdict.REGRESSED,
            ("t::kept",),
        ),
        (BEFORE, {"t::fixed": "passed", "t::also": "passed"}, Verdict.REGRESSED, ("t::kept",)),
        (
            {**BEFORE, "t::kept": "failed"},
            {**BEFORE, "t::fixed": "passed", "t::kept": "failed"},
            Verdict.NOT_REGRESSED,
            ("t::kept",),
        ),
        (
            dict.fromkeys(BEFORE, "passed"),
            dict.fromkeys(BEFORE, "passed"),
            Verdict.NOT_REGRESSED,
            (),
        ),
        (
            {"t::kept": "passed", "t::also": "passed"},
            dict.fromkeys(BEFORE, "passed"),
            Verdict.VERIFIED,
            (),
        ),
        ({}, {}, Verdict.UNVERIFIED, ()),
    ],
)
def test_exactly_the_given_tests_decide(
    before: Mapping[str, str], after: Mapping[str, str], verdict: Verdict, missed: tuple[str, ...]
) -> None:
    lost = [t for t, o in before.items() if o == "passed" and after.get(t) != "passed"]
    found = judge_known(KNOWN, run_of(before), run_of(after), lost)
    assert (found.verdict, found.missed) == (verdict, missed)
    assert "t::" not in found.reason


def test_ids_that_no_run_knows_are_counted_first_and_named_apart() -> None:
    known = KnownTests(("t::fixed",), ("t::kept", "t::mispelt"))
    before = run_of({"t::fixed": "failed", "t::kept": "passed"})
    after = run_of({"t::fixed": "passed", "t::kept": "passed"})
    found = judge_known(known, before, after, ())
    assert found.absent == ("t::mispelt",)
    assert "1 in no run (the notes name them)" in found.reason
    assert "t::" not in found.reason
    uncollected = run_of({"t": "error", "o::x": "passed"})
    assert judge_known(known, uncollected, uncollected, ()).absent == ()


def test_rows_as_data_sets_have_them(tmp_path: Path) -> None:
    ids = ["tests/a.py::x", "test_b (pkg.Case)"]
    listed = {"FAIL_TO_PASS": ids[:1], "PASS_TO_PASS": ids[1:], "patch": "...", "version": 3}
    as_text = {name: json.dumps(value) for name, value in listed.items() if name != "version"}
    for row in (listed, as_text):
        file = tmp_path / "row.jsonl"
        file.write_text(json.dumps(row) + "\n")
        assert read_known(file) == KnownTests((ids[0],), (ids[1],))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"FAIL_TO_PASS": 3}',
        '{"FAIL_TO_PASS": "x"}',
        '{"FAIL_TO_PASS": []}',
        "[" * 100_000,
        json.dumps({"FAIL_TO_PASS": "[" * 100_000}),
        "{}\n{}",
    ],
)
def test_files_without_ids_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "row.json"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=r"--tests-from .*row\.json"):
        read_known(file)
    with pytest.raises(ConfigurationError, match="No such file"):
        read_known(tmp_path / "missing.json")


BUG = "def add(a, b):\n    return a - b\n"
HIDDEN = (
    "from calc import add\n\n\ndef test_secret_case():\n    assert add(2, 3) == 5, 'HIDDEN'\n\n\n"
    "def test_zero():\n    assert add(1, 0) == 1\n\n\ndef test_red():\n    assert add(0, 0) == 9\n"
)
GIVEN = KnownTests(("tests/test_calc.py::test_secret_case",), ("tests/test_calc.py::test_zero",))
Solve = Callable[[str], ValidationReport]


@pytest.fixture
def judged(make_repository: Callable[..., Path], python_with_pytest: Path) -> Solve:
    """Validate calc.py with this text, by the given tests, in bubblewrap."""
    require_bwrap()
    files = {"calc.py": BUG, "tests/test_calc.py": HIDDEN, "tests/test_other.py": "import calc\n"}
    root = make_repository(files)
    own = ReproductionTest("tests/test_r.py", "def test_r():\n    assert False\n")

    def one(text: str) -> ValidationReport:
        patch = patch_of(edit("calc.py", BUG, text))
        return validated(root, patch, own, python=python_with_pytest, known=GIVEN)

    return one


@pytest.mark.slow
def test_a_fix_by_the_given_tests(judged: Solve) -> None:
    report = judged(BUG.replace("-", "+"))
    assert report.verdict is Verdict.VERIFIED
    assert (report.fail_to_pass, report.pass_to_pass) == (GIVEN.fail_to_pass, GIVEN.pass_to_pass)
    assert [test.path for test in report.selected] == ["tests/test_calc.py"]
    assert report.reproduction_after is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "missed"),
    [
        (BUG + "# no\n", GIVEN.fail_to_pass),
        (BUG.replace("a - b", "5"), GIVEN.pass_to_pass),
        ("def add(a, b):\n    raise ValueError(b)\n", (*GIVEN.fail_to_pass, *GIVEN.pass_to_pass)),
    ],
)
def test_nothing_of_the_given_tests_is_told(
    judged: Solve, text: str, missed: tuple[str, ...]
) -> None:
    report = judged(text)
    assert report.verdict is Verdict.REGRESSED
    assert report.known_missed == missed
    told = report.reason + "".join(report.notes)
    assert not any(word in told for word in ("secret", "HIDDEN", "test_zero", "test_calc", "::"))
