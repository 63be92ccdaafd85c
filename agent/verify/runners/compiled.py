"""`go test`, `cargo test` and `mvn test`, offline.

Go writes one JSON object on each line (`go doc cmd/test2json`), and Maven's surefire one XML file
for each class. Of Rust's libtest the text is read, because its JSON needs a nightly compiler.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from agent.repository import is_vendored_path, language_of
from agent.types import Outcome, TestRun
from agent.types.protocols import Snapshot
from agent.verify.report_lines import clean
from agent.verify.reports import (
    LINE_LIMIT,
    TEXT_LIMIT,
    Case,
    ParsedOutput,
    collected,
    make_tool_run,
    read_cases,
    streams,
    text_of,
)
from agent.verify.runners.base import (
    BUILD_CACHE,
    RunContext,
    Runner,
    Suite,
    below,
    collecting,
    joined,
    nearest,
    tool_command,
)
from agent.verify.runners.programs import parsed_toml
from sandbox import Command, RunResult


def _manifests(snapshot: Snapshot, name: str) -> list[str]:
    paths = (path for path in snapshot.files if PurePosixPath(path).name == name)
    return [path for path in paths if not is_vendored_path(path)]


# ------------------------------------------------------------------------------------------ Go

_MODULE = re.compile(r"^\s*module\s+\"?([^\s\"]+)", re.MULTILINE)

# What Go before 1.24 prints between the JSON lines for a package whose tests do not compile.
_GO_NOT_BUILT = re.compile(r"FAIL\t(\S+) \[(?:build|setup) failed\]")

_GO_OUTCOMES = {"pass": Outcome.PASSED, "fail": Outcome.FAILED, "skip": Outcome.SKIPPED}

# In `Suite.settings`: the module's import path.
_MODULE_PATH = "module"


def _detect_go(snapshot: Snapshot) -> Suite | None:
    """Look for a module with test files; of several the one nearest to the root is taken."""
    chosen = nearest(_manifests(snapshot, "go.mod"))
    if chosen is None or not any(path.endswith("_test.go") for path in snapshot.files):
        return None
    module = _MODULE.search(snapshot.text(chosen))
    settings = {_MODULE_PATH: module[1] if module else ""}
    folder = str(PurePosixPath(chosen).parent)
    return Suite("go", f"{chosen} and Go test files", cwd=folder, settings=settings)


def _go_packages(suite: Suite, paths: Sequence[str], snapshot: Snapshot) -> tuple[str, ...]:
    """Return packages: the folders of the files, and folders of tests, as ids name them."""
    tested = {str(PurePosixPath(p).parent) for p in snapshot.files if p.endswith("_test.go")}
    go = (str(PurePosixPath(path).parent) for path in paths if language_of(path) == "go")
    named = (path for path in paths if path in tested)
    folders = [f for f in (below(suite.cwd, path) for path in (*go, *named)) if f]
    return tuple(dict.fromkeys("." if f == "." else f"./{f}" for f in folders))


def _run_go(suite: Suite, targets: Sequence[str], context: RunContext) -> Command:
    return _go(("test", "-json", "-count=1", *(targets or ("./...",))), suite, context)


def _build_go(suite: Suite, context: RunContext) -> Command:
    return _go(("test", "-exec=true", "-run=^$", "./..."), suite, context)


def _go(argv: Sequence[str], suite: Suite, context: RunContext) -> Command:
    """Go compiles what it finds in no cache, since Go 1.20 the standard library too."""
    go = context.tools.toolchain.program("go")
    cache = {"GOCACHE": str(context.root / BUILD_CACHE)}
    return tool_command(collecting("stdout", (go, *argv)), suite, context, environment=cache)


def _read_go(suite: Suite, command: Command, result: RunResult) -> TestRun:
    events = _GoEvents(suite, result.stderr.decode("utf-8", "replace"))
    for raw in result.report.splitlines():
        events.take(raw)
    events.parsed.complete = not events.open
    output = "\n".join(filter(None, (streams(result), "".join(events.loose))))
    return make_tool_run(command, result, events.parsed, output)


@dataclass(slots=True)
class _GoEvents:
    """Collects the events of one run. `build` is what compilers print before Go 1.24.

    `open` are packages that have begun and not ended; `loose` is output of no single test.
    """

    suite: Suite
    build: str
    parsed: ParsedOutput = field(default_factory=ParsedOutput)
    open: dict[str, None] = field(default_factory=dict)
    loose: list[str] = field(default_factory=list)
    _texts: dict[str, list[str]] = field(default_factory=dict)

    def take(self, raw: bytes) -> None:
        """Read one line. A line that is not JSON is output of the build."""
        try:
            event = json.loads(raw)
        except (ValueError, RecursionError):
            event = None
        if not isinstance(event, dict):
            text = raw.decode("utf-8", "replace")
            self.loose.append(text + "\n")
            not_built = _GO_NOT_BUILT.match(text)
            if not_built:
                self._end_package(_go_folder(self.suite, not_built[1]), "fail")
            return
        action, package, test, text = (
            text_of(event.get(key)) for key in ("Action", "Package", "Test", "Output")
        )
        if not package:  # build-output, build-fail (since Go 1.24)
            self.loose.append(text)
            return
        folder = _go_folder(self.suite, package)
        self.open[folder] = None
        name = f"{folder}::{test}" if test else folder
        if action == "output":
            self._texts.setdefault(name, []).append(text[:TEXT_LIMIT])
            self.loose += [] if test else [text]
        elif action == "run" and test:
            self.parsed.start(name)
        elif action in _GO_OUTCOMES and test:
            self.parsed.add(name, _GO_OUTCOMES[action], "".join(self._texts.get(name, ())))
        elif action in _GO_OUTCOMES:
            self._end_package(folder, action)

    def _end_package(self, folder: str, action: str) -> None:
        self.open.pop(folder, None)
        self.parsed.begun = True
        inside = [o for t, o in self.parsed.outcomes.items() if t.startswith(f"{folder}::")]
        if action == "fail" and Outcome.FAILED not in inside:
            # It did not build, or ended outside a test.
            text = "".join((self.build, *self.loose[-200:], *self._texts.get(folder, ())))
            self.parsed.add(folder, Outcome.ERROR, text)


def _go_folder(suite: Suite, package: str) -> str:
    """Return a package's folder in the tree; its name where it is outside the module."""
    module = suite.settings.get(_MODULE_PATH, "")
    package = package.partition(" ")[0]  # "pkg [pkg.test]"
    if module and (package == module or package.startswith(f"{module}/")):
        return joined(suite.cwd, package[len(module) :].strip("/") or ".")
    return package


