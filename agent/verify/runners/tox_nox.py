"""Reads the test commands of tox and nox configurations, without running anything.

tox: `tox.ini`, `tox.toml`, `setup.cfg`, and `pyproject.toml` with `legacy_tox_ini` or tables of its
own (tox 4). Only the base environment is read, and only substitutions that mean something outside
tox: `{posargs:...}`, `{envpython}`, `{toxinidir}`, `{env:NAME:default}`, `{[section]key}`. Commands
with other substitutions are left out. nox: the syntax tree of `noxfile.py`.
"""

from __future__ import annotations

import ast
import configparser
import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from agent.patching import parse_python
from agent.types.protocols import Snapshot
from agent.verify.runners.base import Suite
from agent.verify.runners.commands import COMMAND

_PYTHON = re.compile(r"(?:python|pypy)[\d.]*(?:\.exe)?")

# Words before the command proper: measuring, a display, an environment.
_WRAPPERS = frozenset({"coverage", "env", "nice", "time", "xvfb-run"})

# Options of pytest for finding and importing tests. Other options select tests or change output.
_KEPT = re.compile(
    r"--(?:ds|dc|import-mode|pyargs|doctest-modules|asyncio-mode|strict-markers)\b.*"
)
_KEPT_WITH_VALUE = ("-c", "-o", "--ds", "--dc", "--import-mode", "--asyncio-mode")

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
    found = (_suite(command) for command in commands)
    return tuple(suite for suite in found if suite is not None)


def _suite(command: ConfiguredCommand) -> Suite | None:
    words = _unwrapped(command.argv)
    why = f"{command.source} runs {' '.join(command.argv[:4])}"
    cwd = _folder_in_tree(command.cwd)
    if not words or cwd is None:
        return None
    program, rest = PurePosixPath(words[0]).name, words[1:]
    if program in ("pytest", "py.test"):
        return Suite("pytest", why, _kept(rest), ".", command.environment)
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
        if name in _WRAPPERS:
            words = _after_options(words[1:], ("run",) if name == "coverage" else ())
        elif _PYTHON.fullmatch(name):
            words = _after_options(words[1:], ())
        elif words[0] == "-m" or "=" in words[0]:
            words = words[1:]
        else:
            break
    return tuple(words)


def _after_options(words: Sequence[str], commands: Sequence[str]) -> list[str]:
    """Drop a wrapper's options. `-m` is kept, because the runner follows it."""
    rest = list(words)
    while rest and (rest[0] in commands or (rest[0].startswith("-") and rest[0] != "-m")):
        takes_value = rest[0] in ("-W", "-X", "-s", "--rcfile", "--source") and len(rest) > 1
        rest = rest[2:] if takes_value else rest[1:]
    return rest


def _kept(words: Sequence[str]) -> tuple[str, ...]:
    kept: list[str] = []
    for number, word in enumerate(words):
        if word in _KEPT_WITH_VALUE and number + 1 < len(words):
            kept += [word, words[number + 1]]
        elif _KEPT.fullmatch(word) and word not in _KEPT_WITH_VALUE:
            kept.append(word)
    return tuple(kept)


def _folder_in_tree(cwd: str) -> str | None:
    """Return the folder as a path of the tree, None if it is outside the tree."""
    parts = [part for part in cwd.split("/") if part not in ("", ".")]
    if cwd.startswith("/") or ".." in parts or "\0" in cwd:
        return None
    return "/".join(parts) or "."


# --------------------------------------------------------------------------------------------- tox

# References may refer to each other in a circle.
_DEEPEST = 8

# The length of one value after substitution: references may multiply.
_MOST_VALUE_CHARS = 20_000

_FACTORS = re.compile(r"(?:[\w.!-]|\{[\w.,-]+\})+(?:,(?:[\w.!-]|\{[\w.,-]+\})+)*:\s+")

_INNERMOST = re.compile(r"\{([^{}]*)\}")

# Commands start in `{toxinidir}`, so a relative path means the same.
_PLAIN = {
    "envpython": "python",
    "env_python": "python",
    "envbindir": "",
    "toxinidir": ".",
    "tox_root": ".",
    "package_root": ".",
    "envtmpdir": "/tmp",  # noqa: S108 - inside: a private tmpfs
    "env_tmp_dir": "/tmp",  # noqa: S108
    ":": ":",
    "/": "/",
}


