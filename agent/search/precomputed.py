"""Vectors that other programs computed: a folder with one JSON file for each vector.

    <id> or <id>.json    a JSON array of numbers: the vector
    <id>.meta.json       optional: an object with `tags` (a list of texts), `text`, other metadata

The content is untrusted: links, special files and anything else are skipped with a reason.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pydantic import BaseModel, Field, ValidationError
from pydantic_core import from_json

from agent.errors import SemanticConfigError, SemanticIndexError, SemanticQueryError, StoreError
from agent.search.passages import MAX_TEXT, CorpusUnavailable, Label, Passage
from agent.shared.console import PlainReporter
from agent.shared.secrets import mask_secrets
from agent.shared.terminal import counted
from agent.types.events import Notice, StageProgress

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from agent.types.protocols import Reporter, Snapshot

_META = ".meta.json"
_VECTOR = ".json"
_MAX_DIMENSION = 65_536

MAX_BYTES = 4_000_000
"""Maximum bytes of a file. A vector of 65,536 numbers at full length takes two thirds of it."""

_LARGEST = 1e15  # component of a vector: squares of larger numbers overflow float32

_TINY = 1e-30
"""A shorter vector counts as zero, because float32 cannot represent its direction."""

MAX_TOP_K = 10_000
"""A larger number would return most of the index and is probably a mistake."""

_DIGITS = 12  # of a score: removes rounding errors, so that equal directions tie by id


class VectorMeta(BaseModel, frozen=True, extra="allow", strict=True):
    """The metadata of a vector. `metadata` has everything but `tags` and `text`."""

    tags: tuple[str, ...] = ()
    text: str = ""

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Return the keys without a meaning."""
        return self.model_extra or {}


_NO_META = VectorMeta()


@dataclass(frozen=True, slots=True, eq=False)
class SemanticResult:
    """A search result. `score` is the cosine in [-1, 1]; `vector` is float32 (d,), read-only."""

    id: str
    score: float
    vector: NDArray[np.float32]
    tags: tuple[str, ...]
    metadata: Mapping[str, Any]
    text: str

    @property
    def content(self) -> str:
        """Return the text, by another name."""
        return self.text

    @property
    def chunk_id(self) -> str:
        """Return the id, by another name."""
        return self.id

    @property
    def embedding(self) -> NDArray[np.float32]:
        """Return the vector, by another name."""
        return self.vector


@dataclass(frozen=True, slots=True, eq=False)
class VectorIndex:
    """`n` vectors of `d` dimensions, by ascending id. `load_vectors` makes it.

    `vectors`: float32 (n, d), read-only. `metas`: metadata by row, for rows that have some.
    `skipped`: why a file is not used, by name.
    """

    ids: tuple[str, ...]
    vectors: NDArray[np.float32]
    metas: Mapping[int, VectorMeta] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)
    _lengths: NDArray[np.float64] = field(init=False, repr=False)  # infinite for zeros

    def __post_init__(self) -> None:
        self.vectors.flags.writeable = False
        lengths = np.sqrt(np.einsum("ij,ij->i", self.vectors, self.vectors, dtype=np.float64))
        object.__setattr__(self, "_lengths", np.where(lengths > _TINY, lengths, np.inf))

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def dimension(self) -> int:
        """Return the dimension of all vectors."""
        return int(self.vectors.shape[1])

    def meta(self, row: int) -> VectorMeta:
        """Return the metadata of a row."""
        return self.metas.get(row, _NO_META)

    def search(
        self, queries: ArrayLike, top_k: int, *, at_least: float = -1.0, tags: Iterable[str] = ()
    ) -> tuple[tuple[SemanticResult, ...], ...]:
        """Return the best `top_k` for each row of `queries` (m, d), ordered by (-score, id).

        Only vectors with all `tags` are searched, and only cosines of at least `at_least` are
        returned. A zero vector scores 0.0 against everything. Raises SemanticQueryError.
        """
        if not self.ids:  # an empty index has no dimension to compare with
            return tuple(() for _ in np.atleast_2d(_as_numbers(queries)))
        units = _unit_queries(queries, self.dimension)
        rows = self._tagged(frozenset(tags))
        if top_k < 1 or not rows.size:
            return tuple(() for _ in units)
        every = rows.size == len(self.ids)
        vectors, lengths = self.vectors if every else self.vectors[rows], self._lengths[rows]
        results = []
        for unit in units:
            # float64, each row summed separately: equal vectors get equal scores
            cosines = np.einsum("ij,j->i", vectors, unit) / lengths
            cosines = np.clip(np.round(cosines, _DIGITS), -1.0, 1.0) + 0.0
            order = np.argsort(-cosines, kind="stable")[:top_k]  # rows are in the order of ids
            order = order[cosines[order] >= at_least]
            results.append(tuple(self._result(int(rows[at]), float(cosines[at])) for at in order))
        return tuple(results)

    def _tagged(self, tags: frozenset[str]) -> NDArray[np.int64]:
        """Return the rows with all of the tags, ascending."""
        if not tags:
            return np.arange(len(self.ids))
        rows = [row for row, meta in self.metas.items() if tags <= set(meta.tags)]
        return np.array(sorted(rows), dtype=np.int64)

    def _result(self, row: int, score: float) -> SemanticResult:
        meta = self.meta(row)
        return SemanticResult(
            self.ids[row], score, self.vectors[row], meta.tags, meta.metadata, meta.text
        )