def _go_id(suite: Suite, name: str) -> str:
    """Convert `example.com/mod/pkg.TestX` or `example.com/mod/pkg::TestX`."""
    package, separator, test = name.partition("::")
    if not separator:
        package, separator, test = name.rpartition(".Test")
        test = f"Test{test}"
    return f"{_go_folder(suite, package)}::{test}" if separator else name


GO = Runner(
    name="go",  # ids are `folder::TestName/subtest`
    languages=("go", "go-mod"),
    detect=_detect_go,
    needs=("go",),
    targets=_go_packages,
    command=_run_go,
    building=_build_go,
    read=_read_go,
    test_id=_go_id,
)


# --------------------------------------------------------------------------------------- Cargo

# `     Running unittests src/lib.rs (target/debug/deps/name-0123456789abcdef)`, `   Doc-tests name`
_RUNNING = re.compile(
    r"\s+Running (?:unittests )?(?P<path>\S+) \((?:\S*/)?(?P<crate>[\w-]+)-[0-9a-f]{16}\)"
    r"|\s+Doc-tests (?P<doc>[\w-]+)"
)
_TEST = re.compile(
    r"test (?P<name>.+?)(?: - should panic)? \.\.\. (?P<word>ok|FAILED|ignored)(?:, .*)?$"
)
_FAILURE = re.compile(r"---- (?P<name>.+?) stdout ----$")
_SUMMARY = re.compile(r"test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored")
_COUNT = re.compile(r"running \d+ tests?$")
# The end of a build whose test program `tests/x.rs` does not compile.
_CARGO_NOT_BUILT = re.compile(r"error: could not compile `[^`]+` \(test \"(?P<name>[\w-]+)\"\)")
_CARGO_OUTCOMES = {"ok": Outcome.PASSED, "FAILED": Outcome.FAILED, "ignored": Outcome.SKIPPED}

