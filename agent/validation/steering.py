"""Finds the changes of a patch that steer the project's tests, beside the tests themselves. Pure.

A verdict must not rest on files that the patch can bend, so the deciding runs take these from the
base. `path_rules.steers_tests` knows configuration by its name. This module reads the base to find

- what its configuration loads: plugins, setup files, and scripts that the test command starts;
- assertion functions in source that existing tests use;
- data files that existing tests compare with and that no source file mentions.

`package.json`, `Cargo.toml` and `go.mod` also say what the source needs. They are configuration
only if the patch changes a part that can steer tests.
"""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import PurePosixPath

from agent.index import PROSE_AND_DATA
from agent.protocols import Snapshot
from agent.repository import is_test_path, is_vendored_path, language_of
from agent.types import FileChange
from agent.validation.judging.tricks import tree_of
from agent.validation.path_rules import is_test_side, steers_tests

# Configuration is short. Of more or longer files the rest is not read.
_MOST_CONFIGURATION = 200
_MOST_CHARS = 200_000

# The source that patterns search for names of data files.
_MOST_SOURCES = 5_000

_CONFIGURES = "it configures the test run"


class SteeringFiles:
    """Answers for one base, which is read as far as a question needs.

    `new_tests` are the texts of tests that come with the patch.
    """

    def __init__(self, snapshot: Snapshot, new_tests: Sequence[str] = ()) -> None:
        self._snapshot = snapshot
        self._new_tests = new_tests

    def why(self, change: FileChange) -> str:
        """Return why a change steers tests, as a phrase; "" if it can be part of a fix."""
        path = change.path
        if steers_tests(path):
            return _CONFIGURES if _manifest_steers(change) else ""
        if is_test_side(path):
            return ""
        loaded = self._loaded.get(path)
        if loaded:
            return f"{loaded} loads it into the test run"
        if self._is_assertion_helper(change):
            return "it changes assertions that tests use"
        if self._is_expectation(change):
            return "existing tests compare with it, and no source file mentions it"
        return ""

    # ------------------------------------------------------------- what configuration loads

    @cached_property
    def _loaded(self) -> Mapping[str, str]:
        """The paths that the base's configuration loads, with the file that names them.

        They include paths that do not exist yet, because a patch may add them.
        """
        found: dict[str, str] = {}
        paths = [p for p in self._snapshot.files if _may_load(p)]
        for path in paths[:_MOST_CONFIGURATION]:
            text = self._snapshot.text(path)[:_MOST_CHARS]
            for named in _named_files(path, text):
                found.setdefault(named, path)
        return found

    # ----------------------------------------------------------------------- test helpers

    def _is_assertion_helper(self, change: FileChange) -> bool:
        if change.before is None:
            return False
        for name in sorted(_changed_assertions(change)):
            pattern = rf"(?<!\w){re.escape(name)}(?!\w)"
            if any(map(re.compile(pattern).search, self._new_tests)) or self._in_tests(pattern):
                return True
        return False

    def _is_expectation(self, change: FileChange) -> bool:
        path = PurePosixPath(change.path)
        data = language_of(change.path) in PROSE_AND_DATA
        if not data or change.before is None or path.suffix in _TEMPLATES:
            return False
        if self._in_source(_word(path.name)):
            return False
        folder = path.parent.name
        if self._in_tests(_QUOTE + _word(path.name)):
            return True
        in_folder = bool(folder) and self._in_tests(_QUOTE + _word(folder))
        return in_folder and not self._in_source(_word(folder))

    def _in_tests(self, pattern: str) -> bool:
        return self._any(pattern, is_test_path)

    def _in_source(self, pattern: str) -> bool:
        def of_source(path: str) -> bool:
            prose = language_of(path) in PROSE_AND_DATA or path.rpartition("/")[2] == "setup.py"
            return not (prose or is_test_side(path))

        return self._any(pattern, of_source)

    def _any(self, pattern: str, wanted: Callable[[str], bool]) -> bool:
        search = re.compile(pattern).search
        paths = [path for path in self._snapshot.files if wanted(path)]
        return any(search(self._snapshot.text(path)) for path in paths[:_MOST_SOURCES])


_QUOTE = r"['\"`][^'\"`\n]*"


def _word(name: str) -> str:
    """Return a pattern for a name of a file or folder in a text."""
    return rf"(?<![\w.-]){re.escape(name)}(?![\w-])"


# Data that shapes what a program shows; tests name it, and programs build its name.
_TEMPLATES = frozenset({".html", ".htm", ".xhtml", ".po", ".pot"})

# ------------------------------------------------------------------------ references to files

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
_STARTS = frozenset({"node", "sh", "bash", "python", "python3", "ts-node", "tsx", "ruby", "perl"})
_SEPARATORS = re.compile(r"&&|\|\||[;\n|]")
_RULE = re.compile(r"([A-Za-z][\w .-]*)::?(?![:=])([^=;]*)")
_SCRIPT = re.compile(r"(?:\./|\w[\w.-]*/)[\w./-]*\.(?:sh|py|[cm]?[jt]s)|\./[\w./-]+")
_LOADS = re.compile(
    r"(?:-r|--require|--import|--(?:experimental-)?loader|--config|-c|--setupFiles\w*"
    r"|--globalSetup)"
)


