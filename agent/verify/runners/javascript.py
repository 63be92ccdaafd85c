"""jest, vitest, mocha and node's own runner; `npm test` for scripts that start none of them.

The script `test` of a package.json says which; it is read and never run. Each runner is a row: the
words that make it write its report, and the reader of that. jest and vitest write one JSON file of
the same format, and mocha one of its own. node's runner has `inside/patchshot_node.mjs` write it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import PurePosixPath

from agent.repository import is_vendored_path, language_of
from agent.types import Outcome, TestRun
from agent.types.protocols import Snapshot
from agent.verify.reports import (
    ParsedOutput,
    collected,
    entries,
    json_object,
    make_tool_run,
    text_of,
)
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
from agent.verify.runners.python import read_command
from sandbox import Command, RunResult

# --------------------------------------------------------------------- the script of a package

# The runners by the program that starts each in a script.
_RUNNERS = {"vitest": "vitest", "jest": "jest", "mocha": "mocha", "node": "node-test"}

# Scripts may call each other in a circle.
_MOST_SCRIPTS = 5

# npm writes it into a new package, which has no tests.
_NO_TESTS = "no test specified"

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.ASCII | re.DOTALL)

# Characters that only a shell could expand.
_UNSETTLED = re.compile(r"[$`*?~]")

_OPERATORS = frozenset("();<>|&")

# Options that take the next word as their value. Those of mocha may mean something else elsewhere:
# `-u tdd` names the style of the tests.
_WITH_VALUE = re.compile(
    r"-[crt]|--(?:config|dir|env|experimental-loader|extension|import|loader|outputFile|projects?"
    r"|reporters?|require|root|rootDir|roots|setupFiles|spec|test-reporter(?:-destination)?"
    r"|testEnvironment|testPathPattern|timeout|ui)"
)
_MOCHA_WITH_VALUE = re.compile(r"-[ORfgjnsu]|--(?:fgrep|grep|jobs|retries|slow)")

# Options that do not terminate, that measure, or that redirect the report.
_DROPPED = re.compile(
    r"--(?:watch\w*|coverage\S*|reporters?\S*|json|outputFile\S*|verbose|silent|notify|parallel"
    r"|updateSnapshot|ci|bail\S*|test-reporter\S*|experimental-test-coverage|run)(?:=.*)?|-[wubOR]"
)

# Names in `Suite.settings`: the files that the script names, and the options of node itself.
_FILES, _NODE = "files", "node-options"

# No colours in messages, no watching, no prompts.
_ENVIRONMENT = {"CI": "true", "FORCE_COLOR": "0", "NO_COLOR": "1", "npm_config_offline": "true"}


def _detect(snapshot: Snapshot, name: str) -> Suite | None:
    """Return the suite of the script if it is one of this runner."""
    suite = _suite_of_scripts(snapshot)
    return suite if suite and suite.runner == name else None


def _suite_of_scripts(snapshot: Snapshot) -> Suite | None:
    """Return what the script `test` runs: of several, a known runner, nearest to the root.

    Of a workspace, the package of the runner is thus preferred to a root that only delegates.
    """
    packages = (path for path in snapshot.files if PurePosixPath(path).name == "package.json")
    suites = [_suite(snapshot, path) for path in packages if not is_vendored_path(path)]
    return min(
        filter(None, suites),
        key=lambda s: (s.runner == "npm", len(PurePosixPath(s.cwd).parts), s.cwd),
        default=None,
    )


def _suite(snapshot: Snapshot, path: str) -> Suite | None:
    table = (json_object(snapshot.text(path)) or {}).get("scripts")
    pairs = table.items() if isinstance(table, dict) else ()
    scripts = {name: value.strip() for name, value in pairs if isinstance(value, str)}
    text = scripts.get("test", "")
    if not text or _NO_TESTS in text:
        return None
    folder = str(PurePosixPath(path).parent)
    for _ in range(_MOST_SCRIPTS):  # `npm run x`, `yarn x` and similar commands
        called = re.fullmatch(r"(?:npm|yarn|pnpm)(?:\s+run)?(?:-script)?\s+([\w:.-]+)", text)
        text = scripts.get(called[1], text) if called else text
    suites = (_suite_of_command(folder, words) for words in _commands(text))
    why = f"{path} has a script for its tests"
    npm = Suite("npm", why, ("npm", "test", "--silent"), folder, _ENVIRONMENT)
    return next(filter(None, suites), npm)


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
    return commands


def _suite_of_command(folder: str, words: Sequence[str]) -> Suite | None:
    """Read a simple command that starts a known runner, after any other words.

    It may be `node --test ...`, or another runner that node starts with options of its own.
    """
    programs = [_program(word) for word in words]
    node = programs.index("node") if "node" in programs else len(words)
    other = next((n for n, name in enumerate(programs) if name not in ("", "node")), len(words))
    first = min(node, other)
    settings = (word.partition("=") for word in words[:first] if _ASSIGNMENT.fullmatch(word))
    environment = {name: value for name, _, value in settings}
    if other < len(words):
        program, rest = programs[other], words[other + 1 :]
        options, files = _split(rest, program)
        node_options: Sequence[str] = words[node + 1 : other]
    elif "--test" in words[node + 1 :]:
        program = "node"
        node_options, files = _split([w for w in words[node + 1 :] if w != "--test"], program)
        options = ()
    else:
        return None
    name = _RUNNERS[program]
    why = f"{joined(folder, 'package.json')} runs {name} for its tests"
    more = {_FILES: shlex.join(files), _NODE: shlex.join(node_options)}
    return Suite(name, why, options, folder, environment, more)


def _program(word: str) -> str:
    """Return the runner that a word starts: `jest`, `.bin/jest` and `jest/bin/jest.js` are jest."""
    name = re.sub(r"\.[mc]?js$", "", PurePosixPath(word).name).lstrip("_")
    return name if name in _RUNNERS and not word.startswith("-") else ""


def _split(words: Sequence[str], runner: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split into the options to keep and the files, without words that a shell would expand."""
    patterns = (_WITH_VALUE, _MOCHA_WITH_VALUE) if runner == "mocha" else (_WITH_VALUE,)
    options: list[str] = []
    files: list[str] = []
    rest = iter(words)
    for word in rest:
        if word.startswith("-"):
            takes = any(pattern.fullmatch(word) for pattern in patterns)
            value = [next(rest, "")] if takes else []
            style = runner == "mocha" and word == "-u"  # elsewhere it writes new snapshots
            if style or not _DROPPED.fullmatch(word):
                options += [word, *value]
        elif word not in ("run", "related"):  # vitest's own commands
            files.append(word)
    settled = tuple(word for word in options if not _UNSETTLED.search(word))
    return settled, tuple(word for word in files if not word.startswith("$"))


