"""Reads which files a configuration file loads into the test run, or has it start. Pure."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath

from agent.repository import is_vendored_path
from agent.types.protocols import Snapshot
from agent.verify.judging.reading import tree_of
from agent.verify.path_rules import steers_tests

# Configuration is short. Of more or longer files the rest is not read.
_MOST_CONFIGURATION = 200
_MOST_CHARS = 200_000

_INI = re.compile(r"\.?pytest\.(?:ini|toml)|tox\.ini|setup\.cfg|pyproject\.toml")
_PLUGIN_OPTION = re.compile(r"(?<![\w-])-p[\s'\",=]*([A-Za-z_][\w.]*)")
_TEST_RUNNER = re.compile(r"\bTEST_RUNNER\s*=\s*['\"]([\w.]+)\.\w+['\"]")
_SCRIPT_NAMES = re.compile(
    r"(?:\b(?:from|import|require\()\s*"
    r"|\b(?:setupFiles\w*|globalSetup|globalTeardown|testEnvironment|testRunner|runner|require|import"
    r"|loader|preset|resolver|snapshotSerializers|transform|file|reporters?)['\"]?\s*[:=]\s*[\[{]?)"
    r"((?:[^\]}'\"\n]*['\"][^'\"\n]*['\"][\s,]*)+)"
)
_PLAIN_NAME = re.compile(  # in YAML, and in the options of mocha.opts
    r"^\s*(?:-\s*|require:\s*|--require\s+|-r\s+)(\.{0,2}/?[\w./-]+)$", re.MULTILINE
)
_QUOTED = re.compile(r"['\"]([^'\"\n]+)['\"]")
_ENDINGS = ("", ".js", ".ts", ".cjs", ".mjs", ".tsx", "/index.js", "/index.ts")
_STARTS = re.compile(r"node|sh|bash|python[\d.]*|pypy3?|ts-node|tsx|ruby|perl|\$.*")
_SEPARATORS = re.compile(r"&&|\|\||[;\n|]")
_RULE = re.compile(r"([A-Za-z][\w .-]*)::?(?![:=])([^=;]*)")
_SCRIPT = re.compile(r"(?:\./|\w[\w.-]*/)[\w./-]*\.(?:sh|py|[cm]?[jt]s)|\./[\w./-]+")
_VARIABLE = re.compile(r"^(?:export\s+)?(\w+)[ \t]*[:?]{0,2}=[ \t]*(.*)$", re.MULTILINE)
_USED = re.compile(r"\$[({](\w+)[)}]")
_NESTED = 3  # variables in the values of variables
_LOADS = re.compile(
    r"(?:-r|--require|--import|--(?:experimental-)?loader|--config|-c|--setupFiles\w*"
    r"|--globalSetup)"
)


def find_loaded_files(snapshot: Snapshot) -> Mapping[str, str]:
    """Return the paths that the base's configuration loads or starts, with what names them.

    They include paths that do not exist yet, because a patch may add them. A shell script that is
    started names further ones.
    """
    found: dict[str, str] = {}
    paths = [path for path in snapshot.files if _may_load(path)][:_MOST_CONFIGURATION]
    texts = {path: snapshot.text(path)[:_MOST_CHARS] for path in paths}
    variables: dict[str, str] = {}
    for path in filter(_is_makefile, paths):
        variables.update(_VARIABLE.findall(texts[path]))
    for path in paths:
        for named in _named_files(path, texts[path], variables):
            if named not in found and named.endswith(".sh") and snapshot.exists(named):
                paths.append(named)
                texts[named] = snapshot.text(named)[:_MOST_CHARS]
            found.setdefault(named, path)
    return found


def _may_load(path: str) -> bool:
    """Whether a file of the base may name others that take part in test runs."""
    is_settings = path.endswith("settings.py")  # of Django, which names its test runner there
    return (steers_tests(path) or is_settings) and not is_vendored_path(path)


def _named_files(path: str, text: str, variables: Mapping[str, str]) -> Iterator[str]:
    """Yield the paths of files that a configuration file loads or starts."""
    folder, _, name = path.rpartition("/")
    if _INI.fullmatch(name):
        for module in _PLUGIN_OPTION.findall(text):
            yield from _module_files(module)
    if name.endswith("settings.py"):
        for module in _TEST_RUNNER.findall(text):
            yield from _module_files(module)
    elif name == "conftest.py":
        for module in _conftest_plugins(text, folder):
            yield from _module_files(module)
    elif name == "package.json":
        yield from _below(folder, _package_names(text))
    elif re.search(r"\.[cm]?[jt]s$|rc(?:\.\w+)?$|\.json$|\.opts$", name):
        yield from _below(folder, _script_names(text))
    if name.endswith(".sh"):  # it is mostly started from the root
        yield from _below("", _started(text))
    yield from _below(folder, _started(_expanded(_commands(name, text), variables)))


def _is_makefile(path: str) -> bool:
    name = path.rpartition("/")[2].lower()
    return "makefile" in name or name.endswith(".mk")


def _expanded(commands: str, variables: Mapping[str, str]) -> str:
    """Return the commands with the values of make's variables; unknown ones stay."""
    for _ in range(_NESTED):
        commands = _USED.sub(lambda use: variables.get(use[1], use[0]), commands)
    return commands


