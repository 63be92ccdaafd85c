"""Finds the changes of a patch that steer the project's tests, beside the tests themselves. Pure.

A verdict must not rest on files that the patch can bend, so the deciding runs take these from the
base. `path_rules.steers_tests` knows configuration by its name. This module reads the base to find

- what its configuration loads: plugins, setup files, and scripts that the test command starts;
- assertion functions in source that existing tests use;
- modules in source that are for tests and that nothing but tests imports;
- data files that existing tests compare with and that no source file mentions.

`package.json`, `Cargo.toml` and `go.mod` also say what the source needs. They are configuration
only if the patch changes a part that can steer tests.
"""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import PurePosixPath
from types import MappingProxyType

from agent.repository import is_test_path, is_vendored_path, language_of
from agent.retrieval.index import PROSE_AND_DATA
from agent.types import FileChange
from agent.types.protocols import Snapshot
from agent.verify.judging.reading import tree_of
from agent.verify.path_rules import (
    is_python_test,
    is_test_change,
    is_test_side,
    module_name,
    steers_tests,
)

# The source that patterns search for names of data files.
_MOST_SOURCES = 5_000

# Configuration is short. Of more or longer files the rest is not read.
_MOST_CONFIGURATION = 200
_MOST_CHARS = 200_000

_CONFIGURES = "it configures the test run"


class SteeringFiles:
    """Answers for one base, which is read as far as a question needs.

    `new_tests` are the texts of tests that come with the patch, `issue` is the issue's text.
    """

    def __init__(self, snapshot: Snapshot, new_tests: Sequence[str] = (), issue: str = "") -> None:
        self._snapshot = snapshot
        self._new_tests = new_tests
        self._issue = issue

    def why(self, change: FileChange) -> str:
        """Return why a change steers tests, as a phrase; "" if it can be part of a fix."""
        path = change.path
        if steers_tests(path):
            return _CONFIGURES if _manifest_steers(change) else ""
        if is_test_change(change):
            return ""
        loader = self._loader(path)
        if loader:
            return f"{loader} loads it into the test run"
        if self._is_assertion_helper(change):
            return "it changes assertions that tests use"
        if self._is_test_helper(change):
            return "only tests use it"
        if self._is_expectation(change):
            return "existing tests compare with it, and no source file mentions it"
        return ""

    @cached_property
    def _configuration(self) -> Mapping[str, str]:
        """What configuration says of the files that it loads into test runs or has start."""
        paths = [path for path in self._snapshot.files if _may_load(path)][:_MOST_CONFIGURATION]
        texts = {path: self._snapshot.text(path)[:_MOST_CHARS] for path in paths}
        makefiles = "\n".join(text for path, text in texts.items() if _is_makefile(path))
        variables = dict(_VARIABLE.findall(makefiles))
        loads = {path: _loads(path, text, variables) for path, text in texts.items()}
        for path in self._snapshot.files:  # a script that is started starts further ones
            if path.endswith(".sh") and any(_names(path, one, loads[one]) for one in paths):
                loads[path] = self._snapshot.text(path)[:_MOST_CHARS]
        return loads

    def _loader(self, path: str) -> str:
        """Return the configuration of the base that loads a file, which may be new, or ""."""
        named = (one for one, text in self._configuration.items() if _names(path, one, text))
        return next(named, "")

    @cached_property
    def script_folders(self) -> tuple[str, ...]:
        """The folders, but the root, of scripts that run tests: Python imports from them first."""
        exists = self._snapshot.exists
        started = "\n".join(self._configuration.values())
        scripts = (p for p in self._snapshot.files if p.endswith(".py") and p in started)
        folders = {path.rpartition("/")[0] for path in scripts if self._loader(path)} - {""}
        return tuple(sorted(f for f in folders if not exists(f"{f}/__init__.py")))

    # ----------------------------------------------------------------------- test helpers

    def _is_assertion_helper(self, change: FileChange) -> bool:
        if change.before is None:
            return False
        for name in sorted(_changed_assertions(change)):
            pattern = rf"(?<!\w){re.escape(name)}(?!\w)"
            if any(map(re.compile(pattern).search, self._new_tests)) or self._in_tests(pattern):
                return True
        return False

    def _is_test_helper(self, change: FileChange) -> bool:
        """Whether a source file is for tests, and only they and scripts that run them import it.

        It has a name for tests, imports a library for tests, or lies beside such a script. What the
        project's metadata or the issue names is source.
        """
        path, text = change.path, (change.before or b"").decode("utf-8", "replace")
        library = _TEST_LIBRARIES.get(language_of(path))
        if library is None or change.before is None:
            return False
        beside = path.rpartition("/")[0] in self.script_folders
        named = _FOR_TESTS.search(path)
        if not (beside or library.search(text) or (named and "test" in named[0].lower())):
            return False
        imported = _import_of(path)
        if not (any(map(re.compile(imported).search, self._new_tests)) or self._is_used(imported)):
            return False
        names = rf"{_word(module_name(path))}|{re.escape(str(PurePosixPath(path).with_suffix('')))}"
        if self._any(names, lambda p: PurePosixPath(p).name in _METADATA) or self._is_about(change):
            return False
        return not self._any(
            imported, lambda p: p != path and self._is_source(p) and not self._loader(p)
        )

    def _is_used(self, imported: str) -> bool:
        """Whether a test, or a script that runs tests, has a match of the pattern."""
        return self._any(imported, lambda path: is_test_side(path) or bool(self._loader(path)))

    def _is_about(self, change: FileChange) -> bool:
        """Whether the issue names the file, or a function or class of it."""
        text = (change.before or b"").decode("utf-8", "replace")
        module = module_name(change.path)
        names = {module, change.path, *_NAMED.findall(text), *_DEFINED.findall(text)} - {""}
        return any(re.search(rf"(?<![\w/.-]){re.escape(n)}(?![\w/-])", self._issue) for n in names)

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
        return self._any(pattern, lambda path: is_test_path(path) or is_python_test(path))

    def _in_source(self, pattern: str) -> bool:
        return self._any(pattern, self._is_source)

    @staticmethod
    def _is_source(path: str) -> bool:
        prose = language_of(path) in PROSE_AND_DATA or path.rpartition("/")[2] == "setup.py"
        return not (prose or is_test_side(path))

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

