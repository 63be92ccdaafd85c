"""Chooses the lines of a chunk to show where it is not shown whole.

Of an oversized chunk these are its signature and the best matching lines. Of others, a mark takes
the place of lines that tell little: the rest of long docstrings, entries of long tables.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from agent.retrieval.context.layout import FileView
from agent.retrieval.context.statements import end_of_statement
from agent.types import Chunk, ChunkKind, Problem

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
    filled = (i for i, text in enumerate(texts) if text.strip())
    for best in sorted(filled, key=lambda i: (-scores[i], i)):
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
    weights = Counter(dict.fromkeys(_terms(problem.body), 1.0))
    weights.update(dict.fromkeys(_terms(problem.title), _TITLE_WEIGHT))
    shared = [_terms(view.lines[number - 1]) & weights.keys() for number in numbers]
    frequency = Counter(term for terms in shared for term in terms)
    named = _named_lines(problem.text, view.path)
    return [
        # Sorted: floating-point sums depend on their order.
        sum(weights[term] / frequency[term] for term in sorted(terms))
        + (_TRACEBACK_WEIGHT if number in named else 0.0)
        for number, terms in zip(numbers, shared, strict=True)
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


# ----------------------------------------------------------------------------- what tells little

# A mark takes the place of the lines, so fewer are not worth it.
_LEAST_LEFT_OUT = 8
# Entries of a table that stay, at its beginning and its end. A table of fewer than this many and
# `_LEAST_LEFT_OUT` more is shown as a whole.
_FIRST_ENTRIES, _LAST_ENTRIES = 12, 4

_DOCSTRING = re.compile(r"\s*[rRbBuUfF]{0,2}(\"\"\"|''')")
_LITERAL = r"""(?:[rRbBuUfF]{0,2}(?:"[^"]*"|'[^']*')|[-+]?\d[\w.]*|\(.*\)|\[.*\]|\{.*\})"""
_ENTRY = re.compile(rf"\s+{_LITERAL}(?:\s*(?::|=>)\s*\S.*)?,\s*(?:(?:#|//).*)?")
_COMMENT = re.compile(r"(?:#|//|\s?\*|/\*)(?!!)")


def condensed(chunk: Chunk) -> Chunk:
    """Return the chunk with the text that is left when `little_told` is left out."""
    left_out = little_told(chunk)
    if not left_out:
        return chunk
    lines = zip(chunk.numbers(), chunk.text.split("\n"), strict=False)
    return replace(chunk, text="\n".join(line for n, line in lines if n not in left_out))


@functools.lru_cache(maxsize=2048)
def little_told(chunk: Chunk) -> frozenset[int]:
    """Return the line numbers of a chunk that a mark can stand for; its signature is not in them.

    They are the lines of a Python docstring after its first sentence, all but a few entries of a
    table of literals, and the comment at the top of a module, such as a licence.
    """
    numbers = chunk.numbers()
    lines = chunk.text.split("\n")[: len(numbers)]
    spans = [*_rest_of_docstring(chunk, lines), *_tables(lines), *_top_comment(chunk, lines)]
    return frozenset(
        number
        for first, last in spans
        if last - first >= _LEAST_LEFT_OUT
        for number in numbers[first:last]
    )


def docstring_lines(chunk: Chunk) -> frozenset[int]:
    """Return the line numbers of a Python docstring with triple quotes."""
    numbers = chunk.numbers()
    begin, end = _docstring(chunk, chunk.text.split("\n")[: len(numbers)])
    return frozenset(numbers[begin:end])


def _docstring(chunk: Chunk, lines: Sequence[str]) -> tuple[int, int]:
    """Return where a docstring begins, and the index after its end; (0, 0) if there is none."""
    if chunk.language != "python":
        return 0, 0
    at = len(chunk.signature.strip("\n").split("\n")) if chunk.signature.strip() else 0
    if chunk.kind is ChunkKind.MODULE:
        at = _after_comments(lines)
    while at < len(lines) and not lines[at].strip():
        at += 1
    begin = _DOCSTRING.match(lines[at]) if at < len(lines) else None
    if begin is None:
        return 0, 0
    if begin[1] in lines[at][begin.end() :]:
        return at, at + 1
    end = next((n for n in range(at + 1, len(lines)) if begin[1] in lines[n]), None)
    return (0, 0) if end is None else (at, end + 1)


def _rest_of_docstring(chunk: Chunk, lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the lines of a docstring after its first paragraph, without the closing quotes."""
    begin, end = _docstring(chunk, lines)
    if end - begin > 1:
        last = begin if _DOCSTRING.sub("", lines[begin], count=1).strip() else begin + 1
        while last + 2 < end and lines[last + 1].strip():
            last += 1
        yield last + 1, end - 1


def _tables(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    first = None
    for number in range(len(lines) + 1):
        if number < len(lines) and _ENTRY.fullmatch(lines[number]):
            first = number if first is None else first
        elif first is not None:
            yield first + _FIRST_ENTRIES, number - _LAST_ENTRIES
            first = None


def _top_comment(chunk: Chunk, lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    if chunk.kind is ChunkKind.MODULE and chunk.start <= 2:
        yield 1, _after_comments(lines)


def _after_comments(lines: Sequence[str]) -> int:
    at = 0
    while at < len(lines) and (not lines[at].strip() or _COMMENT.match(lines[at])):
        at += 1
    return at
