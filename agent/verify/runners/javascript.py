"""jest, vitest, mocha and node's own runner; `npm test` for scripts that start none of them.

The script `test` of a package.json says which; it is read and never run. jest and vitest write one
JSON file of the same format, and mocha writes one of its own (see the `json` reporter of each).
node's runner reports through `inside/patchshot_node.mjs`.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from agent.repository import is_vendored_path, language_of
from agent.types import Outcome, TestRun
from agent.types.protocols import Snapshot
from agent.verify.reports import ParsedOutput, collected, entries, make_tool_run, text_of
from agent.verify.runners.base import (
    INSIDE,
    RunContext,
    Runner,
    Suite,
    as_argument,
    below,
    collecting,
    joined,
    tool_command,
)
from agent.verify.runners.python import read_command, run_tool
from sandbox import Command, RunResult

# --------------------------------------------------------------------- the script of a package

RUNNER_NAMES: Mapping[str, str] = {
    "vitest": "vitest",
    "jest": "jest",
    "mocha": "mocha",
    "node": "node-test",
}
"""The runners by the program that starts each in a script."""

# Scripts may call each other in a circle.
_MOST_SCRIPTS = 5

# npm writes it into a new package, which has no tests.
_NO_TESTS = "no test specified"

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.ASCII | re.DOTALL)

# Characters that only a shell could expand.
_UNSETTLED = re.compile(r"[$`*?~]")

_OPERATORS = frozenset("();<>|&")

# Options that take the next word as their value.
_WITH_VALUE = frozenset(
    {
        "-c", "-r", "-t", "--config", "--dir", "--env", "--experimental-loader", "--extension",
        "--import", "--loader", "--outputFile", "--project", "--projects", "--reporter",
        "--reporters", "--require", "--root", "--rootDir", "--roots", "--setupFiles", "--spec",
        "--test-reporter", "--test-reporter-destination", "--testEnvironment",
        "--testPathPattern", "--timeout", "--ui",
    }
)  # fmt: skip

# Those that mocha adds or that mean something else there: `-u tdd` names the style of the tests.
_MOCHA_WITH_VALUE = frozenset(
    {
        "-O", "-R", "-f", "-g", "-j", "-n", "-s", "-u", "--fgrep", "--grep", "--jobs", "--retries",
        "--slow",
    }
)  # fmt: skip

# Options that do not terminate, that measure, or that redirect the report.
_DROPPED = re.compile(
    r"--(?:watch\w*|coverage\S*|reporters?\S*|json|outputFile\S*|verbose|silent|notify|parallel"
    r"|updateSnapshot|ci|bail\S*|test-reporter\S*|experimental-test-coverage|run)(?:=.*)?|-[wubOR]"
)


@dataclass(frozen=True, slots=True)
class Script:
    """How a package's tests are started. `folder` holds the package.json; "." is the root.

    `runner` is a key of `RUNNER_NAMES`, "" for any other program. `node_options` are those of node
    itself, `options` those of the runner without files, and `files` what the script names to run.
    """

    folder: str
    text: str
    runner: str = ""
    node_options: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def find_script(snapshot: Snapshot) -> Script | None:
    """Return the script `test` of a package: one that starts a known runner, nearest to the root.

    Of a workspace, the package of the runner is thus preferred to a root that only delegates.
    """
    packages = (path for path in snapshot.files if PurePosixPath(path).name == "package.json")
    scripts = [_script(snapshot, path) for path in packages if not is_vendored_path(path)]
    return min(
        (script for script in scripts if script is not None),
        key=lambda s: (not s.runner, len(PurePosixPath(s.folder).parts), s.folder),
        default=None,
    )


def _script(snapshot: Snapshot, path: str) -> Script | None:
    scripts = _scripts(snapshot.text(path))
    text = scripts.get("test", "").strip()
    if not text or _NO_TESTS in text:
        return None
    folder = str(PurePosixPath(path).parent)
    commands = (_command(folder, text, words) for words in _commands(_resolved(text, scripts)))
    return next((script for script in commands if script is not None), Script(folder, text))


def _scripts(text: str) -> dict[str, str]:
    package = _json(text)
    scripts = package.get("scripts") if package else None
    pairs = scripts.items() if isinstance(scripts, dict) else ()
    return {name: value for name, value in pairs if isinstance(value, str)}


def _resolved(text: str, scripts: Mapping[str, str]) -> str:
    """Follow `npm run x`, `yarn x` and similar commands to the script that they call."""
    for _ in range(_MOST_SCRIPTS):
        called = re.fullmatch(r"(?:npm|yarn|pnpm)(?:\s+run)?(?:-script)?\s+([\w:.-]+)", text)
        if called is None or called[1] not in scripts:
            break
        text = scripts[called[1]].strip()
    return text


def _commands(text: str) -> list[list[str]]:
    """Split a shell line into its simple commands. Returns [] if it cannot be split."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    commands: list[list[str]] = [[]]
    try:
        for word in lexer:
            if word and _OPERATORS.issuperset(word):
                commands.append([])
            else:
                commands[-1].append(word)
    except ValueError:
        return []
    return [command for command in commands if command]


