"""Go, Cargo and Maven."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.types import Outcome
from agent.verify import runners as registry
from agent.verify.runners.base import RunContext, Suite, Tools
from agent.verify.tools import find_programs
from sandbox.bwrap import BwrapSandbox
from sandbox.types import Limits
from sandbox.workspace import empty_workspace
from tests.support.fakes import MemorySnapshot
from tests.support.maven import POM, home_with_store
from tests.support.runners import Project, command_of, read, require_program
from tests.support.sandboxes import require_bwrap

# ---------------------------------------------------------------------------------------- Go

GO = Suite("go", "", settings={"module": "example.com/m"})

GO_FILES = {
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

GO_OUTCOMES = {
    "sum::TestSkipped": Outcome.SKIPPED,
    "sum::TestSum": Outcome.FAILED,
    "sum::TestSum/small": Outcome.PASSED,
    "sum::TestSum/wrong": Outcome.FAILED,
}


def test_events_are_read_by_folder_and_test() -> None:
    run = read(GO, report=lines(*RAN), exit_code=1)
    assert (run.ended, run.outcomes) == ("exited", GO_OUTCOMES)
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


def test_go_itself(tmp_path: Path) -> None:
    require_program("go")
    run = Project(GO_FILES, tmp_path).run(["sum/sum_test.go"], seconds=120)
    assert (run.ended, run.outcomes) == ("exited", GO_OUTCOMES), run.output_tail


def test_a_package_that_does_not_compile_is_an_error_before_go_1_24_too() -> None:
    run = read(
        Suite("go", "", settings={"module": "example.com/m"}),
        report=b"FAIL\texample.com/m/sum [build failed]\n",
        stderr=b"sum/x_test.go:6:6: undefined: Fixed\n",
        exit_code=1,
    )
    assert run.outcomes == {"sum": Outcome.ERROR}
    assert "undefined: Fixed" in run.failures["sum"]


# ------------------------------------------------------------------------------------- Cargo

CARGO_FILES = {
    "Cargo.toml": '[package]\nname = "sums"\nversion = "0.1.0"\nedition = "2021"\n',
    "src/lib.rs": """
pub fn add(a: i32, b: i32) -> i32 { a + b }

/// ```
/// assert_eq!(sums::twice(2), 4);
/// ```
pub fn twice(a: i32) -> i32 { a * 2 }

#[cfg(test)]
mod tests {
    #[test]
    fn adds() { assert_eq!(super::add(1, 1), 2); }
    #[test]
    fn breaks() { assert_eq!(super::add(1, 1), 3); }
    #[test]
    #[ignore = "later"]
    fn off() {}
    #[test]
    #[should_panic]
    fn panics() { panic!("as it should"); }
}
""",
    "tests/whole.rs": """
#[test]
fn works() { println!("test noise ... ok"); assert_eq!(sums::add(1, 2), 3); }
""",
}

CARGO_OUTCOMES = {
    "doc sums::src/lib.rs - twice (line 4)": Outcome.PASSED,
    "src/lib.rs::tests::adds": Outcome.PASSED,
    "src/lib.rs::tests::breaks": Outcome.FAILED,
    "src/lib.rs::tests::off": Outcome.SKIPPED,
    "src/lib.rs::tests::panics": Outcome.PASSED,
    "tests/whole.rs::works": Outcome.PASSED,
}

# As libtest and cargo print it.
CARGO_OUTPUT = b"""   Compiling sums v0.1.0 (/w)
    Finished `test` profile [unoptimized + debuginfo] target(s) in 0.32s
     Running unittests src/lib.rs (target/debug/deps/sums-0123456789abcdef)

running 2 tests
test tests::adds ... ok
test tests::breaks ... FAILED

failures:

---- tests::breaks stdout ----
thread 'tests::breaks' panicked at src/lib.rs:14:19:
assertion `left == right` failed

failures:
    tests::breaks

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

