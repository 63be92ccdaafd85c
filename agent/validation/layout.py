"""Which files are tests, and what a file is called when it is imported. Pure path rules."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import PurePosixPath
from types import MappingProxyType

from agent.repository.languages import is_test_path, language_of

_TEST_NAME = re.compile(r"(?:test_.*|.*_tests?|tests?)\.py", re.IGNORECASE)

_SCRIPT_TEST = re.compile(
    r"[._-](?:test|spec|e2e|cy)\.[cm]?[jt]sx?$|(?:^|/)tests?[.-][^/]*$|(?:^|/)tests?\.[cm]?[jt]sx?$"
    r"|(?:^|/)__tests__/(?:[^/]+/)*[^_./][^/]*$|(?:^|/)tests?/[^/]*[^/._-][^/]*$"
)

# By language: a file of the language that holds tests. Searched in the whole path.
_TEST_FILES = MappingProxyType(
    {
        "javascript": _SCRIPT_TEST,
        "typescript": _SCRIPT_TEST,
        "tsx": _SCRIPT_TEST,
        "go": re.compile(r"[^/]_test\.go$"),
        # Cargo makes a test program of each file in `tests`; those in its folders are helpers.
        "rust": re.compile(
            r"(?:^|/)tests/[^/]+(?:/main)?\.rs$|(?:^|/)(?:\w*_)?tests?\.rs$|(?:^|/)test_\w+\.rs$"
        ),
        # What surefire takes by default (its documentation, "Inclusions"), and JUnit's `IT`.
        "java": re.compile(r"(?:^|/)(?:Test\w*|\w*(?:Test|Tests|TestCase|IT))\.java$"),
    }
)

# Languages in which a reply may bring a test of its own.
_BROUGHT = frozenset({"python", "javascript", "typescript", "tsx", "go", "rust"})

# The end of a file name by which runners know a test.
_MARK = re.compile(r"[._-](?:test|spec|e2e|cy)\.[cm]?[jt]sx?$|_test\.go$|_tests?\.(?:py|rs)$")

# Folders that stand on the import path and are no part of a module's name.
_SOURCE_FOLDERS = ("src", "lib", "python")

# Files that steer how tests run: a change to them can turn a test green without a fix.
_CONFIGURATION = frozenset(
    {"conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", "tox.ini", "setup.cfg"}
    | {"pyproject.toml", "sitecustomize.py", "usercustomize.py"}
)


def is_python_test(path: str) -> bool:
    """Whether a Python file holds tests by its name: `test_x.py`, `x_test.py`, `tests.py`."""
    return _TEST_NAME.fullmatch(path.rpartition("/")[2]) is not None


def is_test_file(path: str) -> bool:
    """Whether a file holds tests by its name, or by its folder where the language has it so.

    Python as `is_python_test`; `x_test.go`; `x.test.ts`, `x.spec.js` and what lies in `__tests__`
    or right in `test`; `XTest.java`; `tests/x.rs` and `tests.rs`. Fixtures and helpers are none.
    """
    language = language_of(path)
    if language == "python":
        return is_python_test(path)
    rule = _TEST_FILES.get(language)
    return rule is not None and rule.search(path) is not None


def is_test_side(path: str) -> bool:
    """Whether a file belongs to the tests or steers them, and so cannot be what fixes an issue."""
    return is_test_path(path) or steers_tests(path)


def steers_tests(path: str) -> bool:
    """Whether the file configures the test run itself."""
    return PurePosixPath(path).name in _CONFIGURATION


def module_name(path: str) -> str:
    """The dotted name under which a Python file is imported: `src/pkg/mod.py` is `pkg.mod`."""
    parts = list(PurePosixPath(path).with_suffix("").parts)
    if len(parts) > 1 and parts[0] in _SOURCE_FOLDERS:
        del parts[0]
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


def import_root(path: str, exists: Callable[[str], bool]) -> str:
    """The folder that must be on the import path for the file's package; "." is the root."""
    folder = PurePosixPath(path).parent
    while folder.name and exists(f"{folder}/__init__.py"):
        folder = folder.parent
    return str(folder)


def free_path(path: str, taken: Callable[[str], bool]) -> str:
    """The path itself, or the first of `stem_2.py`, `stem_3.py`, ... that is not taken.

    What makes it a test file stays at its end: `x_2.test.js`, `x_2_test.go`.
    """
    pure, candidate, number = PurePosixPath(path), path, 1
    parts = _MARK.search(pure.name)
    mark = parts.start() if parts else len(pure.stem)
    while taken(candidate):
        number += 1
        candidate = str(pure.with_name(f"{pure.name[:mark]}_{number}{pure.name[mark:]}"))
    return candidate


def unsafe(path: str) -> str | None:
    """Why a model's test path cannot be used, or None: a relative POSIX path of a test file.

    Any .py file will do. Of other languages it has to look like a test, or no runner finds it. A
    Java class cannot be put under another name than its own, so none is taken.
    """
    parts = path.split("/")
    if language_of(path) not in _BROUGHT or parts[-1] == ".py":
        return "it is not a .py file, nor a test in another language whose tests can be run"
    if not path.endswith(".py") and not is_test_file(path):
        return "nothing in its name says that it is a test"
    if path.startswith("/") or "\\" in path or any(part in ("", ".", "..") for part in parts):
        return "it does not stay inside the repository"
    if not path.isprintable() or any(
        part.lower().strip(" .") in ("git", "git~1") for part in parts
    ):
        return "it has characters or names that are not allowed"
    if steers_tests(path):
        return "it would configure the test run"
    return None
