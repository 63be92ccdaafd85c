"""`cargo test`, offline. libtest's text is read, because its JSON needs a nightly compiler."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from agent.repository import is_vendored_path
from agent.types import Outcome, TestRun
from agent.types.protocols import Snapshot
from agent.verify.reports.report_lines import clean
from agent.verify.reports.run_results import LINE_LIMIT, ParsedOutput, make_tool_run
from agent.verify.runners.base import BaseRunner, RunContext, Suite, below, joined
from agent.verify.runners.commands import collecting, tool_command
from agent.verify.runners.programs import FoundProgram, SearchScope, real_path
from sandbox import Command, RunResult

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
_NOT_BUILT = re.compile(r"error: could not compile `[^`]+` \(test \"(?P<name>[\w-]+)\"\)")
_OUTCOMES = {"ok": Outcome.PASSED, "FAILED": Outcome.FAILED, "ignored": Outcome.SKIPPED}

# In `Suite.settings`: `package:<folder>` and `file:<path in its package>`.
_PACKAGE, _FILE = "package:", "file:"
_SEVERAL = "several"


_CHANNEL = re.compile(r"[\w.+-]+")

# A file of rustup's settings has some hundred bytes.
_MOST_BYTES = 64 * 1024


def _find_cargo(file: Path, scope: SearchScope) -> FoundProgram | None:
    """Find cargo with its toolchain. A rustup proxy leads to the one that rustup would use."""
    real = real_path(file)
    store = scope.home / ".cargo"
    program: Path | None = real
    if real.name == "rustup":
        store = file.parent.parent
        program = _behind_rustup(store, scope.snapshot)
    if program is None or program.name != "cargo":
        return None
    prefix = program.parent.parent
    shown = (prefix,) if (prefix / "lib" / "rustlib").is_dir() else (program,)
    packages = tuple(store / name for name in ("registry", "git") if (store / name).is_dir())
    environment = {"CARGO_NET_OFFLINE": "true", "CARGO_TERM_COLOR": "never"}
    if packages:
        environment["CARGO_HOME"] = str(store)
    return FoundProgram(program, (*shown, *packages), environment)


def _behind_rustup(store: Path, snapshot: Snapshot) -> Path | None:
    """Find the cargo of the pinned or default toolchain: `.rustup` lies beside `.cargo`."""
    rustup = store.parent / store.name.replace("cargo", "rustup")
    default = _parsed_file(rustup / "settings.toml").get("default_toolchain")
    for wanted in (*_pinned_toolchain(snapshot), default):
        if not isinstance(wanted, str) or not _CHANNEL.fullmatch(wanted) or wanted[0] == ".":
            continue
        for folder in sorted((rustup / "toolchains").glob(f"{wanted}*")):
            exact = folder.name == wanted or folder.name.startswith(f"{wanted}-")
            if exact and os.access(folder / "bin" / "cargo", os.X_OK):
                return folder / "bin" / "cargo"
    return None


def _pinned_toolchain(snapshot: Snapshot) -> Iterator[object]:
    """Yield the channel that the repository pins: the file has two names and two formats."""
    for name in ("rust-toolchain.toml", "rust-toolchain"):
        if name not in snapshot.files:
            continue
        text = snapshot.text(name)[:_MOST_BYTES]
        if "[" not in text:
            yield text.strip()
            continue
        table = _parsed_toml(text).get("toolchain")
        yield table.get("channel") if isinstance(table, dict) else None


def _parsed_file(file: Path) -> Mapping[str, object]:
    try:
        with file.open(encoding="utf-8", errors="replace") as stream:
            return _parsed_toml(stream.read(_MOST_BYTES))
    except OSError:
        return {}


def _parsed_toml(text: str) -> Mapping[str, object]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return {}


class CargoTest(BaseRunner):
    """`cargo test`; ids are `path of the target's root file::module::test`."""

    name = "cargo"
    languages = ("rust",)
    finders = {"cargo": _find_cargo}
    command_words = {"cargo": ("cargo",)}

    def detect(self, snapshot: Snapshot) -> Suite | None:
        manifests = [
            path
            for path in snapshot.files
            if PurePosixPath(path).name == "Cargo.toml" and not is_vendored_path(path)
        ]
        if not manifests:
            return None
        chosen = min(manifests, key=lambda path: (path.count("/"), path))
        folder = str(PurePosixPath(chosen).parent)
        settings = dict(_settings(snapshot, folder, manifests))
        return Suite(self.name, f"the project has {chosen}", cwd=folder, settings=settings)

    def programs(self, suite: Suite) -> tuple[str, ...]:
        return ("cargo",)

    def targets(self, suite: Suite, paths: Sequence[str], snapshot: Snapshot) -> tuple[str, ...]:
        """Return the options for packages and targets: `--package=a`, `--test=b`, `--lib`."""
        packages: dict[str, None] = {}
        kinds: dict[str, None] = {}
        for path in (below(suite.cwd, p) for p in paths if p.endswith(".rs")):
            folder = _package_of(suite, path or "")
            if path is None or folder is None:
                continue
            inner = below(folder, path) or ""
            kind = _kind(inner, snapshot.exists(joined(suite.cwd, joined(folder, "src/lib.rs"))))
            if kind:
                packages[f"--package={suite.settings[_PACKAGE + folder]}"] = None
                kinds[kind] = None
        return (*packages, *kinds)

    def command(self, suite: Suite, targets: Sequence[str], context: RunContext) -> Command:
        # One stream: only the order of its lines tells which file a test belongs to.
        program = context.tools.toolchain.program("cargo")
        every = () if targets or "package:." in suite.settings else ("--workspace",)
        options = ("--offline", "--no-fail-fast", "--color=never", *(targets or every))
        return tool_command(
            collecting("merged", (program, "test", *options)),
            suite,
            context,
            environment={"CARGO_NET_OFFLINE": "true", "RUST_BACKTRACE": "0"},
        )

    def read(self, suite: Suite, command: Command, result: RunResult) -> TestRun:
        return make_tool_run(command, result, _read(suite, result))


def _settings(snapshot: Snapshot, root: str, manifests: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield packages by folder, and for each target's root file the folder of its package."""
    folders = []
    for path in manifests:
        folder = below(root, str(PurePosixPath(path).parent))
        name = _package_name(snapshot.text(path))
        if folder is not None and name:
            folders.append(folder)
            yield _PACKAGE + folder, name
    owners: dict[str, str] = {}
    for folder, file in _root_files(snapshot, root, frozenset(folders)):
        owners[file] = _SEVERAL if file in owners else folder
    yield from ((_FILE + file, folder) for file, folder in sorted(owners.items()))


