"""BM25 over pieces and whole files, with fields: a match in the name counts more than in the body.

The formula is simple BM25F (fields weighted before saturation, one length normalisation): Robertson
& Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009). The weights below were
measured (reference: file@1 38 -> 63 on 274 real issues, no model).

Texts of documents and queries for embedding and matching.

Issue templates ask for versions, repeat rules and have boxes to tick. Their words are the same in
every issue of a project, and outnumber the two lines that describe the fault. HTML comments, check
boxes and lines of the repository's own issue templates are therefore left out.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import numpy as np

from agent.retrieval.index import WORD, Terms, term_hash, without_suffix
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
    """Distinct `terms` by ascending hash: `hashes` uint64 (q,), all weights float64 (q,).

    `weights` are for the whole problem; `title`, `prose` and `code` for its parts, 0 for terms that
    are not in the part. Code blocks show what was run; prose says what was meant.
    """

    terms: tuple[str, ...]
    hashes: NDArray[np.uint64]
    weights: NDArray[np.float64]
    title: NDArray[np.float64]
    prose: NDArray[np.float64]
    code: NDArray[np.float64]


def make_query(problem: Problem, terms: Terms) -> LexicalQuery:
    """Return the problem's terms, each with weight log(1 + occurrences), more for the title's."""
    title = terms.count(problem.title[:MAX_QUERY_CHARS])
    body = problem.body[:MAX_QUERY_CHARS]
    prose, code = (terms.count(part) for part in text_parts(body))
    counts = title + terms.count(body)
    weights = _weights(counts)
    for term in title:
        weights[term_hash(term)] *= TITLE_WEIGHT
    order = sorted(weights)
    names = {term_hash(term): term for term in counts}
    columns = (weights, _weights(title), _weights(prose), _weights(code))
    return LexicalQuery(
        tuple(names[key] for key in order),
        np.array(order, dtype=np.uint64),
        *(np.array([column.get(key, 0.0) for key in order]) for column in columns),
    )


def _weights(counts: Counter[str]) -> dict[int, float]:
    return {term_hash(term): math.log1p(count) for term, count in counts.items()}


@dataclass(frozen=True, slots=True)
class Bag:
    """Documents as bags of the query's terms: `n` documents, `m` distinct (document, term) pairs.

    `owner`, `term` int64 (m,); `saturated` float64 (m,): frequency after BM25's saturation and
    length normalisation; `rarity` float64 (q,): inverse document frequency.
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
        found = np.bincount(self.owner, worth[self.term], self.size).astype(np.float64)
        return found / total if total > 0.0 else found


@dataclass(frozen=True, slots=True)
class Bags:
    """Pieces (name, path, text), files (path, text) and names of pieces alone, for one query.

    `path_coverage` float64 (f,): share of the query's weight that occurs in a file's path.
    """

    pieces: Bag
    files: Bag
    names: NDArray[np.float64]
    path_coverage: NDArray[np.float64]


