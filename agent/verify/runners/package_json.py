"""Reads the script `test` of a package.json, without running it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from agent.repository import is_vendored_path
from agent.types.protocols import Snapshot

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
        "--reporters", "--require",
        "--root", "--rootDir", "--roots", "--setupFiles", "--spec", "--test-reporter",
        "--test-reporter-destination", "--testEnvironment", "--testPathPattern", "--timeout",
        "--ui",
    }
)  # fmt: skip

# Those that mocha adds or that mean something else there: `-u tdd` names the style of the tests.
_MOCHA_WITH_VALUE = frozenset(
    {
        "-O",
        "-R",
        "-f",
        "-g",
        "-j",
        "-n",
        "-s",
        "-u",
        "--fgrep",
        "--grep",
        "--jobs",
        "--retries",
        "--slow",
    }
)

# Options that do not terminate, that measure, or that redirect the report.
_DROPPED = re.compile(
    r"--(?:watch\w*|coverage\S*|reporters?\S*|json|outputFile\S*|verbose|silent|notify|parallel"
    r"|updateSnapshot|ci|bail\S*|test-reporter\S*|experimental-test-coverage|run)(?:=.*)?|-[wubOR]"
)


@dataclass(frozen=True, slots=True)
class Script:
    """How a package's tests are started. `folder` holds the package.json; "." is the root.

    `runner` is a known runner's word, "" for any other program. `node_options` are those of node
    itself, `options` those of the runner without files, and `files` what the script names to run.
    """

    folder: str
    text: str
    runner: str = ""
    node_options: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def find_script(snapshot: Snapshot, words: Collection[str]) -> Script | None:
    """Return the script `test` of a package: one that starts a known runner, nearest to the root.

    `words` are the names of the programs that are known runners.
    """
    scripts = [s for path in _packages(snapshot) if (s := _script(snapshot, path, words))]
    return min(scripts, key=_preference, default=None)


def _preference(script: Script) -> tuple[bool, int, str]:
    return not script.runner, len(PurePosixPath(script.folder).parts), script.folder


def _packages(snapshot: Snapshot) -> Iterator[str]:
    for path in snapshot.files:
        if PurePosixPath(path).name == "package.json" and not is_vendored_path(path):
            yield path


def _script(snapshot: Snapshot, path: str, known: Collection[str]) -> Script | None:
    scripts = _scripts(snapshot.text(path))
    text = scripts.get("test", "").strip()
    if not text or _NO_TESTS in text:
        return None
    folder = str(PurePosixPath(path).parent)
    for words in _parts(_resolved(text, scripts)):
        script = _known_script(folder, text, words, known)
        if script is not None:
            return script
    return Script(folder, text)


def _scripts(text: str) -> dict[str, str]:
    try:
        package = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    scripts = package.get("scripts") if isinstance(package, dict) else None
    found = scripts.items() if isinstance(scripts, dict) else ()
    return {name: value for name, value in found if isinstance(value, str)}


def _resolved(text: str, scripts: Mapping[str, str]) -> str:
    """Follow `npm run x`, `yarn x` and similar commands to the script that they call."""
    for _ in range(_MOST_SCRIPTS):
        called = re.fullmatch(r"(?:npm|yarn|pnpm)(?:\s+run)?(?:-script)?\s+([\w:.-]+)", text)
        if called is None or called[1] not in scripts:
            break
        text = scripts[called[1]].strip()
    return text


def _parts(text: str) -> list[list[str]]:
    """Split a shell line into its simple commands. Returns [] if it cannot be split."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    parts: list[list[str]] = [[]]
    try:
        for word in lexer:
            if word and _OPERATORS.issuperset(word):
                parts.append([])
            else:
                parts[-1].append(word)
    except ValueError:
        return []
    return [part for part in parts if part]


def _known_script(
    folder: str, text: str, words: Sequence[str], known: Collection[str]
) -> Script | None:
    """Read a simple command that starts a known runner, after any other words."""
    environment: dict[str, str] = {}
    for number, word in enumerate(words):
        if _ASSIGNMENT.fullmatch(word):
            name, _, value = word.partition("=")
            environment[name] = value
            continue
        runner = _runner(word, known)
        if runner == "node":
            return _by_node(folder, text, words[number + 1 :], environment, known)
        if runner:
            options, files = _split(words[number + 1 :], runner)
            return Script(folder, text, runner, (), options, files, environment)
    return None


def _runner(word: str, known: Collection[str]) -> str:
    """Return the runner that a word starts: `jest`, `.bin/jest` and `jest/bin/jest.js` are jest."""
    name = PurePosixPath(word).name
    stem = name.removesuffix(".js").removesuffix(".mjs").removesuffix(".cjs").lstrip("_")
    return stem if stem in known else ""


def _by_node(
    folder: str,
    text: str,
    words: Sequence[str],
    environment: Mapping[str, str],
    known: Collection[str],
) -> Script | None:
    """Read `node --test ...`, or another runner that node starts with options."""
    options: list[str] = []
    for number, word in enumerate(words):
        runner = _runner(word, known) if not word.startswith("-") else ""
        if runner and runner != "node":
            more, files = _split(words[number + 1 :], runner)
            return Script(folder, text, runner, tuple(options), more, files, environment)
        options.append(word)
    if "--test" not in words:
        return None
    kept, files = _split([word for word in words if word != "--test"], "node")
    return Script(folder, text, "node", kept, (), files, environment)


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