def _package_name(text: str) -> str:
    package = _parsed_toml(text).get("package")
    name = package.get("name") if isinstance(package, dict) else None
    return name if isinstance(name, str) else ""


def _root_files(
    snapshot: Snapshot, root: str, folders: frozenset[str]
) -> Iterator[tuple[str, str]]:
    """Yield package folders with the files that Cargo makes a test target of by their location.

    The Cargo Book, "Package Layout": `src/x.rs`, `tests/x.rs`, `src/bin/x/main.rs`, ...
    """
    for path in snapshot.files:
        inner = below(root, path) if path.endswith(".rs") else None
        parts = inner.split("/") if inner else []
        for at, part in enumerate(parts[:-1]):
            folder = "/".join(parts[:at]) or "."
            deep = 3 if parts[at : at + 2] == ["src", "bin"] else 2
            direct = len(parts) == at + deep or parts[-1] == "main.rs"
            if part in ("src", "tests") and direct and folder in folders:
                yield folder, "/".join(parts[at:])


def _package_of(suite: Suite, path: str) -> str | None:
    """Return the folder of the innermost package that holds the file."""
    names = (name.removeprefix(_PACKAGE) for name in suite.settings if name.startswith(_PACKAGE))
    holding = [folder for folder in names if below(folder, path) is not None]
    return max(holding, key=lambda folder: (folder != ".", len(folder)), default=None)


