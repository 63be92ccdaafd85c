"""Which files are tests, and what a file is called when it is imported. Pure path rules."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import PurePosixPath

from agent.repository.languages import is_test_path

_TEST_NAME = re.compile(r"(?:test_.*|.*_tests?|tests?)\.py", re.IGNORECASE)

# Folders that stand on the import path and are no part of a module's name.
_SOURCE_FOLDERS = ("src", "lib", "python")

# Files that steer how tests run: a change to them can turn a test green without a fix.
_CONFIGURATION = frozenset(
    {"conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", "tox.ini", "setup.cfg"}
    | {"pyproject.toml", "sitecustomize.py", "usercustomize.py"}
)


def is_test_file(path: str) -> bool:
    """Whether a Python file holds tests by its name: `test_x.py`, `x_test.py`, `tests.py`."""
    return _TEST_NAME.fullmatch(PurePosixPath(path).name) is not None


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
    """The path itself, or the first of `stem_2.py`, `stem_3.py`, ... that is not taken."""
    candidate, number = PurePosixPath(path), 1
    while taken(str(candidate)):
        number += 1
        candidate = candidate.with_name(f"{PurePosixPath(path).stem}_{number}.py")
    return str(candidate)


def unsafe(path: str) -> str | None:
    """Why a model's test path cannot be used, or None: a relative POSIX path of a .py file."""
    parts = path.split("/")
    if not path.endswith(".py") or path == ".py":
        return "it is not a .py file"
    if path.startswith("/") or "\\" in path or any(part in ("", ".", "..") for part in parts):
        return "it does not stay inside the repository"
    if not path.isprintable() or any(
        part.lower().strip(" .") in ("git", "git~1") for part in parts
    ):
        return "it has characters or names that are not allowed"
    if steers_tests(path):
        return "it would configure the test run"
    return None
