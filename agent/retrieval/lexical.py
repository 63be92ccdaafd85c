"""BM25 over pieces and whole files, with fields: a hit in the name counts more than in the body.

Formula: Robertson & Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009),
simple BM25F (fields weighted before saturation, one length normalisation). The weights below are
those of the measured ladder (reference: file@1 38 -> 63 on 274 real issues, no model).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import numpy as np

from agent.retrieval.identifiers import WORD, Terms, term_hash

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.retrieval.corpus import Corpus
    from agent.types import Problem, SourceFile

K1 = 1.5
B = 0.5
NAME_WEIGHT = 3.0
PATH_WEIGHT = 2.0
TITLE_WEIGHT = 2.0
"""Factor for terms of the title: reporters put the subject there and the environment below."""

MAX_QUERY_CHARS = 100_000
"""An issue beyond this is a pasted log; its first part says what it is about."""


@dataclass(frozen=True, slots=True)
class LexicalQuery:
    """Distinct terms by ascending hash: `hashes` uint64 (q,), `weights` float64 (q,)."""

    hashes: NDArray[np.uint64]
    weights: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LexicalScores:
    """`pieces` float64 (n,) and `files` float64 (f,), both >= 0 and not normalised."""

    pieces: NDArray[np.float64]
    files: NDArray[np.float64]


def make_query(problem: Problem, terms: Terms) -> LexicalQuery:
    """Terms of the problem, each weighing log(1 + occurrences), those of the title more."""
    title = terms.count(problem.title[:MAX_QUERY_CHARS])
    counts = title + terms.count(problem.body[:MAX_QUERY_CHARS])
    weights = {
        term_hash(term): math.log1p(count) * (TITLE_WEIGHT if term in title else 1.0)
        for term, count in counts.items()
    }
    ordered = sorted(weights)
    return LexicalQuery(
        np.array(ordered, dtype=np.uint64), np.array([weights[key] for key in ordered])
    )


def score(corpus: Corpus, query: LexicalQuery, terms: Terms) -> LexicalScores:
    """BM25F of every piece (name, path, text) and BM25 of every file (path, text)."""
    paths = _path_postings(corpus.files, query, terms)
    return LexicalScores(_piece_scores(corpus, query, paths), _file_scores(corpus, query, paths))


@dataclass(frozen=True, slots=True)
class _Postings:
    """`owner`, `term` int64 (m,), `weight` float64 (m,); pairs may repeat and then add up."""

    owner: NDArray[np.int64]
    term: NDArray[np.int64]
    weight: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Paths:
    """Weighted postings of the files' paths, and each path's weighted length, float64 (f,)."""

    postings: _Postings
    lengths: NDArray[np.float64]


def _path_postings(files: Sequence[SourceFile], query: LexicalQuery, terms: Terms) -> _Paths:
    known = {int(value): index for index, value in enumerate(query.hashes)}
    owner: list[int] = []
    term: list[int] = []
    lengths = np.zeros(len(files))
    for number, file in enumerate(files):
        words = WORD.findall(str(PurePosixPath(file.path).with_suffix("")))
        hashes = [value for word in words for value in terms.hashes_of_word(word)]
        lengths[number] = PATH_WEIGHT * len(hashes)
        hits = [known[value] for value in hashes if value in known]
        term.extend(hits)
        owner.extend([number] * len(hits))
    weight = np.full(len(term), PATH_WEIGHT)
    return _Paths(_Postings(_integers(owner), _integers(term), weight), lengths)


def _integers(values: Sequence[int]) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def _piece_scores(corpus: Corpus, query: LexicalQuery, paths: _Paths) -> NDArray[np.float64]:
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
    return _bm25(postings, lengths, query)


def _spread(postings: _Postings, corpus: Corpus) -> _Postings:
    """Postings of files as postings of each of their pieces."""
    first = np.array(corpus.first_piece, dtype=np.int64)
    sizes = np.diff(first)[postings.owner]
    total = int(sizes.sum())
    starts = np.repeat(first[postings.owner] - np.cumsum(sizes) + sizes, sizes)
    return _Postings(
        starts + np.arange(total),
        np.repeat(postings.term, sizes),
        np.repeat(postings.weight, sizes),
    )


def _file_scores(corpus: Corpus, query: LexicalQuery, paths: _Paths) -> NDArray[np.float64]:
    postings = _Postings(
        np.concatenate([corpus.piece_file[corpus.piece], paths.postings.owner]),
        np.concatenate([corpus.term, paths.postings.term]),
        np.concatenate([corpus.counts, paths.postings.weight]),
    )
    texts = np.bincount(corpus.piece_file, corpus.text_lengths, len(corpus.files))
    return _bm25(postings, texts + paths.lengths, query)


def _bm25(
    postings: _Postings, lengths: NDArray[np.float64], query: LexicalQuery
) -> NDArray[np.float64]:
    """Score of each of the (n,) documents with the given `lengths`."""
    count, width = lengths.size, query.hashes.size
    if not count or not width:
        return np.zeros(count)
    keys, inverse = np.unique(postings.owner * width + postings.term, return_inverse=True)
    frequency = np.bincount(inverse, postings.weight, keys.size)
    keys, frequency = keys[frequency > 0], frequency[frequency > 0]
    owner, term = keys // width, keys % width
    documents = np.bincount(term, minlength=width)
    rarity = np.log1p((count - documents + 0.5) / (documents + 0.5))
    mean = max(float(lengths.mean()), 1.0)
    norm = K1 * (1 - B + B * lengths / mean)
    gains = query.weights[term] * rarity[term] * frequency * (K1 + 1) / (frequency + norm[owner])
    return np.bincount(owner, gains, count).astype(np.float64)