# The files that Cargo makes a test target of by their location (The Cargo Book, "Package Layout").
_ROOT_FILE = re.compile(
    r"(?:(?P<folder>.+)/)?"
    r"(?P<file>(?:src|tests)/(?:[^/]+\.rs|[^/]+/main\.rs|bin/[^/]+\.rs|bin/[^/]+/main\.rs))"
)

# In `Suite.settings`: `package:<folder>` is its name, and `file:<path in its package>` its folder.
_PACKAGE, _FILE = "package:", "file:"
_SEVERAL = "several"


def _detect_cargo(snapshot: Snapshot) -> Suite | None:
    manifests = _manifests(snapshot, "Cargo.toml")
    chosen = nearest(manifests)
    if chosen is None:
        return None
    root = str(PurePosixPath(chosen).parent)
    names: dict[str, str] = {}
    for path in manifests:
        folder = below(root, str(PurePosixPath(path).parent))
        package = parsed_toml(snapshot.text(path)).get("package")
        name = text_of(package.get("name")) if isinstance(package, dict) else ""
        if folder is not None and name:
            names[folder] = name
    owners: dict[str, str] = {}
    for path in snapshot.files:
        inner = below(root, path) if path.endswith(".rs") else None
        target = _ROOT_FILE.fullmatch(inner) if inner else None
        owner = (target["folder"] or ".") if target else ""
        if target and owner in names:
            owners[target["file"]] = _SEVERAL if target["file"] in owners else owner
    settings = {_PACKAGE + folder: name for folder, name in names.items()}
    settings |= {_FILE + file: owner for file, owner in sorted(owners.items())}
    return Suite("cargo", f"the project has {chosen}", cwd=root, settings=settings)


def _packages(suite: Suite) -> dict[str, str]:
    """Return the names of the packages by folder."""
    settings = suite.settings.items()
    return {key[len(_PACKAGE) :]: name for key, name in settings if key.startswith(_PACKAGE)}


def _cargo_targets(suite: Suite, paths: Sequence[str], snapshot: Snapshot) -> tuple[str, ...]:
    """Return the options for packages and targets: `--package=a`, `--test=b`, `--lib`."""
    names, packages = _packages(suite), dict[str, None]()
    kinds = dict[str, None]()
    for path in (below(suite.cwd, p) for p in paths if p.endswith(".rs")):
        holding = [folder for folder in names if path and below(folder, path) is not None]
        folder = max(holding, key=lambda f: (f != ".", len(f)), default=None)
        if path is None or folder is None:
            continue
        library = joined(suite.cwd, joined(folder, "src/lib.rs"))
        kind = _kind(below(folder, path) or "", snapshot.exists(library))
        if kind:
            packages[f"--package={names[folder]}"] = None
            kinds[kind] = None
    return (*packages, *kinds)


def _kind(inner: str, has_library: bool) -> str:
    parts = PurePosixPath(inner).parts
    if parts[:1] == ("tests",):
        return f"--test={PurePosixPath(parts[1]).stem}" if len(parts) > 1 else ""
    if parts[:1] != ("src",):
        return ""
    binary = parts[1:2] in (("bin",), ("main.rs",)) or not has_library
    return "--bins" if binary else "--lib"


