"""The named features that ranking goes by: one column a feature, one row a candidate.

Each feature belongs to a group, and a group can be switched off as a whole (its columns are then
zero): that is how its worth is measured. The order of the tables is the order of the columns.
"""

from __future__ import annotations

from dataclasses import dataclass

BASE = "base"
"""The group that is always on: the plain sum that chooses the candidates, and what they are."""


@dataclass(frozen=True, slots=True)
class Feature:
    """One column. `group` names what it comes from."""

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
"""Of a file. Values are normalised within the query: 1 for its best file."""

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
"""Of a piece, beside those of its file."""

GROUPS: tuple[str, ...] = tuple(
    sorted({feature.group for feature in (*FILE_FEATURES, *PIECE_FEATURES)} - {BASE})
)
"""What can be switched off."""

FILE_NAMES: tuple[str, ...] = tuple(feature.name for feature in FILE_FEATURES)
PIECE_NAMES: tuple[str, ...] = (*(f.name for f in PIECE_FEATURES), *FILE_NAMES)
"""Columns of a piece's row: its own, then its file's."""

GROUP_OF = {feature.name: feature.group for feature in (*FILE_FEATURES, *PIECE_FEATURES)}


def group_of(reason: str) -> str:
    """The group of a reason's feature: evidence of files leaves out the `file-` of its column."""
    return GROUP_OF.get(reason) or GROUP_OF.get(f"file-{reason}", reason)
