"""Groups the changes of a patch by what they may do in the runs, and finds those that steer tests.

The deciding runs take what steers them from the base. `path_rules.steers_tests` knows configuration
by its name. This module reads the base to find what configuration loads (plugins, setup files),
modules for tests that nothing else imports, and data files that only tests compare with. Pure.
"""

from __future__ import annotations

import json
import posixpath
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath

from agent.patching import is_allowed
from agent.repository import is_test_path, is_vendored_path, language_of
from agent.retrieval.index import PROSE_AND_DATA
from agent.shared.files import parse_toml
from agent.types import FileChange
from agent.types.protocols import Snapshot
from agent.verify.path_rules import (
    is_python_test,
    is_test_change,
    is_test_side,
    module_name,
    steers_tests,
)
from agent.verify.runners.base import below, joined

_STARTUP = frozenset({"sitecustomize", "usercustomize"})
_SUFFIXES = (".pyc", ".pyo", ".pth", ".egg-link")
_METADATA = (".egg-info", ".dist-info")

# The modules that the runners import beside the standard library.
_RUNNER = frozenset(
    {"pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments", "exceptiongroup"}
    | {"tomli", "colorama", "xdist", "execnet"}
)
_OURS = "patchshot_"

# Folders that are on the import path of many projects. A new module in one may hide another's.
_ROOTS = frozenset({".", "src", "lib", "python"})


@dataclass(frozen=True, slots=True)
class ChangeGroups:
    """The changes of a patch by what they may do in the runs, each sorted by path.

    `configuration` steers the tests, and is as on the base except in the run of the whole patch;
    `held` says why, by path. `excluded` changes are in no run: Python or pytest would run them
    without anybody importing them. Those of `hiding` would hide a module, by path. `lifted` are
    changes of `source` that steer the tests and that the user allows, with the reason.
    """

    source: tuple[FileChange, ...] = ()
    tests: tuple[FileChange, ...] = ()
    configuration: tuple[FileChange, ...] = ()
    excluded: tuple[FileChange, ...] = ()
    held: Mapping[str, str] = field(default_factory=dict)
    hiding: Mapping[str, str] = field(default_factory=dict)
    lifted: Mapping[str, str] = field(default_factory=dict)

    @property
    def whole(self) -> tuple[FileChange, ...]:
        """Return every change but the excluded ones."""
        every = (*self.source, *self.tests, *self.configuration)
        return tuple(sorted(every, key=lambda change: change.path))


def group_changes(
    changes: Sequence[FileChange],
    snapshot: Snapshot,
    roots: Iterable[str] = (".",),
    *,
    allow: Collection[str] = (),
    installed: Collection[str] = (),
    issue: str = "",
) -> ChangeGroups:
    """Group the changes. `roots` are the folders of the tree on the import path.

    `allow` are patterns of paths that may steer the tests. `installed` are the top-level modules of
    the target's interpreter. `issue` is the issue's text.
    """
    hiding, held, lifted = dict[str, str](), dict[str, str](), dict[str, str]()
    steering = SteeringFiles(snapshot, issue)
    deleted = {change.path for change in changes if change.after is None}
    groups: dict[str, list[FileChange]] = {}
    for change in sorted(changes, key=lambda change: change.path):
        hidden = _hidden_module(change, snapshot, tuple(roots), frozenset(installed), deleted)
        if hidden:
            hiding[change.path] = f"takes the place of the module {hidden} in the test run"
        if hidden or _runs_by_itself(change.path):
            group = "excluded"
        elif why := steering.why(change):
            allowed = is_allowed(change.path, allow)
            (lifted if allowed else held)[change.path] = why
            group = "source" if allowed else "configuration"
        else:
            group = "tests" if is_test_change(change) else "source"
        groups.setdefault(group, []).append(change)
    parts = {name: tuple(group) for name, group in groups.items()}
    return ChangeGroups(**parts, held=held, hiding=hiding, lifted=lifted)


def _runs_by_itself(path: str) -> bool:
    parts = PurePosixPath(path).parts
    starts = any(part.partition(".")[0] in _STARTUP for part in parts)
    return starts or path.endswith(_SUFFIXES) or any(part.endswith(_METADATA) for part in parts)


