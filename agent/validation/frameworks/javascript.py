"""jest, vitest, mocha and node's own runner; `npm test` for what is none of them.

jest and vitest write one JSON file of the same shape, mocha one of its own (formats: the reporters
`json` of each); node's runner reports through `inside/patchshot_node.mjs`. All by file and title.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from agent.protocols import Snapshot
from agent.repository.languages import language_of
from agent.types import Outcome, TestRun
from agent.validation.frameworks.base import Common, Suite
from agent.validation.frameworks.commands import below, collecting, joined, tool_command
from agent.validation.frameworks.interpreter import Tools
from agent.validation.frameworks.opaque import Opaque
from agent.validation.frameworks.package_json import Script, find_script
from agent.validation.frameworks.results import Found, collected, entries, text_of, to_run
from agent.validation.frameworks.runners import INSIDE, Place, as_argument
from sandbox.types import Command, Limits, RunResult

_LANGUAGES = ("javascript", "typescript", "tsx")

# Written into the private copy by the runner, and read from there when it has ended.
_REPORT = ".patchshot-report.json"

_OUTCOMES = {
    "passed": Outcome.PASSED,
    "failed": Outcome.FAILED,
    "pending": Outcome.SKIPPED,
    "skipped": Outcome.SKIPPED,
    "todo": Outcome.SKIPPED,
    "disabled": Outcome.SKIPPED,
}

# Names of `Suite.settings`.
_FILES, _NODE = "files", "node-options"

# No colours in messages, no watching, no prompts.
_ENVIRONMENT = {"CI": "true", "FORCE_COLOR": "0", "NO_COLOR": "1", "npm_config_offline": "true"}


class _ByScript(Common):
    """A runner that the script `test` of a package.json starts."""

    name: str = ""

    def detect(self, snapshot: Snapshot) -> Suite | None:
        """Where the script starts this runner."""
        script = find_script(snapshot)
        return self._suite(script) if script and self._is_mine(script) else None

    def _is_mine(self, script: Script) -> bool:
        return script.runner == self.name

    def _suite(self, script: Script) -> Suite:
        file = joined(script.folder, "package.json")
        return Suite(
            self.name,
            f"{file} runs {self.name} for its tests",
            argv=script.options,
            cwd=script.folder,
            environment=script.environment,
            settings={_FILES: shlex.join(script.files), _NODE: shlex.join(script.node_options)},
        )

    def programs(self, suite: Suite) -> tuple[str, ...]:
        """Node; the runner itself is one of the project's packages."""
        return ("node",)

    def targets(self, suite: Suite, paths: Sequence[str], snapshot: Snapshot) -> tuple[str, ...]:
        """Files of the package, as seen from its folder."""
        mine = (below(suite.cwd, p) for p in paths if language_of(p) in _LANGUAGES)
        return tuple(dict.fromkeys(as_argument(path) for path in mine if path))


@dataclass(frozen=True, slots=True)
class Jest(_ByScript):
    """`jest --json`."""

    name: str = "jest"

    def command(
        self, suite: Suite, targets: Sequence[str], tools: Tools, place: Place, limits: Limits
    ) -> Command:
        """The project's jest, from its `node_modules`."""
        files = ("--runTestsByPath", *targets) if targets else _words(suite, _FILES)
        options = ("--json", f"--outputFile={_report_file(suite, place)}", "--ci", "--silent=false")
        return _run(suite, ("jest", *suite.argv, *options, *files), tools, place, limits)

    def read(self, suite: Suite, command: Command, result: RunResult) -> TestRun:
        """The JSON file."""
        return to_run(command, result, _read_json(suite, command, result))


@dataclass(frozen=True, slots=True)
class Vitest(_ByScript):
    """`vitest run --reporter=json`, whose file has the shape of jest's."""

    name: str = "vitest"

    def command(
        self, suite: Suite, targets: Sequence[str], tools: Tools, place: Place, limits: Limits
    ) -> Command:
        """The project's vitest, from its `node_modules`."""
        options = ("--reporter=default", "--reporter=json")
        output = f"--outputFile.json={_report_file(suite, place)}"
        files = targets or _words(suite, _FILES)
        argv = ("vitest", "run", *suite.argv, *options, output, *files)
        return _run(suite, argv, tools, place, limits)

    def read(self, suite: Suite, command: Command, result: RunResult) -> TestRun:
        """The JSON file."""
        return to_run(command, result, _read_json(suite, command, result))


@dataclass(frozen=True, slots=True)
class Mocha(_ByScript):
    """`mocha --reporter json`."""

    name: str = "mocha"

    def command(
        self, suite: Suite, targets: Sequence[str], tools: Tools, place: Place, limits: Limits
    ) -> Command:
        """The project's mocha, from its `node_modules`."""
        output = f"output={_report_file(suite, place)}"
        options = ("--reporter", "json", "--reporter-option", output)
        files = targets or _words(suite, _FILES)
        return _run(suite, ("mocha", *suite.argv, *options, *files), tools, place, limits)

    def read(self, suite: Suite, command: Command, result: RunResult) -> TestRun:
        """The JSON file; before mocha 9.2 it comes on standard output instead."""
        found = Found()
        report = _json(_collected(result)) or _json(result.stdout)
        if report is not None and isinstance(report.get("tests"), list):
            found.begun = found.complete = True
            for kind, outcome in _MOCHA:
                for test in entries(report.get(kind)):
                    error = test.get("err")
                    text = text_of(error.get("stack")) if isinstance(error, dict) else ""
                    path = _path(suite, command, text_of(test.get("file")))
                    found.add(f"{path}::{text_of(test.get('fullTitle'))}", outcome, text)
        return to_run(command, result, found)