error: test failed, to rerun pass `--lib`
"""


def suite_of(files: dict[str, str]) -> Suite:
    return registry.detect(MemorySnapshot(files), None)


def test_libtests_text_is_read_with_what_failures_say() -> None:
    run = read(suite_of(CARGO_FILES), stdout=CARGO_OUTPUT, exit_code=101)
    assert (run.ended, run.outcomes) == (
        "exited",
        {"src/lib.rs::tests::adds": Outcome.PASSED, "src/lib.rs::tests::breaks": Outcome.FAILED},
    )
    assert "left == right" in run.failures["src/lib.rs::tests::breaks"]
    assert "failures:" not in run.failures["src/lib.rs::tests::breaks"]


def test_a_program_that_ends_early_or_counts_otherwise_is_told() -> None:
    cut = CARGO_OUTPUT.partition(b"test result")[0]
    assert read(suite_of(CARGO_FILES), stdout=cut, exit_code=101).ended == "incomplete"
    forged = CARGO_OUTPUT.replace(b"test tests::breaks ... FAILED", b"test tests::breaks ... ok")
    assert read(suite_of(CARGO_FILES), stdout=forged, exit_code=101).ended == "incomplete"
    assert read(suite_of(CARGO_FILES), stdout=CARGO_OUTPUT, exit_code=0).ended == "inconsistent"
    twice = (
        CARGO_OUTPUT
        + b"test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured\ntest x ... ok\n"
    )
    assert read(suite_of(CARGO_FILES), stdout=twice, exit_code=101).ended == "incomplete"


WORKSPACE = {
    "Cargo.toml": '[workspace]\nmembers = ["a", "b"]\n',
    "a/Cargo.toml": '[package]\nname = "a-one"\n',
    "a/src/lib.rs": "",
    "a/tests/it.rs": "",
    "b/Cargo.toml": '[package]\nname = "b"\n',
    "b/src/main.rs": "",
    "b/tests/it.rs": "",
    "b/tests/more/main.rs": "",
}


def test_packages_and_kinds_are_the_targets() -> None:
    suite = suite_of(WORKSPACE)
    targets = registry.runner_of(suite).targets

    def of(*paths: str) -> tuple[str, ...]:
        return targets(suite, paths, MemorySnapshot(WORKSPACE))

    assert of("a/src/lib.rs", "a/src/deep/x.rs") == ("--package=a-one", "--lib")
    assert of("b/src/main.rs") == ("--package=b", "--bins")
    assert of("a/tests/it.rs", "b/tests/more/main.rs") == (
        "--package=a-one",
        "--package=b",
        "--test=it",
        "--test=more",
    )
    assert of("x.py", "outside.rs") == ()


def compiled(path: str, program: str) -> str:
    target = {"kind": ["test"], "src_path": f"/w/{path}"}
    note = {"reason": "compiler-artifact", "target": target, "executable": f"/w/target/{program}"}
    return f"{json.dumps(note, separators=(',', ':'))}\n"


def running(path: str, program: str) -> str:
    head = f"     Running {path} (target/debug/deps/{program})\n"
    total = "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n"
    return f"{head}running 1 test\ntest x ... ok\n{total}"


def test_a_program_is_named_by_the_file_that_it_was_compiled_from() -> None:
    first, second = (f"it-{digit * 16}" for digit in "ab")
    output = (
        compiled("a/tests/it.rs", first)
        + compiled("b/tests/it.rs", second)
        + running("tests/it.rs", second)
        + compiled("a/tests/it.rs", second)  # printed by a test
        + running("tests/it.rs", first)
        + running("tests/it.rs", second)
    )
    run = read(suite_of(WORKSPACE), stdout=output.encode())
    assert list(run.outcomes) == ["a/tests/it.rs::x", "b/tests/it.rs::x"]
    assert (run.ended, "reason" in run.output_tail) == ("exited", False)
    new = running("tests/reproduction.rs", first)
    assert [*read(suite_of(CARGO_FILES), stdout=new.encode()).outcomes] == [
        "tests/reproduction.rs::x"
    ]


def test_a_test_program_that_does_not_compile_is_an_error() -> None:
    target = {"kind": ["test"], "src_path": "/w/tests/whole.rs"}
    message = {"level": "error", "rendered": "error[E0425]: cannot find function `fixed`\n"}
    note = {"reason": "compiler-message", "target": target, "message": message}
    output = json.dumps(note, separators=(",", ":"))
    run = read(suite_of(CARGO_FILES), stdout=output.encode(), exit_code=101)
    assert (run.ended, run.outcomes) == ("exited", {"tests/whole.rs": Outcome.ERROR})
    assert "`fixed`" in run.failures["tests/whole.rs"]
    assert "`fixed`" in run.output_tail


def test_nothing_is_fetched() -> None:
    command = command_of(suite_of(CARGO_FILES))
    assert "--offline" in command.argv
    assert command.environment["CARGO_NET_OFFLINE"] == "true"


def test_cargo_itself(tmp_path: Path) -> None:
    require_program("cargo")
    project = Project(CARGO_FILES, tmp_path)
    run = project.run(seconds=120)
    assert (run.ended, run.outcomes) == ("exited", CARGO_OUTCOMES), run.output_tail
    assert "left == right" in run.failures["src/lib.rs::tests::breaks"]


# ------------------------------------------------------------------------------------- Maven

MAVEN = Suite("maven", "")

# As surefire writes it.
SUREFIRE = b"""\x1e./core/target/surefire-reports/TEST-org.example.SumTest.xml
<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="org.example.SumTest" tests="4" errors="1" skipped="1" failures="1">
  <properties><property name="java.version" value="17"/></properties>
  <testcase name="adds" classname="org.example.SumTest" time="0.01"/>
  <testcase name="breaks" classname="org.example.SumTest" time="0.01">
    <failure message="expected: 3" type="X"><![CDATA[at SumTest.java:9]]></failure>
  </testcase>
  <testcase name="raises" classname="org.example.SumTest$Inner"><error>boom</error></testcase>
  <testcase name="off" classname="org.example.SumTest"><skipped message="later"/></testcase>