def read_tox(snapshot: Snapshot) -> Iterator[ConfiguredCommand]:
    """Yield the commands of the base environment, from the first file that has any."""
    for file in ("tox.ini", "tox.toml", "pyproject.toml", "setup.cfg"):
        if file in snapshot.files:
            found = list(_tox_commands(file, snapshot.text(file)))
            if found:
                yield from found
                return


def _tox_commands(file: str, text: str) -> Iterator[ConfiguredCommand]:
    if not file.endswith(".toml"):
        yield from _from_ini(file, text)
        return
    try:
        table: object = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return
    if file == "pyproject.toml":
        table = _inner(table, "tool", "tox")
    legacy = table.get("legacy_tox_ini") if isinstance(table, dict) else None
    if isinstance(legacy, str):
        yield from _from_ini(file, legacy)
    else:
        yield from _from_tables(file, table)


# ---------------------------------------------------------------------------- tox: INI


def _from_ini(file: str, text: str) -> Iterator[ConfiguredCommand]:
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names are kept as they are
    try:
        parser.read_string(text)
    except (configparser.Error, AttributeError):
        return  # AttributeError: the parser's own fault, at a line that goes on after a bare name
    ini = _Ini(parser)
    environment = dict(_tox_settings(ini.get("testenv", "setenv") or ini.get("testenv", "set_env")))
    cwd = (ini.get("testenv", "changedir") or ini.get("testenv", "change_dir") or ".").strip()
    for line in _lines(ini.get("testenv", "commands") or ""):
        argv = _tox_words(line)
        if argv:
            yield ConfiguredCommand(argv, f"{file} [testenv]", environment, cwd)


@dataclass(frozen=True, slots=True)
class _Ini:
    """Values after substitution, "" if a substitution has no meaning outside tox."""

    parser: configparser.RawConfigParser

    def get(self, section: str, key: str) -> str:
        value = self.parser.get(section, key, fallback="") or ""
        return self._substituted(value.replace("\\\n", " "))

    def _substituted(self, text: str) -> str:
        """Substitute from the inside out, and leave out lines with an unknown reference."""
        for _ in range(_DEEPEST):
            text, count = _INNERMOST.subn(self._meaning, text)
            if not count or len(text) > _MOST_VALUE_CHARS:
                break
        lines = text.split("\n") if len(text) <= _MOST_VALUE_CHARS else []
        return "\n".join(line for line in lines if "\0" not in line and "{" not in line)

    def _meaning(self, found: re.Match[str]) -> str:
        inner = found[1]
        kind, _, rest = inner.partition(":")
        if inner in _PLAIN:
            return _PLAIN[inner]
        if kind == "posargs" or inner == "":
            return rest
        if kind == "env":
            return rest.partition(":")[2]
        if inner.startswith("[") and "]" in inner:
            section, _, key = inner[1:].partition("]")
            return self.parser.get(section, key, fallback="\0") or ""
        return "\0"