# ------------------------------------------------------------- what configuration loads or starts

_INI = re.compile(r"\.?pytest\.(?:ini|toml)|tox\.ini|setup\.cfg|pyproject\.toml")
_PLUGIN_OPTION = re.compile(r"(?<![\w-])-p[\s'\",=]*[A-Za-z_][\w.]*")
_TEST_RUNNER = re.compile(r"\bTEST_RUNNER\s*=\s*['\"][\w.]+")
_CONFTEST = re.compile(
    r"^pytest_plugins\b[^=\n]*=[^\n]*(?:\n[ \t)\]][^\n]*)*"
    r"|^from [\w.]+ import [^\n]*(?:\*|\bpytest_)",
    re.MULTILINE,
)
_SCRIPT_NAMES = re.compile(
    r"(?:\b(?:from|import|require\()\s*"
    r"|\b(?:setupFiles\w*|globalSetup|globalTeardown|testEnvironment|testRunner|runner|require|import"
    r"|loader|preset|resolver|snapshotSerializers|transform|file|reporters?)['\"]?\s*[:=]\s*[\[{]?)"
    r"(?:[^\]}'\"\n]*['\"][^'\"\n]*['\"][\s,]*)+"
    r"|^\s*(?:-\s*|require:\s*|--require\s+|-r\s+)\.{0,2}/?[\w./-]+$",
    re.MULTILINE,
)
_VARIABLE = re.compile(r"^(?:export\s+)?(\w+)[ \t]*[:?]{0,2}=[ \t]*(.*)$", re.MULTILINE)
_USED = re.compile(r"\$[({](\w+)[)}]")
_NESTED = 3  # variables in the values of variables
_RULE = re.compile(
    r"^([A-Za-z][\w .-]*)::?(?![:=])([^=;\n]*)((?:\n[\t ][^\n]*|\n(?=\n))*)", re.MULTILINE
)
_RUNNER_SECTIONS = ("jest", "mocha", "ava", "vitest", "tap", "nyc", "c8", "babel")

# What a file is an argument of if a command starts or loads it.
_STARTS = (
    r"(?:^|[\n;&|@\"'])\s*(?:\w+=\S*\s+)*(?:exec\s+)?"
    r"(?:(?:\S*/)?(?:node|sh|bash|python[\d.]*|pypy3?|ts-node|tsx|ruby|perl|\$\S+)\s+(?:-m\s+)?)?"
    r"|\s(?:-r|--require|--import|--(?:experimental-)?loader|--config|-c|--setupFiles\w*"
    r"|--globalSetup)[\s=]+"
)


def _may_load(path: str) -> bool:
    """Whether a file of the base may name others that take part in test runs."""
    is_settings = path.endswith("settings.py")  # of Django, which names its test runner there
    return (steers_tests(path) or is_settings) and not is_vendored_path(path)


def _is_makefile(path: str) -> bool:
    name = path.rpartition("/")[2].lower()
    return "makefile" in name or name.endswith(".mk")


