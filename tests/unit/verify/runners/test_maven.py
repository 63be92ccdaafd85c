from __future__ import annotations

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
from tests.support.runners import command_of, read, require_program
from tests.support.sandboxes import require_bwrap

MAVEN = Suite("maven", "")

# As surefire writes it.
REPORT = b"""\x1e./core/target/surefire-reports/TEST-org.example.SumTest.xml
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

PATH = "core/src/test/java/org/example/SumTest.java"


def test_surefires_files_are_read_by_the_path_of_the_class() -> None:
    run = read(MAVEN, report=REPORT, exit_code=1)
    assert (run.ended, run.outcomes) == (
        "exited",
        {
            f"{PATH}::Inner.raises": Outcome.ERROR,
            f"{PATH}::adds": Outcome.PASSED,
            f"{PATH}::breaks": Outcome.FAILED,
            f"{PATH}::off": Outcome.SKIPPED,
        },
    )
    assert run.failures[f"{PATH}::breaks"] == "expected: 3\nat SumTest.java:9"


def test_a_build_that_fails_before_its_tests_has_no_outcome() -> None:
    run = read(MAVEN, stdout=b"[ERROR] COMPILATION ERROR", exit_code=1)
    assert (run.ended, run.outcomes) == ("exited", {})
    assert read(MAVEN, exit_code=0).ended == "incomplete"


def test_a_file_that_is_no_xml_makes_the_run_incomplete() -> None:
    run = read(
        MAVEN, report=REPORT + b"\x1e./x/target/surefire-reports/TEST-y.xml\n<a", exit_code=1
    )
    assert run.ended == "incomplete"


def test_classes_are_the_targets() -> None:
    files = {"pom.xml": "<project/>", PATH: ""}
    runner = registry.runner_of(MAVEN)
    found = runner.targets(MAVEN, [PATH, "a/b/OtherTest.java", PATH, "x.py"], MemorySnapshot(files))
    assert found == ("SumTest", "OtherTest")
    argv = command_of(MAVEN, *found).argv
    assert "-o" in argv
    assert "-Dtest=SumTest,OtherTest" in argv
    assert not any(word.startswith("-Dtest=") for word in command_of(MAVEN).argv)
    name = "src/test/java/org/example/SumTest.java::adds"
    assert runner.test_id(MAVEN, "org.example.SumTest#adds") == name
    assert runner.test_id(MAVEN, "org.example.SumTest.adds") == name


TEST = """package org.example;
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
        "src/test/java/org/example/SumTest.java": TEST,
    }
    snapshot = MemorySnapshot(files)
    snapshot.root = tmp_path / "tree"
    suite = registry.detect(snapshot, None)
    runner = registry.runner_of(suite)
    found = find_programs(runner.programs(suite), snapshot, home=home_with_packages)
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
