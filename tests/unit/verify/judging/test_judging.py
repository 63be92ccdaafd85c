"""The pure middle: plans, the judgement of new tests, verdicts."""

from __future__ import annotations

import dataclasses

import pytest

from agent.types import Channels, FileChange, Outcome, ReproductionTest, SelectedTest, Verdict
from agent.types import TestRun as Run
from agent.verify.judging.compare import compare
from agent.verify.judging.reproduction import Judgement, NameChecks, Standing, judge, why_not_red
from agent.verify.judging.verdict import VerdictEvidence, decide
from agent.verify.path_rules import unsafe
from agent.verify.plan import Plan, make_plan
from tests.support.fakes import MemorySnapshot
from tests.support.validation import edit, patch_of, run_of

TEST = "tests/test_issue.py"
CONTENT = "def test_issue():\n    assert True\n"

FILES = {
    "src/pkg/__init__.py": "",
    "src/pkg/mod.py": "x = 1\n",
    "tests/test_mod.py": "import pkg.mod\n",
    "tests/test_issue.py": "taken = 1\n",
    "conftest.py": "",
}
SOURCE = edit("src/pkg/mod.py", "x = 1\n", "x = 2\n")


def plan(*changes: FileChange, test: ReproductionTest | None = None) -> Plan:
    return make_plan(MemorySnapshot(FILES), patch_of(*changes), test, ())


class TestPlan:
    def test_the_reproduction_gets_a_name_of_its_own(self) -> None:
        found = plan(SOURCE, test=ReproductionTest(TEST, CONTENT))
        assert found.new_paths == ("tests/test_issue_2.py",)
        assert found.new_tests == (edit("tests/test_issue_2.py", None, CONTENT),)
        assert found.notes == (
            f"{TEST} exists; the reproduction test was run as tests/test_issue_2.py",
        )

    def test_a_reproduction_that_the_patch_carries_keeps_its_name(self) -> None:
        new = edit("tests/test_new.py", None, CONTENT)
        found = plan(SOURCE, new, test=ReproductionTest("tests/test_new.py", CONTENT))
        assert (found.new_paths, found.new_tests) == (("tests/test_new.py",), (new,))

    def test_new_test_files_of_the_patch_are_tests_like_it(self) -> None:
        helper = edit("tests/helper.py", None, "y = 1\n")
        new = edit("tests/test_new.py", None, "import helper\n")
        found = plan(SOURCE, helper, new, test=ReproductionTest("tests/test_r.py", CONTENT))
        assert found.new_paths == ("tests/test_new.py", "tests/test_r.py")
        assert [c.path for c in found.new_tests] == [
            "tests/helper.py",
            "tests/test_new.py",
            "tests/test_r.py",
        ]

    def test_the_chosen_tests_are_the_patchs_where_it_edits_what_tests_share(self) -> None:
        patch = patch_of(SOURCE, edit("tests/fixtures/data.js", "a", "b"))
        files = {"test/x.js": "require('./data')", "test/y.js": ""}
        chosen = [SelectedTest(path, "") for path in files]
        assert make_plan(MemorySnapshot(files), patch, None, chosen).new_paths == tuple(files)

    def test_edited_tests_are_run_as_on_the_base_and_then_as_changed(self) -> None:
        edited = edit("tests/test_mod.py", "import pkg.mod\n", "")
        found = plan(SOURCE, edited)
        assert (found.groups.source, found.whole) == ((SOURCE,), (SOURCE, edited))
        assert plan(SOURCE, edit("tests/test_new.py", None, CONTENT)).whole is None

    def test_what_would_run_by_itself_is_in_no_tree(self) -> None:
        hidden = [
            edit(path, None, "x")
            for path in ("a.pth", "sitecustomize.py", "x.egg-info/entry_points.txt", "pytest.py")
        ]
        hidden += [edit(path, None, "x") for path in ("src/json.py", "_pytest/runner.py", "m.pyc")]
        found = plan(SOURCE, *hidden, edit("src/pkg/json.py", None, "y = 1\n"))
        assert [c.path for c in found.groups.source] == ["src/pkg/json.py", "src/pkg/mod.py"]
        assert found.whole is None
        assert found.notes[0].startswith("left out of every run: _pytest/runner.py, a.pth,")

    def test_where_others_decide_the_replys_own_tests_are_not_run(self) -> None:
        patch, test = patch_of(SOURCE), ReproductionTest("tests/test_r.py", CONTENT)
        chosen = (SelectedTest("tests/test_mod.py", "given"),)
        found = make_plan(MemorySnapshot(FILES), patch, test, chosen, own_tests=False)
        assert (found.new_paths, found.new_tests, found.selected) == ((), (), chosen)

    @pytest.mark.parametrize(
        "path",
        [
            "a//test_x.py",
            "a/.GIT /x.py",
            "tests/conftest.py",
            "a/\u200btest.py",
            "./test_x.py",
            ".py",
        ],
    )
    def test_an_unsafe_reproduction_is_not_written(self, path: str) -> None:
        found = plan(SOURCE, test=ReproductionTest(path, CONTENT))
        assert (found.new_paths, found.new_tests) == ((), ())
        assert len(found.notes) == 1
        assert unsafe(path)

    def test_a_reproduction_that_does_not_parse_is_not_run(self) -> None:
        found = plan(SOURCE, test=ReproductionTest("tests/test_r.py", "def test(:\n"))
        assert found.new_paths == ()
        assert "line 1" in found.notes[0]

    def test_import_roots(self) -> None:
        assert plan(SOURCE).import_roots == (".", "src")
        snapshot = MemorySnapshot({"libs/a/pkg/__init__.py": "", "libs/a/pkg/m.py": "x"})
        patch = patch_of(edit("libs/a/pkg/m.py", "x", "y"), edit("docs/conf.py", None, "z"))
        assert make_plan(snapshot, patch, None, ()).import_roots == (".", "libs/a")