def _tox_settings(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        name, separator, value = line.partition("=")
        if separator and not _FACTORS.match(line.strip()):
            yield name.strip(), value.strip()


def _lines(text: str) -> Iterator[str]:
    """Yield the commands without factors and without the marks that ignore failures."""
    for raw in text.splitlines():
        line = raw.strip()
        condition = _FACTORS.match(line)
        line = (line[condition.end() :] if condition else line).lstrip("-!@ ")
        if line and not line.startswith("#"):
            yield line


def _tox_words(line: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(line, comments=True))
    except ValueError:
        return ()


# --------------------------------------------------------------------------- tox: TOML


def _from_tables(file: str, table: object) -> Iterator[ConfiguredCommand]:
    """Read `[env_run_base]` of tox 4, whose commands are lists of words and tables."""
    base = _inner(table, "env_run_base")
    commands = base.get("commands") if isinstance(base, dict) else None
    if not isinstance(base, dict) or not isinstance(commands, list):
        return
    given = base.get("set_env")
    texts = given.items() if isinstance(given, dict) else ()
    environment = {name: text for name, text in texts if isinstance(text, str) and "{" not in text}
    cwd = base.get("change_dir")
    for command in commands:
        argv = tuple(_toml_words(command)) if isinstance(command, list) else ()
        if argv and "\0" not in argv:
            where = cwd if isinstance(cwd, str) and "{" not in cwd else "."
            yield ConfiguredCommand(argv, f"{file} [env_run_base]", environment, where)


def _toml_words(command: list[object]) -> Iterator[str]:
    for word in command:
        if isinstance(word, str):
            text = _INNERMOST.sub(lambda found: _PLAIN.get(found[1], "\0"), word)
            yield "\0" if "\0" in text else text
        elif isinstance(word, dict) and word.get("replace") == "posargs":
            default = word.get("default")
            yield from (
                (w for w in default if isinstance(w, str)) if isinstance(default, list) else ()
            )
        else:
            yield "\0"


def _inner(table: object, *names: str) -> Mapping[str, object]:
    for name in names:
        table = table.get(name) if isinstance(table, dict) else None
    return table if isinstance(table, dict) else {}


# --------------------------------------------------------------------------------------------- nox

_NOXFILE = "noxfile.py"

# Larger files are not configuration, and parsing them would take long.
_MOST_FILE_CHARS = 200_000

_RUN_METHODS = ("run", "run_always")


def read_nox(snapshot: Snapshot) -> Iterator[ConfiguredCommand]:
    """Yield the commands of the sessions. Sessions with 'test' in their name come first."""
    if _NOXFILE not in snapshot.files:
        return
    tree = _parsed_noxfile(snapshot.text(_NOXFILE))
    sessions = [node for node in tree.body if _is_session(node)] if tree else []
    functions = [node for node in sessions if isinstance(node, ast.FunctionDef)]
    for function in sorted(functions, key=lambda node: ("test" not in node.name, node.lineno)):
        yield from _session_commands(function)


def _parsed_noxfile(text: str) -> ast.Module | None:
    if len(text) > _MOST_FILE_CHARS:
        return None
    try:
        return parse_python(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _is_session(node: ast.stmt) -> bool:
    if not isinstance(node, ast.FunctionDef):
        return False
    return any("session" in ast.dump(decorator) for decorator in node.decorator_list)


def _session_commands(function: ast.FunctionDef) -> Iterator[ConfiguredCommand]:
    """Yield the calls of `session.run` whose words are literals."""
    name = function.args.args[0].arg if function.args.args else "session"
    cwd = "."
    for call in _calls(function):
        target = call.func
        if not (isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name)):
            continue
        if target.value.id != name:
            continue
        words = _words(call.args)
        if target.attr == "chdir" and words:
            cwd = words[0]
        if target.attr in _RUN_METHODS and words:
            yield ConfiguredCommand(
                words, f"{_NOXFILE}, session {function.name}", _environment(call), cwd
            )


def _calls(function: ast.FunctionDef) -> list[ast.Call]:
    found = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    return sorted(found, key=lambda call: (call.lineno, call.col_offset))


def _words(arguments: Sequence[ast.expr]) -> tuple[str, ...] | None:
    """Return the words, None if one is computed. The value of posargs is left out."""
    words: list[str] = []
    for argument in arguments:
        if isinstance(argument, ast.Starred):
            words.extend(_default_of(argument.value))
        elif isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            words.append(argument.value)
        else:
            return None
    return tuple(words)


def _default_of(value: ast.expr) -> Iterator[str]:
    """Yield the words of the list in `*(session.posargs or ["tests"])`."""
    options = value.values if isinstance(value, ast.BoolOp) else [value]
    for option in options:
        if isinstance(option, ast.List | ast.Tuple):
            for element in option.elts:
                if isinstance(element, ast.Constant) and isinstance(element.value, str):
                    yield element.value


def _environment(call: ast.Call) -> dict[str, str]:
    for keyword in call.keywords:
        if keyword.arg == "env" and isinstance(keyword.value, ast.Dict):
            pairs = zip(keyword.value.keys, keyword.value.values, strict=True)
            return {
                key.value: value.value
                for key, value in pairs
                if isinstance(key, ast.Constant)
                and isinstance(value, ast.Constant)
                and isinstance(key.value, str)
                and isinstance(value.value, str)
            }
    return {}