def _run_cargo(suite: Suite, targets: Sequence[str], context: RunContext) -> Command:
    # One stream: only the order of its lines tells which file a test belongs to.
    program = context.tools.toolchain.program("cargo")
    every = () if targets or f"{_PACKAGE}." in suite.settings else ("--workspace",)
    options = ("--offline", "--no-fail-fast", "--color=never", *(targets or every))
    environment = {"CARGO_NET_OFFLINE": "true", "RUST_BACKTRACE": "0"}
    argv = collecting("merged", (program, "test", *options))
    return tool_command(argv, suite, context, environment=environment)


def _read_cargo(suite: Suite, command: Command, result: RunResult) -> TestRun:
    output = _CargoOutput(suite)
    for line in clean(result.stdout.decode("utf-8", "replace")).splitlines():
        output.take(line[:LINE_LIMIT])
    return make_tool_run(command, result, output.result())


@dataclass(slots=True)
class _CargoOutput:
    """Reads the merged streams line by line. `_pending` test programs have not summed up."""

    suite: Suite
    parsed: ParsedOutput = field(default_factory=ParsedOutput)
    _target: str = ""
    _pending: int = 0
    _counts: dict[str, int] = field(default_factory=dict)
    _failure: str | None = None
    _lines: list[str] = field(default_factory=list)  # before the first test program
    _texts: dict[str, list[str]] = field(default_factory=dict)
    _wrong: bool = False

    def take(self, line: str) -> None:
        """Read one line."""
        if not self.parsed.begun:
            self._build(line)
        running, test = _RUNNING.match(line), _TEST.match(line)
        summary, failure = _SUMMARY.match(line), _FAILURE.match(line)
        if running:
            self._target = _cargo_target(self.suite, running)
        elif _COUNT.match(line):
            self._pending += 1
            self.parsed.begun = True
            self._counts = dict.fromkeys(_CARGO_OUTCOMES, 0)
        elif failure:
            self._failure = f"{self._target}::{failure['name']}"
        elif summary:
            self._pending -= 1
            self._failure = None
            counts = [self._counts.get(word, 0) for word in _CARGO_OUTCOMES]
            self._wrong |= self._pending < 0 or [int(n) for n in summary.groups()] != counts
        elif self._failure is not None and line != "failures:":
            self._texts.setdefault(self._failure, []).append(line)
        else:
            self._failure = None
            if test and self._pending > 0:
                self._counts[test["word"]] += 1
                name = f"{self._target}::{test['name']}"
                self.parsed.add(name, _CARGO_OUTCOMES[test["word"]])

    def _build(self, line: str) -> None:
        self._lines.append(line)
        failed = _CARGO_NOT_BUILT.match(line)
        if failed:
            file = f"tests/{failed['name']}.rs"
            folder = self.suite.settings.get(_FILE + file, _SEVERAL)
            path = file if folder == _SEVERAL else joined(folder, file)
            self.parsed.add(joined(self.suite.cwd, path), Outcome.ERROR, "\n".join(self._lines))

    def result(self) -> ParsedOutput:
        """Return the outcomes; they are complete when every program's summary matches them."""
        self.parsed.complete = self._pending == 0 and not self._wrong
        for test, lines in self._texts.items():
            if self.parsed.outcomes.get(test) is Outcome.FAILED:
                self.parsed.add(test, Outcome.FAILED, "\n".join(lines))
        return self.parsed


def _cargo_target(suite: Suite, running: re.Match[str]) -> str:
    """Return the root file of a test program as a path of the tree, where one package has it."""
    if running["doc"]:
        return f"doc {running['doc']}"
    path = running["path"]
    folder = suite.settings.get(_FILE + path, _SEVERAL)
    if folder == _SEVERAL:
        names = _packages(suite)
        owners = [
            owner
            for owner, name in names.items()
            if name.replace("-", "_") == running["crate"] or len(names) == 1
        ]
        if len(owners) != 1:
            return f"{running['crate']} {path}"
        folder = owners[0]
    return joined(suite.cwd, joined(folder, path))