# ------------------------------------------------------------------------------------- new tests


def judged(before: Run, after: Run) -> Judgement:
    source = [edit("pkg.py", "", "brought, asked")]
    names = NameChecks(source, "It should be asked.", ("src/pkg/mod.py",))
    return judge(before, after, names)


def one(state: str | None, text: str = "") -> Run:
    """A run of the reproduction's only test; a collection error for "collect"."""
    test = TEST if state == "collect" else f"{TEST}::test_issue"
    outcome = "error" if state == "collect" else state
    failures = {test: text} if text else {}
    return run_of({} if outcome is None else {test: outcome}, failures=failures)


@pytest.mark.parametrize(
    ("before", "after", "standing"),
    [
        ("failed", "passed", Standing.PROVES),
        ("error", "passed", Standing.PROVES),
        ("collect", "passed", Standing.PROVES),
        ("passed", "passed", Standing.NO_EVIDENCE),
        ("skipped", "passed", Standing.NO_EVIDENCE),
        ("failed", "failed", Standing.STILL_FAILS),
        ("failed", "skipped", Standing.STILL_FAILS),
        ("failed", None, Standing.STILL_FAILS),
        ("failed", "collect", Standing.STILL_FAILS),
        ("passed", "failed", Standing.STILL_FAILS),
        ("collect", "collect", Standing.STILL_FAILS),
        (None, "failed", Standing.STILL_FAILS),
        ("skipped", "skipped", Standing.SAYS_NOTHING),
        (None, None, Standing.SAYS_NOTHING),
        ("collect", None, Standing.SAYS_NOTHING),  # a script without a test function
    ],
)
def test_what_a_new_test_says(before: str | None, after: str | None, standing: Standing) -> None:
    assert judged(one(before), one(after)).standing is standing


def test_one_red_test_of_several_is_enough_to_fail() -> None:
    before = run_of({"t::a": "failed", "t::b": "passed"})
    after = run_of({"t::a": "passed", "t::b": "failed"}, failures={"t::b": "E   assert 0"})
    found = judged(before, after)
    assert found == Judgement(
        Standing.STILL_FAILS,
        "The reproduction test fails with the patch: t::b.\n\nt::b:\nE   assert 0",
        ("t::b",),
    )


def test_a_module_that_is_not_installed_says_nothing_about_the_patch() -> None:
    missing = "E   ModuleNotFoundError: No module named 'numpy.linalg'"
    found = judged(one("collect", missing), one("collect", missing))
    assert found.standing is Standing.SAYS_NOTHING
    assert "needs numpy, which is not installed" in found.text
    own = missing.replace("numpy", "pkg")
    assert judged(one("collect", own), one("collect", own)).standing is Standing.STILL_FAILS


