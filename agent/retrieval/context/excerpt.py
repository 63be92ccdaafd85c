"""Chooses the lines of a chunk to show where it is not shown whole, and finds the statements that
import or bind names.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from agent.retrieval.context.layout import FileView, Run, chunk_lines
from agent.types import Chunk, ChunkKind, Problem

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{2,}")
_SUBWORD = re.compile(r"[A-Z]?[a-z]{3,}|[A-Z]{3,}(?![a-z])")
_TITLE_WEIGHT = 2.0  # the title names the subject, the body also holds logs
_TRACEBACK_WEIGHT = 10.0  # a named line outweighs any words
_SMOOTHING = 3  # lines on either side that support a line
_REACH = 4  # lines on either side that are shown with a line
_MOST_OF_PLACE = 40  # lines of one statement that are shown whole with one of them
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
    """Return the signature and the best places of a chunk's `lines`, as many as `fits` allows."""
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
        low = statements[max(0, best - _REACH)][0]
        high = statements[min(len(texts) - 1, best + _REACH)][1]
        place = {*range(low, high), *_enclosing(best, texts, statements)}
        grown = (chosen or head) | frozenset(numbers[i] for i in place)
        if fits(grown):
            chosen = grown
        else:
            misses += 1
        if misses == _MOST_MISSES:
            break
    return chosen


def _statements(lines: Sequence[str]) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    while len(spans) < len(lines):
        start = len(spans)
        end = end_of_statement(lines, start)
        if end - start > _MOST_OF_PLACE:  # a table, or an object of functions: line by line
            end = start + 1
        spans += [(start, end)] * (end - start)
    return spans


def _enclosing(
    index: int, lines: Sequence[str], statements: Sequence[tuple[int, int]]
) -> Iterator[int]:
    indent = _indent(lines[index])
    for above in range(index - 1, -1, -1):
        if lines[above].strip() and _indent(lines[above]) < indent:
            yield from range(*statements[above])
            indent = _indent(lines[above])


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _line_scores(numbers: Sequence[int], view: FileView, problem: Problem) -> list[float]:
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
    name = re.escape(path.rsplit("/", 1)[-1])
    pattern = rf"(?<![\w.-]){name}(?:[\"']?,? line |:|#L)(\d{{1,7}})\b"
    return frozenset(int(number) for number in re.findall(pattern, text))


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
    """Return the lines that a mark can stand for: long docstrings, tables and top comments."""
    numbers = chunk.numbers()
    lines = chunk.text.split("\n")[: len(numbers)]
    spans = [*_rest_of_docstring(chunk, lines), *_tables(lines), *_top_comment(chunk, lines)]
    return frozenset(
        number
        for first, last in spans
        if last - first >= _LEAST_LEFT_OUT
        for number in numbers[first:last]
    )


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