def _may_load(path: str) -> bool:
    """Whether a file of the base may name others that take part in test runs."""
    is_settings = path.endswith("settings.py")  # of Django, which names its test runner there
    return (steers_tests(path) or is_settings) and not is_vendored_path(path)


def _named_files(path: str, text: str) -> Iterator[str]:
    """Yield the paths of files that a configuration file loads or starts."""
    name = path.rpartition("/")[2]
    folder = path.rpartition("/")[0]
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
    yield from _below(folder, _started(_commands(name, text)))


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
    if "makefile" in lower or lower.endswith((".mk", "justfile")):
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
            starts = PurePosixPath(before).name in _STARTS
            if word.endswith(".txt"):  # requirements of packages
                continue
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


# ---------------------------------------------------------------------------------- manifests

# What a package says about itself and needs, which is no more than what its source imports.
_PACKAGE_SOURCE = frozenset(
    {"name", "version", "description", "main", "module", "exports", "imports", "types", "typings"}
    | {"browser", "bin", "files", "keywords", "author", "contributors", "license", "repository"}
    | {"homepage", "bugs", "engines", "sideEffects", "publishConfig", "funding", "private", "type"}
    | {"dependencies", "peerDependencies", "optionalDependencies"}
)
_CARGO_STEERS = ("autotests", "autobins", "autolib", "build", "links", "edition", "workspace")
_GO_DIRECTIVE = re.compile(r"^(replace|toolchain|tool|exclude)\b[ \t]*(\([^)]*\)|.*)", re.MULTILINE)


def _manifest_steers(change: FileChange) -> bool:
    """Whether a change to a configuration file touches a part that can steer tests."""
    parts = _MANIFESTS.get(change.path.rpartition("/")[2])
    if parts is None or change.before is None or change.after is None:
        return True
    try:
        before, after = (parts(data.decode()) for data in (change.before, change.after))
    except (ValueError, RecursionError, AttributeError, TypeError):
        return True
    return before != after


def _of_package(text: str) -> object:
    package = json.loads(text)
    links = {
        name: version
        for table in ("dependencies", "peerDependencies", "optionalDependencies")
        for name, version in package.get(table, {}).items()
        if re.match(r"(?:file|link|portal|npm|git|https?|workspace)\b", str(version))
    }
    return {k: v for k, v in package.items() if k not in _PACKAGE_SOURCE}, links


def _of_cargo(text: str) -> object:
    manifest = tomllib.loads(text)
    package = manifest.pop("package", {})
    placed = {
        name: wanted
        for name, wanted in manifest.pop("dependencies", {}).items()
        if isinstance(wanted, dict) and {"path", "git", "package", "registry"} & wanted.keys()
    }
    manifest.pop("features", None)
    return manifest, placed, [package.get(key) for key in _CARGO_STEERS]


def _of_go(text: str) -> object:
    return [found.groups() for found in _GO_DIRECTIVE.finditer(text)]


_MANIFESTS: Mapping[str, Callable[[str], object]] = {
    "package.json": _of_package,
    "Cargo.toml": _of_cargo,
    "go.mod": _of_go,
}

# --------------------------------------------------------------------------------- assertions

# Names of modules that hold helpers for tests.
_FOR_TESTS = re.compile(
    r"(?:^|[/_.-])(?:testing|test[_-]?(?:utils?|helpers?|support)|testutils?|asserts?|assertions?"
    r"|matchers)(?:[/_.-]|$)",
    re.IGNORECASE,
)
_CHECKS = ("check", "compare", "ensure", "expect", "match", "should", "verify")
_ASSERTS = re.compile(r"\b(?:assert\w*|expect|throw|raise|panic!?|t\.(?:Error|Fatal|Fail)\w*)\b")
_NAMED = re.compile(r"(?:function\s+|func\s+(?:\([^)]*\)\s*)?|fn\s+|(?:const|let|var)\s+)(\w+)")


def _changed_assertions(change: FileChange) -> frozenset[str]:
    """Return the names of assertion functions that a change to a source file touches."""
    for_tests = _FOR_TESTS.search(change.path) is not None
    if language_of(change.path) != "python":
        return _changed_elsewhere(change) if for_tests else frozenset()
    before, after = _assertions(change.before), _assertions(change.after)
    changed = (name for name, code in before.items() if after.get(name) != code)
    starts = ("assert", *(_CHECKS if for_tests else ()))
    return frozenset(name for name in changed if name.lower().lstrip("_").startswith(starts))


def _changed_elsewhere(change: FileChange) -> frozenset[str]:
    before = (change.before or b"").decode("utf-8", "replace")
    after = (change.after or b"").decode("utf-8", "replace")
    left, right = set(before.splitlines()), set(after.splitlines())
    if any(_ASSERTS.search(line) for line in left ^ right):
        return frozenset(_NAMED.findall(before))
    return frozenset()


def _assertions(data: bytes | None) -> dict[str, str]:
    """Return the functions that assert, or raise AssertionError, with their code."""
    found: dict[str, str] = {}
    for node in ast.walk(tree_of(data)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if any(map(_fails, ast.walk(node))):
            found[node.name] = found.get(node.name, "") + ast.dump(node)
    return found


def _fails(node: ast.AST) -> bool:
    return isinstance(node, ast.Assert) or (
        isinstance(node, ast.Name) and node.id == "AssertionError"
    )