_MOCHA = (
    ("passes", Outcome.PASSED),
    ("pending", Outcome.SKIPPED),
    ("failures", Outcome.FAILED),
)


@dataclass(frozen=True, slots=True)
class NodeTest(_ByScript):
    """`node --test` with our reporter."""

    name: str = "node-test"

    def _is_mine(self, script: Script) -> bool:
        return script.runner == "node"

    def command(
        self, suite: Suite, targets: Sequence[str], tools: Tools, place: Place, limits: Limits
    ) -> Command:
        """`node --test` on files, or on what the script names."""
        reporter = INSIDE / "patchshot_node.mjs"
        options = ("--test", f"--test-reporter={reporter}", "--test-reporter-destination=stdout")
        files = targets or _words(suite, _FILES)
        argv = (tools.toolchain.program("node"), *_words(suite, _NODE), *options, *files)
        return _tool(suite, argv, tools, place, limits)

    def read(self, suite: Suite, command: Command, result: RunResult) -> TestRun:
        """The lines of our reporter."""
        found = Found()
        for raw in result.report.splitlines():
            line = _json(raw) or {}
            found.begun = found.begun or line.get("event") == "begin"
            found.complete = line.get("event") == "finish"
            outcome = _OUTCOMES.get(text_of(line.get("outcome")))
            if line.get("event") == "result" and outcome is not None:
                test = joined(suite.cwd, text_of(line.get("id")))
                whole = "::" not in test and outcome is Outcome.FAILED
                text = text_of(line.get("text"))
                found.add(test, Outcome.ERROR if whole else outcome, text)
        return to_run(command, result, found)


@dataclass(frozen=True, slots=True)
class NpmTest(Opaque):
    """`npm test`, where the script is none of the runners that are known."""

    name: str = "npm"

    def programs(self, suite: Suite) -> tuple[str, ...]:
        """Node and npm; no Python."""
        return ("npm", "node")

    def detect(self, snapshot: Snapshot) -> Suite | None:
        """Any script `test`."""
        script = find_script(snapshot)
        if script is None:
            return None
        file = joined(script.folder, "package.json")
        why = f"{file} has a script for its tests"
        return Suite(self.name, why, ("npm", "test", "--silent"), script.folder, _ENVIRONMENT)


def _run(suite: Suite, argv: Sequence[str], tools: Tools, place: Place, limits: Limits) -> Command:
    """A runner of `node_modules/.bin`, through the script that collects its report."""
    return _tool(suite, collecting("files", argv, f"./{_REPORT}"), tools, place, limits)


def _tool(suite: Suite, argv: Sequence[str], tools: Tools, place: Place, limits: Limits) -> Command:
    folder = PurePosixPath(place.root, suite.cwd)
    inside = [folder, *(up for up in folder.parents if up.is_relative_to(place.root))]
    return tool_command(
        argv,
        suite,
        tools.toolchain,
        limits,
        environment=_ENVIRONMENT,
        folders=[f"{up}/node_modules/.bin" for up in inside],
    )


def _report_file(suite: Suite, place: Place) -> PurePosixPath:
    return PurePosixPath(place.root, suite.cwd, _REPORT)


def _words(suite: Suite, setting: str) -> tuple[str, ...]:
    return tuple(shlex.split(suite.settings.get(setting, "")))


def _read_json(suite: Suite, command: Command, result: RunResult) -> Found:
    found = Found()
    report = _json(_collected(result))
    if report is None or not isinstance(report.get("testResults"), list):
        return found
    found.begun = True
    found.complete = report.get("wasInterrupted") is not True
    for file in entries(report.get("testResults")):
        path = _path(suite, command, text_of(file.get("name")))
        tests = entries(file.get("assertionResults"))
        for test in tests:
            outcome = _OUTCOMES.get(text_of(test.get("status")))
            if outcome is not None:
                found.add(f"{path}::{_title(test)}", outcome, _messages(test))
        failed = any(test.get("status") == "failed" for test in tests)
        if file.get("status") == "failed" and not failed:
            found.add(path, Outcome.ERROR, text_of(file.get("message")))
    return found


def _title(test: dict[str, object] | object) -> str:
    if not isinstance(test, dict):
        return ""
    above = test.get("ancestorTitles")
    names = [text_of(name) for name in above] if isinstance(above, list) else []
    return " > ".join([*filter(None, names), text_of(test.get("title"))])


def _messages(test: object) -> str:
    messages = test.get("failureMessages") if isinstance(test, dict) else None
    return "\n".join(map(text_of, messages)) if isinstance(messages, list) else ""


def _collected(result: RunResult) -> bytes:
    return next((content for _, content in collected(result.report)), b"")


def _json(data: bytes) -> dict[str, object] | None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _path(suite: Suite, command: Command, file: str) -> str:
    """A file that the report names absolutely, as seen from the root of the tree."""
    places = (word.partition("=")[2] for word in command.argv)
    report = PurePosixPath(next((p for p in places if p.endswith(f"/{_REPORT}")), ""))
    above = len(PurePosixPath(suite.cwd).parts)
    root = report.parents[min(above, len(report.parents) - 1)] if report.parents else report
    pure = PurePosixPath(file)
    return str(pure.relative_to(root)) if pure.is_relative_to(root) else file
