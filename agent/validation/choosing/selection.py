"""Chooses the test files that say most about a change. Pure: the same input, the same choice.

Each test file is scored by what ties it to the change: the patch edits it, the issue names it, its
name is that of an edited module, it imports one, it used to change together with one, it mentions a
changed function or class. One strong tie beats any number of weak ones; rare words weigh more. The
best are taken in order, as many as the number of files and the time allow.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath

from agent.protocols import Snapshot
from agent.repository.languages import is_test_path
from agent.types import FileChange, SelectedTest
from agent.validation.choosing.catalogue import TestFile, TestFiles
from agent.validation.choosing.cost import Budget
from agent.validation.choosing.symbols import changed_symbols
from agent.validation.choosing.ties import Tie, strongest, target_of

DEFAULT_LIMIT = 12

_EDITED = 20.0
_NAMED_BY_ISSUE = 12.0
_SYMBOL, _SYMBOLS_MOST = 3.0, 9.0
_TESTED = 2.0  # a test function has the changed function's name in its own
_ISSUE_WORD, _ISSUE_WORDS_MOST = 1.0, 3.0
_TOGETHER = 12.0  # times how regularly they changed together, 0..1

# What is only near is not worth its run time, unless few files are better: a handful of test files
# costs little, and a regression shows where nobody looked for it.
_WORTH_RUNNING = 2.5
_AT_LEAST = 6

# Words of prose are not names of code: snake_case, CamelCase, dotted, or called.
_CODE_WORD = re.compile(
    r"[A-Za-z]\w*_\w+|_\w{2,}|[A-Z]?[a-z0-9]+[A-Z]\w*|(?<=\.)[A-Za-z]\w{2,}|[A-Za-z]\w{2,}(?=\()"
)

# Parts of web and mail addresses look like attributes.
_ADDRESS = re.compile(r"\w+://\S+|\S+@\S+|\bwww\.\S+")

_NOTHING: Mapping[str, float] = {}


def select_tests(
    snapshot: Snapshot,
    changes: Sequence[FileChange],
    problem_text: str,
    limit: int = DEFAULT_LIMIT,
    *,
    files: TestFiles | None = None,
    together: Mapping[str, float] = _NOTHING,
    budget: Budget | None = None,
) -> tuple[SelectedTest, ...]:
    """At most `limit` test files, best first, each with what ties it to the change.

    `files` are those that may be chosen, where they are read already. `together` says for test
    files how regularly they changed with the edited ones, 0..1. `budget` bounds the time that the
    files are thought to take; the best one is chosen whatever it takes.
    """
    tests = files or TestFiles(snapshot)
    targets = [target_of(c.path) for c in changes if not is_test_path(c.path)]
    symbols = changed_symbols(c for c in changes if not is_test_path(c.path))
    words = frozenset(_CODE_WORD.findall(_ADDRESS.sub(" ", problem_text))) - symbols
    rarity = _rarity(tests.files, symbols | words)
    edited = {change.path for change in changes if change.after is not None}
    scored = []
    for test in tests.files:
        ties = [
            *_named(test, edited, problem_text),
            *strongest(test, targets, tests),
            *_changed_together(test, together),
            *_tested_by_name(test, symbols),
            *_by_words(test, symbols, rarity, _SYMBOL, _SYMBOLS_MOST, "mentions"),
            *_by_words(test, words, rarity, _ISSUE_WORD, _ISSUE_WORDS_MOST, "issue's"),
        ]
        scored.append((-round(sum(tie[0] for tie in ties), 6), test.path, _reason(ties)))
    return _best(sorted(scored), limit, tests, budget)


def _best(
    scored: Sequence[tuple[float, str, str]], limit: int, tests: TestFiles, budget: Budget | None
) -> tuple[SelectedTest, ...]:
    if budget is not None and len(scored) <= limit and budget.holds_all(tests.files):
        return tuple(SelectedTest(path, why or budget.why_all) for _, path, why in scored)
    tied = [entry for entry in scored if entry[0] < 0]
    worth = sum(-entry[0] >= _WORTH_RUNNING for entry in tied)
    chosen = [
        SelectedTest(path, reason) for _, path, reason in tied[: min(limit, max(worth, _AT_LEAST))]
    ]
    if budget is None:
        return tuple(chosen)
    return budget.affordable(chosen, tests)


def _reason(ties: Iterable[Tie]) -> str:
    return "; ".join(note for _, note in sorted(ties, key=lambda tie: (-tie[0], tie[1]))[:3])


def _rarity(tests: Sequence[TestFile], wanted: frozenset[str]) -> Mapping[str, float]:
    """1 for a word in one test file, falling with the logarithm of the number of files."""
    files: dict[str, int] = {}
    for test in tests:
        for word in wanted & test.words:
            files[word] = files.get(word, 0) + 1
    return {word: 1 / (1 + math.log2(count)) for word, count in files.items()}


def _named(test: TestFile, edited: set[str], problem: str) -> Iterable[Tie]:
    if test.path in edited:
        yield _EDITED, "edited by the patch"
    if re.search(rf"(?<![\w/]){re.escape(PurePosixPath(test.path).name)}\b", problem) or (
        test.path in problem
    ):
        yield _NAMED_BY_ISSUE, "named by the issue"


def _changed_together(test: TestFile, together: Mapping[str, float]) -> Iterable[Tie]:
    if together.get(test.path):
        yield _TOGETHER * together[test.path], "changed together with it before"


def _tested_by_name(test: TestFile, symbols: frozenset[str]) -> Iterable[Tie]:
    """A test that bears the name of what changed: `test_parse_error` for `parse`."""
    for symbol in sorted(symbols):
        if symbol.strip("_").lower() in test.tested:
            yield _TESTED, f"tests {symbol}"
            return


def _by_words(
    test: TestFile,
    words: frozenset[str],
    rarity: Mapping[str, float],
    weight: float,
    most: float,
    what: str,
) -> Iterable[Tie]:
    found = sorted(words & test.words, key=lambda word: (-rarity[word], word))
    if found:
        # Summed in a fixed order: floating-point sums depend on it.
        yield min(most, weight * math.fsum(rarity[w] for w in found)), f"{what} {found[0]}"
