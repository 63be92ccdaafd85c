"""Signals of one problem for every file and piece of a corpus, and the features computed from them.
Candidates have the highest plain sums: file = best piece + whole file + evidence; piece = piece +
file / best file + evidence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from agent.retrieval.index import PROSE_AND_DATA, without_suffix
from agent.retrieval.ranking.lexical import FileNames
from agent.types import ChunkKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.retrieval.index import Corpus
    from agent.retrieval.ranking.evidence import Evidence
    from agent.retrieval.ranking.lexical import Bags, LexicalQuery
    from agent.retrieval.ranking.mentions import Mentions
    from agent.types import Problem, Reason

FILE_NAMES: tuple[str, ...] = (
    "file-score", "file-rank",
    "file-bm25", "file-best", "file-coverage", "file-second", "file-title", "file-prose",
    "file-code", "file-path-coverage", "file-name-found",
    "file-path", "file-module", "file-symbol", "file-traceback",
    "file-history", "file-churn", "file-cochange", "file-imports", "file-imported-by",
    "file-static", "file-static-mean",
    "file-depth", "file-init", "file-aside", "file-prose-language", "file-size",
    "query-terms", "query-frames", "query-paths", "query-symbols", "query-code",
)  # fmt: skip
"""Features of a file in the order of the ranker's columns. The first one is the plain sum."""

_OWN_NAMES: tuple[str, ...] = (
    "score", "rank",
    "bm25", "bm25-rank", "coverage", "bm25-in-file", "rank-in-file", "title", "prose", "code",
    "name", "symbol", "line", "traceback", "history-function",
    "calls", "called-by", "same-name",
    "static", "static-rank", "static-in-file",
    "kind", "length", "siblings", "nesting", "private", "dunder",
)  # fmt: skip

PIECE_NAMES: tuple[str, ...] = (*_OWN_NAMES, *FILE_NAMES)
"""Columns of a piece's row: its own features, then its file's."""


# Weights in the plain sum. The lexical scores in it are normalised to a maximum of 1.
STATIC_WEIGHT = 0.5
_PROSE_WEIGHT = 0.3  # documents and data share an issue's words, but patches change code
EVIDENCE_WEIGHTS: Mapping[str, float] = {"history": 0.4, "history-function": 0.3, "churn": 1e-6}
"""Weights of features; all others are 1. Frequent changes are a prior, not a match: the small
weight only breaks ties. The learned ranker applies its own weight.
"""

AROUND = frozenset({"calls", "called-by", "same-name", "imports", "imported-by", "cochange"})
"""Features outside the plain sum: they are computed only for its best candidates."""

_KINDS = {kind: number for number, kind in enumerate(ChunkKind)}
_ASIDE = frozenset(
    {"example", "examples", "doc", "docs", "demo", "demos", "script", "scripts", "benchmark",
     "benchmarks", "asv_bench", "tools", "tool", "contrib", "samples", "tutorials", "ci", "build"}
)  # fmt: skip
"""Folders whose code issues are rarely about."""


@dataclass(frozen=True, slots=True)
class Signals:
    """Plain sums of `n` pieces and `f` files, and dense features by name; float64, at most 1."""

    corpus: Corpus
    evidence: Evidence
    pieces: NDArray[np.float64]
    files: NDArray[np.float64]
    piece_columns: Mapping[str, NDArray[np.float64]]
    file_columns: Mapping[str, NDArray[np.float64]]
    query: Mapping[str, float]
    names: FileNames