# ------------------------------------------------------------------------------------ commands

_LANGUAGES = ("javascript", "typescript", "tsx")

# Written into the private copy by the runner, and read from there when it has ended.
_REPORT = ".patchshot-report.json"


def _files(suite: Suite, paths: Sequence[str], snapshot: Snapshot) -> tuple[str, ...]:
    mine = (below(suite.cwd, path) for path in paths if language_of(path) in _LANGUAGES)
    return tuple(dict.fromkeys(as_argument(path) for path in mine if path))


def _words(suite: Suite, setting: str) -> tuple[str, ...]:
    return tuple(shlex.split(suite.settings.get(setting, "")))


def _run(
    suite: Suite,
    targets: Sequence[str],
    context: RunContext,
    *,
    program: tuple[str, ...],
    reporting: tuple[str, ...],
    files: tuple[str, ...] = (),
) -> Command:
    """Run a program of `node_modules/.bin` through the script that collects its report.

    `reporting` are options in which `{}` is the report's path, `files` those before files.
    """
    report = str(PurePosixPath(context.root, suite.cwd, _REPORT))
    options = (word.replace("{}", report) for word in reporting)
    words = (*files, *targets) if targets else _words(suite, _FILES)
    argv = (*program, *suite.argv, *options, *words)
    return _tool(suite, collecting("files", argv, f"./{_REPORT}"), context)


def _run_node(suite: Suite, targets: Sequence[str], context: RunContext) -> Command:
    reporter = f"--test-reporter={INSIDE / 'patchshot_node.mjs'}"
    options = ("--test", reporter, "--test-reporter-destination=stdout")
    files = targets or _words(suite, _FILES)
    node = context.tools.toolchain.program("node")
    return _tool(suite, (node, *_words(suite, _NODE), *options, *files), context)


def _tool(suite: Suite, argv: Sequence[str], context: RunContext) -> Command:
    folder = PurePosixPath(context.root, suite.cwd)
    inside = [folder, *(up for up in folder.parents if up.is_relative_to(context.root))]
    folders = [f"{up}/node_modules/.bin" for up in inside]
    return tool_command(argv, suite, context, environment=_ENVIRONMENT, folders=folders)


def _run_npm(suite: Suite, targets: Sequence[str], context: RunContext) -> Command:
    return tool_command(suite.argv, suite, context)


# ------------------------------------------------------------------------------------- reports

_OUTCOMES = {
    **{"passed": Outcome.PASSED, "passes": Outcome.PASSED},
    **{"failed": Outcome.FAILED, "failures": Outcome.FAILED},
    **dict.fromkeys(("pending", "skipped", "todo", "disabled"), Outcome.SKIPPED),
}


def _read_jest(suite: Suite, command: Command, result: RunResult) -> TestRun:
    parsed = ParsedOutput()
    report = json_object(_report(result)) or {}
    parsed.begun = isinstance(report.get("testResults"), list)
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
    report = json_object(_report(result)) or json_object(result.stdout) or {}
    parsed.begun = parsed.complete = isinstance(report.get("tests"), list)
    only = _only_file(suite, command)
    for kind in ("passes", "pending", "failures") if parsed.begun else ():
        for test in entries(report.get(kind)):
            error = test.get("err")
            text = text_of(error.get("stack")) if isinstance(error, dict) else ""
            path = _path(suite, command, text_of(test.get("file"))) or only
            title = text_of(test.get("fullTitle"))
            parsed.add(f"{path}::{title}" if path else title, _OUTCOMES[kind], text)
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
        line = json_object(raw) or {}
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
        detect=partial(_detect, name=name),
        needs=("node",),
        targets=_files,
        command=command,
        read=read,
    )


_SCRIPT_LANGUAGES = (*_LANGUAGES, "vue", "svelte")

_VITEST = ("--reporter=default", "--reporter=json", "--outputFile.json={}")
_JEST = ("--json", "--outputFile={}", "--ci", "--silent=false")
_MOCHA = ("--reporter", "json", "--reporter-option", "output={}")

JAVASCRIPT_RUNNERS = (
    _row("vitest", partial(_run, program=("vitest", "run"), reporting=_VITEST), _read_jest),
    _row(
        "jest",
        partial(_run, program=("jest",), reporting=_JEST, files=("--runTestsByPath",)),
        _read_jest,
    ),
    _row("mocha", partial(_run, program=("mocha",), reporting=_MOCHA), _read_mocha),
    _row("node-test", _run_node, _read_node),
    Runner(
        name="npm",  # scripts that start an unknown runner
        languages=_SCRIPT_LANGUAGES,
        detect=partial(_detect, name="npm"),
        needs=("npm", "node"),
        command=_run_npm,
        read=read_command,
        selects=False,
    ),
)
