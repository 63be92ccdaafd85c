"""`go test -json`: one JSON object a line (`go doc cmd/test2json`)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from agent.protocols import Snapshot
from agent.repository.languages import is_vendored_path, language_of
from agent.types import Outcome, TestRun
from agent.validation.frameworks.base import Common, Suite
from agent.validation.frameworks.commands import below, collecting, joined, tool_command
from agent.validation.frameworks.interpreter import Tools
from agent.validation.frameworks.results import TEXT_LIMIT, Found, streams, text_of, to_run
from agent.validation.frameworks.runners import Place
from sandbox.types import Command, Limits, RunResult

_MODULE = re.compile(r"^\s*module\s+\"?([^\s\"]+)", re.MULTILINE)

_OUTCOMES = {"pass": Outcome.PASSED, "fail": Outcome.FAILED, "skip": Outcome.SKIPPED}

# The name of `Suite.settings` under which the module's path is kept.
_PATH = "module"


@dataclass(frozen=True, slots=True)
class GoTest(Common):
    """`go test` on packages; ids are `folder::TestName/subtest`."""

    name: str = "go"

    def detect(self, snapshot: Snapshot) -> Suite | None:
        """A module with test files; of several the one nearest to the root."""
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
        """Go itself."""
        return ("go",)

    def targets(self, suite: Suite, paths: Sequence[str], snapshot: Snapshot) -> tuple[str, ...]:
        """Packages: the folders of the files."""
        mine = (below(suite.cwd, path) for path in paths if language_of(path) == "go")
        folders = (str(PurePosixPath(path).parent) for path in mine if path)
        return tuple(dict.fromkeys("." if f == "." else f"./{f}" for f in folders))

    def command(
        self, suite: Suite, targets: Sequence[str], tools: Tools, place: Place, limits: Limits
    ) -> Command:
        """Without results of an earlier run, and without the network."""
        program = tools.toolchain.program("go")
        argv = (program, "test", "-json", "-count=1", *(targets or ("./...",)))
        return tool_command(collecting("stdout", argv), suite, tools.toolchain, limits)

    def read(self, suite: Suite, command: Command, result: RunResult) -> TestRun:
        """The events of all packages."""
        events = _Events(suite)
        for raw in result.report.splitlines():
            events.take(raw)
        output = "\n".join(filter(None, (streams(result), "".join(events.loose))))
        return to_run(command, result, events.found(), output)

    def test_id(self, suite: Suite, name: str) -> str:
        """`example.com/mod/pkg.TestX` and `example.com/mod/pkg::TestX` are both understood."""
        package, separator, test = name.partition("::")
        if not separator:
            package, separator, test = name.rpartition(".Test")
            test = f"Test{test}"
        return f"{_folder(suite, package)}::{test}" if separator else name


@dataclass(slots=True)
class _Events:
    """Takes the events of one run."""

    suite: Suite
    _found: Found = field(default_factory=Found)
    _texts: dict[str, list[str]] = field(default_factory=dict)
    _open: dict[str, None] = field(default_factory=dict)  # packages that have begun and not ended
    loose: list[str] = field(default_factory=list)  # output that belongs to no single test

    def take(self, raw: bytes) -> None:
        """One line; what is not JSON is output of the build."""
        try:
            event = json.loads(raw)
        except (ValueError, RecursionError):
            event = None
        if not isinstance(event, dict):
            self.loose.append(raw.decode("utf-8", "replace") + "\n")
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
            text = "".join((*self.loose[-200:], *self._texts.get(folder, ())))
            self._found.add(folder, Outcome.ERROR, text)

    def found(self) -> Found:
        """All of it; complete when every package that began has ended."""
        self._found.complete = not self._open
        return self._found


def _folder(suite: Suite, package: str) -> str:
    """The folder of a package in the tree; its own name where it is no package of the module."""
    module = suite.settings.get(_PATH, "")
    package = package.partition(" ")[0]  # "pkg [pkg.test]"
    if module and (package == module or package.startswith(f"{module}/")):
        inner = package[len(module) :].strip("/") or "."
        return joined(suite.cwd, inner) if inner != "." else suite.cwd
    return package
