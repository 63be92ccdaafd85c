"""Loaded vectors and search over them. Scores are computed from the vectors themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from agent.errors import SemanticIndexError, SemanticQueryError
from agent.search.precomputed.vector_files import NO_META, Frozen, Invalid, VectorMeta, read_below

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from agent.search.precomputed.compact import CompactVectors
    from agent.search.stores.sqlite import MatrixIndex

TINY = 1e-30
"""A shorter vector counts as zero, because float32 cannot represent its direction."""

_AT_ONCE = 4_000_000  # maximum float32 scores in memory: 16 MB
_ROWS_AT_ONCE = 4_096  # maximum rows rescored at a time, to limit memory
# decimal places of a score; removes rounding errors, so that equal directions tie by id
_DIGITS = 12
# error of a float32 product per component: twice the unit roundoff, in both directions
_ROUNDING = 2.0**-22


class LazyText:
    """The text of a vector, read on first use."""

    __slots__ = ("_meta", "_root", "_text")

    def __init__(self, root: Path, meta: VectorMeta) -> None:
        self._root = root
        self._meta = meta
        self._text: str | None = meta.text

    def read(self) -> str:
        """Return the text, "" if there is none. Raises SemanticIndexError for a bad reference."""
        if self._text is None:
            self._text = self._from_file() if self._meta.text_file is not None else ""
        return self._text

    def _from_file(self) -> str:
        name = self._meta.text_file or ""
        found = read_below(self._root, name)
        if isinstance(found, Invalid):
            raise SemanticIndexError(
                f"{self._root}: text_file {name!r}: {found.reason}; correct the metadata"
            )
        return found.decode("utf-8-sig", "replace")


@dataclass(frozen=True, slots=True, eq=False)
class SemanticResult:
    """A search result.

    `score` is the cosine in [-1, 1]. `vector` is float32 (d,), read-only, with the numbers of its
    file. `metadata` is deeply immutable.
    """

    id: str
    score: float
    vector: NDArray[np.float32]
    tags: tuple[str, ...]
    metadata: Mapping[str, Frozen]
    _text: LazyText

    @property
    def text(self) -> str:
        """Return the text, read on first use. Raises SemanticIndexError for a bad reference."""
        return self._text.read()

    @property
    def content(self) -> str:
        """Return `text`, by the name that it has for passages of other retrievers."""
        return self.text


@dataclass(frozen=True, slots=True)
class SkippedVector:
    """A file that was skipped, and the reason."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class VectorIndex:
    """`n` vectors of `d` dimensions, by ascending id.

    `vectors` float32 (n, d), read-only, has the numbers of the files, and `lengths` float64 (n,)
    what `lengths_of` says of them. `metas` has metadata by row, for rows that have some. `compact`
    or `lists` find the candidates of a search without reading all vectors. Create an index with
    `load_vectors`.
    """

    folder: Path
    ids: tuple[str, ...]
    vectors: NDArray[np.float32]
    metas: Mapping[int, VectorMeta] = field(default_factory=lambda: MappingProxyType({}))
    skipped: tuple[SkippedVector, ...] = ()
    lengths: NDArray[np.float64] = field(default_factory=lambda: np.empty(0), repr=False)
    compact: CompactVectors | None = None
    lists: MatrixIndex | None = None
    _by_tag: Mapping[str, NDArray[np.int64]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.vectors.flags.writeable = False
        if len(self.lengths) < len(self.ids):
            object.__setattr__(self, "lengths", lengths_of(self.vectors))
        object.__setattr__(self, "_by_tag", _by_tag(self.metas))

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def dimension(self) -> int:
        """Return the dimension of all vectors."""
        return int(self.vectors.shape[1])

    def search(
        self,
        queries: ArrayLike,
        top_k: int,
        *,
        at_least: float = -1.0,
        tags: Iterable[str] = (),
    ) -> tuple[tuple[SemanticResult, ...], ...]:
        """Return the best `top_k` for each row of `queries` (m, d), ordered by (-score, id).

        Only vectors with all `tags` are searched, and only cosines of at least `at_least` are
        returned. A zero vector scores 0.0 against everything. Scores do not depend on the other
        queries of a batch: a product in float32 or int8, or the lists, find candidates, which are
        then scored in float64. Only lists may miss a result. Raises SemanticQueryError.
        """
        if not self.ids:  # an empty index has no dimension to compare with
            return tuple(() for _ in np.atleast_2d(as_numbers(queries)))
        units = _unit_queries(queries, self.dimension)
        rows = self._tagged(tags)
        if top_k < 1 or not rows.size:
            return tuple(() for _ in units)
        if self.lists is not None and rows.size > self.lists.narrow:
            return tuple(self._listed(unit, rows, top_k, at_least) for unit in units)
        return self._compared(units, rows, top_k, at_least)

    def _compared(
        self, units: NDArray[np.float64], rows: NDArray[np.int64], top_k: int, at_least: float
    ) -> tuple[tuple[SemanticResult, ...], ...]:
        """Compare the queries with all of the rows."""
        found: list[tuple[SemanticResult, ...]] = []
        step = max(1, _AT_ONCE // rows.size)
        for first in range(0, len(units), step):
            some = units[first : first + step]
            cosines, errors = self._cosines_of_all(some, rows)
            for unit, scores in zip(some, cosines, strict=True):
                near = _within(scores, errors, top_k, at_least)
                found.append(self._best(unit, rows[near], top_k, at_least))
        return tuple(found)

    def _listed(
        self, unit: NDArray[np.float64], rows: NDArray[np.int64], top_k: int, at_least: float
    ) -> tuple[SemanticResult, ...]:
        """Compare one query with the rows of near lists, or with all if those are too few."""
        assert self.lists is not None
        chosen = np.zeros(len(self.ids), dtype=bool)
        chosen[rows] = True
        near = self.lists.near(unit, top_k, lambda some: self._cosines(unit, some), chosen)
        if near is None:
            return self._compared(unit[None, :], rows, top_k, at_least)[0]
        return self._best(unit, np.sort(near), top_k, at_least)

    def _tagged(self, tags: Iterable[str]) -> NDArray[np.int64]:
        """Return the rows with all of the tags, ascending."""
        rows = np.arange(len(self.ids))
        for tag in sorted(set(tags)):
            rows = np.intersect1d(rows, self._by_tag.get(tag, _NONE), assume_unique=True)
        return rows

    def _cosines_of_all(
        self, units: NDArray[np.float64], rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return cosines (m, len(rows)), and bounds of their errors (len(rows),)."""
        every = rows.size == len(self.ids)
        rounding = np.full(rows.size, _ROUNDING * self.dimension)
        if self.compact is not None:
            errors = self.compact.errors if every else self.compact.errors[rows]
            return self.compact.cosines(units, None if every else rows), rounding + errors
        chosen = self.vectors if every else self.vectors[rows]
        lengths = self.lengths if every else self.lengths[rows]
        products = units.astype(np.float32) @ chosen.T
        return _over(products.astype(np.float64), lengths), rounding

    def _best(
        self, unit: NDArray[np.float64], near: NDArray[np.int64], top_k: int, at_least: float
    ) -> tuple[SemanticResult, ...]:
        """Score the rows `near` a query, ascending, and return the best."""
        exact = self._cosines(unit, near)
        kept = exact >= at_least
        near, exact = near[kept], exact[kept]
        order = np.lexsort((near, -exact))[:top_k]  # rows are in the order of ids
        return tuple(self._result(int(near[at]), float(exact[at])) for at in order)

    def _cosines(self, unit: NDArray[np.float64], rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return cosines in float64.

        Each is summed separately, so it does not depend on the others.
        """
        sums = np.empty(rows.size)
        for first in range(0, rows.size, _ROWS_AT_ONCE):
            some = rows[first : first + _ROWS_AT_ONCE]
            values = self.vectors[some].astype(np.float64)
            sums[first : first + _ROWS_AT_ONCE] = np.einsum("ij,j->i", values, unit)
        cosines = np.round(_over(sums, self.lengths[rows]), _DIGITS)
        return np.clip(cosines, -1.0, 1.0) + 0.0  # avoids negative zero

    def _result(self, row: int, score: float) -> SemanticResult:
        meta = self.metas.get(row, NO_META)
        text = LazyText(self.folder, meta)
        vector = self.vectors[row]
        return SemanticResult(self.ids[row], score, vector, meta.tags, meta.metadata, text)


_NONE = np.empty(0, dtype=np.int64)


def _within(
    scores: NDArray[np.float64], errors: NDArray[np.float64], top_k: int, at_least: float
) -> NDArray[np.int64]:
    """Return the places whose scores may be among the best `top_k`, given their errors."""
    least = at_least
    if top_k < scores.size:
        least = max(least, float(np.partition(scores - errors, -top_k)[-top_k]))
    return np.flatnonzero(scores + errors >= least)


def lengths_of(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return Euclidean lengths (n,) in float64; 0.0 for vectors that count as zero."""
    sums = np.empty(len(vectors))
    for first in range(0, len(vectors), _ROWS_AT_ONCE):
        values = vectors[first : first + _ROWS_AT_ONCE].astype(np.float64)
        sums[first : first + _ROWS_AT_ONCE] = np.einsum("ij,ij->i", values, values)
    lengths = np.sqrt(sums)
    return np.where(lengths > TINY, lengths, 0.0)


def _over(products: NDArray[np.float64], lengths: NDArray[np.float64]) -> NDArray[np.float64]:
    """Divide products by lengths; 0.0 for zero lengths."""
    return np.asarray(
        np.where(lengths > 0.0, products / np.where(lengths > 0.0, lengths, 1.0), 0.0)
    )


def _unit_queries(queries: ArrayLike, dimension: int) -> NDArray[np.float64]:
    """Return the queries (m, d) normalised; zeros stay. Raises SemanticQueryError."""
    values = as_numbers(queries)
    if values.ndim != 2 or values.shape[1] != dimension:
        raise SemanticQueryError(
            f"queries of shape {values.shape}; the vectors have {dimension} dimensions: embed the "
            "query with their model"
        )
    if not np.isfinite(values).all():
        raise SemanticQueryError("the query holds NaN or infinity; embed it again")
    scaled = values / np.maximum(np.abs(values).max(axis=1, keepdims=True, initial=0.0), TINY)
    lengths = np.sqrt(np.einsum("ij,ij->i", scaled, scaled))
    zero = np.abs(values).max(axis=1, initial=0.0) <= TINY
    return np.asarray(np.where(zero[:, None], 0.0, scaled / np.maximum(lengths, TINY)[:, None]))


def cosine_similarity(one: ArrayLike, other: ArrayLike) -> float:
    """Return the cosine in [-1, 1] of two vectors (d,), as a search scores it; 0.0 for zeros.

    Raises SemanticQueryError for vectors of different dimensions or without finite numbers.
    """
    vector = as_numbers(other)
    if vector.ndim != 1:
        raise SemanticQueryError(f"a vector of shape {vector.shape}; give one of one dimension")
    first = _unit_queries(as_numbers(one)[None, ...], vector.size)
    cosine = np.round(first[0] @ _unit_queries(vector[None, :], vector.size)[0], _DIGITS)
    return float(np.clip(cosine, -1.0, 1.0)) + 0.0


def as_numbers(query: ArrayLike) -> NDArray[np.float64]:
    """Return one or several queries as an array. Raises SemanticQueryError."""
    try:
        return np.asarray(query, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise SemanticQueryError("the query is not an array of numbers; embed it first") from None


def _by_tag(metas: Mapping[int, VectorMeta]) -> Mapping[str, NDArray[np.int64]]:
    rows: dict[str, list[int]] = {}
    for row in sorted(metas):
        for tag in metas[row].tags:
            rows.setdefault(tag, []).append(row)
    return MappingProxyType({tag: np.array(own, dtype=np.int64) for tag, own in rows.items()})


def metas_by_row(ids: Sequence[str], metas: Mapping[str, VectorMeta]) -> Mapping[int, VectorMeta]:
    """Return metadata by the row of its id, for ids that are present."""
    return MappingProxyType({row: metas[name] for row, name in enumerate(ids) if name in metas})
