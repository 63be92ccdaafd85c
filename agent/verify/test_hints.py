"""Describes the project's tests to the model, so that a new test resembles them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from agent.shared.secrets import mask_secrets
from agent.types import FileChange, Problem, Ranking
from agent.types.protocols import Snapshot, TokenCounter
from agent.verify.choosing import TestFiles, select_tests
from agent.verify.path_rules import is_test_by_ending, is_test_file

# Files that the fix is most likely in; their tests are named.
_LIKELY_FILES = 3
_NAMED_TESTS = 6
_OF_THE_LIKELIEST = 3

# Enough for a test, or for the imports, helpers and first test of a file.
_EXCERPT_LINES = 40
_EXCERPT_TOKENS = 350

# Definitions whose use in a test makes it the excerpt. Shorter names are words of other code too.
_LIKELY_NAMES = 5
_SHORTEST_NAME = 4
# Lines of the problem, and texts in quotes or backticks in it, that a test may assert.
_QUOTED = re.compile(r"`([^`\n]+)`|\"([^\"\n]+)\"|'([^'\n]+)'")
_QUOTE_LENGTHS = range(10, 200)
_MOST_QUOTES = 200
_TEST = re.compile(r"(\s*)(?:async\s+)?def\s+test\w*\s*\(")

_BACKTICKS = re.compile(r"`{3,}")


@dataclass(frozen=True, slots=True)
class TestHints:
    """Test files near the problem, and an excerpt of one of them ("" where there is none).

    The excerpt has a test that uses the likeliest code or has text that the problem quotes, else
    the first lines of the nearest file. `place` is its path and what part of the file it is.
    """

    __test__ = False  # not a test class

    paths: tuple[str, ...] = ()
    total: int = 0
    excerpt: str = ""
    language: str = ""
    place: str = ""


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
    return _with_excerpt(TestHints(paths, total), problem, ranking, snapshot, counter)


def _with_excerpt(
    hints: TestHints,
    problem: Problem,
    ranking: Ranking,
    snapshot: Snapshot,
    counter: TokenCounter,
) -> TestHints:
    quotes = _quotes(problem.text)
    names = {**quotes, **_likely_names(ranking)}
    texts = {path: _masked(snapshot.text(path)).split("\n") for path in hints.paths}
    found = [(*test, path) for path, lines in texts.items() for test in _tests(lines, names)]
    # The first of equal worth: the tests of the likeliest file come first.
    best = max(found, key=lambda test: test[0], default=None)
    path = best[-1] if best else hints.paths[0]
    lines, language = texts[path], snapshot.files[path].language
    if best is None:
        head = _fitting(lines[:_EXCERPT_LINES], counter)
        return replace(hints, excerpt=head, language=language, place=f"{path} begins")
    _, first, last, _ = best
    shown = _fitting(lines[first : min(last, first + _EXCERPT_LINES)], counter)
    place = f"{path}:L{first + 1}-{first + shown.count(chr(10)) + 1}"
    if any(quote in shown for quote in quotes):
        place += ", with text that the issue quotes"
    return replace(hints, excerpt=shown, language=language, place=place)


def _quotes(text: str) -> dict[str, float]:
    found = [*("".join(groups) for groups in _QUOTED.findall(text)), *text.split("\n")]
    stripped = (quote.strip().removeprefix(">>>").strip() for quote in found)
    quotes = dict.fromkeys(quote for quote in stripped if len(quote) in _QUOTE_LENGTHS)
    return dict.fromkeys(itertools.islice(quotes, _MOST_QUOTES), 1.0)


def _likely_names(ranking: Ranking) -> dict[str, float]:
    """Return the names of the likeliest definitions with their weights; of `__x__`, its class."""
    names: dict[str, float] = {}
    symbols = (scored.chunk.symbol for scored in ranking.chunks if scored.chunk.symbol)
    for rank, symbol in enumerate(itertools.islice(symbols, _LIKELY_NAMES)):
        owner, _, name = symbol.rpartition(".")
        if name.startswith("__"):
            name = owner.rpartition(".")[2]
        if len(name) >= _SHORTEST_NAME:
            names.setdefault(name, 1 / (rank + 1))
    return names


def _tests(lines: Sequence[str], names: Mapping[str, float]) -> Iterator[tuple[float, int, int]]:
    """Yield the worth and the lines, from 0 and without the end, of the tests that use the names.

    The weights of the names that a test uses are added up.
    """
    any_name = "|".join(map(re.escape, names))
    wanted = re.compile(rf"(?<!\w)(?:{any_name})(?!\w)") if names else None
    for first, line in enumerate(lines):
        begin = _TEST.match(line)
        if begin is None or wanted is None:
            continue
        last = _end_of_block(lines, first, len(begin[1]))
        used = set(wanted.findall("\n".join(lines[first + 1 : last])))
        if used:
            yield sum(names[name] for name in sorted(used)), first, last


def _end_of_block(lines: Sequence[str], first: int, indent: int) -> int:
    """Return the index after the last line of a block that begins at this indentation."""
    end = first + 1
    for number in range(first + 1, len(lines)):
        line = lines[number]
        if not line.strip():
            continue
        if len(line) - len(line.lstrip()) <= indent and not line.lstrip().startswith(")"):
            break
        end = number + 1
    return end


def _masked(text: str) -> str:
    return _BACKTICKS.sub("``", mask_secrets(text).text)


def _fitting(lines: Sequence[str], counter: TokenCounter) -> str:
    """Return whole lines from the first on, at most _EXCERPT_TOKENS tokens."""
    while lines and counter.count("\n".join(lines)) > _EXCERPT_TOKENS:
        lines = lines[: len(lines) * 3 // 4]
    return "\n".join(lines).rstrip()
