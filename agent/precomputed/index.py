"""Loaded vectors and exact search over them. Nothing is built again for a query."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from agent.errors import SemanticIndexError, SemanticQueryError
from agent.precomputed.files import Invalid, read_below
from agent.precomputed.parsing import NO_META, Frozen, Meta

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

TINY = 1e-30
"""A vector no longer than this has no direction that float32 could tell: it counts as zero."""

_AT_ONCE = 4_000_000  # scores of float32 that a batch holds at a time: 16 MB
_ROWS_AT_ONCE = 4_096  # rows that are scored again at a time: bounds memory
_DIGITS = 12  # of a score: what differs later is rounding, and equal directions shall tie by id
_ROUNDING = 2.0**-22  # of a float32 product a component: twice the unit roundoff, both sides


class LazyText:
    """The text of a vector, read when it is first asked for."""

    __slots__ = ("_meta", "_root", "_text")

    def __init__(self, root: Path, meta: Meta) -> None:
        self._root = root
        self._meta = meta
        self._text: str | None = meta.text

    def read(self) -> str:
        """The text, "" where there is none. Raises SemanticIndexError for a bad reference."""
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
    """One vector that was found. `score`: the cosine, in [-1, 1]; `vector` float32 (d,), as in its
    file, read-only; `metadata` cannot be changed at any depth.
    """

    id: str
    score: float
    vector: NDArray[np.float32]
    tags: tuple[str, ...]
    metadata: Mapping[str, Frozen]
    _text: LazyText

    @property
    def text(self) -> str:
        """Its text, read on first access. Raises SemanticIndexError for a bad reference."""
        return self._text.read()


@dataclass(frozen=True, slots=True)
class SkippedVector:
    """A file that is not used, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class VectorIndex:
    """`n` vectors of `d` dimensions, by ascending id.

    `vectors` float32 (n, d), read-only, as in the files; `metas` the metadata of those that have
    some, by row. Build it by `loading.load_vectors`.
    """

    folder: Path
    ids: tuple[str, ...]
    vectors: NDArray[np.float32]
    metas: Mapping[int, Meta] = field(default_factory=lambda: MappingProxyType({}))
    skipped: tuple[SkippedVector, ...] = ()
    _lengths: NDArray[np.float64] = field(init=False, repr=False)
    _by_tag: Mapping[str, NDArray[np.int64]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.vectors.flags.writeable = False
        object.__setattr__(self, "_lengths", lengths_of(self.vectors))
        object.__setattr__(self, "_by_tag", _by_tag(self.metas))

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def dimension(self) -> int:
        """Of every vector."""
        return int(self.vectors.shape[1])

    def search(
        self,
        queries: ArrayLike,
        top_k: int,
        *,
        at_least: float = -1.0,
        tags: Iterable[str] = (),
    ) -> tuple[tuple[SemanticResult, ...], ...]:
        """For each row of `queries` (m, d) the best `top_k`, by (-score, id).

        Only vectors with all `tags` take part: they are chosen before the best are. Only cosines of
        `at_least` and more; a zero vector scores 0.0, whatever it is compared with. The scores do
        not depend on what else is in a batch: a matrix product in float32 finds candidates, which
        are then scored in float64. Raises SemanticQueryError.
        """
        units = _checked(queries, self.dimension)
        rows = self._tagged(tags)
        if top_k < 1 or not rows.size:
            return tuple(() for _ in units)
        found: list[tuple[SemanticResult, ...]] = []
        step = max(1, _AT_ONCE // rows.size)
        for first in range(0, len(units), step):
            some = units[first : first + step]
            for unit, scores in zip(some, self._products(some, rows), strict=True):
                found.append(self._best(unit, rows, scores, top_k, at_least))
        return tuple(found)

    def _tagged(self, tags: Iterable[str]) -> NDArray[np.int64]:
        """Rows with all of the tags, ascending."""
        rows = np.arange(len(self.ids))
        for tag in sorted(set(tags)):
            rows = np.intersect1d(rows, self._by_tag.get(tag, _NONE), assume_unique=True)
        return rows

    def _products(self, units: NDArray[np.float64], rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """(m, len(rows)): cosines within the rounding of float32."""
        every = rows.size == len(self.ids)
        chosen = self.vectors if every else self.vectors[rows]
        lengths = self._lengths if every else self._lengths[rows]
        products = units.astype(np.float32) @ chosen.T
        return _over(products.astype(np.float64), lengths)

    def _best(
        self,
        unit: NDArray[np.float64],
        rows: NDArray[np.int64],
        scores: NDArray[np.float64],
        top_k: int,
        at_least: float,
    ) -> tuple[SemanticResult, ...]:
        slack = _ROUNDING * self.dimension
        least = at_least
        if top_k < scores.size:
            least = max(least, float(np.partition(scores, -top_k)[-top_k]) - slack)
        near = rows[scores >= least - slack]
        exact = self._cosines(unit, near)
        kept = exact >= at_least
        near, exact = near[kept], exact[kept]
        order = np.lexsort((near, -exact))[:top_k]  # rows ascend as ids do
        return tuple(self._result(int(near[at]), float(exact[at])) for at in order)

    def _cosines(self, unit: NDArray[np.float64], rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Cosines in float64, each summed by itself: no product that depends on the others."""
        sums = np.empty(rows.size)
        for first in range(0, rows.size, _ROWS_AT_ONCE):
            some = rows[first : first + _ROWS_AT_ONCE]
            values = self.vectors[some].astype(np.float64)
            sums[first : first + _ROWS_AT_ONCE] = np.einsum("ij,j->i", values, unit)
        cosines = np.round(_over(sums, self._lengths[rows]), _DIGITS)
        return np.clip(cosines, -1.0, 1.0) + 0.0  # no negative zero

    def _result(self, row: int, score: float) -> SemanticResult:
        meta = self.metas.get(row, NO_META)
        text = LazyText(self.folder, meta)
        vector = self.vectors[row]
        return SemanticResult(self.ids[row], score, vector, meta.tags, meta.metadata, text)


_NONE = np.empty(0, dtype=np.int64)


def lengths_of(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    """(n,) Euclidean lengths in float64, 0.0 for what counts as zero."""
    sums = np.empty(len(vectors))
    for first in range(0, len(vectors), _ROWS_AT_ONCE):
        values = vectors[first : first + _ROWS_AT_ONCE].astype(np.float64)
        sums[first : first + _ROWS_AT_ONCE] = np.einsum("ij,ij->i", values, values)
    lengths = np.sqrt(sums)
    return np.where(lengths > TINY, lengths, 0.0)


def _over(products: NDArray[np.float64], lengths: NDArray[np.float64]) -> NDArray[np.float64]:
    """Products over lengths; 0.0 where there is no length."""
    return np.asarray(
        np.where(lengths > 0.0, products / np.where(lengths > 0.0, lengths, 1.0), 0.0)
    )


def _checked(queries: ArrayLike, dimension: int) -> NDArray[np.float64]:
    """The queries (m, d), normalised; zeros stay. Raises SemanticQueryError."""
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


def as_numbers(query: ArrayLike) -> NDArray[np.float64]:
    """A query, or several, as an array. Raises SemanticQueryError."""
    try:
        return np.asarray(query, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise SemanticQueryError("the query is not an array of numbers; embed it first") from None


def _by_tag(metas: Mapping[int, Meta]) -> Mapping[str, NDArray[np.int64]]:
    rows: dict[str, list[int]] = {}
    for row in sorted(metas):
        for tag in metas[row].tags:
            rows.setdefault(tag, []).append(row)
    return MappingProxyType({tag: np.array(own, dtype=np.int64) for tag, own in rows.items()})


def metas_by_row(ids: Sequence[str], metas: Mapping[str, Meta]) -> Mapping[int, Meta]:
    """Metadata by the row of its id; that of ids which are not there is left out."""
    return MappingProxyType({row: metas[name] for row, name in enumerate(ids) if name in metas})
