"""The validator's own work, with a sandbox that plays pytest: what is run, how often, on what."""

from __future__ import annotations

import asyncio
import json
import platform
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from agent.errors import ConfigurationError
from agent.repository.snapshot import take_snapshot
from agent.types import FileChange, Problem, ReproductionTest, ValidationReport, Verdict
from agent.verify.runners.base import ORDER_FILE
from agent.verify.validator import NullValidator, SandboxValidator, ValidationOptions
from sandbox.types import Command, Ended, RunResult
from sandbox.workspace import Workspace
from tests.support.runners import require_program
from tests.support.validation import ScriptedSandbox, edit, patch_of, plugin_in, result_of

BUG, FIX = "def add(a, b):\n    return a - b\n", "def add(a, b):\n    return a + b\n"
WORSE = "def add(a, b):\n    return None\n"
FILES = {
    "calc.py": BUG,
    "tests/test_calc.py": "from calc import add\n",
    "tests/test_other.py": "import calc\n",
}
FIXES = patch_of(edit("calc.py", BUG, FIX))
BREAKS = patch_of(edit("calc.py", BUG, WORSE))
REPRODUCTION = ReproductionTest("tests/test_issue.py", "from calc import add\n")
PROBLEM = Problem("add() subtracts", "")

Play = Callable[[Path, tuple[str, ...]], Mapping[str, str]]


def by_source(tree: Path, paths: tuple[str, ...]) -> Mapping[str, str]:
    """The sum is right with the fix; the project's tests pass with the bug too."""
    source = (tree / "calc.py").read_text()
    project = "failed" if source == WORSE else "passed"
    issue = "passed" if source == FIX else "failed"
    return {f"{p}::test": project if p in PROJECT else issue for p in paths}


def report_of(outcomes: Mapping[str, str]) -> tuple[bytes, int]:
    status = int("failed" in outcomes.values())
    lines: list[dict[str, object]] = [{"event": "begin"}]
    for test, outcome in outcomes.items():
        line = {"event": "result", "id": test, "phase": "call", "outcome": outcome}
        lines.append({**line, "xfail": False, "text": "E   assert 0" * (outcome == "failed")})
    lines.append({"event": "finish", "status": status})
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines), status


def answer_of_pytest(play: Play, has_pytest: bool = True) -> Callable[[Command, Path], RunResult]:
    def answer(command: Command, tree: Path) -> RunResult:
        if "-I" in command.argv:
            return result_of(
                json.dumps([platform.python_version(), "8.0" if has_pytest else None, []]).encode()
            )
        words = " ".join(command.argv).split()
        paths = tuple(word for word in words if word.startswith("tests/"))
        sealed = plugin_in(command, tree)
        (tree / ORDER_FILE).unlink(missing_ok=True)  # as our plugin does
        report, status = report_of(play(tree, paths))
        return result_of(report=sealed(report), exit_code=status)

    return answer


def pytest_played(play: Play, has_pytest: bool = True, name: str = "scripted") -> ScriptedSandbox:
    return ScriptedSandbox(answer_of_pytest(play, has_pytest), name)


def runs(sandbox: ScriptedSandbox) -> list[tuple[str, ...]]:
    """The test files of each run, in order; probes left out."""
    return [
        tuple(part for part in command.argv if part.startswith("tests/"))
        for command in sandbox.commands
        if "-I" not in command.argv
    ]


@pytest.fixture
def repository(make_repository: Callable[[Mapping[str, str]], Path]) -> Path:
    return make_repository(FILES)


def validator_of(repository: Path, sandbox: ScriptedSandbox, **options: object) -> SandboxValidator:
    given = ValidationOptions(**{"python": Path(sys.executable), **options})  # type: ignore[arg-type]
    return SandboxValidator(take_snapshot(repository), PROBLEM, sandbox, given)


def validate(
    repository: Path, sandbox: ScriptedSandbox, *patches: object, **options: object
) -> list[ValidationReport]:
    async def all_of() -> list[ValidationReport]:
        async with validator_of(repository, sandbox, **options) as validator:
            return [await validator.validate(p, REPRODUCTION) for p in patches]  # type: ignore[arg-type]

    return asyncio.run(all_of())


