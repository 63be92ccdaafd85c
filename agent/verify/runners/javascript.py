"""jest, vitest, mocha and node's own runner; `npm test` for scripts that start none of them.

jest and vitest write one JSON file of the same format, and mocha writes one of its own (see the
`json` reporter of each). node's runner reports through `inside/patchshot_node.mjs`.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import ClassVar

from agent.repository import language_of
from agent.types import Outcome, TestRun
from agent.types.protocols import Snapshot
from agent.verify.reports.run_results import (
    ParsedOutput,
    collected,
    entries,
    make_tool_run,
    text_of,
)
from agent.verify.runners.base import BaseRunner, RunContext, Suite, below, joined
from agent.verify.runners.commands import (
    INSIDE,
    CommandRunner,
    as_argument,
    collecting,
    tool_command,
)
from agent.verify.runners.package_json import find_script
from agent.verify.runners.programs import FoundProgram, SearchScope, real_path
from sandbox import Command, RunResult

_LANGUAGES = ("javascript", "typescript", "tsx")
_SCRIPT_LANGUAGES = (*_LANGUAGES, "vue", "svelte")

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

# Names in `Suite.settings`.
_FILES, _NODE = "files", "node-options"

# No colours in messages, no watching, no prompts.
_ENVIRONMENT = {"CI": "true", "FORCE_COLOR": "0", "NO_COLOR": "1", "npm_config_offline": "true"}


def _find_node(file: Path, scope: SearchScope) -> FoundProgram | None:
    """Find node, npm's folder beside it, and the packages that the user installed."""
    real = real_path(file)
    if real.name not in ("node", "nodejs"):  # the shim of a version manager
        return None
    packages = real.parent.parent / "lib" / "node_modules"
    return FoundProgram(real, (real, packages, *_node_modules(scope.snapshot)))


def _node_modules(snapshot: Snapshot) -> Iterator[Path]:
    """Yield each `node_modules` beside a package.json that is not part of the repository."""
    packages = [path for path in snapshot.files if path.endswith("package.json")]
    for pure in map(PurePosixPath, packages):
        if pure.name != "package.json" or "node_modules" in pure.parts:
            continue
        folder = real_path(snapshot.root) / pure.parent / "node_modules"
        tracked = snapshot.exists(str(pure.parent / "node_modules"))
        if not tracked and not _has_tracked(snapshot, pure.parent / "node_modules"):
            yield from (folder,) if folder.is_dir() and not folder.is_symlink() else ()


def _has_tracked(snapshot: Snapshot, folder: PurePosixPath) -> bool:
    return any(path.startswith(f"{folder}/") for path in snapshot.files)


def _find_npm(file: Path, scope: SearchScope) -> FoundProgram | None:
    """Find npm, a script in a package of its own."""
    real = real_path(file)
    package = next((p for p in real.parents if (p / "package.json").is_file()), None)
    return FoundProgram(file, (package, file)) if package is not None else None


class ScriptRunner(BaseRunner):
    """A runner that the script `test` of a package.json starts.

    `word` is the program in the script that stands for the runner; `words` are those of all
    runners, because a package.json that starts a known runner is preferred.
    """

    languages = _SCRIPT_LANGUAGES
    finders = {"node": _find_node}
    word: ClassVar[str]

    def __init__(self, words: Collection[str]) -> None:
        self._words = words

    def detect(self, snapshot: Snapshot) -> Suite | None:
        script = find_script(snapshot, self._words)
        if script is None or script.runner != self.word:
            return None
        return Suite(
            self.name,
            f"{joined(script.folder, 'package.json')} runs {self.name} for its tests",
            argv=script.options,
            cwd=script.folder,
            environment=script.environment,
            settings={_FILES: shlex.join(script.files), _NODE: shlex.join(script.node_options)},
        )

    def programs(self, suite: Suite) -> tuple[str, ...]:
        return ("node",)  # the runner itself is one of the project's packages

    def targets(self, suite: Suite, paths: Sequence[str], snapshot: Snapshot) -> tuple[str, ...]:
        mine = (below(suite.cwd, p) for p in paths if language_of(p) in _LANGUAGES)
        return tuple(dict.fromkeys(as_argument(path) for path in mine if path))


class Jest(ScriptRunner):
    """`jest --json`."""

    name = "jest"
    word = "jest"

    def command(self, suite: Suite, targets: Sequence[str], context: RunContext) -> Command:
        files = ("--runTestsByPath", *targets) if targets else _words(suite, _FILES)
        options = (
            "--json",
            f"--outputFile={_report_file(suite, context)}",
            "--ci",
            "--silent=false",
        )
        return _run(suite, ("jest", *suite.argv, *options, *files), context)

    def read(self, suite: Suite, command: Command, result: RunResult) -> TestRun:
        return make_tool_run(command, result, _read_json(suite, command, result))


class Vitest(ScriptRunner):
    """`vitest run --reporter=json`, whose file has the shape of jest's."""

    name = "vitest"
    word = "vitest"

    def command(self, suite: Suite, targets: Sequence[str], context: RunContext) -> Command:
        options = ("--reporter=default", "--reporter=json")
        output = f"--outputFile.json={_report_file(suite, context)}"
        files = targets or _words(suite, _FILES)
        argv = ("vitest", "run", *suite.argv, *options, output, *files)
        return _run(suite, argv, context)

    def read(self, suite: Suite, command: Command, result: RunResult) -> TestRun:
        return make_tool_run(command, result, _read_json(suite, command, result))


