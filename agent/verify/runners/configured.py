"""Reads which test command a project's tox or nox file names, without running anything.

tox: `[testenv]` of `tox.ini`, `setup.cfg` or `legacy_tox_ini`, and `env_run_base` of tox 4's tables
in `tox.toml` or `pyproject.toml`. Only the base environment is read, and only substitutions that
mean something outside tox. Commands with other substitutions are left out. nox: the literal calls
of `session.run` in the syntax tree of `noxfile.py`.
"""

from __future__ import annotations

import ast
import configparser
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from agent.patching import parse_python
from agent.types.protocols import Snapshot
from agent.verify.runners.base import COMMAND, Suite
from agent.verify.runners.programs import parsed_toml

_PYTHON = re.compile(r"(?:python|pypy)[\d.]*(?:\.exe)?")

# Words before the command proper: measuring, a display, an environment.
_WRAPPERS = frozenset({"coverage", "env", "nice", "time", "xvfb-run"})
_WRAPPER_OPTIONS_WITH_VALUE = ("-W", "-X", "-s", "--rcfile", "--source")

# Options of pytest for finding and importing tests. Other options select tests or change output.
_FINDING = re.compile(
    r"--(?:ds|dc|import-mode|pyargs|doctest-modules|asyncio-mode|strict-markers)\b.*"
)
_FINDING_WITH_VALUE = ("-c", "-o", "--ds", "--dc", "--import-mode", "--asyncio-mode")

