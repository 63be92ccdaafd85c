"""BM25 over pieces and whole files, with fields weighted before saturation: Robertson & Zaragoza,
"The Probabilistic Relevance Framework: BM25 and Beyond" (2009).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import numpy as np

from agent.retrieval.index import WORD, Terms, spread, term_hash, without_suffix
from agent.retrieval.ranking.mentions import MentionPlace, Mentions, text_parts
from agent.shared.secrets import is_secret_path

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.retrieval.index import Corpus
    from agent.types import Chunk, Problem, SourceFile
    from agent.types.protocols import Snapshot


K1 = 1.5
B = 0.5
NAME_WEIGHT = 3.0
PATH_WEIGHT = 2.0
TITLE_WEIGHT = 2.0
"""Factor for terms of the title: reporters put the subject there."""

MAX_QUERY_CHARS = 100_000
"""Longer issues are cut: the rest is usually a pasted log."""


@dataclass(frozen=True, slots=True)
class LexicalQuery:
    """Distinct `terms` by ascending hash: `hashes` uint64 (q,), weights float64 (q,)."""

    terms: tuple[str, ...]
    hashes: NDArray[np.uint64]
    weights: NDArray[np.float64]
    title: NDArray[np.float64]
    prose: NDArray[np.float64]
    code: NDArray[np.float64]


def make_query(problem: Problem, terms: Terms) -> LexicalQuery:
    """Return the problem's terms, each with weight log(1 + occurrences), more for the title's."""
    title = terms.count(f"{problem.title[:MAX_QUERY_CHARS]} {_joined(problem.title)}")
    body = problem.body[:MAX_QUERY_CHARS]
    prose, code = text_parts(body)
    counts = title + terms.count(body)
    weights = _weights(counts)
    for term in title:
        weights[term_hash(term)] *= TITLE_WEIGHT
    order = sorted(weights)
    names = {term_hash(term): term for term in counts}
    columns = (weights, *map(_weights, (title, terms.count(prose), terms.count(code))))
    return LexicalQuery(
        tuple(names[key] for key in order),
        np.array(order, dtype=np.uint64),
        *(np.array([column.get(key, 0.0) for key in order]) for column in columns),
    )


_PARTED = re.compile(r"(?<![\w.-])(?:\w{1,20}-\w{1,20}|[A-Z]+[a-z0-9]+[A-Z]\w{0,20})(?![\w-]|\.\w)")


def _joined(text: str) -> str:
    """Return the words with hyphens or capitals inside as files spell them: `T-SQL` is `tsql`."""
    return " ".join(word.replace("-", "").lower() for word in _PARTED.findall(text))


def _weights(counts: Counter[str]) -> dict[int, float]:
    return {term_hash(term): math.log1p(count) for term, count in counts.items()}


@dataclass(frozen=True, slots=True)
class Bag:
    """Pairs of documents and the query's terms: `owner`, `term` int64 (m,); `saturated` float64
    (m,): BM25's frequency; `rarity` float64 (q,).
    """

    size: int
    owner: NDArray[np.int64]
    term: NDArray[np.int64]
    saturated: NDArray[np.float64]
    rarity: NDArray[np.float64]

    def bm25(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the score (n,) of each document for a query with these term weights (q,)."""
        gains = (weights * self.rarity)[self.term] * self.saturated
        return np.bincount(self.owner, gains, self.size).astype(np.float64)

    def coverage(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the share (n,) of the query's weight that occurs at all; rare terms count more."""
        worth = weights * self.rarity
        total = float(worth.sum())
        covered = np.bincount(self.owner, worth[self.term], self.size).astype(np.float64)
        return covered / total if total > 0.0 else covered


@dataclass(frozen=True, slots=True)
class Bags:
    """Pieces and files for one query; names of pieces (n,); `path_coverage` float64 (f,)."""

    pieces: Bag
    files: Bag
    names: NDArray[np.float64]
    path_coverage: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Postings:
    """`owner`, `term` int64 (m,), `weight` float64 (m,). Repeated pairs add up."""

    owner: NDArray[np.int64]
    term: NDArray[np.int64]
    weight: NDArray[np.float64]

    def and_also(self, other: _Postings) -> _Postings:
        pairs = ((self.owner, other.owner), (self.term, other.term))
        owner, term = (np.concatenate(pair) for pair in pairs)
        return _Postings(owner, term, np.concatenate([self.weight, other.weight]))


def make_bags(corpus: Corpus, query: LexicalQuery, terms: Terms) -> Bags:
    """Count the query's terms in every piece and file."""
    paths, path_lengths = _path_postings(corpus.files, query, terms)
    count, width = len(corpus.files), query.hashes.size
    texts = _Postings(corpus.piece_file[corpus.piece], corpus.term, corpus.counts)
    text_lengths = np.bincount(corpus.piece_file, corpus.text_lengths, count)
    files = _bag(texts.and_also(paths), text_lengths + path_lengths, width)
    fields = _Postings(corpus.piece, corpus.term, corpus.counts + NAME_WEIGHT * corpus.name_counts)
    lengths = corpus.text_lengths + NAME_WEIGHT * corpus.name_lengths
    lengths = lengths + path_lengths[corpus.piece_file]
    pieces = _bag(fields.and_also(_of_pieces(paths, corpus)), lengths, width)

    named = corpus.name_counts > 0
    gains = (query.weights * pieces.rarity)[corpus.term[named]]
    names = np.bincount(corpus.piece[named], gains, len(corpus.piece_file)).astype(np.float64)
    worth = query.weights * files.rarity
    pairs = np.unique(paths.owner * max(width, 1) + paths.term)
    covered = np.bincount(pairs // max(width, 1), worth[pairs % max(width, 1)], count)
    return Bags(
        pieces,
        files,
        names / np.sqrt(np.maximum(corpus.name_lengths, 1.0)),
        covered / max(float(worth.sum()), 1e-9),
    )


def _path_postings(
    files: Sequence[SourceFile], query: LexicalQuery, terms: Terms
) -> tuple[_Postings, NDArray[np.float64]]:
    """Return weighted postings of the files' paths, and each path's weighted length (f,)."""
    numbers = {term: index for index, term in enumerate(query.terms)}

    @cache  # many folders and words are repeated
    def _read(text: str) -> tuple[int, tuple[int, ...]]:
        words = WORD.findall(text)
        if words != [text]:
            parts = [_read(word) for word in words]
            return sum(count for count, _ in parts), tuple(hit for _, hits in parts for hit in hits)
        own = terms.of_word(text)
        return len(own), tuple(numbers[term] for term in own if term in numbers)

    owner: list[int] = []
    term: list[int] = []
    lengths: list[float] = []
    for number, file in enumerate(files):
        folder, _, name = without_suffix(file.path).rpartition("/")
        parts = (_read(folder), _read(name))
        lengths.append(PATH_WEIGHT * sum(count for count, _ in parts))
        hits = [hit for _, hits in parts for hit in hits]
        term.extend(hits)
        owner.extend([number] * len(hits))
    owners, postings = np.array(owner, dtype=np.int64), np.array(term, dtype=np.int64)
    weights = np.full(len(term), PATH_WEIGHT)
    return _Postings(owners, postings, weights), np.array(lengths)


def _of_pieces(postings: _Postings, corpus: Corpus) -> _Postings:
    first = np.array(corpus.first_piece, dtype=np.int64)
    sizes = np.diff(first)[postings.owner]
    owner = spread(first[postings.owner], sizes)
    return _Postings(owner, np.repeat(postings.term, sizes), np.repeat(postings.weight, sizes))


def _bag(postings: _Postings, lengths: NDArray[np.float64], width: int) -> Bag:
    """Return the bag of the (n,) documents with these `lengths`, for `width` terms."""
    if not lengths.size or not width:
        none = np.empty(0, dtype=np.int64)
        return Bag(lengths.size, none, none, np.empty(0), np.zeros(width))
    keys, inverse = np.unique(postings.owner * width + postings.term, return_inverse=True)
    frequency = np.bincount(inverse, postings.weight, keys.size)
    keys, frequency = keys[frequency > 0], frequency[frequency > 0]
    owner, term = keys // width, keys % width
    rarity = inverse_frequency(lengths.size, np.bincount(term, minlength=width))
    norm = length_norm(lengths, float(lengths.mean()))
    saturated = frequency * (K1 + 1) / (frequency + norm[owner])
    return Bag(lengths.size, owner, term, saturated, rarity)


def inverse_frequency(count: int, documents: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return BM25's rarity (q,) of terms; `documents` int64 (q,) of `count` documents have each."""
    return np.asarray(np.log1p((count - documents + 0.5) / (documents + 0.5)))


def length_norm(lengths: NDArray[np.float64], mean: float) -> NDArray[np.float64]:
    """Return the length term (n,) that BM25 adds to a frequency; it grows with the length."""
    return K1 * (1 - B + B * lengths / max(mean, 1.0))


_MAX_PATHS = 2
_MAX_NAMES = 4
MAX_CHARS = 512_000
"""128,000 tokens of four characters, the most that an embedding server is known to take."""


def document_text(chunk: Chunk) -> str:
    """Return path, symbol and code; of files that hold secrets only the path, as it may be sent."""
    parts = (chunk.path, chunk.symbol, "" if is_secret_path(chunk.path) else chunk.text)
    return "\n".join(part for part in parts if part)[:MAX_CHARS]


def query_text(problem: Problem, mentions: Mentions) -> str:
    """Return the paths and names that the problem puts first, then its title and text."""
    paths = [mention.path for mention in mentions.paths if mention.place is not MentionPlace.CODE]
    names = [m.name for m in mentions.names if m.place in (MentionPlace.TITLE, MentionPlace.QUOTED)]
    heads = (" ".join(paths[:_MAX_PATHS]), " ".join(names[:_MAX_NAMES]))
    parts = (*heads, problem.title, problem.body)
    return "\n".join(part for part in parts if part)[:MAX_CHARS]


class FileNames:
    """Whether a file's name, or its stem as a separate word, occurs in the problem."""

    def __init__(self, problem: Problem) -> None:
        self._text = f"{problem.text} {_joined(problem.text)}".lower()
        self._cache: dict[str, str] = {}

    def found(self, path: str) -> str:
        """Return the name or stem that occurs, "" for none."""
        name = path.rpartition("/")[2].lower()
        if name not in self._cache:
            stem = without_suffix(name)
            names = (name, stem if stem != "__init__" else "")
            self._cache[name] = next((one for one in names if self._has(one)), "")
        return self._cache[name]

    def _has(self, name: str) -> bool:
        # Most names do not occur at all; compiling a pattern for each would dominate the time.
        if not name or name not in self._text:
            return False
        return bool(re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", self._text))


MAX_TEMPLATES = 40
_MAX_TEMPLATE_CHARS = 50_000
_MAX_LINE = 300  # characters compared
_MIN_CHARS = 12
"""Shorter lines, such as `Version`, stay: a reporter may have written them too."""

_BOX = re.compile(r"^[ \t]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]*)?\[[ xX]?\][ \t].*$", re.MULTILINE)
_KEY = re.compile(r"^(?:label|description|placeholder|value|about|title|name):\s*[|>]?[-+]?\s*")
_MARKS = re.compile(r"^[\s#>*+\-_`'\"\[\]xX|:]+|[\s*_`'\":]+$")
_FENCE = re.compile(r"^ {0,3}(?:```|~~~)")


def without_boilerplate(problem: Problem, snapshot: Snapshot) -> Problem:
    """Return the problem without its template's text; unchanged if that leaves an empty body."""
    known = frozenset(_template_lines(snapshot))
    text = _BOX.sub("", "".join(_outside_comments(problem.body)))
    body = "\n".join(_kept(text, known))
    return replace(problem, body=body) if body.strip() else problem


def _outside_comments(text: str) -> Iterator[str]:
    start = 0
    while (opened := text.find("<!--", start)) >= 0:
        closed = text.find("-->", opened + 4)
        if closed < 0:
            break
        yield text[start:opened]
        start = closed + 3
    yield text[start:]


def _kept(text: str, known: frozenset[str]) -> Iterator[str]:
    fenced = False
    for line in text.split("\n"):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and _normal(line) in known:
            continue
        yield line


def _template_lines(snapshot: Snapshot) -> Iterator[str]:
    paths = [path for path in snapshot.files if _is_template(path)]
    for path in paths[:MAX_TEMPLATES]:
        for line in snapshot.text(path)[:_MAX_TEMPLATE_CHARS].split("\n"):
            normal = _normal(_KEY.sub("", line.strip().removeprefix("- ")))
            if len(normal) >= _MIN_CHARS:
                yield normal


def _is_template(path: str) -> bool:
    """Whether a path is an issue template of GitHub or GitLab."""
    lowered = path.lower()
    return "issue_template" in lowered and PurePosixPath(lowered).suffix in {
        ".md", ".yml", ".yaml", ".txt", ".rst",
    }  # fmt: skip


def _normal(line: str) -> str:
    return _MARKS.sub("", line[:_MAX_LINE]).lower()
