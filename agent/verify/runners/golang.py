"""`go test -json`, offline: one JSON object on each line (`go doc cmd/test2json`)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from agent.repository import is_vendored_path, language_of
from agent.types import Outcome, TestRun
from agent.types.protocols import Snapshot
from agent.verify.reports.run_results import (
    TEXT_LIMIT,
    ParsedOutput,
    make_tool_run,
    streams,
    text_of,
)
from agent.verify.runners.base import BaseRunner, RunContext, Suite, below, joined
from agent.verify.runners.commands import BUILD_CACHE, collecting, tool_command
from agent.verify.runners.programs import FoundProgram, SearchScope, real_path
from sandbox import Command, RunResult

_MODULE = re.compile(r"^\s*module\s+\"?([^\s\"]+)", re.MULTILINE)

# What Go before 1.24 prints between the JSON lines for a package whose tests do not compile.
_NOT_BUILT = re.compile(r"FAIL\t(\S+) \[(?:build|setup) failed\]")

_OUTCOMES = {"pass": Outcome.PASSED, "fail": Outcome.FAILED, "skip": Outcome.SKIPPED}

# In `Suite.settings`: the module's import path.
_PATH = "module"


def _find_go(file: Path, scope: SearchScope) -> FoundProgram | None:
    real = real_path(file)
    root = real.parent.parent
    if real.name != "go" or not (root / "pkg" / "tool").is_dir():
        return None
    modules = scope.home / "go" / "pkg" / "mod"
    environment = {"GOPROXY": "off", "GOSUMDB": "off", "GOTOOLCHAIN": "local", "GOFLAGS": ""}
    if modules.is_dir():
        environment["GOMODCACHE"] = str(modules)
    return FoundProgram(real, (root, modules), environment)


class GoTest(BaseRunner):
    """`go test` on packages; ids are `folder::TestName/subtest`."""

    name = "go"
    languages = ("go", "go-mod")
    finders = {"go": _find_go}
    command_words = {"go": ("go",)}

    def detect(self, snapshot: Snapshot) -> Suite | None:
        """Look for a module with test files; of several the one nearest to the root is taken."""
        modules = [p for p in snapshot.files if PurePosixPath(p).name == "go.mod"]
        own = [path for path in modules if not is_vendored_path(path)]
        if not own or not any(path.endswith("_test.go") for path in snapshot.files):
            return None
        chosen = min(own, key=lambda path: (path.count("/"), path))
        found = _MODULE.search(snapshot.text(chosen))
        folder = str(PurePosixPath(chosen).parent)
        settings = {_PATH: found[1] if found else ""}
        return Suite(self.name, f"{chosen} and Go test files", cwd=folder, settings=settings)

    def programs(self, suite: Suite) -> tuple[str, ...]:
        return ("go",)

    def targets(self, suite: Suite, paths: Sequence[str], snapshot: Snapshot) -> tuple[str, ...]:
        """Return packages: the folders of the files, and folders of tests, as ids name them."""
        tested = {str(PurePosixPath(p).parent) for p in snapshot.files if p.endswith("_test.go")}
        go = (str(PurePosixPath(path).parent) for path in paths if language_of(path) == "go")
        named = (path for path in paths if path in tested)
        folders = [f for f in (below(suite.cwd, path) for path in (*go, *named)) if f]
        return tuple(dict.fromkeys("." if f == "." else f"./{f}" for f in folders))

    def command(self, suite: Suite, targets: Sequence[str], context: RunContext) -> Command:
        argv = ("test", "-json", "-count=1", *(targets or ("./...",)))
        return _go(argv, suite, context)

    def building(self, suite: Suite, context: RunContext) -> Command | None:
        return _go(("test", "-exec=true", "-run=^$", "./..."), suite, context)

    def read(self, suite: Suite, command: Command, result: RunResult) -> TestRun:
        events = _Events(suite, result.stderr.decode("utf-8", "replace"))
        for raw in result.report.splitlines():
            events.take(raw)
        output = "\n".join(filter(None, (streams(result), "".join(events.loose))))
        return make_tool_run(command, result, events.found(), output)

    def test_id(self, suite: Suite, name: str) -> str:
        """Convert `example.com/mod/pkg.TestX` or `example.com/mod/pkg::TestX`."""
        package, separator, test = name.partition("::")
        if not separator:
            package, separator, test = name.rpartition(".Test")
            test = f"Test{test}"
        return f"{_folder(suite, package)}::{test}" if separator else name


def _go(argv: Sequence[str], suite: Suite, context: RunContext) -> Command:
    """Go compiles what it finds in no cache, since Go 1.20 the standard library too."""
    go = context.tools.toolchain.program("go")
    cache = {"GOCACHE": str(context.root / BUILD_CACHE)}
    return tool_command(collecting("stdout", (go, *argv)), suite, context, environment=cache)


@dataclass(slots=True)
class _Events:
    """Collects the events of one run."""

    suite: Suite
    build: str  # what compilers print before Go 1.24
    _found: ParsedOutput = field(default_factory=ParsedOutput)
    _texts: dict[str, list[str]] = field(default_factory=dict)
    _open: dict[str, None] = field(default_factory=dict)  # packages that have begun and not ended
    loose: list[str] = field(default_factory=list)  # output that belongs to no single test

    def take(self, raw: bytes) -> None:
        """Read one line. A line that is not JSON is output of the build."""
        try:
            event = json.loads(raw)
        except (ValueError, RecursionError):
            event = None
        if not isinstance(event, dict):
            text = raw.decode("utf-8", "replace")
            self.loose.append(text + "\n")
            not_built = _NOT_BUILT.match(text)
            if not_built:
                self._package_ended(_folder(self.suite, not_built[1]), "fail")
            return
        action, package = text_of(event.get("Action")), text_of(event.get("Package"))
        if not package:  # build-output, build-fail (since Go 1.24)
            self.loose.append(text_of(event.get("Output")))
            return
        folder, test = _folder(self.suite, package), text_of(event.get("Test"))
        self._open[folder] = None
        self._of_test(f"{folder}::{test}" if test else folder, folder, test, action, event)

    def _of_test(
        self, name: str, folder: str, test: str, action: str, event: dict[str, object]
    ) -> None:
        if action == "run" and test:
            self._found.start(name)
        elif action == "output":
            self._output(name, text_of(event.get("Output")), loose=not test)
        elif action in _OUTCOMES and test:
            self._found.add(name, _OUTCOMES[action], "".join(self._texts.get(name, ())))
        elif action in _OUTCOMES:
            self._package_ended(folder, action)

    def _output(self, name: str, text: str, *, loose: bool) -> None:
        texts = self._texts.setdefault(name, [])
        texts.append(text[:TEXT_LIMIT])
        if loose:
            self.loose.append(text)

    def _package_ended(self, folder: str, action: str) -> None:
        self._open.pop(folder, None)
        self._found.begun = True
        inside = [o for t, o in self._found.outcomes.items() if t.startswith(f"{folder}::")]
        if action == "fail" and Outcome.FAILED not in inside:
            # It did not build, or ended outside a test.
            text = "".join((self.build, *self.loose[-200:], *self._texts.get(folder, ())))
            self._found.add(folder, Outcome.ERROR, text)

    def found(self) -> ParsedOutput:
        """Return the outcomes; they are complete when every package that began has ended."""
        self._found.complete = not self._open
        return self._found


def _folder(suite: Suite, package: str) -> str:
    """Return a package's folder in the tree; its name where it is outside the module."""
    module = suite.settings.get(_PATH, "")
    package = package.partition(" ")[0]  # "pkg [pkg.test]"
    if module and (package == module or package.startswith(f"{module}/")):
        inner = package[len(module) :].strip("/") or "."
        return joined(suite.cwd, inner)
    return package