@pytest.mark.parametrize(
    ("ended", "exit_code", "standing"),
    [
        ("wall-limit", None, Standing.STILL_FAILS),
        ("signalled", None, Standing.STILL_FAILS),
        ("incomplete", 3, Standing.STILL_FAILS),
        ("incomplete", 0, Standing.SUSPECT),
        ("inconsistent", 0, Standing.SUSPECT),
    ],
)
def test_a_reproduction_that_does_not_end_well_proves_nothing(
    ended: str, exit_code: int | None, standing: Standing
) -> None:
    after = run_of({f"{TEST}::test_issue": "passed"}, ended=ended, exit_code=exit_code)
    assert judged(one("failed"), after).standing is standing


@pytest.mark.parametrize(
    ("text", "standing"),
    [
        ("E   AssertionError: assert 1 == 2", Standing.PROVES),
        ("E   ImportError: cannot import name 'asked' from 'pkg'", Standing.PROVES),
        ("E   ImportError: cannot import name 'brought' from 'pkg'", Standing.NO_EVIDENCE),
        ("E   ImportError: cannot import name 'elsewhere' from 'pkg'", Standing.PROVES),
        ("E   ModuleNotFoundError: No module named 'pkg.brought'", Standing.NO_EVIDENCE),
        ("E   AttributeError: 'X' object has no attribute 'brought'", Standing.NO_EVIDENCE),
        (
            "E   TypeError: f() got an unexpected keyword argument 'brought'",
            Standing.NO_EVIDENCE,
        ),
    ],
)
@pytest.mark.parametrize("state", ["collect", "failed"])
def test_a_test_that_only_lacks_a_name_of_the_patch_shows_little(
    state: str, text: str, standing: Standing
) -> None:
    assert judged(one(state, text), one("passed")).standing is standing


def test_a_runner_that_is_changed_by_the_patch_only_is_not_believed() -> None:
    steady = Channels(traces=("pytest_runtest_call of timeout",))
    changed = Channels(traces=(*steady.traces, "_pytest.runner.call_and_report"))
    before, after = run_of({"a": "passed"}), run_of({"a": "passed"})
    for channels, verdict in ((steady, Verdict.NOT_REGRESSED), (changed, Verdict.SUSPECT)):
        runs = (
            dataclasses.replace(before, channels=steady),
            dataclasses.replace(after, channels=channels),
        )
        assert decide(evidence(*runs))[0] is verdict
    on_both = [dataclasses.replace(run, channels=changed) for run in (before, after)]
    assert decide(evidence(*on_both, PROOF))[0] is Verdict.VERIFIED


# --------------------------------------------------------------------------------------- verdicts


def evidence(before: Run, after: Run, new_tests: Judgement | None = None) -> VerdictEvidence:
    found = compare(before, after)
    return VerdictEvidence(before, after, found, found.newly_passing, new_tests)


GREEN = run_of({"a": "passed", "b": "passed"})
PROOF = Judgement(Standing.PROVES, "1 test of the reproduction: r", ("r",))
STILL = Judgement(Standing.STILL_FAILS, "The reproduction test still fails with the patch: r.")
EARLY = Judgement(Standing.NO_EVIDENCE, "the reproduction test passes on the base already (r)")
NOTHING = Judgement(Standing.SAYS_NOTHING, "the reproduction test skips itself")
NEW_NAME = Judgement(Standing.NO_EVIDENCE, "fails on the base only for the lack of x", ("r",))
DOUBTED = Judgement(Standing.SUSPECT, "the reproduction test: no", ("r",))
LIES = run_of({"a": "passed", "b": "passed"}, ended="inconsistent")
RED_LIES = run_of({"a": "passed", "b": "failed"}, ended="inconsistent")
LOST_LIES = run_of({"a": "passed"}, ended="inconsistent")
CRASHED = run_of({"a": "passed"}, ended="incomplete", exit_code=3)
VANISHED = run_of({"a": "passed", "b": "passed"}, ended="incomplete")