def _unit_queries(queries: ArrayLike, dimension: int) -> NDArray[np.float64]:
    """Return the queries (m, d) normalised; zeros stay. Raises SemanticQueryError."""
    values = _as_numbers(queries)
    if values.ndim != 2 or values.shape[1] != dimension:
        raise SemanticQueryError(
            f"queries of shape {values.shape}; the vectors have {dimension} dimensions: embed the "
            "query with their model"
        )
    if not np.isfinite(values).all():
        raise SemanticQueryError("the query holds NaN or infinity; embed it again")
    largest = np.abs(values).max(axis=1, keepdims=True, initial=0.0)
    scaled = values / np.maximum(largest, _TINY)
    lengths = np.sqrt(np.einsum("ij,ij->i", scaled, scaled))[:, None]
    return np.where(largest <= _TINY, 0.0, scaled / np.maximum(lengths, _TINY))


def _as_numbers(query: ArrayLike) -> NDArray[np.float64]:
    try:
        return np.asarray(query, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise SemanticQueryError("the query is not an array of numbers; embed it first") from None


# ----------------------------------------------------------------------------------------- agents


class SemanticSettings(BaseModel, frozen=True, extra="forbid", strict=True):
    """The settings of one agent. Results must have all of `filter_by_tags`."""

    # Strict mode rejects mistakes such as "5" for a number or a string in place of a list of tags.

    agent_name: str = Field(min_length=1, max_length=200)
    top_k: int = Field(5, ge=1, le=MAX_TOP_K)
    similarity_threshold: float = Field(0.0, ge=-1.0, le=1.0, allow_inf_nan=False)
    filter_by_tags: tuple[str, ...] = ()


def make_settings(**values: Any) -> SemanticSettings:
    """Make one agent's settings from plain values. Raises SemanticConfigError."""
    try:
        # As JSON, because strict mode accepts only JSON arrays for tuples.
        return SemanticSettings.model_validate_json(json.dumps(values))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise SemanticConfigError(f"settings: {where}: {first['msg'].lower()}") from None
    except (TypeError, ValueError) as error:
        raise SemanticConfigError(f"settings: {error}; give plain values") from None


class SemanticRetriever:
    """Searches one index for agents by name. Raises SemanticConfigError for two settings of one."""

    def __init__(self, index: VectorIndex, agents: Iterable[SemanticSettings]) -> None:
        self._index = index
        self._agents: dict[str, SemanticSettings] = {}
        for one in agents:
            if self._agents.setdefault(one.agent_name, one) != one:
                raise SemanticConfigError(f"agent {one.agent_name!r} has two settings; keep one")

    def __len__(self) -> int:
        """Return the number of vectors."""
        return len(self._index)

    def retrieve(
        self, agent: str | SemanticSettings, query: ArrayLike
    ) -> tuple[SemanticResult, ...]:
        """Return the results of one query (d,) for an agent or for settings, best first.

        Raises SemanticConfigError, SemanticQueryError.
        """
        values = _as_numbers(query)
        if values.ndim != 1:
            raise SemanticQueryError("one query is an array of one dimension; see retrieve_batch")
        return self.retrieve_batch(agent, values[None, :])[0]

    def retrieve_batch(
        self, agent: str | SemanticSettings, queries: ArrayLike
    ) -> tuple[tuple[SemanticResult, ...], ...]:
        """Search for each row of `queries` (m, d)."""
        settings = agent if isinstance(agent, SemanticSettings) else self._agents.get(agent)
        if settings is None:
            names = ", ".join(sorted(self._agents)) or "none"
            raise SemanticConfigError(f"no settings for the agent {agent!r}; known: {names}")
        return self._index.search(
            queries,
            settings.top_k,
            at_least=settings.similarity_threshold,
            tags=settings.filter_by_tags,
        )


class SemanticContextRetriever:
    """Searches a folder by settings that each call gives; `verbose` prints what loading notices."""

    def __init__(self, cache_dir: str | Path, verbose: bool = False) -> None:
        index = load_vectors(Path(cache_dir), PlainReporter() if verbose else lambda _: None)
        self._retriever = SemanticRetriever(index, ())

    def __len__(self) -> int:
        """Return the number of vectors."""
        return len(self._retriever)

    def retrieve(
        self,
        query: ArrayLike,
        config: SemanticSettings | None = None,
        top_k: int | None = None,
        threshold: float | None = None,
    ) -> list[SemanticResult]:
        """Return the results of one query (d,), best first; `top_k` and `threshold` win over all.

        Raises SemanticConfigError, SemanticQueryError.
        """
        values = {"agent_name": "default"} if config is None else config.model_dump()
        given = {"top_k": top_k, "similarity_threshold": threshold}
        values |= {name: value for name, value in given.items() if value is not None}
        return list(self._retriever.retrieve(make_settings(**values), query))


# ------------------------------------------------------------------------------------------ files


def load_vectors(folder: Path, reporter: Reporter, *, strict: bool = False) -> VectorIndex:
    """Load a folder of vectors of one dimension, that of most.

    Without a usable vector the index is empty and there is a warning; `strict`: SemanticIndexError.
    """
    place = in_one_line(str(folder))
    index = VectorIndex((), np.empty((0, 0), dtype=np.float32))
    problem = f"{place}: no such folder"
    if strict or folder.exists():
        index = _read_folder(folder, _names_in(folder), reporter)
        problem = f"{place}: no usable vector; each file is a JSON array of numbers"
    if index.skipped:  # in one line, because a folder may be searched often
        first = islice(index.skipped.items(), 3)
        named = [f"{in_one_line(name)}: {reason}" for name, reason in first]
        if len(index.skipped) > len(named):
            named.append(f"{len(index.skipped) - len(named):,} more (--json has all)")
        count = len(index.skipped)
        files = f"{counted(count, 'file')} skipped"
        reporter(Notice(f"{place}: {files}: {'; '.join(named)}", "warning"))
    if not index.ids:
        if strict:
            raise SemanticIndexError(problem)
        reporter(Notice(f"{problem}; the index is empty", "warning"))
    return index


def _names_in(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            files = [one for one in entries if not one.is_dir(follow_symlinks=False)]
    except OSError as error:
        raise SemanticIndexError(
            f"{in_one_line(str(folder))}: cannot be read ({error.strerror}); give a folder of"
            " vectors that you may read and enter"
        ) from None
    return sorted(file.name for file in files if not file.name.startswith("."))


def _read_folder(folder: Path, names: Sequence[str], reporter: Reporter) -> VectorIndex:
    """Read the files. Unusable ones are skipped with a reason."""
    skipped: dict[str, str] = {}
    metas: dict[str, VectorMeta] = {}
    vectors: dict[str, NDArray[np.float32]] = {}
    files: dict[str, str] = {}  # by id
    for done, name in enumerate(names, start=1):
        data = _file_data(folder / name)
        if name.endswith(_META):
            meta = data if isinstance(data, str) else parse_meta(data)
            if isinstance(meta, str):
                skipped[name] = meta
            else:
                metas[name.removesuffix(_META)] = meta
            continue
        identifier = name.removesuffix(_VECTOR)
        vector = data if isinstance(data, str) else parse_vector(data)
        if isinstance(vector, str):
            skipped[name] = vector
        elif identifier in vectors:
            skipped[name] = f"the id is that of {files[identifier]}, which is used"
        else:
            vectors[identifier], files[identifier] = vector, name
        if done % 2_000 == 0 or done == len(names):
            reporter(StageProgress("vectors", done, len(names)))
    sizes = Counter(vector.size for vector in vectors.values())
    most = min(sizes, key=lambda size: (-sizes[size], size), default=0)
    for identifier in [name for name, vector in vectors.items() if vector.size != most]:
        size = vectors.pop(identifier).size
        skipped[files[identifier]] = f"{size} dimensions; {most} are those of most files"
    for name in metas.keys() - vectors.keys():
        skipped[f"{name}{_META}"] = "the vector that it belongs to is not used"
    ids = tuple(sorted(vectors))
    matrix = np.stack([vectors[name] for name in ids]) if ids else np.empty((0, 0), np.float32)
    by_row = {row: metas[name] for row, name in enumerate(ids) if name in metas}
    shown = {n.encode("utf-8", "backslashreplace").decode(): why for n, why in skipped.items()}
    return VectorIndex(ids, matrix, by_row, dict(sorted(shown.items())))


def _file_data(path: Path) -> bytes | str:
    """Return what a regular file contains, at most MAX_BYTES, or the reason why it is not used."""
    from sandbox import read_small_file

    try:
        data = read_small_file(path, MAX_BYTES)
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return "no regular file that can be read" if data is None else data


def parse_vector(data: bytes) -> NDArray[np.float32] | str:
    """Return a vector (d,), or the reason why the data is invalid."""
    try:  # NaN and Infinity, which Python's parser accepts, are no JSON
        value = from_json(data.removeprefix(b"\xef\xbb\xbf"), allow_inf_nan=False)
    except ValueError as error:
        return in_one_line(f"not JSON ({error})")
    if not isinstance(value, list) or not set(map(type, value)) <= {int, float}:
        return "not a JSON array of numbers"
    if not 1 <= len(value) <= _MAX_DIMENSION:
        return f"{len(value)} numbers; 1 to {_MAX_DIMENSION:,} are possible"
    try:
        numbers = np.array(value, dtype=np.float64)
    except OverflowError:  # an integer of four hundred digits
        return "a number that is too large"
    if not (np.abs(numbers) <= _LARGEST).all():
        return "a number that is too large"
    return numbers.astype(np.float32)


def parse_meta(data: bytes) -> VectorMeta | str:
    """Return metadata, or the reason why the data is invalid."""
    try:
        value = from_json(data.removeprefix(b"\xef\xbb\xbf"), allow_inf_nan=False)
        if not isinstance(value, dict):
            return "not a JSON object"
        # again, because `1e999` is read as infinity, which could not be written
        meta = VectorMeta.model_validate_json(json.dumps(value, allow_nan=False))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return in_one_line(f"{'.'.join(map(str, first['loc']))}: {first['msg'].lower()}")
    except ValueError as error:
        return in_one_line(f"not JSON ({error})")
    return meta.model_copy(update={"tags": tuple(dict.fromkeys(meta.tags))})


def in_one_line(text: str, limit: int = 300) -> str:
    """Return a text for messages, with unprintable characters escaped, and cut to `limit`."""
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def masked(value: Any, name: str = "") -> Any:
    """Return a JSON value with the secrets in its texts masked; `name` is its key."""
    if isinstance(value, dict):
        return {key: masked(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [masked(inner, name) for inner in value]
    if not isinstance(value, str):
        return value
    before, after = f'"{name}": "', '"'
    assigned = mask_secrets(f"{before}{value}{after}").text  # the form of an assignment in a file
    if name and assigned.startswith(before) and assigned.endswith(after):
        value = assigned[len(before) : -len(after)]
    return mask_secrets(value).text


# ----------------------------------------------------------------------------------------- corpus


def _path_of(meta: VectorMeta) -> str:
    path = meta.metadata.get("path")
    return path if isinstance(path, str) else ""


@dataclass(slots=True)
class VectorSource:
    """The `CorpusSource` of a folder, which also compares its vectors with a query's.

    `embedded`: whether the embedder of the queries may be the model that made the vectors.
    """

    label: ClassVar = Label.VECTORS
    folder: Path
    reporter: Reporter
    tags: tuple[str, ...] = ()
    embedded: bool = True
    _index: VectorIndex | None = field(init=False, default=None)

    def passages(self, snapshot: Snapshot, cancel: threading.Event) -> Sequence[Passage]:
        """Return the vectors that have a text and all `tags`, by id. Raises CorpusUnavailable."""
        del snapshot, cancel
        try:
            index = load_vectors(self.folder, self.reporter, strict=True)
        except SemanticIndexError as error:
            raise CorpusUnavailable(str(error)) from None
        passages = []
        for row, meta in sorted(index.metas.items()):
            text, name = mask_secrets(meta.text).text[:MAX_TEXT], index.ids[row]
            if text.strip() and set(self.tags) <= set(meta.tags):
                path = _path_of(meta)
                passages.append(
                    Passage(Label.VECTORS, name, text, path, origin=name, tags=meta.tags)
                )
        if not passages:
            raise CorpusUnavailable(f"no vector of {self.folder} has a text and the wanted tags")
        self._index = index
        return passages

    async def search(
        self, label: Label, passages: Sequence[Passage], query: NDArray[np.float32], top_k: int
    ) -> list[tuple[int, float]]:
        """Return the numbers of passages and their scores for a query (d,), best first.

        Raises StoreError if the vectors cannot be compared with the query.
        """
        del label
        if not self.embedded or self._index is None:
            raise StoreError(
                "no embedder is configured; set PATCHSHOT_EMBED_MODEL to the model of the vectors"
            )
        search = partial(self._index.search, query[None, :], top_k * 5, tags=self.tags)
        try:  # five times as many, because vectors without a text are dropped
            (results,) = await asyncio.to_thread(search)
        except SemanticQueryError as error:
            raise StoreError(str(error)) from None
        numbers = {passage.origin: number for number, passage in enumerate(passages)}
        return [(numbers[r.id], r.score) for r in results if r.id in numbers]
