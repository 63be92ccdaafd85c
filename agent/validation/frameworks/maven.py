"""`mvn test`, offline, on Maven's own layout; surefire's XML files hold the outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from agent.protocols import Snapshot
from agent.types import Outcome, TestRun
from agent.validation.frameworks.base import Common, Suite
from agent.validation.frameworks.commands import below, collecting, tool_command
from agent.validation.frameworks.interpreter import Tools
from agent.validation.frameworks.results import Found, collected, to_run
from agent.validation.frameworks.runners import Place
from agent.validation.reports.junit_cases import Case, read_cases
from sandbox.types import Command, Limits, RunResult

_REPORTS = "*/target/surefire-reports/TEST-*.xml"

_TESTS = "src/test/java"

# The test class was not found in this module: another one has it.
_NOT_HERE = ("-Dsurefire.failIfNoSpecifiedTests=false", "-DfailIfNoTests=false")


@dataclass(frozen=True, slots=True)
class MavenTest(Common):
    """`mvn -o -q test`; ids are `path of the class's file::method`."""

    name: str = "maven"

    def detect(self, snapshot: Snapshot) -> Suite | None:
        """The pom.xml nearest to the root."""
        poms = [path for path in snapshot.files if PurePosixPath(path).name == "pom.xml"]
        if not poms:
            return None
        chosen = min(poms, key=lambda path: (path.count("/"), path))
        folder = str(PurePosixPath(chosen).parent)
        return Suite(self.name, f"the project has {chosen}", cwd=folder)

    def programs(self, suite: Suite) -> tuple[str, ...]:
        """Maven, and the Java that runs it."""
        return ("mvn", "java")

    def targets(self, suite: Suite, paths: Sequence[str], snapshot: Snapshot) -> tuple[str, ...]:
        """Names of classes, without their packages: every surefire understands those."""
        mine = (path for path in paths if path.endswith(".java") and below(suite.cwd, path))
        return tuple(dict.fromkeys(PurePosixPath(path).stem for path in mine))

    def command(
        self, suite: Suite, targets: Sequence[str], tools: Tools, place: Place, limits: Limits
    ) -> Command:
        """All modules, also after one that fails."""
        chosen = (f"-Dtest={','.join(targets)}", *_NOT_HERE) if targets else ()
        options = ("-o", "-q", "-B", "--fail-at-end", "-Dstyle.color=never", *chosen)
        argv = (tools.toolchain.program("mvn"), *options, "test")
        return tool_command(collecting("files", argv, _REPORTS), suite, tools.toolchain, limits)

    def read(self, suite: Suite, command: Command, result: RunResult) -> TestRun:
        """One file a class. A build that fails before its tests leaves none."""
        found = Found()
        files = list(collected(result.report))
        found.complete = bool(files)
        for name, content in files:
            cases = read_cases(content)
            if cases is None:
                found.complete = False
                found.begun = True
            for case in cases or ():
                found.add(_id(suite, name, case), case.outcome, case.text)
        return to_run(command, result, found)

    def test_id(self, suite: Suite, name: str) -> str:
        """`com.example.FooTest#method` and `com.example.FooTest.method`, in the root module."""
        separator = "#" if "#" in name else "."
        classname, _, method = name.rpartition(separator)
        case = Case(classname, method, "", Outcome.PASSED)
        return _id(suite, "target/surefire-reports/", case) if classname else name


def _id(suite: Suite, report: str, case: Case) -> str:
    """The class's file is where Maven wants it: below `src/test/java` of the report's module."""
    module = PurePosixPath(suite.cwd, report.partition("target/surefire-reports/")[0])
    outer = case.classname.partition("$")[0].replace(".", "/")
    inner = case.classname.partition("$")[2]
    name = f"{inner}.{case.name}" if inner else case.name
    path = str(module / _TESTS / f"{outer}.java")
    return f"{path}::{name}" if name else path
