"""The test command of a tox configuration, read and never run.

`tox.ini`, `setup.cfg`, and `pyproject.toml` with `legacy_tox_ini` or tables of its own (tox 4). The
base environment counts. Substitutions are those that mean something outside tox: `{posargs:...}`,
`{envpython}`, `{toxinidir}`, `{env:NAME:default}`, `{[section]key}`; a command with another one is
passed over.
"""

from __future__ import annotations

import configparser
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agent.protocols import Snapshot
from agent.validation.frameworks.configured import Configured

# References that name references; a circle ends here.
_DEEPEST = 8

# One value after substitution: references that multiply end here.
_MOST_CHARS = 20_000

_FACTORS = re.compile(r"(?:[\w.!-]|\{[\w.,-]+\})+(?:,(?:[\w.!-]|\{[\w.,-]+\})+)*:\s+")

_INNERMOST = re.compile(r"\{([^{}]*)\}")

# `{toxinidir}` is where commands start, so a relative path is the same.
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


def read_tox(snapshot: Snapshot) -> Iterator[Configured]:
    """The commands of the base environment, in the order of the first file that has any."""
    for file in ("tox.ini", "tox.toml", "pyproject.toml", "setup.cfg"):
        if file in snapshot.files:
            found = list(_commands(file, snapshot.text(file)))
            if found:
                yield from found
                return


def _commands(file: str, text: str) -> Iterator[Configured]:
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


# --------------------------------------------------------------------------------------------- INI


def _from_ini(file: str, text: str) -> Iterator[Configured]:
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names are kept as they are
    try:
        parser.read_string(text)
    except (configparser.Error, AttributeError):
        return  # AttributeError: the parser's own fault, at a line that goes on after a bare name
    ini = _Ini(parser)
    environment = dict(_settings(ini.get("testenv", "setenv") or ini.get("testenv", "set_env")))
    cwd = (ini.get("testenv", "changedir") or ini.get("testenv", "change_dir") or ".").strip()
    for line in _lines(ini.get("testenv", "commands") or ""):
        argv = _words(line)
        if argv:
            yield Configured(argv, f"{file} [testenv]", environment, cwd)


@dataclass(frozen=True, slots=True)
class _Ini:
    """Values with their substitutions carried out; "" for what has one that cannot be."""

    parser: configparser.RawConfigParser

    def get(self, section: str, key: str) -> str:
        value = self.parser.get(section, key, fallback="") or ""
        return self._substituted(value.replace("\\\n", " "))

    def _substituted(self, text: str) -> str:
        """From the inside out; a line with a reference that means nothing here is left out."""
        for _ in range(_DEEPEST):
            text, count = _INNERMOST.subn(self._meaning, text)
            if not count or len(text) > _MOST_CHARS:
                break
        lines = text.split("\n") if len(text) <= _MOST_CHARS else []
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


def _settings(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        name, separator, value = line.partition("=")
        if separator and not _FACTORS.match(line.strip()):
            yield name.strip(), value.strip()


def _lines(text: str) -> Iterator[str]:
    """Commands, without the marks that say what their failure means, and without factors."""
    for raw in text.splitlines():
        line = raw.strip()
        condition = _FACTORS.match(line)
        line = (line[condition.end() :] if condition else line).lstrip("-!@ ")
        if line and not line.startswith("#"):
            yield line


def _words(line: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(line, comments=True))
    except ValueError:
        return ()


# -------------------------------------------------------------------------------------------- TOML


def _from_tables(file: str, table: object) -> Iterator[Configured]:
    """`[env_run_base]` of tox 4: commands are lists of words, some of them tables."""
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
            yield Configured(argv, f"{file} [env_run_base]", environment, where)


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
