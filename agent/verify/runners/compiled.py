"""`go test`, `cargo test` and `mvn test`, offline.

Go writes one JSON object on each line (`go doc cmd/test2json`), and Maven's surefire one XML file
for each class. Cargo says in JSON what it compiles; of Rust's libtest the text is read, because its
JSON needs a nightly compiler.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from agent.repository import is_vendored_path, language_of
from agent.types import Outcome, TestRun
from agent.types.protocols import Snapshot
from agent.verify.reports import (
    LINE_LIMIT,
    TEXT_LIMIT,
    ParsedOutput,
    clean,
    collected,
    json_object,
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
    parsed_toml,
    tool_command,
)
from sandbox import Command, RunResult


def _manifests(snapshot: Snapshot, name: str) -> list[str]:
    paths = (path for path in snapshot.files if PurePosixPath(path).name == name)
    own = [path for path in paths if not is_vendored_path(path)]
    return sorted(own, key=lambda path: (path.count("/"), path))


def _folder(path: str) -> str:
    return str(PurePosixPath(path).parent)


# ------------------------------------------------------------------------------------------ Go

_MODULE = re.compile(r"^\s*module\s+\"?([^\s\"]+)", re.MULTILINE)

# What Go before 1.24 prints between the JSON lines for a package whose tests do not compile.
_GO_NOT_BUILT = re.compile(r"FAIL\t(\S+) \[(?:build|setup) failed\]")

_GO_OUTCOMES = {"pass": Outcome.PASSED, "fail": Outcome.FAILED, "skip": Outcome.SKIPPED}

# In `Suite.settings`: the module's import path.
_MODULE_PATH = "module"


def _detect_go(snapshot: Snapshot, _: Sequence[str] = ()) -> Suite | None:
    manifests = _manifests(snapshot, "go.mod")
    if not manifests or not any(path.endswith("_test.go") for path in snapshot.files):
        return None
    module = _MODULE.search(snapshot.text(manifests[0]))
    settings = {_MODULE_PATH: module[1] if module else ""}
    why = f"{manifests[0]} and Go test files"
    return Suite("go", why, cwd=_folder(manifests[0]), settings=settings)


def _go_packages(suite: Suite, paths: Sequence[str], snapshot: Snapshot) -> tuple[str, ...]:
    """Return packages: the folders of the files, and folders of tests, as ids name them."""
    tested = {_folder(path) for path in snapshot.files if path.endswith("_test.go")}
    go = (_folder(path) for path in paths if language_of(path) == "go")
    named = (path for path in paths if path in tested)
    folders = [f for f in (below(suite.cwd, path) for path in (*go, *named)) if f]
    return tuple(dict.fromkeys("." if f == "." else f"./{f}" for f in folders))


def _run_go(
    suite: Suite,
    targets: Sequence[str],
    context: RunContext,
    options: tuple[str, ...] = ("-json", "-count=1"),
) -> Command:
    """Go compiles what it finds in no cache, since Go 1.20 the standard library too."""
    argv = (context.tools.toolchain.program("go"), "test", *options, *(targets or ("./...",)))
    offline = {"GOPROXY": "off", "GOSUMDB": "off", "GOTOOLCHAIN": "local"}
    environment = {"GOCACHE": str(context.root / BUILD_CACHE), **offline}
    return tool_command(collecting("stdout", argv), suite, context, environment=environment)


def _read_go(suite: Suite, command: Command, result: RunResult) -> TestRun:
    parsed = ParsedOutput()
    loose: list[str] = []  # output of no single test
    texts: dict[str, list[str]] = {}
    ends: dict[str, str] = {}  # how each package ended, "" while it runs
    for raw in result.report.splitlines():
        event = json_object(raw)
        if event is None:  # output of the build
            line = raw.decode("utf-8", "replace")
            loose.append(f"{line}\n")
            if not_built := _GO_NOT_BUILT.match(line):
                ends[_go_folder(suite, not_built[1])] = "fail"
            continue
        action, package, test, text = (
            text_of(event.get(key)) for key in ("Action", "Package", "Test", "Output")
        )
        if not package:  # build-output, build-fail (since Go 1.24)
            loose.append(text)
            continue
        folder = _go_folder(suite, package)
        ends.setdefault(folder, "")
        name = f"{folder}::{test}" if test else folder
        if action == "output":
            texts.setdefault(name, []).append(text[:TEXT_LIMIT])
            loose += [] if test else [text]
        elif action == "run" and test:
            parsed.start(name)
        elif action in _GO_OUTCOMES and test:
            parsed.add(name, _GO_OUTCOMES[action], "".join(texts.get(name, ())))
        elif action in _GO_OUTCOMES:
            ends[folder] = action
    build = result.stderr.decode("utf-8", "replace")
    failed = {t.partition("::")[0] for t, o in parsed.outcomes.items() if o is Outcome.FAILED}
    for folder in (folder for folder, end in ends.items() if end == "fail"):
        if folder not in failed:  # it did not build, or ended outside a test
            text = "".join((build, *loose[-200:], *texts.get(folder, ())))
            parsed.add(folder, Outcome.ERROR, text)
    parsed.begun |= any(ends.values())
    parsed.complete = all(ends.values())
    output = "\n".join(filter(None, (streams(result), "".join(loose))))
    return make_tool_run(command, result, parsed, output)


def _go_folder(suite: Suite, package: str) -> str:
    """Return a package's folder in the tree; its name where it is outside the module."""
    module = suite.settings.get(_MODULE_PATH, "")
    package = package.partition(" ")[0]  # "pkg [pkg.test]"
    if module and (package == module or package.startswith(f"{module}/")):
        return joined(suite.cwd, package[len(module) :].strip("/") or ".")
    return package