CARGO = Runner(
    name="cargo",  # ids are `path of the target's root file::module::test`
    languages=("rust",),
    detect=_detect_cargo,
    needs=("cargo",),
    targets=_cargo_targets,
    command=_run_cargo,
    read=_read_cargo,
)


# --------------------------------------------------------------------------------------- Maven

_SUREFIRE = "target/surefire-reports/"
_JAVA_TESTS = "src/test/java"

# A test class that does not compile; the first lines below an error belong to it.
_MAVEN_NOT_BUILT = re.compile(
    rf"^\[ERROR\] \S*?/(?P<path>{_JAVA_TESTS}/\S+\.java):\[\d+,\d+\]", re.MULTILINE
)

# A test class that one module lacks is in another one.
_NOT_HERE = ("-Dsurefire.failIfNoSpecifiedTests=false", "-DfailIfNoTests=false")


def _detect_maven(snapshot: Snapshot) -> Suite | None:
    chosen = nearest([path for path in snapshot.files if PurePosixPath(path).name == "pom.xml"])
    if chosen is None:
        return None
    return Suite("maven", f"the project has {chosen}", cwd=str(PurePosixPath(chosen).parent))


def _java_classes(suite: Suite, paths: Sequence[str], snapshot: Snapshot) -> tuple[str, ...]:
    """Return class names without packages, which every surefire understands."""
    mine = (path for path in paths if path.endswith(".java") and below(suite.cwd, path))
    return tuple(dict.fromkeys(PurePosixPath(path).stem for path in mine))


def _run_maven(suite: Suite, targets: Sequence[str], context: RunContext) -> Command:
    chosen = (f"-Dtest={','.join(targets)}", *_NOT_HERE) if targets else ()
    options = ("-o", "-q", "-B", "--fail-at-end", "-Dstyle.color=never", *chosen)
    argv = (context.tools.toolchain.program("mvn"), *options, "test")
    return tool_command(collecting("files", argv, f"*/{_SUREFIRE}TEST-*.xml"), suite, context)


def _read_maven(suite: Suite, command: Command, result: RunResult) -> TestRun:
    """Read one file for each class. A build that fails before its tests leaves none."""
    parsed = ParsedOutput()
    files = list(collected(result.report))
    parsed.complete = bool(files)
    text = clean(streams(result))
    for error in () if files else _MAVEN_NOT_BUILT.finditer(text):
        parsed.add(joined(suite.cwd, error["path"]), Outcome.ERROR, text)
        parsed.complete = True
    for name, content in files:
        cases = read_cases(content)
        if cases is None:
            parsed.complete = False
            parsed.begun = True
        for case in cases or ():
            parsed.add(_java_id(suite, name, case), case.outcome, case.text)
    return make_tool_run(command, result, parsed)


def _java_id(suite: Suite, report: str, case: Case) -> str:
    """Return the id: the class's file is below `src/test/java` of the report's module."""
    module = PurePosixPath(suite.cwd, report.partition(_SUREFIRE)[0])
    outer, _, inner = case.classname.partition("$")
    name = f"{inner}.{case.name}" if inner else case.name
    path = str(module / _JAVA_TESTS / f"{outer.replace('.', '/')}.java")
    return f"{path}::{name}" if name else path


def _maven_id(suite: Suite, name: str) -> str:
    """Convert `com.example.FooTest#method` or `com.example.FooTest.method`."""
    classname, _, method = name.rpartition("#" if "#" in name else ".")
    case = Case(classname, method, Outcome.PASSED)
    return _java_id(suite, _SUREFIRE, case) if classname else name


MAVEN = Runner(
    name="maven",  # ids are `path of the class's file::method`
    languages=("java", "kotlin"),
    detect=_detect_maven,
    needs=("mvn", "java"),
    targets=_java_classes,
    command=_run_maven,
    read=_read_maven,
    test_id=_maven_id,
)
