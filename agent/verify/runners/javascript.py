"""The runners of JavaScript and TypeScript: their commands, and how their reports are read."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath

from agent.types import BAD_OUTCOMES, Outcome, TestRun
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
    below,
    collecting,
    joined,
    tool_command,
    with_variables,
)
from agent.verify.runners.python import read_command
from agent.verify.runners.scripts import (
    BUILD,
    ENVIRONMENT,
    FILES,
    NODE,
    UNSETTLED,
    detect_package,
    source_of,
    test_files,
)
from sandbox import Command, RunResult

_LANGUAGES = ("javascript", "typescript", "tsx", "vue", "svelte")

# Options of node that NODE_OPTIONS may hold too (node's manual, "NODE_OPTIONS").
_FOR_ALL_NODES = re.compile(
    r"--(?:experimental-[\w-]+|import|require|loader|conditions|no-warnings|max-old-space-size"
    r"|enable-source-maps|openssl-legacy-provider|preserve-symlinks|stack-trace-limit)(?:=.*)?|-[rC]"
)
_NODE_WITH_VALUE = re.compile(r"--(?:import|require|loader|experimental-loader|conditions)|-[rC]")

# Written into the private copy by the runner, and read from there when it has ended.
_REPORT = ".patchshot-report.json"

_ROOT = "PATCHSHOT_ROOT"

_TAP = {
    **dict.fromkeys(("TAP_COVERAGE", "TAP_CHECK_COVERAGE"), "0"),
    **dict.fromkeys(("TAP_DISABLE_COVERAGE", "TAP_ALLOW_EMPTY_COVERAGE"), "1"),
}


def _words(suite: Suite, setting: str) -> tuple[str, ...]:
    return tuple(shlex.split(suite.settings.get(setting, "")))


def _run(
    suite: Suite,
    targets: Sequence[str],
    context: RunContext,
    *,
    program: tuple[str, ...],
    reporting: tuple[str, ...] = (),
    files: tuple[str, ...] = (),
    each: bool = False,
) -> Command:
    """Run a program of `node_modules/.bin`; with `each`, every file by itself."""
    report = str(PurePosixPath(context.root, suite.cwd, _REPORT))
    argv = (*program, *suite.argv, *(word.replace("{}", report) for word in reporting))
    place = f"./{_REPORT}" if reporting else "-"
    words = targets or _words(suite, FILES)
    if each and words and not any(map(UNSETTLED.search, words)):
        wrapped = collecting("each", (shlex.join(argv), *words), place)
    elif each:
        wrapped = collecting("each", (f"exec {shlex.join((*argv, *words))} #", "."), place)
    else:
        wrapped = collecting("files", (*argv, *(files if targets else ()), *words), place)
    return _tool(suite, wrapped, context, _for_all_nodes(_words(suite, NODE)))


def _run_mocha(
    suite: Suite, targets: Sequence[str], context: RunContext, *, program: str
) -> Command:
    """Run mocha with its own configuration but for the files that this names."""
    options = ("--reporter", "json", "--reporter-option", "output={}")
    given = iter(suite.argv)
    config = [next(given, "") for word in given if word == "--config"]
    if targets:
        own = (word for word in suite.argv if word not in ("--config", *config))
        rest = ("--no-package", "--config", str(INSIDE / "patchshot_mocharc.js"))
        suite = replace(suite, argv=(*own, *rest))
    command = _run(suite, targets, context, program=(program,), reporting=options, each=True)
    return with_variables(command, {"PATCHSHOT_MOCHARC": config[0]} if config else {})


def _node_argv(suite: Suite, context: RunContext) -> tuple[str, ...]:
    return (context.tools.toolchain.program("node"), *_words(suite, NODE))


def _run_node(suite: Suite, targets: Sequence[str], context: RunContext) -> Command:
    reporter = f"--test-reporter={INSIDE / 'patchshot_node.mjs'}"
    options = ("--test", reporter, "--test-reporter-destination=stdout")
    argv = (*_node_argv(suite, context), *options, *(targets or _words(suite, FILES)))
    return _tool(suite, collecting("own", argv), context)


def _run_script(suite: Suite, targets: Sequence[str], context: RunContext) -> Command:
    plain = replace(suite, settings={**suite.settings, NODE: ""})
    return _run(plain, targets, context, program=_node_argv(suite, context), each=True)


def _replay(suite: Suite, context: RunContext, order: Path) -> Command:
    """Run tests as plain code, without options of node (`inside/patchshot_plain.cjs`)."""
    argv = (context.tools.toolchain.program("node"), str(INSIDE / "patchshot_plain.cjs"))
    own = {**ENVIRONMENT, "NODE_OPTIONS": "", "PATCHSHOT_REPLAY": str(order)}
    return tool_command(argv, suite, context, environment=own)


def _tool(
    suite: Suite, argv: Sequence[str], context: RunContext, options: Sequence[str] = ()
) -> Command:
    folder = PurePosixPath(context.root, suite.cwd)
    inside = [folder, *(up for up in folder.parents if up.is_relative_to(context.root))]
    own = {**ENVIRONMENT, **_TAP, _ROOT: str(context.root)}
    own["PATCHSHOT_REPORT"] = str(folder / _REPORT)
    if BUILD in suite.settings:
        own["PATCHSHOT_BUILD"] = suite.settings[BUILD]
    if options:
        own["NODE_OPTIONS"] = " ".join(options)
    folders = [f"{up}/node_modules/.bin" for up in inside]
    return tool_command(argv, suite, context, environment=own, folders=folders)


def _for_all_nodes(words: Sequence[str]) -> list[str]:
    options: list[str] = []
    rest = iter(words)
    for word in rest:
        value = [next(rest, "")] if _NODE_WITH_VALUE.fullmatch(word) else []
        options += [word, *value] if _FOR_ALL_NODES.fullmatch(word) else []
    return options


# ------------------------------------------------------------------------------------- reports

_OUTCOMES = {
    **{"passed": Outcome.PASSED, "passes": Outcome.PASSED},
    **{"failed": Outcome.FAILED, "failures": Outcome.FAILED},
    **dict.fromkeys(("pending", "skipped", "todo", "disabled", "excluded"), Outcome.SKIPPED),
}

BUILD_STEP = "package.json::the build step"
"""The end of the id of what a script builds before it starts the runner."""

# Reads one report: the path of its test file where that is known, and its content.
_Reader = Callable[[ParsedOutput, Suite, Command, str, bytes], None]


def _read_with(reader: _Reader, suite: Suite, command: Command, result: RunResult) -> TestRun:
    """Read each report. A program that fails and blames no test fails as a whole."""
    parsed, built = ParsedOutput(complete=True), ParsedOutput()
    for name, content in collected(result.report):
        file, _, code = name.partition("\t")
        text = content.decode("utf-8", "replace")
        if file == "":
            outcome = Outcome.PASSED if code == "0" else Outcome.ERROR
            built.add(joined(suite.cwd, BUILD_STEP), outcome, text)
            continue
        path = _path(suite, command, file) if file not in (".", _REPORT) else ""
        before = dict(parsed.outcomes)
        reader(parsed, suite, command, path, content)
        new = {k: v for k, v in parsed.outcomes.items() if before.get(k) is not v}
        blames = any(outcome in BAD_OUTCOMES for outcome in new.values())
        if suite.runner == "tap" and new:  # it fails for want of coverage too
            blames = True
        if path and code not in ("", "0") and not blames:
            output = result.stderr.decode("utf-8", "replace")
            parsed.add(path, Outcome.ERROR, text.strip() or output)
        elif path and code == "0" and not new:
            parsed.add(path, Outcome.PASSED)
    run = make_tool_run(command, result, parsed)  # its exit code says nothing of the build
    if run.exit_code and not run.outcomes and not built.failures:
        return run  # no test began
    outcomes = dict(sorted({**run.outcomes, **built.outcomes}.items()))
    return replace(run, outcomes=outcomes, failures={**run.failures, **built.failures})


def _jest(parsed: ParsedOutput, suite: Suite, command: Command, path: str, content: bytes) -> None:
    report = json_object(content) or {}
    parsed.begun = parsed.begun or isinstance(report.get("testResults"), list)
    parsed.complete = parsed.complete and report.get("wasInterrupted") is not True
    for file in entries(report.get("testResults")):
        place = _path(suite, command, text_of(file.get("name"))) or path
        tests = entries(file.get("assertionResults"))
        for test in tests:
            outcome = _OUTCOMES.get(text_of(test.get("status")))
            if outcome is not None:
                title = " > ".join((*_texts(test, "ancestorTitles"), text_of(test.get("title"))))
                messages = "\n".join(_texts(test, "failureMessages"))
                parsed.add(f"{place}::{title}", outcome, messages)
        failed = any(test.get("status") == "failed" for test in tests)
        if file.get("status") == "failed" and not failed:
            parsed.add(place, Outcome.ERROR, text_of(file.get("message")))


def _texts(test: Mapping[str, object], name: str) -> Iterator[str]:
    values = test.get(name)
    return filter(None, map(text_of, values if isinstance(values, list) else ()))


def _mocha(parsed: ParsedOutput, suite: Suite, command: Command, path: str, content: bytes) -> None:
    report = json_object(content) or {}
    is_report = isinstance(report.get("tests"), list)
    parsed.begun = parsed.begun or is_report
    for kind in ("passes", "pending", "failures") if is_report else ():
        for test in entries(report.get(kind)):
            error = test.get("err")
            text = text_of(error.get("stack")) if isinstance(error, dict) else ""
            place = _path(suite, command, text_of(test.get("file"))) or path
            title = text_of(test.get("fullTitle"))
            parsed.add(f"{place}::{title}" if place else title, _OUTCOMES[kind], text)


# A line of the Test Anything Protocol (version 14): a result, or the name of what follows.
_RESULT = re.compile(
    r"( *)(not )?ok\b(?: \d+)?(?: -)? ?(.*?)(?: # (SKIP|TODO)\b.*| # time=.*)?(?: \{)?",
    re.IGNORECASE,
)
_SUBTEST = re.compile(r"( *)# (Subtest: )?(.*)")
_TOTALS = re.compile(r"(?:tests|pass|fail|skip|todo|failed|time=?|ok)\b.*")
_DIAGNOSIS_LINES = 80


def _tap(parsed: ParsedOutput, suite: Suite, command: Command, path: str, content: bytes) -> None:
    above: dict[int, str] = {}
    results: list[tuple[tuple[str, ...], Outcome, str]] = []
    lines = content.decode("utf-8", "replace").split("\n")
    for number, line in enumerate(lines):
        name = _SUBTEST.fullmatch(line)
        if name is not None and not _TOTALS.fullmatch(name[3]):
            indent = len(name[1]) - (not name[2])  # tape names a test without indenting it
            above = {n: title for n, title in above.items() if n < indent} | {indent: name[3]}
        match = _RESULT.fullmatch(line)
        if match is not None:
            outer = (above[n] for n in sorted(above) if n < len(match[1]))
            outcome = Outcome.FAILED if match[2] else Outcome.PASSED
            text = _diagnosis(lines[number + 1 :][:_DIAGNOSIS_LINES]) if match[2] else ""
            names = (*outer, match[3].strip())
            results.append((names, Outcome.SKIPPED if match[4] else outcome, text))
    summed = {names[:n] for names, _, _ in results for n in range(1, len(names))}
    for names, outcome, text in results:
        inner = [one for one in names if one and joined(suite.cwd, one) != path]
        if names not in summed:
            parsed.add(f"{path}::{' > '.join(inner)}" if inner else path, outcome, text)


def _diagnosis(lines: Sequence[str]) -> str:
    ends = (n for n, line in enumerate(lines) if line.strip() == "..." or _RESULT.fullmatch(line))
    return "\n".join(lines[: next(ends, len(lines))])


def _node(parsed: ParsedOutput, suite: Suite, command: Command, path: str, content: bytes) -> None:
    parsed.complete = False
    for raw in content.splitlines():
        line = json_object(raw) or {}
        parsed.begun = parsed.begun or line.get("event") == "begin"
        parsed.complete = line.get("event") == "finish"
        outcome = _OUTCOMES.get(text_of(line.get("outcome")))
        if line.get("event") == "result" and outcome is not None:
            file, colons, name = text_of(line.get("id")).partition("::")
            whole = not colons and outcome is Outcome.FAILED
            test = f"{_path(suite, command, file)}{colons}{name}"
            parsed.add(test, Outcome.ERROR if whole else outcome, text_of(line.get("text")))


def _path(suite: Suite, command: Command, file: str) -> str:
    """Return the path in the tree of the source of a test file, which may be absolute."""
    root, pure = command.environment.get(_ROOT, "/"), PurePosixPath(file)
    if not file:
        return ""
    if pure.is_absolute():
        if not pure.is_relative_to(root):
            return file
        inside = below(suite.cwd, str(pure.relative_to(root)))
        if inside is None:
            return str(pure.relative_to(root))
        file = inside
    return joined(suite.cwd, source_of(suite, file.removeprefix("./")))


# ------------------------------------------------------------------------------------ the table

_VITEST = ("--reporter=default", "--reporter=json", "--outputFile.json={}")
_JEST = ("--json", "--outputFile={}", "--ci", "--silent=false", "--watchman=false")
_JASMINE = (f"--helper={INSIDE / 'patchshot_jasmine.cjs'}",)
_OF_JEST = partial(_run, reporting=_JEST, files=("--runTestsByPath",))

# Each is one of the project's packages, but for node's own.
_ROWS: Mapping[str, tuple[Callable[[Suite, Sequence[str], RunContext], Command], _Reader]] = {
    "vitest": (partial(_run, program=("vitest", "run"), reporting=_VITEST), _jest),
    "jest": (partial(_OF_JEST, program=("jest",)), _jest),
    "react-scripts": (partial(_OF_JEST, program=("react-scripts", "test")), _jest),
    "mocha": (partial(_run_mocha, program="mocha"), _mocha),
    "ts-mocha": (partial(_run_mocha, program="ts-mocha"), _mocha),
    "node-test": (_run_node, _node),
    "jasmine": (partial(_run, program=("jasmine",), reporting=_JASMINE, each=True), _jest),
    "ava": (partial(_run, program=("ava", "--tap"), each=True), _tap),
    "tap": (partial(_run, program=("tap", "--reporter=tap"), each=True), _tap),
    "script": (_run_script, _tap),
}

NPM = Runner(
    name="npm",  # scripts that start an unknown runner
    languages=_LANGUAGES,
    detect=detect_package,  # of all rows: the script says which
    needs=("npm", "node"),
    command=lambda suite, _, context: tool_command(suite.argv, suite, context),
    read=read_command,
    selects=False,
)

JAVASCRIPT_RUNNERS = (
    NPM,
    *(
        Runner(
            name=name,
            languages=_LANGUAGES,
            needs=("node",),
            targets=test_files,
            command=command,
            read=partial(_read_with, reader),
            replay=_replay,
            replayed=(".js", ".cjs", ".mjs"),
        )
        for name, (command, reader) in _ROWS.items()
    ),
)
