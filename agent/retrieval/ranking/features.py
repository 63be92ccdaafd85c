"""The named features that the ranker uses: one column for each feature, one row for each candidate.

Each feature belongs to a group. A group can be switched off to measure its effect; its columns are
then zero. The order of the tables is the order of the columns.
"""

from __future__ import annotations

from dataclasses import dataclass

BASE = "base"
"""The group that is always on: the plain sum that selects the candidates."""


@dataclass(frozen=True, slots=True)
class Feature:
    """One column. `group` names the source of its values."""

    name: str
    group: str


def _of(group: str, *names: str) -> tuple[Feature, ...]:
    return tuple(Feature(name, group) for name in names)


FILE_FEATURES: tuple[Feature, ...] = (
    *_of(BASE, "file-score", "file-rank"),
    *_of("lexical", "file-bm25", "file-best", "file-coverage", "file-second"),
    *_of("title", "file-title"),
    *_of("prose", "file-prose"),
    *_of("code", "file-code"),
    *_of("path-words", "file-path-coverage", "file-name-found"),
    *_of("mentions", "file-path", "file-module", "file-symbol"),
    *_of("traceback", "file-traceback"),
    *_of("history", "file-history"),
    *_of("churn", "file-churn"),
    *_of("cochange", "file-cochange"),
    *_of("imports", "file-imports", "file-imported-by"),
    *_of("static", "file-static", "file-static-mean"),
    *_of("structure", "file-depth", "file-init", "file-aside", "file-prose-language", "file-size"),
    *_of("query", "query-terms", "query-frames", "query-paths", "query-symbols", "query-code"),
)
"""Features of a file, normalised within the query: the best file has 1."""

PIECE_FEATURES: tuple[Feature, ...] = (
    *_of(BASE, "score", "rank"),
    *_of("lexical", "bm25", "bm25-rank", "coverage", "bm25-in-file", "rank-in-file"),
    *_of("title", "title"),
    *_of("prose", "prose"),
    *_of("code", "code"),
    *_of("names", "name"),
    *_of("mentions", "symbol", "line"),
    *_of("traceback", "traceback"),
    *_of("history", "history-function"),
    *_of("graph", "calls", "called-by", "inherits", "same-name"),
    *_of("static", "static", "static-rank", "static-in-file"),
    *_of("structure", "kind", "length", "siblings", "nesting", "private", "dunder"),
)
"""Features of a piece, in addition to those of its file."""

GROUPS: tuple[str, ...] = tuple(
    sorted({feature.group for feature in (*FILE_FEATURES, *PIECE_FEATURES)} - {BASE})
)
"""Groups that can be switched off."""

FILE_NAMES: tuple[str, ...] = tuple(feature.name for feature in FILE_FEATURES)
PIECE_NAMES: tuple[str, ...] = (*(f.name for f in PIECE_FEATURES), *FILE_NAMES)
"""Columns of a piece's row: its own features, then its file's."""

GROUP_OF = {feature.name: feature.group for feature in (*FILE_FEATURES, *PIECE_FEATURES)}


def group_of(reason: str) -> str:
    """Return the group of a reason's feature. Evidence for files has no `file-` prefix."""
    return GROUP_OF.get(reason) or GROUP_OF.get(f"file-{reason}", reason)