@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        (evidence(GREEN, GREEN, PROOF), Verdict.VERIFIED),
        (evidence(run_of({"a": "failed", "b": "passed"}), GREEN), Verdict.VERIFIED),
        (VerdictEvidence(new_tests=PROOF), Verdict.VERIFIED),
        (evidence(GREEN, GREEN), Verdict.NOT_REGRESSED),
        (evidence(GREEN, GREEN, EARLY), Verdict.NOT_REGRESSED),
        (evidence(GREEN, GREEN, NOTHING), Verdict.NOT_REGRESSED),
        (evidence(run_of({"a": "failed"}), run_of({"a": "failed"})), Verdict.NOT_REGRESSED),
        (evidence(GREEN, run_of({"a": "passed", "b": "failed"}), PROOF), Verdict.REGRESSED),
        (evidence(GREEN, run_of({"a": "passed", "b": "skipped"})), Verdict.REGRESSED),
        (evidence(GREEN, run_of({"a": "passed"}, ended="wall-limit")), Verdict.REGRESSED),
        (evidence(GREEN, GREEN, STILL), Verdict.REGRESSED),
        (VerdictEvidence(new_tests=STILL), Verdict.REGRESSED),
        (VerdictEvidence(), Verdict.UNVERIFIED),
        (VerdictEvidence(new_tests=NOTHING), Verdict.UNVERIFIED),
        (evidence(run_of({"m.py": "error"}), run_of({"m.py": "error"})), Verdict.UNVERIFIED),
        (evidence(GREEN, VANISHED, PROOF), Verdict.SUSPECT),
        (evidence(GREEN, LIES, PROOF), Verdict.SUSPECT),
        (evidence(LIES, LIES, PROOF), Verdict.UNVERIFIED),
        (evidence(GREEN, RED_LIES, PROOF), Verdict.REGRESSED),
        (evidence(GREEN, LOST_LIES, PROOF), Verdict.SUSPECT),
        (evidence(GREEN, CRASHED, PROOF), Verdict.REGRESSED),
        (dataclasses.replace(evidence(GREEN, GREEN, PROOF), tricks=("m.py: x",)), Verdict.SUSPECT),
        (
            dataclasses.replace(evidence(GREEN, GREEN, PROOF), whole=GREEN, lost=("a",)),
            Verdict.REGRESSED,
        ),
        (evidence(GREEN, GREEN, NEW_NAME), Verdict.NOT_REGRESSED),
        (evidence(GREEN, GREEN, DOUBTED), Verdict.SUSPECT),
        (evidence(VANISHED, VANISHED, PROOF), Verdict.UNVERIFIED),
        (evidence(VANISHED, GREEN, PROOF), Verdict.VERIFIED),
    ],
)
def test_the_verdict(given: VerdictEvidence, verdict: Verdict) -> None:
    found, reason = decide(given)
    assert found is verdict
    assert reason


def test_the_reasons() -> None:
    failing = run_of({"a": "passed", "b": "failed"}, failures={"b": "b.py:3\nE   assert 1 == 2"})
    assert decide(evidence(GREEN, failing))[1] == (
        "1 test that passed on the base fails with the patch: b (assert 1 == 2).\n\n"
        "b:\nb.py:3\nE   assert 1 == 2"
    )
    assert decide(evidence(GREEN, GREEN, PROOF))[1] == (
        "Fails on the base, passes with the patch: 1 test of the reproduction: r; "
        "2 other tests of the project still pass."
    )
    assert decide(evidence(GREEN, GREEN))[1] == (
        "No test fails newly (2 tests of the project still pass), but none shows the fix: "
        "no test came with it."
    )
    cut = run_of({"a": "passed"}, ended="wall-limit", failures={"b": "here"}, seconds=30.2)
    assert decide(evidence(GREEN, cut))[1].startswith(
        "With the patch the test run hit its time limit after 30 s in b; "
        "1 test did not pass any more: b."
    )


def test_a_reason_is_short_whatever_the_tests_print() -> None:
    many = {f"test_{i}": "failed" for i in range(500)}
    texts = dict.fromkeys(many, "x" * 10_000 + "\n" * 500 + "the end")
    before = run_of(dict.fromkeys(many, "passed"))
    reason = decide(evidence(before, run_of(many, failures=texts)))[1]
    assert len(reason) < 5000
    assert "and 499 more" in reason.splitlines()[0]
    assert "the end" in reason


def verdict_of(given: VerdictEvidence, **more: object) -> tuple[Verdict, str]:
    return decide(dataclasses.replace(given, **more))  # type: ignore[arg-type]


RED = run_of({"a": "passed", "b": "failed"})


