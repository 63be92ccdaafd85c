"""`mvn test`, offline, in Maven's standard layout. Surefire's XML files hold the outcomes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from agent.types import Outcome, TestRun
from agent.types.protocols import Snapshot
from agent.verify.reports.junit import Case, read_cases
from agent.verify.reports.report_lines import clean
from agent.verify.reports.run_results import (
    ParsedOutput,
    collected,
    make_tool_run,
    streams,
)
from agent.verify.runners.base import BaseRunner, RunContext, Suite, below, joined
from agent.verify.runners.commands import collecting, tool_command
from agent.verify.runners.programs import FoundProgram, SearchScope, real_path
from sandbox import Command, RunResult

_REPORTS = "*/target/surefire-reports/TEST-*.xml"

_TESTS = "src/test/java"

# A test class that does not compile; the first lines below an error belong to it.
_NOT_BUILT = re.compile(rf"^\[ERROR\] \S*?/(?P<path>{_TESTS}/\S+\.java):\[\d+,\d+\]", re.MULTILINE)

# A test class that one module lacks is in another one.
_NOT_HERE = ("-Dsurefire.failIfNoSpecifiedTests=false", "-DfailIfNoTests=false")


def _find_java(file: Path, scope: SearchScope) -> FoundProgram | None:
    real = real_path(file)
    home = real.parent.parent
    if real.name != "java" or not (home / "lib").is_dir():
        return None
    settings = tuple(_settings_of_java(home))
    return FoundProgram(real, (home, *settings), {"JAVA_HOME": str(home)})


def _settings_of_java(home: Path) -> Iterator[Path]:
    """Yield the folders `/etc/java-*` to which distributions link the configuration."""
    for link in sorted((home / "conf").glob("*")):
        real = real_path(link)
        if real.parts[:2] == ("/", "etc") and len(real.parts) > 3 and "java" in real.parts[2]:
            yield Path(*real.parts[:3])


# Packages in the store record the mirror that they came from. They are used even though the
# settings.xml that names the mirror is missing here. The first option is for Maven 3, the second
# for Maven 3.9 and later.
_ANY_ORIGIN = (
    "-Dmaven.legacyLocalRepo=true -Daether.enhancedLocalRepository.trackingFilename=.no-origin"
)


def _find_maven(file: Path, scope: SearchScope) -> FoundProgram | None:
    """Find Maven with its own configuration, without any `settings.xml`: those hold passwords."""
    real = real_path(file)
    home = real.parent.parent
    if real.name != "mvn" or not (home / "boot").is_dir():
        return None
    own = (home, home / "bin" / "m2.conf", home / "conf" / "logging")
    store = scope.home / ".m2" / "repository"
    options = f"-Dmaven.repo.local={store} {_ANY_ORIGIN}" if store.is_dir() else ""
    shown = tuple(path if path == home else real_path(path) for path in own)
    return FoundProgram(real, (*shown, store), {"MAVEN_OPTS": options} if options else {})


class MavenTest(BaseRunner):
    """`mvn -o -q test`; ids are `path of the class's file::method`."""

    name = "maven"
    languages = ("java", "kotlin")
    finders = {"java": _find_java, "mvn": _find_maven}
    command_words = {"mvn": ("mvn", "java")}

    def detect(self, snapshot: Snapshot) -> Suite | None:
        poms = [path for path in snapshot.files if PurePosixPath(path).name == "pom.xml"]
        if not poms:
            return None
        chosen = min(poms, key=lambda path: (path.count("/"), path))
        folder = str(PurePosixPath(chosen).parent)
        return Suite(self.name, f"the project has {chosen}", cwd=folder)

    def programs(self, suite: Suite) -> tuple[str, ...]:
        return ("mvn", "java")

    def targets(self, suite: Suite, paths: Sequence[str], snapshot: Snapshot) -> tuple[str, ...]:
        """Return class names without packages, which every surefire understands."""
        mine = (path for path in paths if path.endswith(".java") and below(suite.cwd, path))
        return tuple(dict.fromkeys(PurePosixPath(path).stem for path in mine))

    def command(self, suite: Suite, targets: Sequence[str], context: RunContext) -> Command:
        chosen = (f"-Dtest={','.join(targets)}", *_NOT_HERE) if targets else ()
        options = ("-o", "-q", "-B", "--fail-at-end", "-Dstyle.color=never", *chosen)
        argv = (context.tools.toolchain.program("mvn"), *options, "test")
        return tool_command(collecting("files", argv, _REPORTS), suite, context)

    def read(self, suite: Suite, command: Command, result: RunResult) -> TestRun:
        """Read one file for each class. A build that fails before its tests leaves none."""
        found = ParsedOutput()
        files = list(collected(result.report))
        found.complete = bool(files)
        if not files:
            _add_not_built(suite, result, found)
        for name, content in files:
            cases = read_cases(content)
            if cases is None:
                found.complete = False
                found.begun = True
            for case in cases or ():
                found.add(_id(suite, name, case), case.outcome, case.text)
        return make_tool_run(command, result, found)

    def test_id(self, suite: Suite, name: str) -> str:
        """Convert `com.example.FooTest#method` or `com.example.FooTest.method`."""
        separator = "#" if "#" in name else "."
        classname, _, method = name.rpartition(separator)
        case = Case(classname, method, "", Outcome.PASSED)
        return _id(suite, "target/surefire-reports/", case) if classname else name


def _add_not_built(suite: Suite, result: RunResult, found: ParsedOutput) -> None:
    """Add the test classes that a build without reports could not compile."""
    text = clean(streams(result))
    for match in _NOT_BUILT.finditer(text):
        found.add(joined(suite.cwd, match["path"]), Outcome.ERROR, text)
        found.complete = True


def _id(suite: Suite, report: str, case: Case) -> str:
    """Return the id: the class's file is below `src/test/java` of the report's module."""
    module = PurePosixPath(suite.cwd, report.partition("target/surefire-reports/")[0])
    outer = case.classname.partition("$")[0].replace(".", "/")
    inner = case.classname.partition("$")[2]
    name = f"{inner}.{case.name}" if inner else case.name
    path = str(module / _TESTS / f"{outer}.java")
    return f"{path}::{name}" if name else path