def _hidden_module(
    change: FileChange,
    snapshot: Snapshot,
    roots: tuple[str, ...],
    installed: Collection[str],
    deleted: set[str],
) -> str:
    """Return the module that a new top-level module would hide from the test run, or ""."""
    if change.before is not None or not change.path.endswith((".py", ".so")):
        return ""
    for root in roots:
        inside = below(root, change.path) or ""
        top = inside.partition("/")[0].partition(".")[0]
        if not top or any(map(snapshot.exists, _places(root, top))):
            continue
        if top in _RUNNER or top in sys.stdlib_module_names or top.startswith(_OURS):
            return top
        if is_test_side(change.path):
            continue
        is_new = not any(path.startswith(f"{joined(root, top)}/") for path in snapshot.files)
        provides = change.path in _places(root, top)
        others = {*roots, *_ROOTS} - {root}
        places = {path for other in others for path in _places(other, top)}
        places |= {joined(other, inside) for other in others}
        hides = any(snapshot.exists(path) for path in places - deleted)
        if hides or (top in installed and provides and is_new):
            return top
    return ""


def _places(root: str, module: str) -> tuple[str, str]:
    """Return the files that may be a top-level module of a folder on the import path."""
    place = joined(root, module)
    return f"{place}.py", f"{place}/__init__.py"


def _text(data: bytes | None) -> str:
    return (data or b"").decode("utf-8", "replace")


# ---------------------------------------------------------------------------- what steers tests

# The source that patterns search for names of data files.
_MOST_SOURCES = 5_000

# Configuration is short. Of more or longer files the rest is not read.
_MOST_CONFIGURATION = 200
_MOST_CHARS = 200_000


class SteeringFiles:
    """Answers for one base, which is read as far as a question needs."""

    def __init__(self, snapshot: Snapshot, issue: str = "") -> None:
        self._snapshot = snapshot
        self._issue = issue

    def why(self, change: FileChange) -> str:
        """Return why a change steers tests, as a phrase; "" if it can be part of a fix."""
        path = change.path
        if steers_tests(path):
            return "it configures the test run" if _manifest_steers(change) else ""
        if is_test_change(change):
            return ""
        names = [_name(path)] if language_of(path) in _TEST_LIBRARIES else []
        names += [module_name(path)] if path.endswith(".py") else []
        for loader in (self._loaders[name] for name in names if name in self._loaders):
            return f"{loader} loads it into the test run"
        if change.before is None:
            return ""
        if self._is_test_helper(path, _text(change.before)):
            return "it is for tests, and no source file imports it"
        if self._is_expectation(path):
            return "existing tests compare with it, and no source file mentions it"
        return ""

    @cached_property
    def _loaders(self) -> Mapping[str, str]:
        """What configuration loads into test runs, by name, with the file that does so."""
        files = [p for p in self._snapshot.files if steers_tests(p) or p.endswith("settings.py")]
        loading = [p for p in files if _IN_PYTHON.fullmatch(p) or _IN_SCRIPTS.fullmatch(p)]
        loaders: dict[str, str] = {}
        for path in [p for p in loading if not is_vendored_path(p)][:_MOST_CONFIGURATION]:
            for name in _loaded(path, self._snapshot.text(path)[:_MOST_CHARS]):
                loaders.setdefault(name, path)
        return loaders

    def _is_test_helper(self, path: str, text: str) -> bool:
        """Whether a source file is for tests, by its name or imports, and no source imports it."""
        library = _TEST_LIBRARIES.get(language_of(path))
        if library is None or not (library.search(text) or _FOR_TESTS.search(path)):
            return False
        module, imported = module_name(path), _import_of(path)
        about = "|".join(map(re.escape, {module, path, *_DEFINED.findall(text)}))
        if re.search(rf"(?<![\w/.-])(?:{about})(?![\w/-])", self._issue):
            return False
        names = rf"{_word(module)}|{_word(_name(path))}"
        if self._any(names, lambda p: PurePosixPath(p).name in _PACKAGE_METADATA):
            return False
        return not self._any(imported, lambda p: p != path and _is_source(p))

    def _is_expectation(self, path: str) -> bool:
        pure = PurePosixPath(path)
        if language_of(path) not in PROSE_AND_DATA or pure.suffix in _TEMPLATES:
            return False
        name, folder = _word(pure.name), _word(pure.parent.name)
        if self._any(name, _is_source):
            return False
        if self._any(_QUOTE + name, _is_test):
            return True
        in_folder = bool(pure.parent.name) and self._any(_QUOTE + folder, _is_test)
        return in_folder and not self._any(folder, _is_source)

    def _any(self, pattern: str, accepts: Callable[[str], bool]) -> bool:
        search = re.compile(pattern).search
        paths = [path for path in self._snapshot.files if accepts(path)]
        return any(search(self._snapshot.text(path)) for path in paths[:_MOST_SOURCES])