class Mocha(ScriptRunner):
    """`mocha --reporter json`."""

    name = "mocha"
    word = "mocha"

    def command(self, suite: Suite, targets: Sequence[str], context: RunContext) -> Command:
        output = f"output={_report_file(suite, context)}"
        options = ("--reporter", "json", "--reporter-option", output)
        files = targets or _words(suite, _FILES)
        return _run(suite, ("mocha", *suite.argv, *options, *files), context)

    def read(self, suite: Suite, command: Command, result: RunResult) -> TestRun:
        """Read the JSON file. Before mocha 9.2 the report is on standard output instead."""
        found = ParsedOutput()
        report = _json(_collected(result)) or _json(result.stdout)
        if report is not None and isinstance(report.get("tests"), list):
            found.begun = found.complete = True
            only = _only_file(suite, command)
            for kind, outcome in _MOCHA:
                for test in entries(report.get(kind)):
                    error = test.get("err")
                    text = text_of(error.get("stack")) if isinstance(error, dict) else ""
                    path = _path(suite, command, text_of(test.get("file"))) or only
                    title = text_of(test.get("fullTitle"))
                    found.add(f"{path}::{title}" if path else title, outcome, text)
        return make_tool_run(command, result, found)


def _only_file(suite: Suite, command: Command) -> str:
    """Return the file that mocha was given, "" for several: old reports name none."""
    words = iter(command.argv)
    files = [word for word in words if _is_output(word) for word in words]
    return joined(suite.cwd, files[0]) if len(files) == 1 else ""


def _is_output(word: str) -> bool:
    return word.startswith("output=") and word.endswith(f"/{_REPORT}")


_MOCHA = (
    ("passes", Outcome.PASSED),
    ("pending", Outcome.SKIPPED),
    ("failures", Outcome.FAILED),
)


class NodeTest(ScriptRunner):
    """`node --test` with our reporter."""

    name = "node-test"
    word = "node"

    def command(self, suite: Suite, targets: Sequence[str], context: RunContext) -> Command:
        reporter = INSIDE / "patchshot_node.mjs"
        options = ("--test", f"--test-reporter={reporter}", "--test-reporter-destination=stdout")
        files = targets or _words(suite, _FILES)
        argv = (context.tools.toolchain.program("node"), *_words(suite, _NODE), *options, *files)
        return _tool(suite, argv, context)

    def read(self, suite: Suite, command: Command, result: RunResult) -> TestRun:
        found = ParsedOutput()
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
        return make_tool_run(command, result, found)


class NpmTest(CommandRunner):
    """`npm test`, for scripts that start an unknown runner."""

    name = "npm"
    languages = _SCRIPT_LANGUAGES
    finders = {"npm": _find_npm}
    command_words = {
        "node": ("node",),
        "npm": ("npm", "node"),
        "npx": ("npm", "node"),
        "yarn": ("npm", "node"),
        "pnpm": ("npm", "node"),
    }

    def __init__(self, words: Collection[str]) -> None:
        super().__init__({})
        self._script_words = words

    def detect(self, snapshot: Snapshot) -> Suite | None:
        script = find_script(snapshot, self._script_words)
        if script is None:
            return None
        why = f"{joined(script.folder, 'package.json')} has a script for its tests"
        return Suite(self.name, why, ("npm", "test", "--silent"), script.folder, _ENVIRONMENT)

    def programs(self, suite: Suite) -> tuple[str, ...]:
        return ("npm", "node")


def _run(suite: Suite, argv: Sequence[str], context: RunContext) -> Command:
    """Run a program of `node_modules/.bin` through the script that collects its report."""
    return _tool(suite, collecting("files", argv, f"./{_REPORT}"), context)


def _tool(suite: Suite, argv: Sequence[str], context: RunContext) -> Command:
    folder = PurePosixPath(context.root, suite.cwd)
    inside = [folder, *(up for up in folder.parents if up.is_relative_to(context.root))]
    return tool_command(
        argv,
        suite,
        context,
        environment=_ENVIRONMENT,
        folders=[f"{up}/node_modules/.bin" for up in inside],
    )


def _report_file(suite: Suite, context: RunContext) -> PurePosixPath:
    return PurePosixPath(context.root, suite.cwd, _REPORT)


def _words(suite: Suite, setting: str) -> tuple[str, ...]:
    return tuple(shlex.split(suite.settings.get(setting, "")))


def _read_json(suite: Suite, command: Command, result: RunResult) -> ParsedOutput:
    found = ParsedOutput()
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
    """Return the path in the tree of a file that the report names absolutely."""
    places = (word.partition("=")[2] for word in command.argv)
    report = PurePosixPath(next((p for p in places if p.endswith(f"/{_REPORT}")), ""))
    above = len(PurePosixPath(suite.cwd).parts)
    root = report.parents[min(above, len(report.parents) - 1)] if report.parents else report
    pure = PurePosixPath(file)
    return str(pure.relative_to(root)) if pure.is_relative_to(root) else file
