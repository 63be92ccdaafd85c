"""Chooses the lines of an oversized chunk to show: its signature and the best matching lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from agent.retrieval.context.assignments import end_of_statement
from agent.retrieval.context.layout import FileView
from agent.types import Chunk, Problem

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{2,}")
_SUBWORD = re.compile(r"[A-Z]?[a-z]{3,}|[A-Z]{3,}(?![a-z])")
_TITLE_WEIGHT = 2.0  # the title names the subject, the body also holds logs
_TRACEBACK_WEIGHT = 10.0  # a named line outweighs any words
_SMOOTHING = 3  # lines on either side that support a line
_REACH = 4  # lines on either side that are shown with a line
_MOST_MISSES = 4  # places that may not fit before the others are given up
_MAX_SIGNATURE = 20  # lines; a longer head is no help in a part


def signature_lines(chunk: Chunk, view: FileView) -> tuple[int, ...]:
    """Return the line numbers of the chunk's signature, empty if the file lacks it there."""
    signature = chunk.signature.strip("\n").split("\n") if chunk.signature.strip() else []
    numbers = tuple(range(chunk.start, min(chunk.start + len(signature), len(view.lines) + 1)))
    same = all(
        view.lines[number - 1].strip() == line.strip()
        for number, line in zip(numbers, signature, strict=False)
    )
    return numbers if same and len(numbers) == len(signature) <= _MAX_SIGNATURE else ()


def best_lines(
    chunk: Chunk,
    lines: Iterable[int],
    view: FileView,
    problem: Problem,
    fits: Callable[[frozenset[int]], bool],
) -> frozenset[int]:
    """Return the signature and the best places of a chunk's `lines`, as many as `fits` allows.

    A place is a line with its neighbours, whole statements, and the heads of the blocks around it.
    Empty if not even the signature and one place fit.
    """
    numbers = sorted(lines)
    head = frozenset(signature_lines(chunk, view)) & frozenset(numbers)
    scores = _smoothed(_line_scores(numbers, view, problem))
    texts = [view.lines[number - 1] for number in numbers]
    statements = _statements(texts)
    chosen: frozenset[int] = frozenset()
    misses = 0
    # Ties go to the earliest line. A blank line between two matches may seem better by a rounding
    # error, but would show nothing.
    said = (i for i, text in enumerate(texts) if text.strip())
    for best in sorted(said, key=lambda i: (-scores[i], i)):
        if numbers[best] in chosen:
            continue
        place = _place(best, texts, statements)
        grown = (chosen or head) | frozenset(numbers[i] for i in place)
        if fits(grown):
            chosen = grown
        else:
            misses += 1
        if misses == _MOST_MISSES:
            break
    return chosen


def _place(index: int, lines: Sequence[str], statements: Sequence[tuple[int, int]]) -> set[int]:
    low = statements[max(0, index - _REACH)][0]
    high = statements[min(len(lines) - 1, index + _REACH)][1]
    return {*range(low, high), *_enclosing(index, lines, statements)}


def _statements(lines: Sequence[str]) -> list[tuple[int, int]]:
    """Return for each line the range of the lines of its statement, judged by its brackets."""
    spans: list[tuple[int, int]] = []
    while len(spans) < len(lines):
        start = len(spans)
        end = end_of_statement(lines, start)
        spans += [(start, end)] * (end - start)
    return spans


def _enclosing(
    index: int, lines: Sequence[str], statements: Sequence[tuple[int, int]]
) -> Iterator[int]:
    """Yield the lines of the statements whose blocks hold a line, judged by the indentation."""
    indent = _indent(lines[index])
    for above in range(index - 1, -1, -1):
        if lines[above].strip() and _indent(lines[above]) < indent:
            yield from range(*statements[above])
            indent = _indent(lines[above])


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _line_scores(numbers: Sequence[int], view: FileView, problem: Problem) -> list[float]:
    """Score each line by the rare words it shares with the problem, and by tracebacks."""
    wanted = Counter(dict.fromkeys(_terms(problem.body), 1.0))
    wanted.update(dict.fromkeys(_terms(problem.title), _TITLE_WEIGHT))
    found = [_terms(view.lines[number - 1]) & wanted.keys() for number in numbers]
    frequency = Counter(term for terms in found for term in terms)
    named = _named_lines(problem.text, view.path)
    return [
        # Sorted: floating-point sums depend on their order.
        sum(wanted[term] / frequency[term] for term in sorted(terms))
        + (_TRACEBACK_WEIGHT if number in named else 0.0)
        for number, terms in zip(numbers, found, strict=True)
    ]


def _smoothed(scores: Sequence[float]) -> list[float]:
    """Apply triangular smoothing, so that a dense region beats a single line."""
    return [
        sum(
            scores[j] * (1 - abs(i - j) / (_SMOOTHING + 1))
            for j in range(max(0, i - _SMOOTHING), min(len(scores), i + _SMOOTHING + 1))
        )
        for i in range(len(scores))
    ]


def _terms(text: str) -> set[str]:
    words = set(_WORD.findall(text))
    return {word.lower() for word in words} | {
        part.lower() for word in words for part in _SUBWORD.findall(word)
    }


def _named_lines(text: str, path: str) -> frozenset[int]:
    """Return the lines of the file that a traceback or a `path:12` reference in `text` names."""
    name = re.escape(path.rsplit("/", 1)[-1])
    pattern = rf"(?<![\w.-]){name}(?:[\"']?,? line |:|#L)(\d{{1,7}})\b"
    return frozenset(int(number) for number in re.findall(pattern, text))