def _is_test(path: str) -> bool:
    return is_test_path(path) or is_python_test(path)


def _is_source(path: str) -> bool:
    prose = language_of(path) in PROSE_AND_DATA or path.rpartition("/")[2] == "setup.py"
    return not (prose or is_test_side(path))


_QUOTE = r"['\"`][^'\"`\n]*"


def _word(name: str) -> str:
    return rf"(?<![\w.-]){re.escape(name)}(?![\w-])"


# Data that shapes what a program shows; tests name it, and programs build its name.
_TEMPLATES = frozenset({".html", ".htm", ".xhtml", ".po", ".pot"})

# ------------------------------------------------------------- what configuration loads or starts

# settings.py is Django's, which names its test runner there.
_IN_PYTHON = re.compile(r".*\.(?:ini|cfg|toml)|(?:.*/)?(?:conftest|settings)\.py")
_IN_SCRIPTS = re.compile(r".*\.(?:json|opts|[cm]?[jt]s)|.*rc(?:\.\w+)?")
_PYTHON_LOADS = re.compile(
    r"""
      (?<![\w-])-p[\s'",=]*([A-Za-z_][\w.]*)
    | ^pytest_plugins\b[^=\n]*=([^\n]*(?:\n[ \t)\]][^\n]*)*)
    | ^from\ ([\w.]+)\ import\ [^\n]*(?:\*|\bpytest_)
    | \bTEST_RUNNER\s*=\s*['"]([\w.]+)\.\w
    """,
    re.MULTILINE | re.VERBOSE,
)
_SCRIPT_LOADS = re.compile(
    r"""
      \b(?:from|import|require\()\s*['"]([^'"\n]+)
    | \b(?:setupFiles\w*|globalSetup|globalTeardown|testEnvironment|testRunner|runner|require|import
        |loader|preset|resolver|snapshotSerializers|transform|file|reporters?)['"]?
      \s*[:=]\s*[\[{]?((?:[^\]}'"\n]*['"][^'"\n]*['"][\s,]*)+)
    | ^\s*(?:-\s+|require:\s*)([\w./-]+)$
    | (?<![\w-])(?:-r|--require|--import|--(?:experimental-)?loader|--config|-c|--setupFiles\w*
        |--globalSetup)[\s=]+([\w./-]+)
    """,
    re.MULTILINE | re.VERBOSE,
)
_RUNNER_SECTIONS = ("jest", "mocha", "ava", "vitest", "tap", "nyc", "c8", "babel")
_SCRIPT_ENDING = re.compile(r"\.[cm]?[jt]sx?$")


def _name(path: str) -> str:
    """Return the path of a source file as configuration names it, without its ending."""
    return _SCRIPT_ENDING.sub("", path).removesuffix(".py").removesuffix("/index")


def _loaded(path: str, text: str) -> Iterator[str]:
    """Yield the names of the modules and files that a configuration file loads."""
    folder = path.rpartition("/")[0]
    text = _of_scripts(text) if path.endswith("package.json") else text
    loads = _PYTHON_LOADS if _IN_PYTHON.fullmatch(path) else _SCRIPT_LOADS
    for groups in loads.findall(text):
        for word in re.findall(r"[\w./-]+", "".join(groups)):
            yield word
            yield posixpath.normpath(posixpath.join(folder, _name(word.lstrip("/"))))
            yield posixpath.join(folder, word.lstrip("."))