GO = Runner(
    name="go",  # ids are `folder::TestName/subtest`
    languages=("go", "go-mod"),
    detect=_detect_go,
    needs=("go",),
    targets=_go_packages,
    command=_run_go,
    building=lambda suite, context: _run_go(suite, (), context, ("-exec=true", "-run=^$")),
    read=_read_go,
)


# --------------------------------------------------------------------------------------- Cargo

# `     Running unittests src/lib.rs (target/debug/deps/name-0123456789abcdef)`, `   Doc-tests name`
_RUNNING = re.compile(
    r"^ +(?:Running (?:unittests )?(?P<path>\S+) \((?:\S*/)?(?P<program>[\w-]+-[0-9a-f]{16})\)"
    r"|Doc-tests (?P<doc>[\w-]+))",
    re.MULTILINE,
)
_COUNT = re.compile(r"^running \d+ tests?$", re.MULTILINE)
_TEST = re.compile(
    r"^test (.+?)(?: - should panic)? \.\.\. (ok|FAILED|ignored)(?:, .*)?$", re.MULTILINE
)
_FAILURE = re.compile(
    r"^---- (.+?) stdout ----$\n(.*?)(?=^---- .+ stdout ----$|^failures:$|\Z)",
    re.MULTILINE | re.DOTALL,
)
_SUMMARY = re.compile(
    r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", re.MULTILINE
)
_ROOT = "PATCHSHOT_ROOT"
_CARGO_OUTCOMES = {"ok": Outcome.PASSED, "FAILED": Outcome.FAILED, "ignored": Outcome.SKIPPED}

# In `Suite.settings`: `package:<folder>` is its name.
_PACKAGE = "package:"


def _detect_cargo(snapshot: Snapshot, _: Sequence[str] = ()) -> Suite | None:
    manifests = _manifests(snapshot, "Cargo.toml")
    if not manifests:
        return None
    root = _folder(manifests[0])
    settings: dict[str, str] = {}
    for path in manifests:
        folder = below(root, _folder(path))
        package = parsed_toml(snapshot.text(path)).get("package")
        name = text_of(package.get("name")) if isinstance(package, dict) else ""
        if folder is not None and name:
            settings[_PACKAGE + folder] = name
    return Suite("cargo", f"the project has {manifests[0]}", cwd=root, settings=settings)


def _packages(suite: Suite) -> dict[str, str]:
    settings = suite.settings.items()
    return {key[len(_PACKAGE) :]: name for key, name in settings if key.startswith(_PACKAGE)}


def _cargo_targets(suite: Suite, paths: Sequence[str], snapshot: Snapshot) -> tuple[str, ...]:
    """Return the options for packages and targets: `--package=a`, `--test=b`, `--lib`."""
    names, packages, kinds = _packages(suite), dict[str, None](), dict[str, None]()
    for path in (below(suite.cwd, p) for p in paths if p.endswith(".rs")):
        holding = [folder for folder in names if path and below(folder, path) is not None]
        if path is None or not holding:
            continue
        folder = max(holding, key=lambda f: (f != ".", len(f)))
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
    form = ("--no-fail-fast", "--color=never", "--message-format=json")
    options = ("--offline", *form, *(targets or every))
    environment = {"CARGO_NET_OFFLINE": "true", "RUST_BACKTRACE": "0", _ROOT: str(context.root)}
    argv = collecting("merged", (program, "test", *options))
    return tool_command(argv, suite, context, environment=environment)