# Other programs that run tests: the command is worth running as it stands.
_OTHER_RUNNERS = frozenset(
    {
        "behave", "green", "manage.py", "nose2", "nosetests", "robot", "runtests.py", "stestr",
        "trial", "ward", "zope-testrunner",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ConfiguredCommand:
    """A command line, split into words, and the file and section that it comes from."""

    argv: tuple[str, ...]
    source: str
    environment: Mapping[str, str] = field(default_factory=dict)
    cwd: str = "."


def suites_of(commands: Iterable[ConfiguredCommand]) -> tuple[Suite, ...]:
    """Return the suites that the commands run, in order. Other commands give none."""
    suites = map(_suite, commands)
    return tuple(suite for suite in suites if suite is not None)


def _suite(command: ConfiguredCommand) -> Suite | None:
    words = _unwrapped(command.argv)
    why = f"{command.source} runs {' '.join(command.argv[:4])}"
    cwd = _folder_in_tree(command.cwd)
    if not words or cwd is None:
        return None
    program, rest = PurePosixPath(words[0]).name, words[1:]
    if program in ("pytest", "py.test"):
        return Suite("pytest", why, _finding_options(rest), ".", command.environment)
    if program == "unittest":
        return Suite("unittest", why, (), ".", command.environment)
    if program in _OTHER_RUNNERS:
        return Suite(COMMAND, why, command.argv, cwd, command.environment)
    return None


def _unwrapped(argv: Sequence[str]) -> tuple[str, ...]:
    """Drop the words before the runner: `coverage run -m pytest x` becomes `pytest x`."""
    words = list(argv)
    while words:
        name = PurePosixPath(words[0]).name
        if name in _WRAPPERS or _PYTHON.fullmatch(name):
            words.pop(0)
            # `-m` stays, because the runner follows it.
            while words and (words[0] == "run" or (words[0][0:1] == "-" and words[0] != "-m")):
                takes_value = words[0] in _WRAPPER_OPTIONS_WITH_VALUE
                words = words[2:] if takes_value else words[1:]
        elif words[0] == "-m" or "=" in words[0]:
            words.pop(0)
        else:
            break
    return tuple(words)


def _finding_options(words: Sequence[str]) -> tuple[str, ...]:
    options: list[str] = []
    for number, word in enumerate(words):
        if word in _FINDING_WITH_VALUE and number + 1 < len(words):
            options += [word, words[number + 1]]
        elif _FINDING.fullmatch(word) and word not in _FINDING_WITH_VALUE:
            options.append(word)
    return tuple(options)


def _folder_in_tree(cwd: str) -> str | None:
    """Return the folder as a path of the tree, None if it is outside the tree."""
    parts = [part for part in cwd.split("/") if part not in ("", ".")]
    if cwd.startswith("/") or ".." in parts or "\0" in cwd:
        return None
    return "/".join(parts) or "."


# ---------------------------------------------------------------------------------------- tox

# References may refer to each other in a circle, and multiply.
_DEEPEST = 8
_MOST_VALUE_CHARS = 20_000

_FACTORS = re.compile(r"(?:[\w.!-]|\{[\w.,-]+\})+(?:,(?:[\w.!-]|\{[\w.,-]+\})+)*:\s+")
_INNERMOST = re.compile(r"\{([^{}]*)\}")

# Commands start in `{toxinidir}`, so a relative path means the same.
_PLAIN = {
    **dict.fromkeys(("envpython", "env_python"), "python"),
    **dict.fromkeys(("toxinidir", "tox_root", "package_root"), "."),
    **dict.fromkeys(("envtmpdir", "env_tmp_dir"), "/tmp"),  # noqa: S108 - a private tmpfs
    "envbindir": "",
    ":": ":",
    "/": "/",
}


def read_tox(snapshot: Snapshot) -> list[ConfiguredCommand]:
    """Return the commands of the base environment, from the first file that has any."""
    for file in ("tox.ini", "tox.toml", "pyproject.toml", "setup.cfg"):
        commands = list(_tox_commands(file, snapshot.text(file))) if file in snapshot.files else []
        if commands:
            return commands
    return []


def _tox_commands(file: str, text: str) -> Iterator[ConfiguredCommand]:
    if not file.endswith(".toml"):
        yield from _from_ini(file, text)
        return
    table: object = parsed_toml(text)
    for name in ("tool", "tox") if file == "pyproject.toml" else ():
        table = table.get(name) if isinstance(table, dict) else None
    if isinstance(table, dict) and isinstance(table.get("legacy_tox_ini"), str):
        yield from _from_ini(file, table["legacy_tox_ini"])
    elif isinstance(table, dict) and isinstance(table.get("env_run_base"), dict):
        yield from _from_tables(file, table["env_run_base"])


def _from_ini(file: str, text: str) -> Iterator[ConfiguredCommand]:
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names are kept as they are
    try:
        parser.read_string(text)
    except (configparser.Error, AttributeError):
        return  # AttributeError: the parser's own fault, at a line that goes on after a bare name

    def value(*names: str) -> str:
        values = (_substituted(parser, parser.get("testenv", n, fallback="") or "") for n in names)
        return next(filter(None, values), "")

    pairs = (line.partition("=") for line in _without_factors(value("setenv", "set_env")))
    environment = {name.strip(): text.strip() for name, equals, text in pairs if equals}
    cwd = value("changedir", "change_dir").strip() or "."
    for line in value("commands").splitlines():
        condition = _FACTORS.match(line.strip())
        command = line.strip()[condition.end() if condition else 0 :].lstrip("-!@ ")
        try:
            argv = tuple(shlex.split(command, comments=True))
        except ValueError:
            argv = ()
        if argv:
            yield ConfiguredCommand(argv, f"{file} [testenv]", environment, cwd)


def _without_factors(text: str) -> Iterator[str]:
    return (line for line in text.splitlines() if not _FACTORS.match(line.strip()))


def _substituted(parser: configparser.RawConfigParser, text: str) -> str:
    """Substitute from the inside out, and leave out lines with an unknown reference."""

    def meaning(reference: re.Match[str]) -> str:
        inner = reference[1]
        kind, _, rest = inner.partition(":")
        if inner in _PLAIN:
            return _PLAIN[inner]
        if kind == "posargs" or inner == "":
            return rest
        if kind == "env":
            return rest.partition(":")[2]
        if inner.startswith("[") and "]" in inner:
            section, _, key = inner[1:].partition("]")
            return parser.get(section, key, fallback="\0") or ""
        return "\0"

    text = text.replace("\\\n", " ")
    for _ in range(_DEEPEST):
        text, count = _INNERMOST.subn(meaning, text)
        if not count or len(text) > _MOST_VALUE_CHARS:
            break
    lines = text.split("\n") if len(text) <= _MOST_VALUE_CHARS else []
    return "\n".join(line for line in lines if "\0" not in line and "{" not in line)


def _from_tables(file: str, base: Mapping[str, object]) -> Iterator[ConfiguredCommand]:
    """Read `env_run_base` of tox 4, whose commands are lists of words and tables."""
    commands, variables, cwd = base.get("commands"), base.get("set_env"), base.get("change_dir")
    texts = variables.items() if isinstance(variables, dict) else ()
    environment = {name: text for name, text in texts if isinstance(text, str) and "{" not in text}
    for command in commands if isinstance(commands, list) else ():
        argv = tuple(_toml_words(command)) if isinstance(command, list) else ()
        if argv and not any("\0" in word for word in argv):
            where = cwd if isinstance(cwd, str) and "{" not in cwd else "."
            yield ConfiguredCommand(argv, f"{file} [env_run_base]", environment, where)


def _toml_words(command: list[object]) -> Iterator[str]:
    for word in command:
        if isinstance(word, str):
            yield _INNERMOST.sub(lambda reference: _PLAIN.get(reference[1], "\0"), word)
        elif isinstance(word, dict) and word.get("replace") == "posargs":
            default = word.get("default")
            yield from filter(_is_text, default if isinstance(default, list) else ())
        else:
            yield "\0"


def _is_text(value: object) -> bool:
    return isinstance(value, str)


# ---------------------------------------------------------------------------------------- nox

_NOXFILE = "noxfile.py"

# Larger files are not configuration, and parsing them would take long.
_MOST_FILE_CHARS = 200_000


def read_nox(snapshot: Snapshot) -> list[ConfiguredCommand]:
    """Return the commands of the sessions. Sessions with 'test' in their name come first."""
    text = snapshot.text(_NOXFILE) if _NOXFILE in snapshot.files else ""
    try:
        tree = parse_python(text if len(text) <= _MOST_FILE_CHARS else "")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    sessions = [f for f in functions if any("session" in ast.dump(d) for d in f.decorator_list)]
    sessions.sort(key=lambda function: ("test" not in function.name, function.lineno))
    return [command for function in sessions for command in _session_commands(function)]


def _session_commands(function: ast.FunctionDef) -> Iterator[ConfiguredCommand]:
    """Yield the calls of `session.run` whose words are literals."""
    session = function.args.args[0].arg if function.args.args else "session"
    cwd = "."
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    for call in sorted(calls, key=lambda node: (node.lineno, node.col_offset)):
        method = _method_of(call.func, session)
        words = _words(call.args) if method in ("chdir", "run", "run_always") else ()
        if words and method == "chdir":
            cwd = words[0]
        elif words:
            source = f"{_NOXFILE}, session {function.name}"
            yield ConfiguredCommand(words, source, _environment(call), cwd)


def _method_of(function: ast.expr, name: str) -> str:
    """Return `method` of the expression `name.method`, "" for any other."""
    match function:
        case ast.Attribute(value=ast.Name(id=owner), attr=method) if owner == name:
            return method
    return ""


def _words(arguments: Sequence[ast.expr]) -> tuple[str, ...]:
    """Return the words, () if one is computed. Of posargs only a default counts."""
    words: list[str] = []
    for argument in arguments:
        if isinstance(argument, ast.Starred):
            value = argument.value
            options = value.values if isinstance(value, ast.BoolOp) else [value]
            lists = (option for option in options if isinstance(option, ast.List | ast.Tuple))
            words += [text for one in lists for text in map(_literal, one.elts) if text is not None]
        elif (text := _literal(argument)) is not None:
            words.append(text)
        else:
            return ()
    return tuple(words)


def _literal(node: ast.expr | None) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return None


def _environment(call: ast.Call) -> dict[str, str]:
    for keyword in call.keywords:
        if keyword.arg == "env" and isinstance(keyword.value, ast.Dict):
            pairs = zip(
                map(_literal, keyword.value.keys), map(_literal, keyword.value.values), strict=True
            )
            return {name: text for name, text in pairs if name is not None and text is not None}
    return {}