def _of_scripts(text: str) -> str:
    """Return the scripts of a package.json for tests, and its sections of runners."""
    try:
        package = json.loads(text)
        scripts = [s for name, s in package.get("scripts", {}).items() if "test" in name]
        return "\n".join([*scripts, *(json.dumps(package.get(r, {})) for r in _RUNNER_SECTIONS)])
    except (ValueError, RecursionError, AttributeError, TypeError):
        return ""


# ---------------------------------------------------------------------------------- manifests

# What a package says about itself and needs, which is no more than what its source imports.
_PACKAGE_SOURCE = frozenset(
    {"name", "version", "description", "main", "module", "exports", "imports", "types", "typings"}
    | {"browser", "bin", "files", "keywords", "author", "contributors", "license", "repository"}
    | {"homepage", "bugs", "engines", "sideEffects", "publishConfig", "funding", "private", "type"}
    | {"features"}
)
_DEPENDENCIES = ("dependencies", "peerDependencies", "optionalDependencies")
_CARGO_STEERS = ("autotests", "autobins", "autolib", "build", "links", "edition", "workspace")

# A dependency that is taken from another place than the registry.
_PLACED = re.compile(
    r"^\"(?:file|link|portal|npm|git|https?|workspace)\b|\"(?:path|git|package|registry)\":"
)
_GO_DIRECTIVE = re.compile(r"^(replace|toolchain|tool|exclude)\b[ \t]*(\([^)]*\)|.*)", re.MULTILINE)


def _manifest_steers(change: FileChange) -> bool:
    """Whether a change to a configuration file touches a part that can steer tests."""
    name = change.path.rpartition("/")[2]
    if name not in ("package.json", "Cargo.toml", "go.mod") or not (change.before and change.after):
        return True
    try:
        return _steering_part(name, change.before) != _steering_part(name, change.after)
    except (ValueError, RecursionError, AttributeError, TypeError):
        return True


def _steering_part(name: str, data: bytes) -> object:
    if name == "go.mod":
        return _GO_DIRECTIVE.findall(data.decode())
    manifest = json.loads(data) if name == "package.json" else parse_toml(data)
    parts = {key: part for key, part in manifest.items() if key not in _PACKAGE_SOURCE}
    tables = [parts.pop(table, {}) for table in _DEPENDENCIES]
    dependencies = [(key, json.dumps(source)) for table in tables for key, source in table.items()]
    placed = [one for one in dependencies if _PLACED.search(one[1])]
    package = parts.pop("package", {})
    return parts, placed, [package.get(key) for key in _CARGO_STEERS]


# -------------------------------------------------------------------------------- test helpers

_PACKAGE_METADATA = frozenset({"pyproject.toml", "setup.cfg", "setup.py", "package.json"})
_DEFINED = re.compile(r"\b(?:def|class|function|const|let|var)\s+(\w+)")
_OF_SCRIPTS = re.compile(
    r"['\"](?:(?:node:)?assert(?:/strict)?|node:test|@jest/globals|vitest|jest|mocha|chai|ava|tap|sinon"
    r"|should|expect|@testing-library/[\w-]+)['\"]"
)
_TEST_LIBRARIES: Mapping[str, re.Pattern[str]] = {
    "python": re.compile(
        r"^\s*(?:import|from)\s+(?:_?pytest|unittest|hypothesis|nose|testtools)\b", re.MULTILINE
    ),
    **dict.fromkeys(("javascript", "typescript", "tsx"), _OF_SCRIPTS),
}


def _import_of(path: str) -> str:
    """Return a pattern for statements that import a Python or JavaScript file, by its own name."""
    pure = PurePosixPath(path)
    name = re.escape(pure.parent.name if pure.stem in ("__init__", "index") else pure.stem)
    if language_of(path) == "python":
        return rf"(?m)^\s*(?:from|import)\b(?:[^\n(]|\([^)]*)*(?<!\w){name}(?!\w)"
    return rf"(?:\brequire\(|\bimport\b|\bfrom)[\s(]*['\"](?:[^'\"\n]*/)?{name}(?:\.\w+)?['\"]"


# Names of modules that hold helpers for tests.
_FOR_TESTS = re.compile(
    r"(?:^|[/_.-])(?:testing|test[_-]?(?:utils?|helpers?|support)|testutils?)(?:[/_.-]|$)",
    re.IGNORECASE,
)