PROJECT = ("tests/test_calc.py", "tests/test_other.py")
ISSUE = ("tests/test_issue.py",)


def test_each_attempt_is_compared_with_one_run_of_the_base(repository: Path) -> None:
    sandbox = pytest_played(by_source)
    again = patch_of(edit("calc.py", BUG, FIX))
    first, second = validate(repository, sandbox, FIXES, again)
    assert first.verdict is second.verdict is Verdict.VERIFIED
    one = [ISSUE, PROJECT, ISSUE, PROJECT, ISSUE, ISSUE]
    assert runs(sandbox) == [*one, ISSUE, ISSUE, PROJECT, ISSUE, ISSUE]
    assert [r.before.cached for r in (first, second) if r.before] == [False, True]
    assert [test.path for test in first.selected] == list(PROJECT)
    assert first.newly_passing == ("tests/test_issue.py::test",)
    assert first.backend == "scripted"


def test_runs_of_the_base_are_kept_between_runs_of_the_program(
    repository: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"

    def one(name: str = "scripted") -> tuple[ValidationReport, int]:
        sandbox = pytest_played(by_source, name=name)
        (report,) = validate(repository, sandbox, FIXES, cache=cache)
        return report, len(runs(sandbox))

    unkept, count = one("process")
    assert not cache.exists()
    first, same = one()
    second, fewer = one()
    assert (count, same, fewer) == (6, 6, 5)
    assert unkept.before is not None
    assert first.before is not None
    assert second.before == replace(first.before, cached=True)
    assert second.verdict is Verdict.VERIFIED
    (repository / "notes.txt").write_text("the tree is another one\n")
    assert one()[1] == 6
    for forged in (b"no JSON", b"{}", b'{"command": 1}'):
        with closing(sqlite3.connect(cache / "results.sqlite")) as file:
            file.execute("UPDATE record SET data = ?", (forged,))
            file.commit()
        assert one()[1] == 6


def test_runs_that_do_not_depend_on_each_other_happen_at_once(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each waits for another one: in a row none would ever end."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    met = threading.Barrier(2, timeout=20)

    def together(tree: Path, paths: tuple[str, ...]) -> Mapping[str, str]:
        met.wait()
        return by_source(tree, paths)

    (report,) = validate(repository, pytest_played(together, name="bwrap"), FIXES)
    assert report.verdict is Verdict.VERIFIED


def test_what_needs_no_patch_is_done_before_there_is_one(repository: Path) -> None:
    sandbox = pytest_played(by_source)

    async def prepared() -> int:
        async with validator_of(repository, sandbox) as validator:
            await validator.prepare()
            before = len(sandbox.commands)
            assert (await validator.validate(FIXES, REPRODUCTION)).verdict is Verdict.VERIFIED
            return before

    assert asyncio.run(prepared()) == 1
    assert len([c for c in sandbox.commands if "-I" in c.argv]) == 1


def test_a_flake_is_dropped_and_named(repository: Path) -> None:
    seen: list[str] = []

    def flaky(tree: Path, paths: tuple[str, ...]) -> Mapping[str, str]:
        outcomes = dict(by_source(tree, paths))
        if "tests/test_other.py" in paths and (tree / "calc.py").read_text() == FIX:
            seen.append("run")
            if len(seen) == 1:
                outcomes["tests/test_other.py::test"] = "failed"
        return outcomes

    sandbox = pytest_played(flaky)
    (report,) = validate(repository, sandbox, FIXES)
    assert report.verdict is Verdict.VERIFIED
    assert report.newly_failing == ()
    assert report.notes == ("flaky, not held against the patch: tests/test_other.py::test",)
    assert runs(sandbox)[-4:] == [*[("tests/test_other.py",)] * 2, ISSUE, ISSUE]


def test_a_patch_that_an_earlier_replys_test_refutes_stays_refuted(repository: Path) -> None:
    """Even if the reply that brings it again leaves the test out."""

    async def one(*earlier: ReproductionTest) -> ValidationReport:
        no_fix = patch_of(edit("calc.py", BUG, BUG + "# better\n"))
        async with validator_of(repository, pytest_played(by_source)) as validator:
            return await validator.validate(no_fix, None, earlier)

    assert asyncio.run(one()).verdict is Verdict.NOT_REGRESSED
    report = asyncio.run(one(REPRODUCTION))
    assert report.verdict is Verdict.REGRESSED
    assert "tests/test_issue.py of an earlier attempt counts" in report.reason


def test_a_test_that_passes_only_once_proves_nothing(repository: Path) -> None:
    seen: list[str] = []

    def once(tree: Path, paths: tuple[str, ...]) -> Mapping[str, str]:
        outcomes = dict(by_source(tree, paths))
        if ISSUE[0] in paths and (tree / "calc.py").read_text() == FIX:
            seen.append("run")
            if len(seen) > 1:
                outcomes["tests/test_issue.py::test"] = "failed"
        return outcomes

    (report,) = validate(repository, pytest_played(once), FIXES)
    assert report.verdict is Verdict.NOT_REGRESSED
    assert "gives other results once more" in report.reason


def test_every_run_gets_a_fresh_tree(repository: Path) -> None:
    def dirty(tree: Path, paths: tuple[str, ...]) -> Mapping[str, str]:
        assert not (tree / "left-behind").exists()
        assert (tree / "tests/test_issue.py").exists() == ("tests/test_issue.py" in paths)
        (tree / "left-behind").touch()
        (tree / "calc.py").write_text(FIX)
        return by_source(tree, paths)

    validate(repository, pytest_played(dirty), FIXES, FIXES)
    assert (repository / "calc.py").read_text() == BUG
    assert not (repository / "left-behind").exists()


def test_broken_syntax_is_found_without_running_anything(repository: Path) -> None:
    sandbox = pytest_played(by_source)
    (report,) = validate(repository, sandbox, patch_of(edit("calc.py", BUG, "def add(a, b:\n")))
    assert report.verdict is Verdict.BROKEN_SYNTAX
    assert report.reason.splitlines()[0] == "The patch leaves files that do not parse:"
    assert report.syntax_problems[0].path == "calc.py"
    assert sandbox.commands == []


@pytest.mark.parametrize("code", [3, 4])  # a plugin that fails to start, an unknown option
def test_options_of_missing_plugins_are_dropped_once(repository: Path, code: int) -> None:
    def answer(command: Command, tree: Path) -> RunResult:
        if "-I" in command.argv:
            return result_of(json.dumps([platform.python_version(), "8.0", []]).encode())
        if "addopts=" not in command.argv:
            return result_of(b"unrecognized arguments: --cov", exit_code=code)
        return answer_of_pytest(by_source)(command, tree)

    sandbox = ScriptedSandbox(answer)
    (report,) = validate(repository, sandbox, FIXES)
    assert report.verdict is Verdict.VERIFIED
    given = ["addopts=" in command.argv for command in sandbox.commands if "-I" not in command.argv]
    assert given == [False, *[True] * 6]


def test_without_pytest_unittest_is_used_and_said(repository: Path) -> None:
    sandbox = pytest_played(by_source, has_pytest=False)
    (report,) = validate(repository, sandbox, FIXES)
    assert report.verdict is Verdict.VERIFIED
    assert all("patchshot_unittest.py" in c.argv[1] for c in sandbox.commands[1:])
    assert "pytest cannot be imported" in report.notes[0]


def test_the_users_command_is_run_as_given_and_reports_per_test(repository: Path) -> None:
    sandbox = pytest_played(by_source)
    command = "make tests/test_calc.py"
    (report,) = validate(repository, sandbox, FIXES, test_cmd=command)
    assert report.verdict is Verdict.VERIFIED
    given = [c for c in sandbox.commands if c.argv == ("/bin/sh", "-c", command)]
    assert len(given) == 2
    assert given[0].environment["PYTEST_PLUGINS"] == "patchshot_pytest"
    assert report.selected == ()


@pytest.mark.parametrize("command", ["  ", "make 'open"])
def test_a_command_that_cannot_be_split_is_refused(repository: Path, command: str) -> None:
    with pytest.raises(ConfigurationError, match="--test-cmd"):
        validator_of(repository, pytest_played(by_source), test_cmd=command)


def test_no_tests_at_all_is_unverified(
    make_repository: Callable[[Mapping[str, str]], Path],
) -> None:
    root = make_repository({"calc.py": BUG})

    async def one() -> ValidationReport:
        async with validator_of(root, pytest_played(by_source)) as validator:
            return await validator.validate(FIXES, None)

    report = asyncio.run(one())
    assert report.verdict is Verdict.UNVERIFIED
    assert report.reason == (
        "No test could be run: no test file of the project is tied to the change. "
        "Only the syntax was checked."
    )


EDITED = edit("tests/test_calc.py", FILES["tests/test_calc.py"], "skip = 1\n")


def by_the_test(good: str, otherwise: str) -> Play:
    """The outcome of tests/test_calc.py hangs on its own text: the patch writes `skip`."""

    def play(tree: Path, paths: tuple[str, ...]) -> Mapping[str, str]:
        text = (tree / "tests/test_calc.py").read_text()
        return {f"{p}::test": good if "skip" in text else otherwise for p in paths[:1]}

    return play


def without_test(repository: Path, play: Play, *changes: FileChange) -> ValidationReport:
    async def one() -> ValidationReport:
        async with validator_of(repository, pytest_played(play)) as validator:
            return await validator.validate(patch_of(*changes), None)

    return asyncio.run(one())


SOURCE = edit("calc.py", BUG, FIX)


def test_evidence_does_not_come_from_tests_that_the_patch_edits(repository: Path) -> None:
    report = without_test(repository, by_the_test("passed", "failed"), SOURCE, EDITED)
    assert report.verdict is Verdict.SUSPECT
    assert report.reason == (
        "The patch changes or takes away 1 failing test without a fix: tests/test_calc.py::test."
    )
    assert (report.newly_passing, report.newly_failing) == ((), ())
    assert report.notes == (
        "tests were run with tests/test_calc.py as on the base, then as changed",
    )
    assert report.whole is not None
    assert list(report.whole.outcomes.values()) == ["passed"]


def test_a_red_test_that_is_gone_once_only_decides_nothing(repository: Path) -> None:
    seen: list[str] = []

    def play(tree: Path, paths: tuple[str, ...]) -> Mapping[str, str]:
        edited = "skip" in (tree / "tests/test_calc.py").read_text()
        seen.extend(["run"] * edited)
        state = "skipped" if edited and len(seen) == 3 else "failed"
        return {"tests/test_calc.py::test": state, "tests/test_other.py::test": "passed"}

    assert without_test(repository, play, SOURCE, EDITED).verdict is Verdict.NOT_REGRESSED
    assert len(seen) == 4  # with the tests as edited twice, the whole patch, and once more


@pytest.mark.parametrize(("name", "told"), [("process", True), ("bwrap", False)])
def test_a_run_without_isolation_says_so(repository: Path, name: str, told: bool) -> None:
    (report,) = validate(repository, pytest_played(by_source, name=name), FIXES)
    assert ("run without isolation" in report.reason.splitlines()[0]) is told
    assert ("run without isolation" in report.notes) is told


def test_the_iterative_mode_runs_the_files_it_names(repository: Path) -> None:
    sandbox = pytest_played(by_source)

    async def several() -> list[object]:
        async with validator_of(repository, sandbox) as validator:
            named = await validator.run_tests(BREAKS, ["tests/test_calc.py", "tests/nope.py"])
            unknown = await validator.run_tests(None, ["../etc/passwd"])
            tied = await validator.run_tests(FIXES, [])
            return [dict(named.outcomes), unknown.output_tail, sorted(tied.outcomes)]

    assert asyncio.run(several()) == [
        {"tests/test_calc.py::test": "failed"},
        "no such test file: ../etc/passwd",
        ["tests/test_calc.py::test", "tests/test_other.py::test"],
    ]


def test_cancellation_stops_the_run_and_removes_the_copies(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    started, stopped = threading.Event(), threading.Event()

    class Waiting(ScriptedSandbox):
        def run(
            self, command: Command, workspace: Workspace, *, cancel: object = None
        ) -> RunResult:
            started.set()
            assert isinstance(cancel, threading.Event)
            assert cancel.wait(20)
            stopped.set()
            return result_of(exit_code=None, ended=Ended.CANCELLED)

    async def cancelled() -> None:
        sandbox = Waiting(lambda _, __: result_of())
        async with validator_of(repository, sandbox, python=None) as validator:
            task = asyncio.create_task(validator.validate(FIXES, REPRODUCTION))
            await asyncio.to_thread(started.wait, 20)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert stopped.is_set()

    before = time.monotonic()
    asyncio.run(cancelled())
    assert time.monotonic() - before < 15
    assert list(tmp_path.glob("patchshot-[0-9]*")) == []


def test_without_tests_only_the_syntax_is_checked() -> None:
    async def both() -> list[Verdict]:
        validator = NullValidator()
        broken = patch_of(edit("calc.py", BUG, "def add(:\n"))
        reports = [await validator.validate(p, REPRODUCTION) for p in (FIXES, broken)]
        assert [report.backend for report in reports] == ["none", "none"]
        assert (await validator.run_tests(FIXES, ["tests/test_calc.py"])).outcomes == {}
        return [report.verdict for report in reports]

    assert asyncio.run(both()) == [Verdict.UNVERIFIED, Verdict.BROKEN_SYNTAX]


def test_build_products_that_git_ignores_are_there(repository: Path) -> None:
    (repository / ".gitignore").write_text("_version.py\n*.so\nsecret.txt\n")
    (repository / "_version.py").write_text("version = '1'\n")
    (repository / "native.so").write_bytes(b"\x7fELF")
    (repository / "secret.txt").write_text("secret")
    (repository / "linked.so").symlink_to("/etc/passwd")

    def look(tree: Path, paths: tuple[str, ...]) -> Mapping[str, str]:
        found = sorted(path.name for path in tree.iterdir() if path.name != ".git")
        assert found == [".gitignore", "_version.py", "calc.py", "native.so", "tests"]
        return by_source(tree, paths)

    (report,) = validate(repository, pytest_played(look), FIXES)
    assert report.verdict is Verdict.VERIFIED


def test_a_test_file_that_the_suite_cannot_run_is_named(repository: Path) -> None:
    patch = patch_of(edit("calc.py", BUG, FIX), FileChange("web/calc.test.js", None, b"test()\n"))
    (report,) = validate(repository, pytest_played(by_source), patch)
    assert report.verdict is Verdict.VERIFIED
    assert "web/calc.test.js was not run: it is no test of this suite" in "".join(report.notes)


@pytest.mark.parametrize("by_name", [False, True])
def test_a_new_junit_class_runs_a_second_time_under_another_name(
    make_repository: Callable[[Mapping[str, str]], Path], by_name: bool
) -> None:
    require_program("mvn", "java")
    source, test = "src/main/java/Sum.java", "src/test/java/IssueTest.java"
    wrong = "class Sum {\n  static int of(int a, int b) { return a - b; }\n}\n"
    text = "class IssueTest {\n  @Test void adds() { assertEquals(3, Sum.of(1, 2)); }\n}\n"
    names = set[str]()

    def answer(command: Command, tree: Path) -> RunResult:
        name = next(word for word in command.argv if word.startswith("-Dtest="))[7:]
        names.add(name)
        assert f"class {name} " in (tree / "src/test/java" / f"{name}.java").read_text()
        right = (tree / source).read_text() != wrong and (name == "IssueTest" or not by_name)
        case = (
            f'<testcase name="adds" classname="{name}">{"" if right else "<failure/>"}</testcase>'
        )
        report = f"\x1etarget/surefire-reports/TEST-{name}.xml\n<testsuite>{case}</testsuite>\n"
        return result_of(report=report.encode(), exit_code=int(not right))

    async def validated() -> ValidationReport:
        repository = make_repository({"pom.xml": "<project/>", source: wrong})
        snapshot, sandbox = take_snapshot(repository), ScriptedSandbox(answer)
        problem = Problem("Sum.of() subtracts", "Sum.of(1, 2) is -1, not 3.")
        async with SandboxValidator(snapshot, problem, sandbox, ValidationOptions()) as validator:
            patch = patch_of(edit(source, wrong, wrong.replace("a - b", "a + b")))
            return await validator.validate(patch, ReproductionTest(test, text))

    report = asyncio.run(validated())
    assert (report.verdict is Verdict.VERIFIED, len(names)) == (not by_name, 2), report.reason
