"""Describes the project's tests to the model, so that a new test resembles them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from agent.protocols import Snapshot, TokenCounter
from agent.secrets import mask_secrets
from agent.types import FileChange, Problem, Ranking
from agent.validation.choosing.catalogue import TestFiles
from agent.validation.choosing.selection import select_tests
from agent.validation.path_rules import is_test_by_ending, is_test_file

# Files that the fix is most likely in; their tests are named.
_LIKELY_FILES = 3
_NAMED_TESTS = 6
_OF_THE_LIKELIEST = 3

# Of the nearest test file: enough for its imports, helpers and a first test.
_HEAD_LINES = 40
_HEAD_TOKENS = 350

_BACKTICKS = re.compile(r"`{3,}")


@dataclass(frozen=True, slots=True)
class TestHints:
    """Test files near the problem, and how the nearest one begins ("" where there is none)."""

    __test__ = False  # not a test class

    paths: tuple[str, ...] = ()
    total: int = 0
    head: str = ""
    language: str = ""


def find_test_hints(
    problem: Problem, ranking: Ranking, snapshot: Snapshot, counter: TokenCounter
) -> TestHints:
    """Return the test files for the best ranked files, and the head of the nearest one."""
    likely = [file.path for file in ranking.files[:_LIKELY_FILES] if file.path in snapshot.files]
    contents = ((path, snapshot.read(path)) for path in likely)
    changes = [FileChange(path, content, content) for path, content in contents]
    files = TestFiles(snapshot)
    # The tests of the very likeliest file first: the tests of three files compete for one place.
    chosen = (
        *select_tests(snapshot, changes[:1], problem.text, _OF_THE_LIKELIEST, files=files),
        *select_tests(snapshot, changes, problem.text, _NAMED_TESTS, files=files),
    )
    named = (test.path for test in chosen if not is_test_by_ending(test.path))
    paths = tuple(dict.fromkeys(named))[:_NAMED_TESTS]
    total = sum(map(is_test_file, snapshot.files))
    if not paths:
        return TestHints(total=total)
    nearest = paths[0]
    return TestHints(
        paths,
        total,
        _head(snapshot.text(nearest), counter),
        snapshot.files[nearest].language,
    )


def _head(text: str, counter: TokenCounter) -> str:
    """Return whole lines from the start of a file, at most _HEAD_TOKENS tokens."""
    masked = _BACKTICKS.sub("``", mask_secrets(text).text)
    lines = masked.split("\n")[:_HEAD_LINES]
    while lines and counter.count("\n".join(lines)) > _HEAD_TOKENS:
        lines = lines[: len(lines) * 3 // 4]
    return "\n".join(lines).rstrip()