def _command(folder: str, text: str, words: Sequence[str]) -> Script | None:
    """Read a simple command that starts a known runner, after any other words.

    It may be `node --test ...`, or another runner that node starts with options of its own.
    """
    environment: dict[str, str] = {}
    node_at = -1
    for number, word in enumerate(words):
        if node_at < 0 and _ASSIGNMENT.fullmatch(word):
            name, _, environment[name] = word.partition("=")
            continue
        runner = "" if word.startswith("-") else _runner(word)
        if runner == "node" and node_at < 0:
            node_at = number
        elif runner and runner != "node":
            node_options = tuple(words[node_at + 1 : number]) if node_at >= 0 else ()
            options, files = _split(words[number + 1 :], runner)
            return Script(folder, text, runner, node_options, options, files, environment)
    rest = words[node_at + 1 :]
    if node_at < 0 or "--test" not in rest:
        return None
    options, files = _split([word for word in rest if word != "--test"], "node")
    return Script(folder, text, "node", options, (), files, environment)


def _runner(word: str) -> str:
    """Return the runner that a word starts: `jest`, `.bin/jest` and `jest/bin/jest.js` are jest."""
    name = PurePosixPath(word).name
    stem = name.removesuffix(".js").removesuffix(".mjs").removesuffix(".cjs").lstrip("_")
    return stem if stem in RUNNER_NAMES else ""