_MAX_STATEMENT = 600  # lines; a longer "statement" is a bracket that never closes
IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]*")
_STRINGS = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|`[^`]*`|(?:#|//).*")

_LONG_QUOTES = ('"""', "'''")
_BINDS = re.compile(r"([A-Za-z_]\w*)\s*(?::[^=]*)?=(?!=)")
_SELF = re.compile(r"\b(?:self|cls)\.(\w+)\s*(?::[^=]+)?=(?!=)")
_FIELD = re.compile(r"([A-Za-z_]\w*)\s*:\s*\S")  # of a dataclass, without a default


# A declaration at the start of a line, in languages without a parser here.
_DECLARED = re.compile(
    r"(?:export\s+|pub\s+)?(?:const|let|var|static|type)\s+(?:mut\s+)?(\w+)|([A-Z][A-Z0-9_]+)\s*="
)


def assignments(view: FileView, name: str, numbers: Iterable[int]) -> list[Run]:
    """Return the first and last lines of the statements, of these lines, that bind the name."""
    begin = re.compile(
        rf"\s*(?:[\w<>\[\]*&,.]+\s+){{0,6}}[*&]?{re.escape(name)}\s*(?:,[\w\s,.]*|:[^=]*)?=(?!=)"
        rf"|(?:#define|(?:export\s+)?(?:const|let|var))\s+{re.escape(name)}\b"
    )
    return [run for line, run in _statements_of(numbers, view.lines) if begin.match(line)]


_EXPORTS: Mapping[str, re.Pattern[str]] = {
    "export default": re.compile(r"export\s+default\b"),
    "module.exports": re.compile(r"(?:module\.)?exports\s*=(?!=)"),
    "export": re.compile(r"export\s*(?:type\s*)?[{*]"),
    "__all__": re.compile(r"__all__\s*(?::[^=]*)?\+?="),
}


def exports(view: FileView) -> list[tuple[str, Run]]:
    """Return the statements at the left margin that list or choose what a file exports."""
    found: list[tuple[str, Run]] = []
    for index, line in enumerate(view.lines):
        kind = next((name for name, begin in _EXPORTS.items() if begin.match(line)), "")
        if kind and (kind == "__all__") == (view.language == "python"):
            found.append((kind, (index + 1, end_of_statement(view.lines, index))))
    return found


def bindings_of_module(lines: Sequence[str]) -> Mapping[str, Run]:
    """Return the last statement at the left margin that binds each name, found without a parser."""
    margin = (number for number, line in enumerate(lines, 1) if line[:1].strip())
    return dict(_bound(margin, lines, _BINDS))


def bindings_of_class(numbers: Iterable[int], lines: Sequence[str]) -> Mapping[str, Run]:
    """Return the first statement that binds or declares each name, of the lines of a class."""
    return dict(reversed(list(_bound(numbers, lines, _BINDS, _FIELD))))


def _bound(
    numbers: Iterable[int], lines: Sequence[str], *patterns: re.Pattern[str]
) -> Iterator[tuple[str, Run]]:
    for line, run in _statements_of(numbers, lines):
        matches = (pattern.match(line.lstrip()) for pattern in patterns)
        if match := next(filter(None, matches), None):
            yield match[1], run


def _statements_of(numbers: Iterable[int], lines: Sequence[str]) -> Iterator[tuple[str, Run]]:
    """Yield the statements that begin on these lines: the first line, and first and last number."""
    after = 0
    for number in sorted(numbers):
        if number > after and lines[number - 1].strip():
            after = end_of_statement(lines, number - 1)
            yield lines[number - 1], (number, after)


def bound_names(view: FileView, chunks: Iterable[Chunk]) -> list[tuple[str, int]]:
    """Return the names that statements outside of functions bind, and attributes of instances, with
    their first lines.
    """
    found: dict[str, int] = {}
    if view.language != "python":
        for number, text in enumerate(view.lines, start=1):
            if match := _DECLARED.match(text):
                found.setdefault(match[1] or match[2], number)
        return list(found.items())
    for chunk in chunks:
        numbers = chunk_lines(chunk, view)
        if chunk.kind is ChunkKind.MODULE:
            for name, (line, _) in _bound(numbers, view.lines, _BINDS):
                found.setdefault(name, line)
        elif chunk.kind is ChunkKind.CLASS:
            for name, (line, _) in bindings_of_class(numbers, view.lines).items():
                found.setdefault(f"{chunk.symbol}.{name}", line)
        else:
            for number in sorted(numbers):
                for name in _SELF.findall(view.lines[number - 1]):
                    found.setdefault(f"{chunk.symbol.rpartition('.')[0]}.{name}", number)
    return list(found.items())


def end_of_statement(lines: Sequence[str], start: int) -> int:
    """Return the index after a statement's last line: its brackets and strings are closed there."""
    depth, quote = 0, ""
    for index in range(start, min(len(lines), start + _MAX_STATEMENT)):
        inside = bool(quote)
        if not inside:
            quote = next((q for q in _LONG_QUOTES if lines[index].count(q) % 2), "")
        elif quote in lines[index]:
            quote = ""
        if quote or (inside and depth > 0):
            continue
        line = "" if inside else _STRINGS.sub("''", lines[index])
        depth += sum(map(line.count, "([{")) - sum(map(line.count, ")]}"))
        if depth <= 0 and not line.rstrip().endswith(("\\", "=")):
            return index + 1
    return start + 1


# Lines. Of a longer statement, such as a bracket that never closes, the first line is taken.
_MAX_IMPORT = 40
_IMPORT = re.compile(
    r"from\s+[\w.]+\s+c?import\b"
    r"|c?import\b(?!\(|\s+(?!static\b|type\b)\w+\s+(?!as\b|from\b)\w)"
    r"|export\s.{0,2000}\sfrom\s|(?:const|let|var)\s.{1,500}=\s*require\s*\("
    r"|\s*#\s*include\b|(?:require|include)(?:_once|_relative)?\b"
    r"|(?:pub\s+)?use\s+[\w:{\\]|extern\s+crate\b|(?:global\s+)?using\s+[\w.=\s]+;"
)
"""The start of an import in the languages of the outlines and `_IMPORTING`."""

_IMPORTING = frozenset({"cython", "kotlin", "scala"})


@dataclass(frozen=True, slots=True)
class ImportStatement:
    """An import statement on lines `start`..`end`, and the identifiers in it."""

    start: int
    end: int
    names: frozenset[str]


def import_statements(lines: Sequence[str], language: str) -> tuple[ImportStatement, ...]:
    """Return the top-level imports of a file, found without a parser; () for other languages."""
    from agent.retrieval.index import GRAMMARS  # loads numpy

    if language not in GRAMMARS and language not in _IMPORTING:
        return ()
    found: list[ImportStatement] = []
    after = 0
    for index, line in enumerate(lines):
        if index < after or not _IMPORT.match(line):
            continue
        after = end_of_statement(lines, index)
        if after - index > _MAX_IMPORT:
            after = index + 1
        names = frozenset(IDENTIFIER.findall("\n".join(lines[index:after])))
        found.append(ImportStatement(index + 1, after, names))
    return tuple(found)
