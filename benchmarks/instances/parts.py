"""What a commit touches, sorted: source, tests, and what does not count. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from agent.repository.languages import is_generated_path, is_test_path, is_vendored_path
from agent.verify.path_rules import is_python_test, steers_tests

MOST_SOURCES = 3
MOST_LINES = 60
"""Added and removed lines of source: a larger change does more than to repair one fault."""

_TEST_FOLDERS = frozenset({"test", "tests", "testing", "test_data", "testsuite"})

# Prose about the change: left out of both patches.
_PROSE_FOLDERS = frozenset(
    {"doc", "docs", "changes", "changelog", "changelogs", "changelog.d", "news", "newsfragments",
     "release-notes", "releasenotes", "topfiles"}
)  # fmt: skip
_PROSE_NAME = re.compile(
    r"(?:changes|changelog|history|news|release|authors|credits|contributors|todo|readme)[^/]*"
    r"|.*\.(?:md|rst|news|bugfix|misc)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Touched:
    """A file that a commit changes. `lines`: added and removed; None for a binary one."""

    path: str
    lines: int | None


@dataclass(frozen=True, slots=True)
class Parts:
    """The two patches by their paths, each in order. `cases` are the test files that are run."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]
    cases: tuple[str, ...]


def sort_parts(touched: Iterable[Touched]) -> Parts | None:
    """The parts of a small repair with a test; None for any other commit."""
    weighty = [file for file in touched if not _is_prose(file.path)]
    tests = [file for file in weighty if is_of_tests(file.path)]
    sources = [file for file in weighty if not is_of_tests(file.path)]
    cases = sorted(file.path for file in tests if is_python_test(file.path))
    if not cases or not 1 <= len(sources) <= MOST_SOURCES:
        return None
    if not all(_is_source(file.path) for file in sources):
        return None
    if any(file.lines is None for file in weighty):
        return None
    if sum(file.lines or 0 for file in sources) > MOST_LINES:
        return None
    return Parts(
        tuple(sorted(file.path for file in sources)),
        tuple(sorted(file.path for file in tests)),
        tuple(cases),
    )


def is_of_tests(path: str) -> bool:
    """Whether a file belongs to the tests: one of them, or their data."""
    return is_test_path(path) or not _TEST_FOLDERS.isdisjoint(path.lower().split("/")[:-1])


def _is_prose(path: str) -> bool:
    folders = path.lower().split("/")[:-1]
    name = path.rpartition("/")[2]
    if path.endswith(".py"):
        return folders[:1] in (["docs"], ["doc"])
    return not _PROSE_FOLDERS.isdisjoint(folders) or _PROSE_NAME.fullmatch(name) is not None


def _is_source(path: str) -> bool:
    return (
        path.endswith(".py")
        and not steers_tests(path)
        and not is_vendored_path(path)
        and not is_generated_path(path)
        and path.rpartition("/")[2] not in ("setup.py", "_version.py")
    )