def _split(words: Sequence[str], runner: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split into the options to keep and the files, without words that a shell would expand."""
    with_value = _WITH_VALUE | _MOCHA_WITH_VALUE if runner == "mocha" else _WITH_VALUE
    options: list[str] = []
    files: list[str] = []
    rest = iter(words)
    for word in rest:
        if word.startswith("-"):
            value = [next(rest, "")] if word in with_value else []
            style = runner == "mocha" and word == "-u"  # elsewhere it writes new snapshots
            if style or not _DROPPED.fullmatch(word):
                options += [word, *value]
        elif word not in ("run", "related"):  # vitest's own commands
            files.append(word)
    settled = tuple(word for word in options if not _UNSETTLED.search(word))
    return settled, tuple(word for word in files if not word.startswith("$"))


# ------------------------------------------------------------------------------------ commands

_LANGUAGES = ("javascript", "typescript", "tsx")
_SCRIPT_LANGUAGES = (*_LANGUAGES, "vue", "svelte")

# Written into the private copy by the runner, and read from there when it has ended.
_REPORT = ".patchshot-report.json"

# Names in `Suite.settings`.
_FILES, _NODE = "files", "node-options"

# No colours in messages, no watching, no prompts.
_ENVIRONMENT = {"CI": "true", "FORCE_COLOR": "0", "NO_COLOR": "1", "npm_config_offline": "true"}


def _suite_of_script(snapshot: Snapshot, name: str) -> Suite | None:
    script = find_script(snapshot)
    if script is None or RUNNER_NAMES.get(script.runner) != name:
        return None
    return Suite(
        name,
        f"{joined(script.folder, 'package.json')} runs {name} for its tests",
        argv=script.options,
        cwd=script.folder,
        environment=script.environment,
        settings={_FILES: shlex.join(script.files), _NODE: shlex.join(script.node_options)},
    )


def _suite_of_npm(snapshot: Snapshot) -> Suite | None:
    script = find_script(snapshot)
    if script is None:
        return None
    why = f"{joined(script.folder, 'package.json')} has a script for its tests"
    return Suite("npm", why, ("npm", "test", "--silent"), script.folder, _ENVIRONMENT)


def _files(suite: Suite, paths: Sequence[str], snapshot: Snapshot) -> tuple[str, ...]:
    mine = (below(suite.cwd, path) for path in paths if language_of(path) in _LANGUAGES)
    return tuple(dict.fromkeys(as_argument(path) for path in mine if path))


def _words(suite: Suite, setting: str) -> tuple[str, ...]:
    return tuple(shlex.split(suite.settings.get(setting, "")))


def _run_jest(suite: Suite, targets: Sequence[str], context: RunContext) -> Command:
    files = ("--runTestsByPath", *targets) if targets else _words(suite, _FILES)
    output = f"--outputFile={_report_file(suite, context)}"
    options = ("--json", output, "--ci", "--silent=false")
    return _collected(suite, ("jest", *suite.argv, *options, *files), context)


def _run_vitest(suite: Suite, targets: Sequence[str], context: RunContext) -> Command:
    output = f"--outputFile.json={_report_file(suite, context)}"
    options = ("--reporter=default", "--reporter=json", output)
    files = targets or _words(suite, _FILES)
    return _collected(suite, ("vitest", "run", *suite.argv, *options, *files), context)


def _run_mocha(suite: Suite, targets: Sequence[str], context: RunContext) -> Command:
    output = f"output={_report_file(suite, context)}"
    options = ("--reporter", "json", "--reporter-option", output)
    files = targets or _words(suite, _FILES)
    return _collected(suite, ("mocha", *suite.argv, *options, *files), context)


def _run_node(suite: Suite, targets: Sequence[str], context: RunContext) -> Command:
    reporter = f"--test-reporter={INSIDE / 'patchshot_node.mjs'}"
    options = ("--test", reporter, "--test-reporter-destination=stdout")
    files = targets or _words(suite, _FILES)
    node = context.tools.toolchain.program("node")
    return _tool(suite, (node, *_words(suite, _NODE), *options, *files), context)


def _collected(suite: Suite, argv: Sequence[str], context: RunContext) -> Command:
    """Run a program of `node_modules/.bin` through the script that collects its report."""
    return _tool(suite, collecting("files", argv, f"./{_REPORT}"), context)


def _tool(suite: Suite, argv: Sequence[str], context: RunContext) -> Command:
    folder = PurePosixPath(context.root, suite.cwd)
    inside = [folder, *(up for up in folder.parents if up.is_relative_to(context.root))]
    folders = [f"{up}/node_modules/.bin" for up in inside]
    return tool_command(argv, suite, context, environment=_ENVIRONMENT, folders=folders)


def _report_file(suite: Suite, context: RunContext) -> PurePosixPath:
    return PurePosixPath(context.root, suite.cwd, _REPORT)


# ------------------------------------------------------------------------------------- reports

_OUTCOMES = {
    "passed": Outcome.PASSED,
    "failed": Outcome.FAILED,
    **dict.fromkeys(("pending", "skipped", "todo", "disabled"), Outcome.SKIPPED),
}

_MOCHA_OUTCOMES = {
    "passes": Outcome.PASSED,
    "pending": Outcome.SKIPPED,
    "failures": Outcome.FAILED,
}


def _read_jest(suite: Suite, command: Command, result: RunResult) -> TestRun:
    parsed = ParsedOutput()
    report = _json(_report(result))
    if report is None or not isinstance(report.get("testResults"), list):
        return make_tool_run(command, result, parsed)
    parsed.begun = True
    parsed.complete = report.get("wasInterrupted") is not True
    for file in entries(report.get("testResults")):
        path = _path(suite, command, text_of(file.get("name")))
        tests = entries(file.get("assertionResults"))
        for test in tests:
            outcome = _OUTCOMES.get(text_of(test.get("status")))
            if outcome is not None:
                title = " > ".join((*_texts(test, "ancestorTitles"), text_of(test.get("title"))))
                messages = "\n".join(_texts(test, "failureMessages"))
                parsed.add(f"{path}::{title}", outcome, messages)
        failed = any(test.get("status") == "failed" for test in tests)
        if file.get("status") == "failed" and not failed:
            parsed.add(path, Outcome.ERROR, text_of(file.get("message")))
    return make_tool_run(command, result, parsed)


def _texts(test: Mapping[str, object], name: str) -> Iterator[str]:
    values = test.get(name)
    return filter(None, map(text_of, values if isinstance(values, list) else ()))


def _read_mocha(suite: Suite, command: Command, result: RunResult) -> TestRun:
    """Read the JSON file. Before mocha 9.2 the report is on standard output instead."""
    parsed = ParsedOutput()
    report = _json(_report(result)) or _json(result.stdout)
    if report is not None and isinstance(report.get("tests"), list):
        parsed.begun = parsed.complete = True
        only = _only_file(suite, command)
        for kind, outcome in _MOCHA_OUTCOMES.items():
            for test in entries(report.get(kind)):
                error = test.get("err")
                text = text_of(error.get("stack")) if isinstance(error, dict) else ""
                path = _path(suite, command, text_of(test.get("file"))) or only
                title = text_of(test.get("fullTitle"))
                parsed.add(f"{path}::{title}" if path else title, outcome, text)
    return make_tool_run(command, result, parsed)


def _only_file(suite: Suite, command: Command) -> str:
    """Return the file that mocha was given, "" for several: old reports name none."""
    words = iter(command.argv)
    is_output = (w.startswith("output=") and w.endswith(f"/{_REPORT}") for w in words)
    files = [word for matches in is_output if matches for word in words]
    return joined(suite.cwd, files[0]) if len(files) == 1 else ""


def _read_node(suite: Suite, command: Command, result: RunResult) -> TestRun:
    parsed = ParsedOutput()
    for raw in result.report.splitlines():
        line = _json(raw) or {}
        parsed.begun = parsed.begun or line.get("event") == "begin"
        parsed.complete = line.get("event") == "finish"
        outcome = _OUTCOMES.get(text_of(line.get("outcome")))
        if line.get("event") == "result" and outcome is not None:
            test = joined(suite.cwd, text_of(line.get("id")))
            whole = "::" not in test and outcome is Outcome.FAILED
            parsed.add(test, Outcome.ERROR if whole else outcome, text_of(line.get("text")))
    return make_tool_run(command, result, parsed)


def _report(result: RunResult) -> bytes:
    return next((content for _, content in collected(result.report)), b"")


def _json(data: bytes | str) -> dict[str, object] | None:
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


def _row(
    name: str,
    command: Callable[[Suite, Sequence[str], RunContext], Command],
    read: Callable[[Suite, Command, RunResult], TestRun],
) -> Runner:
    """Return a runner that a script of package.json starts; it is one of the project's packages."""
    return Runner(
        name=name,
        languages=_SCRIPT_LANGUAGES,
        detect=lambda snapshot: _suite_of_script(snapshot, name),
        needs=("node",),
        targets=_files,
        command=command,
        read=read,
    )


JAVASCRIPT_RUNNERS = (
    _row("vitest", _run_vitest, _read_jest),
    _row("jest", _run_jest, _read_jest),
    _row("mocha", _run_mocha, _read_mocha),
    _row("node-test", _run_node, _read_node),
    Runner(
        name="npm",  # scripts that start an unknown runner
        languages=_SCRIPT_LANGUAGES,
        detect=_suite_of_npm,
        needs=("npm", "node"),
        command=run_tool,
        read=read_command,
        selects=False,
    ),
)