def measure(
    problem: Problem,
    mentions: Mentions,
    corpus: Corpus,
    bags: Bags,
    query: LexicalQuery,
    evidence: Evidence,
    static: NDArray[np.float64] | None,
) -> Signals:
    """Compute all dense signals and the plain sums. `static` float64 (n,): cosines or NaN."""
    factors = np.array(
        [_PROSE_WEIGHT if f.language in PROSE_AND_DATA else 1.0 for f in corpus.files]
    )
    spread = factors[corpus.piece_file] if len(corpus.files) else np.empty(0)
    parts = {"bm25": query.weights, "title": query.title, "prose": query.prose, "code": query.code}
    pieces = {
        name: normalised(bags.pieces.bm25(weights) * spread) for name, weights in parts.items()
    }
    files = {
        f"file-{name}": normalised(bags.files.bm25(weights) * factors)
        for name, weights in parts.items()
    }
    pieces["coverage"] = bags.pieces.coverage(query.weights)
    pieces["name"] = normalised(bags.names)
    files["file-coverage"] = bags.files.coverage(query.weights)
    files["file-path-coverage"] = bags.path_coverage
    files["file-best"], files["file-second"] = _two_best(corpus, pieces["bm25"])
    file_sum = files["file-best"] + _sums(evidence.files, len(corpus.files)) + files["file-bm25"]
    piece_sum = pieces["bm25"] + _sums(evidence.pieces, len(corpus.piece_file))
    if static is not None:
        cosines = normalised(np.clip(np.nan_to_num(static, nan=0.0), 0.0, None))
        pieces["static"] = cosines
        files["file-static"], _ = _two_best(corpus, cosines)
        sizes = np.maximum(np.bincount(corpus.piece_file, minlength=len(corpus.files)), 1)
        totals = np.bincount(corpus.piece_file, cosines, len(corpus.files))
        files["file-static-mean"] = normalised(totals / sizes)
        file_sum = file_sum + STATIC_WEIGHT * files["file-static"]
        piece_sum = piece_sum + STATIC_WEIGHT * cosines
    piece_sum = piece_sum + normalised(file_sum)[corpus.piece_file]
    about = _query_features(query, mentions, evidence)
    names = FileNames(problem)
    return Signals(corpus, evidence, piece_sum, file_sum, pieces, files, about, names)