</testsuite>
"""

SUM_TEST = "core/src/test/java/org/example/SumTest.java"


def test_surefires_files_are_read_by_the_path_of_the_class() -> None:
    run = read(MAVEN, report=SUREFIRE, exit_code=1)
    assert (run.ended, run.outcomes) == (
        "exited",
        {
            f"{SUM_TEST}::Inner.raises": Outcome.ERROR,
            f"{SUM_TEST}::adds": Outcome.PASSED,
            f"{SUM_TEST}::breaks": Outcome.FAILED,
            f"{SUM_TEST}::off": Outcome.SKIPPED,
        },
    )
    assert run.failures[f"{SUM_TEST}::breaks"] == "expected: 3\nat SumTest.java:9"


def test_a_file_that_is_no_xml_makes_the_run_incomplete() -> None:
    run = read(
        MAVEN,
        report=SUREFIRE + b"\x1e./x/target/surefire-reports/TEST-y.xml\n<a",
        exit_code=1,
    )
    assert run.ended == "incomplete"


def test_classes_are_the_targets() -> None:
    files = {"pom.xml": "<project/>", SUM_TEST: ""}
    runner = registry.runner_of(MAVEN)
    found = runner.targets(
        MAVEN, [SUM_TEST, "a/b/OtherTest.java", SUM_TEST, "x.py"], MemorySnapshot(files)
    )
    assert found == ("SumTest", "OtherTest")
    argv = command_of(MAVEN, *found).argv
    assert "-o" in argv
    assert "-Dtest=SumTest,OtherTest" in argv
    assert not any(word.startswith("-Dtest=") for word in command_of(MAVEN).argv)


SUM_TEST_TEXT = """package org.example;
import org.junit.jupiter.api.*;
class SumTest {
  @Test void adds() { Assertions.assertEquals(2, Sum.of(1, 1)); }
  @Test void breaks() { Assertions.assertEquals(3, Sum.of(1, 1)); }
  @Test @Disabled void off() {}
  @Nested class Inner { @Test void deep() {} }
}
"""


@pytest.fixture
def home_with_packages(tmp_path: Path) -> Path:
    return home_with_store(tmp_path)


@pytest.mark.slow
def test_maven_itself(tmp_path: Path, home_with_packages: Path) -> None:
    require_program("mvn", "java")
    require_bwrap()
    files = {
        "pom.xml": POM,
        "src/main/java/org/example/Sum.java": (
            "package org.example; class Sum { static int of(int a, int b) { return a + b; } }"
        ),
        "src/test/java/org/example/SumTest.java": SUM_TEST_TEXT,
    }
    snapshot = MemorySnapshot(files)
    snapshot.root = tmp_path / "tree"
    suite = registry.detect(snapshot, None)
    runner = registry.runner_of(suite)
    found = find_programs(runner.needs, snapshot, home=home_with_packages)
    targets = runner.targets(suite, list(files), snapshot)
    tools = Tools(None, toolchain=found)
    context = RunContext(tools, snapshot.root, Limits(wall_seconds=100))
    command = runner.command(suite, targets, context)
    with empty_workspace(mount=snapshot.root) as workspace:
        for path, text in files.items():
            workspace.write(path, text.encode())
        run = runner.read(suite, command, BwrapSandbox().run(command, workspace))
    path = "src/test/java/org/example/SumTest.java"
    assert run.outcomes == {
        f"{path}::Inner.deep": Outcome.PASSED,
        f"{path}::adds": Outcome.PASSED,
        f"{path}::breaks": Outcome.FAILED,
        f"{path}::off": Outcome.SKIPPED,
    }, run.output_tail


def test_a_class_that_does_not_compile_is_an_error() -> None:
    error = b"[ERROR] /w/src/test/java/a/XTest.java:[9,21] cannot find symbol\n"
    symbol = b"  symbol:   method fixed()\n"
    run = read(Suite("maven", ""), stdout=error + symbol, exit_code=1)
    assert run.outcomes == {"src/test/java/a/XTest.java": Outcome.ERROR}
    assert "method fixed()" in run.failures["src/test/java/a/XTest.java"]