def _loads(path: str, text: str, variables: Mapping[str, str]) -> str:
    """Return the parts of a configuration file that load files or start commands."""
    name = path.rpartition("/")[2]
    if _is_makefile(path) or name.endswith("justfile"):
        text = _recipes(text)
        for _ in range(_NESTED):
            text = _USED.sub(lambda use: variables.get(use[1], use[0]), text)
        return text
    if name == "package.json":
        return _of_scripts(text)
    if name == "noxfile.py":
        calls = re.findall(r"\.run\w*\(([^)]*)\)", text)
        return "\n".join(" ".join(re.findall(r"['\"]([^'\"\n]+)['\"]", call)) for call in calls)
    parts = [text] if name.lower().startswith(("tox.", "taskfile.")) or "." not in name else []
    if _INI.fullmatch(name):
        parts += _PLUGIN_OPTION.findall(text)
    elif name == "conftest.py":
        parts += _CONFTEST.findall(text)
    elif name.endswith("settings.py"):
        parts += _TEST_RUNNER.findall(text)
    elif re.search(r"\.[cm]?[jt]s$|rc(?:\.\w+)?$|\.json$|\.opts$", name):
        parts += (f"\n{found[0]}" for found in _SCRIPT_NAMES.finditer(text))
    return "\n".join(parts)


def _recipes(text: str) -> str:
    """Return the recipes of a Makefile's goals for tests, and of what they need."""
    rules = {
        name: (needs.split(), recipe)
        for names, needs, recipe in _RULE.findall(text)
        for name in names.split()
    }
    goals = [name for name in rules if re.search(r"test|check", name)]
    for name in goals:  # grows while it is read
        goals.extend(need for need in rules[name][0] if need in rules and need not in goals)
    return "\n".join(rules[name][1] for name in goals)


def _of_scripts(text: str) -> str:
    """Return the test scripts of a package.json with those that they run, and runners' sections."""
    try:
        package = json.loads(text)
        scripts = {name: str(script) for name, script in package.get("scripts", {}).items()}
    except (ValueError, RecursionError, AttributeError):
        return ""
    names = [name for name in scripts if re.search(r"(?:^|pre|post)tests?\b", name)]
    for name in names:  # grows while it is read
        called = re.findall(r"(?:run|yarn|pnpm)\s+([\w:.-]+)", scripts[name])
        names.extend(one for one in called if one in scripts and one not in names)
    sections = (json.dumps(package.get(runner, {})) for runner in _RUNNER_SECTIONS)
    return "\n".join([*(scripts[name] for name in names), *sections])


def _names(path: str, configuration: str, loads: str) -> bool:
    """Whether the parts of a configuration file that load files name this one."""
    pure, folder = PurePosixPath(path), configuration.rpartition("/")[0]
    below = path.removeprefix(f"{folder}/") if folder else path
    if not loads or pure.suffix == ".txt":  # requirements of packages
        return False
    if pure.suffix == ".py":
        modules = "|".join(map(re.escape, {module_name(path), f".{pure.stem}", pure.stem}))
        plugin = r"(?:-p[\s'\",=]*|['\"]|\bfrom |-m )"
        if re.search(rf"{plugin}(?:{modules})(?!\w|\.\w+\.)", loads):
            return True
    stem = str(pure.with_suffix("")).removesuffix("/index")
    stem_below = stem.removeprefix(f"{folder}/") if folder else stem
    words = "|".join(sorted({re.escape(one) for one in (path, below)}))
    scripts = pure.suffix in (".js", ".ts", ".cjs", ".mjs", ".tsx")
    if scripts:
        words += "|" + "|".join(sorted({re.escape(one) for one in (stem, stem_below)}))
    word = rf"(?:<rootDir>/|\./)?(?:{words})(?![\w./-])"
    quoted = rf"|['\"]{word}['\"]|^\s*-?\s*{word}$" if scripts else ""
    return re.search(rf"(?:{_STARTS}){word}{quoted}", loads, re.MULTILINE) is not None


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

# -------------------------------------------------------------------------------- test helpers

_METADATA = frozenset({"pyproject.toml", "setup.cfg", "setup.py", "package.json"})
_DEFINED = re.compile(r"^\s*(?:async\s+)?(?:def|class)\s+(\w+)", re.MULTILINE)
_OF_SCRIPTS = re.compile(
    r"['\"](?:(?:node:)?assert(?:/strict)?|node:test|@jest/globals|vitest|jest|mocha|chai|ava|tap|sinon"
    r"|should|expect|@testing-library/[\w-]+)['\"]"
)
_TEST_LIBRARIES = MappingProxyType(
    {
        "python": re.compile(
            r"^\s*(?:import|from)\s+(?:_?pytest|unittest|hypothesis|nose|testtools)\b", re.MULTILINE
        ),
        "javascript": _OF_SCRIPTS,
        "typescript": _OF_SCRIPTS,
        "tsx": _OF_SCRIPTS,
    }
)


def _import_of(path: str) -> str:
    """Return a pattern for statements that import a Python or JavaScript file, by its own name."""
    pure = PurePosixPath(path)
    name = re.escape(pure.parent.name if pure.stem in ("__init__", "index") else pure.stem)
    if language_of(path) == "python":
        return rf"(?m)^\s*(?:from|import)\b(?:[^\n(]|\([^)]*)*(?<!\w){name}(?!\w)"
    return rf"(?:\brequire\(|\bimport\b|\bfrom)[\s(]*['\"](?:[^'\"\n]*/)?{name}(?:\.\w+)?['\"]"


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