def normalised(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Divide by the maximum if it is above 0."""
    top = float(scores.max(initial=0.0))
    return scores / top if top > 0.0 else scores


def ranks_of(chosen: NDArray[np.int64], scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the ranks of the chosen positions among all: 1 is the highest; ties by position."""
    ranks = np.empty(scores.size, dtype=np.int64)
    ranks[np.argsort(-scores, kind="stable")] = np.arange(1, scores.size + 1)
    return ranks[chosen]


def _two_best(
    corpus: Corpus, scores: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the two highest scores among each file's pieces, (f,) each, 0 for none."""
    best = _best_of_files(corpus, scores)
    at_top = np.flatnonzero(scores == best[corpus.piece_file])
    one_each = at_top[np.flatnonzero(np.diff(corpus.piece_file[at_top], prepend=-1))]
    others = scores.copy()
    others[one_each] = 0.0
    return best, _best_of_files(corpus, others)


def _best_of_files(corpus: Corpus, scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the highest score among each file's pieces, (f,), at least 0."""
    first = np.array(corpus.first_piece, dtype=np.int64)
    filled = np.flatnonzero(np.diff(first))
    best = np.zeros(len(corpus.files))
    if filled.size:
        best[filled] = np.maximum.reduceat(scores, first[filled])
    return np.clip(best, 0.0, None)


def _sums(reasons: Mapping[int, Mapping[str, Reason]], count: int) -> NDArray[np.float64]:
    sums = np.zeros(count)
    for number, features in reasons.items():
        values = sorted(r.value * EVIDENCE_WEIGHTS.get(r.feature, 1.0) for r in features.values())
        sums[number] = sum(values)  # sorted: independent of the order of the sources
    return sums


def _query_features(
    query: LexicalQuery, mentions: Mentions, evidence: Evidence
) -> dict[str, float]:
    found = {r.feature for features in evidence.files.values() for r in features.values()}
    return {
        "query-terms": float(np.log1p(query.hashes.size)),
        "query-frames": float("traceback" in found),
        "query-paths": float("path" in found),
        "query-symbols": float(np.log1p(len(mentions.names))),
        "query-code": float(query.code.any()),
    }


def choose_candidates(signals: Signals, limit: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the numbers of the `limit` best pieces and files by falling plain sum."""
    return _best(signals.pieces, limit), _best(signals.files, limit)


def _best(scores: NDArray[np.float64], limit: int) -> NDArray[np.int64]:
    positions = np.flatnonzero(scores > 0.0)
    if not positions.size:
        positions = np.arange(scores.size)
    return positions[np.argsort(-scores[positions], kind="stable")][:limit].astype(np.int64)


def file_matrix(signals: Signals, files: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the features of these files, (len(files), len(FILE_NAMES))."""
    corpus = signals.corpus
    position = {int(number): row for row, number in enumerate(files)}
    table: dict[str, NDArray[np.float64]] = {
        "file-score": normalised(signals.files)[files],
        "file-rank": np.log1p(ranks_of(files, signals.files)),
        "file-size": np.log1p(np.diff(np.array(corpus.first_piece))[files]),
    }
    table |= {name: values[files] for name, values in signals.file_columns.items()}
    table |= {name: np.full(files.size, value) for name, value in signals.query.items()}
    table |= _path_columns(signals, files)
    _add_evidence(table, signals.evidence.files, position, "file-")
    return _stacked(table, FILE_NAMES, files.size)


def _path_columns(signals: Signals, files: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
    sources = [signals.corpus.files[number] for number in files]
    paths = [source.path.split("/") for source in sources]
    return {
        "file-depth": _column(map(len, paths)),
        "file-init": _column(without_suffix(path[-1]) == "__init__" for path in paths),
        "file-aside": _column(not _ASIDE.isdisjoint(path[:-1]) for path in paths),
        "file-prose-language": _column(s.language in PROSE_AND_DATA for s in sources),
        "file-name-found": _column(bool(signals.names.found(s.path)) for s in sources),
    }


def _column(values: Iterable[float]) -> NDArray[np.float64]:
    return np.array(list(values), dtype=np.float64)


def piece_matrix(signals: Signals, pieces: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the features of these pieces, then of their files, (n, len(PIECE_NAMES))."""
    corpus = signals.corpus
    position = {int(number): row for row, number in enumerate(pieces)}
    bm25 = signals.piece_columns["bm25"]
    owners = corpus.piece_file[pieces]
    table: dict[str, NDArray[np.float64]] = {
        "score": normalised(signals.pieces)[pieces],
        "rank": np.log1p(ranks_of(pieces, signals.pieces)),
        "bm25-rank": np.log1p(ranks_of(pieces, bm25)),
        "bm25-in-file": bm25[pieces] / np.maximum(signals.file_columns["file-best"][owners], 1e-9),
        "rank-in-file": np.log1p(_ranks_in_files(corpus, bm25, pieces)),
        "length": np.log1p(corpus.text_lengths[pieces]),
        "siblings": np.log1p(np.diff(np.array(corpus.first_piece))[owners]),
    }
    static = signals.piece_columns.get("static")
    if static is not None:
        best = np.maximum(signals.file_columns["file-static"][owners], 1e-9)
        table["static-rank"] = np.log1p(ranks_of(pieces, static))
        table["static-in-file"] = static[pieces] / best
    table |= {name: values[pieces] for name, values in signals.piece_columns.items()}
    table |= _symbol_columns(corpus, pieces)
    _add_evidence(table, signals.evidence.pieces, position, "")
    own = _stacked(table, _OWN_NAMES, pieces.size)
    distinct, rows = np.unique(owners, return_inverse=True)
    return np.hstack([own, file_matrix(signals, distinct)[rows]])


def _symbol_columns(corpus: Corpus, pieces: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
    own = [corpus.pieces[number] for number in pieces]
    leaves = [piece.symbol.rpartition(".")[2] for piece in own]
    return {
        "kind": _column(_KINDS[piece.kind] for piece in own),
        "nesting": _column(piece.symbol.count(".") + bool(piece.symbol) for piece in own),
        "private": _column(leaf.startswith("_") for leaf in leaves),
        "dunder": _column(leaf.startswith("__") and leaf.endswith("__") for leaf in leaves),
    }


def _ranks_in_files(
    corpus: Corpus, scores: NDArray[np.float64], pieces: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the rank of each of `pieces` within its file, 1 for the best; ties by position."""
    places = np.empty(pieces.size, dtype=np.int64)
    owners = corpus.piece_file[pieces]
    for file in np.unique(owners).tolist():
        first, end = corpus.first_piece[file], corpus.first_piece[file + 1]
        mine = owners == file
        places[mine] = ranks_of(pieces[mine] - first, scores[first:end])
    return places


def _add_evidence(
    table: dict[str, NDArray[np.float64]],
    evidence: Mapping[int, Mapping[str, Reason]],
    position: Mapping[int, int],
    prefix: str,
) -> None:
    for number in evidence.keys() & position.keys():
        for reason in evidence[number].values():
            column = table.setdefault(prefix + reason.feature, np.zeros(len(position)))
            column[position[number]] = reason.value


def _stacked(
    table: Mapping[str, NDArray[np.float64]], columns: Sequence[str], rows: int
) -> NDArray[np.float32]:
    zeros = np.zeros(rows)
    return np.stack([table.get(name, zeros) for name in columns], axis=1).astype(np.float32)