def make_bags(corpus: Corpus, query: LexicalQuery, terms: Terms) -> Bags:
    """Count the query's terms in every piece and file."""
    paths = _path_postings(corpus.files, query, terms)
    pieces = _piece_bag(corpus, query, paths)
    files = _file_bag(corpus, query, paths)
    worth = query.weights * files.rarity
    total = max(float(worth.sum()), 1e-9)
    distinct = np.unique(paths.postings.owner * max(query.hashes.size, 1) + paths.postings.term)
    width = max(query.hashes.size, 1)
    coverage = np.bincount(distinct // width, worth[distinct % width], len(corpus.files)) / total
    return Bags(pieces, files, _name_matches(corpus, query, pieces.rarity), coverage)


def _name_matches(
    corpus: Corpus, query: LexicalQuery, rarity: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the weight of the query's terms in each piece's name over the square root of its
    length.

    Shape (n,).
    """
    named = corpus.name_counts > 0
    gains = (query.weights * rarity)[corpus.term[named]]
    found = np.bincount(corpus.piece[named], gains, len(corpus.piece_file)).astype(np.float64)
    return found / np.sqrt(np.maximum(corpus.name_lengths, 1.0))


@dataclass(frozen=True, slots=True)
class _Postings:
    """`owner`, `term` int64 (m,), `weight` float64 (m,). Repeated pairs add up."""

    owner: NDArray[np.int64]
    term: NDArray[np.int64]
    weight: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Paths:
    """Weighted postings of the files' paths, and each path's weighted length, float64 (f,)."""

    postings: _Postings
    lengths: NDArray[np.float64]


def _path_postings(files: Sequence[SourceFile], query: LexicalQuery, terms: Terms) -> _Paths:
    reader = _PathReader(query, terms)
    owner: list[int] = []
    term: list[int] = []
    lengths: list[float] = []
    for number, file in enumerate(files):
        folder, _, name = without_suffix(file.path).rpartition("/")
        above, inside = reader.folder(folder), reader.read(name)
        lengths.append(PATH_WEIGHT * (above.length + inside.length))
        hits = above.hits + inside.hits
        term.extend(hits)
        owner.extend([number] * len(hits))
    weight = np.full(len(term), PATH_WEIGHT)
    return _Paths(_Postings(_integers(owner), _integers(term), weight), np.array(lengths))


@dataclass(frozen=True, slots=True)
class _PathWords:
    """The number of terms in a text, and the numbers of those that the query has."""

    length: int
    hits: tuple[int, ...]


class _PathReader:
    """Reads the terms of paths. Each folder and each word is read only once."""

    def __init__(self, query: LexicalQuery, terms: Terms) -> None:
        self._known = {term: index for index, term in enumerate(query.terms)}
        self._terms = terms
        self._words: dict[str, _PathWords] = {}
        self._folders: dict[str, _PathWords] = {}

    def folder(self, path: str) -> _PathWords:
        """Like `read`, but cached by folder."""
        known = self._folders.get(path)
        if known is None:
            known = self._folders[path] = self.read(path)
        return known

    def read(self, text: str) -> _PathWords:
        """Return the terms of all words of the text."""
        if known := self._words.get(text):  # most names are one word, and many are repeated
            return known
        found = [self._word(word) for word in WORD.findall(text)]
        if len(found) == 1:
            return found[0]
        hits = tuple(hit for word in found for hit in word.hits)
        return _PathWords(sum(word.length for word in found), hits)

    def _word(self, word: str) -> _PathWords:
        known = self._words.get(word)
        if known is None:
            terms = self._terms.of_word(word)
            hits = tuple(self._known[term] for term in terms if term in self._known)
            known = self._words[word] = _PathWords(len(terms), hits)
        return known


def _integers(values: Sequence[int]) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def _piece_bag(corpus: Corpus, query: LexicalQuery, paths: _Paths) -> Bag:
    own = corpus.counts + NAME_WEIGHT * corpus.name_counts
    inherited = _spread(paths.postings, corpus)
    postings = _Postings(
        np.concatenate([corpus.piece, inherited.owner]),
        np.concatenate([corpus.term, inherited.term]),
        np.concatenate([own, inherited.weight]),
    )
    lengths = (
        corpus.text_lengths + NAME_WEIGHT * corpus.name_lengths + paths.lengths[corpus.piece_file]
    )
    return _bag(postings, lengths, query)


def _spread(postings: _Postings, corpus: Corpus) -> _Postings:
    """Convert postings of files to postings of each of their pieces."""
    first = np.array(corpus.first_piece, dtype=np.int64)
    sizes = np.diff(first)[postings.owner]
    total = int(sizes.sum())
    starts = np.repeat(first[postings.owner] - np.cumsum(sizes) + sizes, sizes)
    return _Postings(
        starts + np.arange(total),
        np.repeat(postings.term, sizes),
        np.repeat(postings.weight, sizes),
    )


def _file_bag(corpus: Corpus, query: LexicalQuery, paths: _Paths) -> Bag:
    postings = _Postings(
        np.concatenate([corpus.piece_file[corpus.piece], paths.postings.owner]),
        np.concatenate([corpus.term, paths.postings.term]),
        np.concatenate([corpus.counts, paths.postings.weight]),
    )
    texts = np.bincount(corpus.piece_file, corpus.text_lengths, len(corpus.files))
    return _bag(postings, texts + paths.lengths, query)


def _bag(postings: _Postings, lengths: NDArray[np.float64], query: LexicalQuery) -> Bag:
    """Return the bag of the (n,) documents with the given `lengths`."""
    count, width = lengths.size, query.hashes.size
    if not count or not width:
        none = np.empty(0, dtype=np.int64)
        return Bag(count, none, none, np.empty(0), np.zeros(width))
    keys, inverse = np.unique(postings.owner * width + postings.term, return_inverse=True)
    frequency = np.bincount(inverse, postings.weight, keys.size)
    keys, frequency = keys[frequency > 0], frequency[frequency > 0]
    owner, term = keys // width, keys % width
    documents = np.bincount(term, minlength=width)
    rarity = inverse_frequency(count, documents)
    norm = length_norm(lengths, float(lengths.mean()))
    return Bag(count, owner, term, frequency * (K1 + 1) / (frequency + norm[owner]), rarity)


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
    """Return path, qualified name and code, in that order, because models cut the end.

    For files that hold secrets, only the path: the text may be sent to a server.
    """
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
        self._text = problem.text.lower()
        self._known: dict[str, str] = {}

    def found(self, path: str) -> str:
        """Return the name or stem that occurs, "" for none."""
        name = path.rpartition("/")[2].lower()
        if name not in self._known:
            stem = without_suffix(name)
            self._known[name] = self._first((name, stem if stem != "__init__" else ""))
        return self._known[name]

    def _first(self, names: Sequence[str]) -> str:
        for name in names:
            # Most names do not occur at all; compiling a pattern for each would dominate the time.
            if (
                name
                and name in self._text
                and re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", self._text)
            ):
                return name
        return ""


# ---------------------------------------------------------------------------------- issue templates

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
    """Yield the text outside HTML comments. An unclosed comment counts as text."""
    start = 0
    while (opened := text.find("<!--", start)) >= 0:
        closed = text.find("-->", opened + 4)
        if closed < 0:
            break
        yield text[start:opened]
        start = closed + 3
    yield text[start:]


def _kept(text: str, known: frozenset[str]) -> Iterator[str]:
    """Yield the lines that are in no template. Fenced code and logs are kept whole."""
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
    """Whether a path is an issue template of GitHub or GitLab.

    Examples: `.github/ISSUE_TEMPLATE.md`, `.github/ISSUE_TEMPLATE/bug.yml`,
    `.gitlab/issue_templates/`.
    """
    lowered = path.lower()
    return "issue_template" in lowered and PurePosixPath(lowered).suffix in {
        ".md", ".yml", ".yaml", ".txt", ".rst",
    }  # fmt: skip


def _normal(line: str) -> str:
    return _MARKS.sub("", line[:_MAX_LINE]).lower()