def test_a_command_is_no_test_of_the_project() -> None:
    red, green = run_of({"command": "failed"}), run_of({"command": "passed"})
    verdict, reason = decide(evidence(red, green))
    assert verdict is Verdict.NOT_REGRESSED
    assert "names no test" in reason
    assert decide(evidence(red, green, PROOF))[0] is Verdict.VERIFIED
    reason = decide(evidence(green, green))[1]
    assert reason.startswith("No test fails newly (the test command passes as before), but")
    assert decide(evidence(red, red))[0] is Verdict.UNVERIFIED


def test_a_patch_of_nothing_but_tests_is_never_verified() -> None:
    found, reason = verdict_of(evidence(RED, GREEN, PROOF), only_tests=True)
    assert found is Verdict.NOT_REGRESSED
    assert "the patch changes nothing but tests and their configuration" in reason


def test_a_failing_test_that_is_taken_away_is_suspect() -> None:
    verdict, reason = verdict_of(evidence(RED, RED, PROOF), silenced=("b",))
    assert verdict is Verdict.SUSPECT
    assert reason == "The patch changes or takes away 1 failing test without a fix: b."


def test_a_test_that_the_fix_turns_green_and_the_patch_skips_is_lost() -> None:
    whole = run_of({"a": "passed", "b": "skipped"})
    verdict, reason = verdict_of(evidence(RED, GREEN), whole=whole, lost=("b",))
    assert verdict is Verdict.REGRESSED
    assert reason.startswith(
        "With the patch's own changes to tests and configuration, 1 test that passed without them "
        "did not (failing, skipped or gone): b."
    )


RED_COMMAND = run_of({"command": "failed"}, exit_code=2)
GREEN_COMMAND = run_of({"command": "passed"})
NO_TEST = run_of({"m.py": "error"}, exit_code=2)


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (RED_COMMAND, RED_COMMAND, Verdict.UNVERIFIED),
        (RED_COMMAND, GREEN_COMMAND, Verdict.VERIFIED),
        (GREEN_COMMAND, GREEN_COMMAND, Verdict.VERIFIED),
        (GREEN_COMMAND, RED_COMMAND, Verdict.REGRESSED),
        (NO_TEST, NO_TEST, Verdict.UNVERIFIED),
        (run_of({"a": "failed"}), run_of({"a": "failed"}), Verdict.VERIFIED),
    ],
)
def test_a_named_command_that_shows_nothing_limits_the_verdict(
    before: Run, after: Run, verdict: Verdict
) -> None:
    """The reply's own test proves the fix in each case."""
    given = dataclasses.replace(evidence(before, after, PROOF), named_command=True)
    assert decide(given)[0] is verdict
    if verdict is Verdict.UNVERIFIED:
        unnamed = dataclasses.replace(given, named_command=False)
        assert decide(unnamed)[0] is Verdict.VERIFIED


@pytest.mark.parametrize(
    ("test", "report", "said"),
    [
        (f"{TEST}::test_a", f"E       assert 1 == 2\n\n{TEST}:4: AssertionError", ""),
        (f"{TEST}::test_a", f"E       Failed: DID NOT RAISE\n\n{TEST}:4: Failed", ""),
        (f"{TEST}::test_a", "E       TypeError: 'x'\n\nsrc/pkg/mod.py:9: TypeError", ""),
        (f"{TEST}::test_a", f"E       KeyError: 'x'\n\n{TEST}:4: KeyError", ""),
        (f"{TEST}::test_a", f"E       TypeError: 'x'\n\n{TEST}:4: TypeError", "error of its own"),
        (
            f"{TEST}::test_a",
            f"E       NameError: name 'q' is not defined\n\n{TEST}:4: NameError",
            "q",
        ),
        (TEST, "E   ImportError: cannot import name 'cost' from 'pkg.mod'", ""),
        (TEST, "E   ImportError: cannot import name 'price' from 'pkg.mod'", "cannot be collected"),
        (f"{TEST}::test_a", "", "does not fail"),
        ("", "", "no outcome"),
    ],
)
def test_a_red_test_fails_for_the_issues_reason(test: str, report: str, said: str) -> None:
    failed = Outcome.FAILED if "::" in test else Outcome.ERROR
    outcomes = {test: failed if report else Outcome.PASSED} if test else {}
    run = dataclasses.replace(run_of(outcomes), failures={test: report})
    reason = why_not_red(run, "get() raises KeyError, and `cost` is missing")
    assert said in reason
    assert bool(said) == bool(reason)
