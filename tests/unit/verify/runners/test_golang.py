from __future__ import annotations

import json
from pathlib import Path

from agent.types import Outcome
from agent.verify import runners as registry
from agent.verify.runners.base import Suite
from tests.support.fakes import MemorySnapshot
from tests.support.runners import Project, command_of, read, require_program

GO = Suite("go", "", settings={"module": "example.com/m"})

FILES = {
    "go.mod": "module example.com/m\n\ngo 1.21\n",
    "sum/sum.go": "package sum\n\nfunc Sum(a, b int) int { return a + b }\n",
    "sum/sum_test.go": """package sum

import "testing"

func TestSum(t *testing.T) {
	t.Run("small", func(t *testing.T) {})
	t.Run("wrong", func(t *testing.T) { t.Fatal("not three") })
}

func TestSkipped(t *testing.T) { t.Skip("later") }
""",
}


def lines(*events: dict[str, object]) -> bytes:
    """As `go doc cmd/test2json` describes them."""
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def event(action: str, test: str = "", package: str = "example.com/m/sum", **more: object) -> dict:
    name = {"Test": test} if test else {}
    return {"Time": "2026-01-01T00:00:00Z", "Action": action, "Package": package, **name, **more}


RAN = (
    event("start"),
    event("run", "TestSum"),
    event("run", "TestSum/small"),
    event("output", "TestSum/small", Output="=== RUN   TestSum/small\n"),
    event("pass", "TestSum/small", Elapsed=0.0),
    event("run", "TestSum/wrong"),
    event("output", "TestSum/wrong", Output="    sum_test.go:7: not three\n"),
    event("fail", "TestSum/wrong", Elapsed=0.0),
    event("fail", "TestSum", Elapsed=0.0),
    event("run", "TestSkipped"),
    event("skip", "TestSkipped", Elapsed=0.0),
    event("output", Output="FAIL\n"),
    event("fail", Elapsed=0.1),
)

OUTCOMES = {
    "sum::TestSkipped": Outcome.SKIPPED,
    "sum::TestSum": Outcome.FAILED,
    "sum::TestSum/small": Outcome.PASSED,
    "sum::TestSum/wrong": Outcome.FAILED,
}


def test_events_are_read_by_folder_and_test() -> None:
    run = read(GO, report=lines(*RAN), exit_code=1)
    assert (run.ended, run.outcomes) == ("exited", OUTCOMES)
    assert "not three" in run.failures["sum::TestSum/wrong"]
    assert "FAIL" in run.output_tail


def test_a_package_that_does_not_build_is_an_error_of_its_own() -> None:
    events = (
        {"ImportPath": "example.com/m/sum", "Action": "build-output", "Output": "undefined: X\n"},
        {"ImportPath": "example.com/m/sum", "Action": "build-fail"},
        event("start"),
        event("fail", Elapsed=0.0, FailedBuild="example.com/m/sum"),
        event("pass", package="example.com/m", Elapsed=0.0),
    )
    run = read(GO, report=lines(*events), exit_code=1)
    assert (run.ended, run.outcomes) == ("exited", {"sum": Outcome.ERROR})
    assert "undefined: X" in run.failures["sum"]


def test_a_package_that_never_ended_makes_the_run_incomplete() -> None:
    run = read(GO, report=lines(*RAN[:-1]), exit_code=1)
    assert run.ended == "incomplete"
    crashed = read(GO, report=lines(*RAN[:6]), exit_code=2)
    assert crashed.outcomes["sum::TestSum/wrong"] is Outcome.ERROR


def test_packages_are_the_targets() -> None:
    paths = ["sum/sum_test.go", "sum/more_test.go", "root_test.go", "x.py"]
    found = registry.runner_of(GO).targets(GO, paths, MemorySnapshot({}))
    assert found == ("./sum", ".")
    argv = command_of(GO, *found).argv
    assert argv[-6:] == ("go", "test", "-json", "-count=1", "./sum", ".")
    assert command_of(GO).argv[-1] == "./..."


def test_a_module_in_a_folder_gives_paths_of_the_tree() -> None:
    files = {"srv/go.mod": "module example.com/m\n", "srv/sum/sum_test.go": ""}
    suite = registry.detect(MemorySnapshot(files), None)
    assert (suite.runner, suite.cwd) == ("go", "srv")
    assert set(read(suite, report=lines(*RAN), exit_code=1).outcomes) == {
        f"srv/{test}" for test in OUTCOMES
    }


def test_names_as_go_gives_them_are_understood() -> None:
    runner = registry.runner_of(GO)
    assert runner.test_id(GO, "example.com/m/sum.TestSum/small") == "sum::TestSum/small"
    assert runner.test_id(GO, "example.com/m::TestX") == ".::TestX"
    assert runner.test_id(GO, "TestX") == "TestX"


def test_go_itself(tmp_path: Path) -> None:
    require_program("go")
    run = Project(FILES, tmp_path).run(["sum/sum_test.go"], seconds=120)
    assert (run.ended, run.outcomes) == ("exited", OUTCOMES), run.output_tail


def test_a_package_that_does_not_compile_is_an_error_before_go_1_24_too() -> None:
    run = read(
        Suite("go", "", settings={"module": "example.com/m"}),
        report=b"FAIL\texample.com/m/sum [build failed]\n",
        stderr=b"sum/x_test.go:6:6: undefined: Fixed\n",
        exit_code=1,
    )
    assert run.outcomes == {"sum": Outcome.ERROR}
    assert "undefined: Fixed" in run.failures["sum"]