def _read_cargo(suite: Suite, command: Command, result: RunResult) -> TestRun:
    parsed, lines, sources = ParsedOutput(complete=True), list[str](), dict[str, str]()
    broken: list[str] = []  # files that are a test program and do not compile
    for line in clean(result.stdout.decode("utf-8", "replace")).splitlines():
        note = (json_object(line) or {}) if line.startswith('{"reason":') else {}
        target, message = note.get("target"), note.get("message")
        if not isinstance(target, dict):  # no line of a compiler
            lines.append(line)
            continue
        path = _in_tree(text_of(target.get("src_path")), command)
        # Programs run when all are compiled, so what they print replaces nothing here.
        sources.setdefault(PurePosixPath(text_of(note.get("executable"))).name, path)
        if isinstance(message, dict):
            lines += text_of(message.get("rendered")).splitlines()
            is_broken = message.get("level") == "error" and target.get("kind") == ["test"]
            broken += [path] * is_broken
    text = "\n".join(line[:LINE_LIMIT] for line in lines)
    programs = list(_RUNNING.finditer(text))
    ends = [*(program.start() for program in programs), len(text)]
    for path in broken:
        parsed.add(path, Outcome.ERROR, text[: ends[0]])
    for program, end in zip(programs, ends[1:], strict=True):
        file = joined(suite.cwd, program["path"] or ".")
        source = sources.get(program["program"] or "", file)
        for output in _COUNT.split(text[program.end() : end])[1:]:
            _read_program(parsed, f"doc {program['doc']}" if program["doc"] else source, output)
    return make_tool_run(command, result, parsed, text)


def _in_tree(path: str, command: Command) -> str:
    pure, root = PurePosixPath(path), command.environment.get(_ROOT, "/")
    return str(pure.relative_to(root)) if pure.is_relative_to(root) else path


def _read_program(parsed: ParsedOutput, target: str, output: str) -> None:
    """Read what a program prints after `running n tests`. Its summary has to match its tests."""
    parsed.begun = True
    failures = dict(_FAILURE.findall(output))
    tests = _TEST.findall(output.partition("\nfailures:\n")[0])
    words = [word for _, word in tests]
    counts = tuple(str(words.count(word)) for word in _CARGO_OUTCOMES)
    parsed.complete &= _SUMMARY.findall(output) == [counts]
    for name, word in tests:
        text = failures.get(name, "")
        parsed.add(f"{target}::{name}", _CARGO_OUTCOMES[word], text)


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


def _detect_maven(snapshot: Snapshot, _: Sequence[str] = ()) -> Suite | None:
    manifests = _manifests(snapshot, "pom.xml")
    if not manifests:
        return None
    return Suite("maven", f"the project has {manifests[0]}", cwd=_folder(manifests[0]))


def _java_classes(suite: Suite, paths: Sequence[str], snapshot: Snapshot) -> tuple[str, ...]:
    mine = (path for path in paths if path.endswith(".java") and below(suite.cwd, path))
    return tuple(dict.fromkeys(PurePosixPath(path).stem for path in mine))


def _run_maven(suite: Suite, targets: Sequence[str], context: RunContext) -> Command:
    chosen = (f"-Dtest={','.join(targets)}", *_NOT_HERE) if targets else ()
    options = ("-o", "-q", "-B", "--fail-at-end", "-Dstyle.color=never", *chosen)
    argv = (context.tools.toolchain.program("mvn"), *options, "test")
    return tool_command(collecting("files", argv, f"*/{_SUREFIRE}TEST-*.xml"), suite, context)


def _read_maven(suite: Suite, command: Command, result: RunResult) -> TestRun:
    files = list(collected(result.report))
    text = clean(streams(result))
    parsed = ParsedOutput(begun=bool(files), complete=True)
    for error in () if files else _MAVEN_NOT_BUILT.finditer(text):
        parsed.add(joined(suite.cwd, error["path"]), Outcome.ERROR, text)
    for name, content in files:
        cases = read_cases(content)
        parsed.complete &= cases is not None
        for classname, test, outcome, message in cases or ():
            parsed.add(_java_id(suite, name, classname, test), outcome, message)
    return make_tool_run(command, result, parsed)


def _java_id(suite: Suite, report: str, classname: str, test: str) -> str:
    """Return the id: the class's file is below `src/test/java` of the report's module."""
    module = PurePosixPath(suite.cwd, report.partition(_SUREFIRE)[0])
    outer, _, inner = classname.partition("$")
    name = f"{inner}.{test}" if inner else test
    path = str(module / _JAVA_TESTS / f"{outer.replace('.', '/')}.java")
    return f"{path}::{name}" if name else path


MAVEN = Runner(
    name="maven",  # ids are `path of the class's file::method`
    languages=("java", "kotlin"),
    detect=_detect_maven,
    needs=("mvn", "java"),
    targets=_java_classes,
    command=_run_maven,
    read=_read_maven,
)