def _kind(inner: str, has_library: bool) -> str:
    parts = PurePosixPath(inner).parts
    if parts[:1] == ("tests",):
        return f"--test={PurePosixPath(parts[1]).stem}" if len(parts) > 1 else ""
    if parts[:1] != ("src",):
        return ""
    binary = parts[1:2] in (("bin",), ("main.rs",)) or not has_library
    return "--bins" if binary else "--lib"


@dataclass(slots=True)
class _Output:
    """Reads the output line by line."""

    suite: Suite
    found: ParsedOutput = field(default_factory=ParsedOutput)
    _target: str = ""
    _pending: int = 0  # test programs that have begun and not summed up
    _counts: dict[str, int] = field(default_factory=dict)
    _failure: str | None = None
    _lines: list[str] = field(default_factory=list)  # before the first test program
    _texts: dict[str, list[str]] = field(default_factory=dict)
    _wrong: bool = False

    def take(self, line: str) -> None:
        """Read one line of the merged streams."""
        self._build(line)
        running = _RUNNING.match(line)
        test, summary = _TEST.match(line), _SUMMARY.match(line)
        failure = _FAILURE.match(line)
        if running:
            self._target = _target(self.suite, running)
        elif _COUNT.match(line):
            self._pending += 1
            self.found.begun = True
            self._counts = dict.fromkeys(_OUTCOMES, 0)
        elif failure:
            self._failure = f"{self._target}::{failure['name']}"
        elif summary:
            self._summed_up([int(count) for count in summary.groups()])
        elif self._failure is not None and line != "failures:":
            self._texts.setdefault(self._failure, []).append(line)
        elif test and self._pending > 0:
            self._failure = None
            self._counts[test["word"]] += 1
            self.found.add(f"{self._target}::{test['name']}", _OUTCOMES[test["word"]])
        else:
            self._failure = None

    def _build(self, line: str) -> None:
        if self.found.begun:
            return
        self._lines.append(line)
        failed = _NOT_BUILT.match(line)
        if failed:
            file = f"tests/{failed['name']}.rs"
            folder = self.suite.settings.get(_FILE + file, "")
            owned = folder not in ("", _SEVERAL)
            path = joined(self.suite.cwd, joined(folder, file) if owned else file)
            self.found.add(path, Outcome.ERROR, "\n".join(self._lines))

    def _summed_up(self, said: list[int]) -> None:
        self._pending -= 1
        self._failure = None
        heard = [self._counts.get(word, 0) for word in _OUTCOMES]
        self._wrong = self._wrong or self._pending < 0 or said != heard

    def result(self) -> ParsedOutput:
        """Return the outcomes; they are complete when every program's summary matches them."""
        self.found.complete = self._pending == 0 and not self._wrong
        for test, lines in self._texts.items():
            if self.found.outcomes.get(test) is Outcome.FAILED:
                self.found.add(test, Outcome.FAILED, "\n".join(lines))
        return self.found


def _read(suite: Suite, result: RunResult) -> ParsedOutput:
    output = _Output(suite)
    for line in clean(result.stdout.decode("utf-8", "replace")).splitlines():
        output.take(line[:LINE_LIMIT])
    return output.result()


def _target(suite: Suite, running: re.Match[str]) -> str:
    """Return the root file of a test program as a path of the tree, where one package has it."""
    if running["doc"]:
        return f"doc {running['doc']}"
    path = running["path"]
    folder = suite.settings.get(_FILE + path, _SEVERAL)
    if folder == _SEVERAL:
        packages = {n: p for n, p in suite.settings.items() if n.startswith(_PACKAGE)}
        named = [
            name.removeprefix(_PACKAGE)
            for name, package in packages.items()
            if package.replace("-", "_") == running["crate"] or len(packages) == 1
        ]
        if len(named) != 1:
            return f"{running['crate']} {path}"
        folder = named[0]
    return joined(suite.cwd, joined(folder, path))