def _module_files(module: str) -> Iterator[str]:
    """Yield where a Python module may lie."""
    place = module.replace(".", "/")
    for root in ("", "src/", "lib/"):
        yield f"{root}{place}.py"
        yield f"{root}{place}/__init__.py"


def _conftest_plugins(text: str, folder: str) -> Iterator[str]:
    """Yield the modules that a conftest.py names as plugins or takes hooks from."""
    for node in ast.walk(tree_of(text.encode())):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(t, ast.Name) and t.id == "pytest_plugins" for t in targets):
                for part in ast.walk(node.value):
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        yield part.value
        elif isinstance(node, ast.ImportFrom):
            hooks = any(a.name == "*" or a.name.startswith("pytest_") for a in node.names)
            if hooks and node.level == 0 and node.module:
                yield node.module
            elif hooks and node.module:
                parts = folder.split("/")[: len(folder.split("/")) - node.level + 1]
                yield ".".join([*filter(None, parts), node.module])


def _package_names(text: str) -> Iterator[str]:
    """Yield the files that the test scripts of a package.json start, and its runners load."""
    try:
        package = json.loads(text)
    except (ValueError, RecursionError):
        return
    if not isinstance(package, dict):
        return
    scripts = package.get("scripts")
    if isinstance(scripts, dict):
        wanted = {name for name in scripts if re.search(r"(?:^|pre|post)tests?\b", name)}
        for _ in scripts:  # scripts start other scripts
            text = " ".join(str(scripts[name]) for name in sorted(wanted))
            called = re.findall(r"(?:run|yarn|pnpm)\s+([\w:.-]+)", text)
            more = {name for name in called if name in scripts} - wanted
            if not more:
                break
            wanted |= more
        for name in sorted(wanted):
            yield from _started(str(scripts[name]))
    for runner in ("jest", "mocha", "ava", "vitest", "tap", "nyc", "c8", "babel"):
        yield from _script_names(json.dumps(package.get(runner, {})))


def _script_names(text: str) -> Iterator[str]:
    """Yield the files that a configuration written in JavaScript, JSON or YAML loads."""
    for found in _SCRIPT_NAMES.finditer(text):
        for name in _QUOTED.findall(found[1]):
            plain = name.replace("<rootDir>/", "./")
            if plain.startswith("./") or "/" in plain:
                yield plain
    yield from _PLAIN_NAME.findall(text)


def _commands(name: str, text: str) -> str:
    """Return the commands in a configuration file that may run tests."""
    lower = name.lower()
    if lower == "noxfile.py":
        calls = re.findall(r"\.run\w*\(([^)]*)\)", text)
        return "\n".join(" ".join(_QUOTED.findall(call)) for call in calls)
    if _is_makefile(name) or lower.endswith("justfile"):
        return _recipes(text)
    started = lower.startswith(("tox.", "taskfile.", "run")) or (
        "/" not in name and lower == "test"
    )
    return text if started and not lower.endswith(".py") else ""


def _recipes(text: str) -> str:
    """Return the recipes of a Makefile's goals for tests, and of what they need."""
    rules: dict[str, tuple[list[str], list[str]]] = {}
    current: list[tuple[list[str], list[str]]] = []
    for line in text.splitlines():
        head = _RULE.match(line)
        if head:
            names = head[1].split()
            current = [rules.setdefault(name, ([], [])) for name in names]
            for needs, _ in current:
                needs.extend(head[2].split())
        elif line[:1] in ("\t", " "):
            for _, recipe in current:
                recipe.append(line)
    wanted = [name for name in rules if re.search(r"test|check", name)]
    for name in wanted:  # grows while it is read
        wanted.extend(need for need in rules[name][0] if need in rules and need not in wanted)
    return "\n".join(line for name in wanted for line in rules[name][1])


def _started(commands: str) -> Iterator[str]:
    """Yield the files that shell commands start or load."""
    for command in _SEPARATORS.split(commands):
        before = ""
        for word in (each.strip("'\"") for each in command.strip().lstrip("@-+").split()):
            option, _, value = word.partition("=")
            starts = _STARTS.fullmatch(PurePosixPath(before).name) is not None
            starts = starts and (not before.startswith("$") or bool(_SCRIPT.fullmatch(word)))
            if word.endswith(".txt"):  # requirements of packages
                continue
            if before == "-m":  # of Python; for other programs there is no such file
                place = word.replace(".", "/")
                yield from (f"{place}.py", f"{place}/__main__.py")
            if _LOADS.fullmatch(option) and value:
                yield value
            elif (
                _LOADS.fullmatch(before)
                or (starts and not word.startswith("-"))
                or (_SCRIPT.fullmatch(word) and (not before or "=" in before or before == "exec"))
            ):
                yield word
            before = word


def _below(folder: str, names: Iterable[str]) -> Iterator[str]:
    """Yield the paths from the root that names relative to a folder may mean."""
    for name in names:
        parts: list[str] = folder.split("/") if folder else []
        for part in name.split("/"):
            if part == ".." and parts:
                parts.pop()
            elif part not in ("", ".", ".."):
                parts.append(part)
        place = "/".join(parts)
        for ending in _ENDINGS if place else ():
            yield place + ending
