"""Vectors that other programs computed: a folder with one JSON file for each vector.

`load_vectors` reads a folder (`vector_files`) into a `VectorIndex`, which compares a query with all
vectors. `SemanticRetriever` searches one index for several agents with separate settings,
`import_vectors` writes an index into a vector store, and `VectorSource` makes a folder a corpus.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
import tomllib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from posixpath import normpath
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from agent.errors import SemanticConfigError, SemanticIndexError, SemanticQueryError, StoreError
from agent.retrieval.weights import read_arrays, write_arrays
from agent.search.passages import MAX_TEXT, CorpusUnavailable, Label, Passage
from agent.search.stores import Entry, Fields, VectorCollection, VectorMatch, score_of
from agent.search.vector_files import (
    MAX_BYTES,
    MAX_DIMENSION,
    META,
    NO_META,
    Invalid,
    ListedFile,
    VectorMeta,
    in_one_line,
    list_files,
    masked,
    parse_meta,
    parse_vector,
    read_below,
    why_no_id,
    write_vector,
)
from agent.shared.files import replace_file
from agent.shared.secrets import mask_secrets
from agent.types.events import Notice, StageProgress

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from agent.types.protocols import Reporter, Snapshot

__all__ = [
    "ANY_AGENT",
    "MAX_BYTES",
    "MAX_TOP_K",
    "Invalid",
    "SemanticResult",
    "SemanticRetriever",
    "SemanticSettings",
    "SkippedVector",
    "VectorIndex",
    "VectorMeta",
    "VectorSource",
    "cosine_similarity",
    "import_vectors",
    "in_one_line",
    "load_vectors",
    "make_settings",
    "masked",
    "parse_meta",
    "parse_vector",
    "read_payload",
    "read_settings",
    "why_no_id",
    "write_vector",
]

_TINY = 1e-30
"""A shorter vector counts as zero, because float32 cannot represent its direction."""

MAX_TOP_K = 10_000
"""A larger number would return most of the index and is probably a mistake."""

_DIGITS = 12  # of a score: removes rounding errors, so that equal directions tie by id


@dataclass(frozen=True, slots=True, eq=False)
class SemanticResult:
    """A search result.

    `score` is the cosine in [-1, 1]. `vector` is float32 (d,), read-only, with the numbers of its
    file. `content` is `text`, by the name that it has for passages of other retrievers.
    """

    id: str
    score: float
    vector: NDArray[np.float32]
    _folder: Path
    _meta: VectorMeta

    @property
    def tags(self) -> tuple[str, ...]:
        """Return the tags of the vector."""
        return self._meta.tags

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Return everything in the metadata file but tags and text."""
        return self._meta.metadata

    @property
    def text(self) -> str:
        """Return the text, "" if there is none. Raises SemanticIndexError for a bad reference."""
        return _text(self._folder, self._meta)

    content = text


def _text(folder: Path, meta: VectorMeta) -> str:
    if meta.text_file is None:
        return meta.text or ""
    data = read_below(folder, meta.text_file)
    if isinstance(data, Invalid):
        raise SemanticIndexError(
            f"{folder}: text_file {meta.text_file!r}: {data.reason}; correct the metadata"
        )
    return data.decode("utf-8-sig", "replace")


@dataclass(frozen=True, slots=True)
class SkippedVector:
    """A file that was skipped, and the reason."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class VectorIndex:
    """`n` vectors of `d` dimensions, by ascending id.

    `vectors` float32 (n, d), read-only, has the numbers of the files. `metas` has metadata by row,
    for rows that have some. Create an index with `load_vectors`.
    """

    folder: Path
    ids: tuple[str, ...]
    vectors: NDArray[np.float32]
    metas: Mapping[int, VectorMeta] = field(default_factory=dict)
    skipped: tuple[SkippedVector, ...] = ()
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
        meta = self.metas.get(row, NO_META)
        return SemanticResult(self.ids[row], score, self.vectors[row], self.folder, meta)

    def text(self, identifier: str, reporter: Reporter) -> str:
        """Return a vector's text with secrets masked; "" if there is none, or after a notice."""
        meta = self.metas.get(bisect_left(self.ids, identifier), NO_META)
        try:
            return mask_secrets(_text(self.folder, meta)).text
        except SemanticIndexError as error:
            name, reason = in_one_line(identifier), in_one_line(str(error))
            reporter(Notice(f"{name}: without its text: {reason}", "warning"))
            return ""


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


def cosine_similarity(one: ArrayLike, other: ArrayLike) -> float:
    """Return the cosine in [-1, 1] of two vectors (d,), as a search scores it; 0.0 for zeros.

    Raises SemanticQueryError for vectors of different dimensions or without finite numbers.
    """
    vector = _as_numbers(other)
    if vector.ndim != 1:
        raise SemanticQueryError(f"a vector of shape {vector.shape}; give one of one dimension")
    first = _unit_queries(_as_numbers(one)[None, ...], vector.size)
    cosine = np.round(first[0] @ _unit_queries(vector[None, :], vector.size)[0], _DIGITS)
    return float(np.clip(cosine, -1.0, 1.0)) + 0.0


def _as_numbers(query: ArrayLike) -> NDArray[np.float64]:
    try:
        return np.asarray(query, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise SemanticQueryError("the query is not an array of numbers; embed it first") from None


# ----------------------------------------------------------------------------------------- agents


class SemanticSettings(BaseModel):
    """The settings of one agent. Results must have all of `filter_by_tags`."""

    # Strict mode rejects mistakes such as "5" for a number or a string in place of a list of tags.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    agent_name: str = Field(min_length=1, max_length=200)
    top_k: int = Field(5, ge=1, le=MAX_TOP_K)
    similarity_threshold: float = Field(0.0, ge=-1.0, le=1.0, allow_inf_nan=False)
    filter_by_tags: tuple[str, ...] = ()


def make_settings(**values: Any) -> SemanticSettings:
    """Make one agent's settings from plain values. Raises SemanticConfigError."""
    return _checked([values], "settings")[0]


def read_settings(path: Path) -> Mapping[str, SemanticSettings]:
    """Read settings by agent: a JSON list of objects, or TOML with `[[agents]]` tables.

    Raises SemanticConfigError with the file name and the problem.
    """
    try:
        text = path.read_text("utf-8")
        value = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except OSError as error:
        raise SemanticConfigError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise SemanticConfigError(f"{path}: neither JSON nor TOML ({error}); correct it") from None
    return _by_agent(_checked(value.get("agents") if isinstance(value, dict) else value, str(path)))


def _by_agent(settings: Iterable[SemanticSettings]) -> Mapping[str, SemanticSettings]:
    agents: dict[str, SemanticSettings] = {}
    for one in settings:
        if agents.setdefault(one.agent_name, one) != one:
            raise SemanticConfigError(f"agent {one.agent_name!r} has two settings; keep one")
    return agents


def _checked(value: Any, place: str) -> list[SemanticSettings]:
    try:
        # Convert to JSON, because strict mode only accepts JSON arrays for tuples.
        return TypeAdapter(list[SemanticSettings]).validate_json(json.dumps(value))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "agents"
        raise SemanticConfigError(f"{place}: {where}: {first['msg'].lower()}") from None
    except (TypeError, ValueError) as error:
        raise SemanticConfigError(f"{place}: {error}; give plain values") from None


class SemanticRetriever:
    """Searches one index for agents by name. Immutable and therefore thread-safe.

    Raises SemanticConfigError if an agent has two settings.
    """

    def __init__(self, index: VectorIndex, agents: Iterable[SemanticSettings]) -> None:
        self._index = index
        self._agents = _by_agent(agents)

    def __len__(self) -> int:
        """Return the number of vectors."""
        return len(self._index)

    def retrieve(
        self, agent: str | SemanticSettings, query: ArrayLike
    ) -> tuple[SemanticResult, ...]:
        """Return the results of one query (d,) for an agent, best first.

        `agent` is the name of one, or settings that only this call uses. Raises SemanticConfigError
        for an unknown name, and SemanticQueryError for an invalid query.
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


# ---------------------------------------------------------------------------------------- loading


def load_vectors(
    folder: Path,
    reporter: Reporter,
    *,
    dimension: int | None = None,
    cache: Path | None = None,
    strict: bool = False,
) -> VectorIndex:
    """Load a folder of vectors; `vector_files` describes its files.

    `dimension`: the expected dimension; None means the most frequent one.
    `cache`: path of a file of numpy arrays, which is read while names, sizes and modification times
    of the folder match.

    A folder that is missing or has no usable vector gives an empty index and a warning; if
    `strict`, it raises SemanticIndexError. So does a folder that cannot be read, in any case.
    """
    if dimension is not None and not 1 <= dimension <= MAX_DIMENSION:
        raise SemanticIndexError(f"dimension {dimension}: give one from 1 to {MAX_DIMENSION:,}")
    place = in_one_line(str(folder))
    index = VectorIndex(folder, (), np.empty((0, 0), dtype=np.float32))
    problem = f"{place}: no such folder"
    if strict or folder.exists():
        own = "" if cache is None else cache.name
        files = [file for file in list_files(folder) if file.name != own]
        index = _cached(files, folder.resolve(), dimension, cache, reporter)
        _warn(index.skipped, place, reporter)
        problem = f"{place}: no usable vector; each file is a JSON array of numbers"
    if not index.ids:
        if strict:
            raise SemanticIndexError(problem)
        reporter(Notice(f"{problem}; the index is empty", "warning"))
    return index


def _warn(skipped: Sequence[SkippedVector], place: str, reporter: Reporter) -> None:
    """Report all skipped files in one line, because a folder may be searched often."""
    if not skipped:
        return
    named = [f"{in_one_line(one.name)}: {in_one_line(one.reason)}" for one in skipped[:3]]
    if len(skipped) > len(named):
        named.append(f"{len(skipped) - len(named):,} more (--json has all)")
    files = "1 file" if len(skipped) == 1 else f"{len(skipped):,} files"
    reporter(Notice(f"{place}: {files} skipped: {'; '.join(named)}", "warning"))


class _About(BaseModel):
    """What is cached beside the vectors."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    mark: str
    ids: tuple[str, ...]
    metas: dict[int, VectorMeta]
    skipped: tuple[SkippedVector, ...]


def _cached(
    files: Sequence[ListedFile],
    root: Path,
    dimension: int | None,
    cache: Path | None,
    reporter: Reporter,
) -> VectorIndex:
    """Return the cached index of these files, or read them and write the cache."""
    if cache is None:
        return _read(files, root, dimension, reporter)
    lines = [f"{dimension}\n", *(f"{file.size} {file.changed} {file.name}\0" for file in files)]
    mark = hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()
    try:
        arrays = read_arrays(cache.read_bytes()) or {}
        about = _About.model_validate_json(arrays["about"].tobytes())
        if about.mark == mark:
            vectors = np.asarray(arrays["vectors"], dtype=np.float32)
            return VectorIndex(root, about.ids, vectors, about.metas, about.skipped)
    except (OSError, KeyError, ValueError):
        pass  # missing or damaged
    index = _read(files, root, dimension, reporter)
    about = _About(mark=mark, ids=index.ids, metas=dict(index.metas), skipped=index.skipped)
    text = np.frombuffer(about.model_dump_json().encode(), np.uint8)
    data = write_arrays({"vectors": index.vectors, "about": text}, packed=False)
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        replace_file(cache, (data,))
    except OSError as error:  # a full disk only makes the next start slower
        reporter(Notice(f"{cache}: not kept ({error.strerror})", "warning"))
    return index


def _read(
    files: Sequence[ListedFile], root: Path, dimension: int | None, reporter: Reporter
) -> VectorIndex:
    """Read all files of a folder. Unusable ones are skipped with a reason."""
    skipped: dict[str, str] = {}
    metas: dict[str, VectorMeta] = {}
    for file in (file for file in files if file.name.endswith(META)):
        data = read_below(root, file.name)
        meta = data if isinstance(data, Invalid) else parse_meta(data)
        if isinstance(meta, Invalid):
            skipped[file.name] = meta.reason
        else:
            metas[file.name.removesuffix(META)] = meta
    texts = frozenset(normpath(meta.text_file or "") for meta in metas.values())
    others = [f for f in files if not f.name.endswith(META) and f.name not in texts]
    chosen = {file.identifier: file for file in others}  # `<id>` comes before `<id>.json`
    vectors: dict[str, NDArray[np.float32]] = {}
    for done, file in enumerate(others, start=1):
        used = chosen[file.identifier]
        vector = _vector(root, file)
        if used is not file:
            skipped[file.name] = f"the id is that of {used.name}, which is used"
        elif isinstance(vector, Invalid):
            skipped[file.name] = vector.reason
        else:
            vectors[file.identifier] = vector
        if done % 2_000 == 0 or done == len(others):
            reporter(StageProgress("vectors", done, len(others)))
    sizes = Counter(vector.size for vector in vectors.values())
    most = min(sizes, key=lambda size: (-sizes[size], size), default=0)
    expected, why = (dimension, "declared") if dimension else (most, "those of most files")
    for name in [name for name, vector in vectors.items() if vector.size != expected]:
        size = vectors.pop(name).size
        skipped[chosen[name].name] = f"{size} dimensions; {expected} are {why}"
    for name in metas.keys() - vectors.keys():
        skipped[f"{name}{META}"] = "the vector that it belongs to is not used"
    ids = tuple(sorted(vectors))
    matrix = np.stack([vectors[name] for name in ids]) if ids else np.empty((0, 0), np.float32)
    by_row = {row: metas[name] for row, name in enumerate(ids) if name in metas}
    shown = {n.encode("utf-8", "backslashreplace").decode(): why for n, why in skipped.items()}
    left_out = tuple(SkippedVector(*pair) for pair in sorted(shown.items()))
    return VectorIndex(root, ids, matrix, by_row, left_out)


def _vector(root: Path, file: ListedFile) -> NDArray[np.float32] | Invalid:
    data = read_below(root, file.name)
    vector = data if isinstance(data, Invalid) else parse_vector(data)
    reason = why_no_id(file.identifier)
    if reason and not isinstance(vector, Invalid):
        return Invalid(f"its name is no id: {reason}")
    return vector


# -------------------------------------------------------------------------------- stores, corpus

_MAX_PAYLOAD = 64 * 1024  # bytes of a payload in a store
_BATCH = 1_000  # entries written at a time: a killed import loses at most this many


class _Payload(BaseModel):
    """The payload of an imported vector. It is untrusted: a shared store may contain anything."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    id: str
    text: str
    metadata: dict[str, Any]


def read_payload(match: VectorMatch) -> tuple[str, str, Mapping[str, Any]]:
    """Return the id, text and metadata of an imported vector."""
    try:
        payload = _Payload.model_validate_json(match.payload)
    except ValidationError:
        return match.id, "", {}
    return payload.id, payload.text, payload.metadata


def import_vectors(
    index: VectorIndex,
    collection: VectorCollection,
    *,
    project: str,
    corpus: str,
    reporter: Reporter,
) -> int:
    """Add or replace all vectors of an index; return how many were new or changed.

    An entry has the id `corpus/id`, and `tags`, `path` and `language` from its metadata if they are
    strings. The payload is a JSON object of id, text and metadata, with secrets masked; a text that
    is too long is cut. Raises the errors of `VectorCollection.upsert`.
    """
    written = 0
    for start in range(0, len(index), _BATCH):
        some = range(start, min(start + _BATCH, len(index)))
        written += collection.upsert(_entry(index, row, project, corpus, reporter) for row in some)
        reporter(StageProgress("import", some.stop, len(index)))
    return written


def _entry(index: VectorIndex, row: int, project: str, corpus: str, reporter: Reporter) -> Entry:
    name, meta, vector = index.ids[row], index.metas.get(row, NO_META), index.vectors[row]
    payload = _payload(name, index.text(name, reporter), masked(dict(meta.metadata)))
    content = hashlib.sha256(vector.tobytes() + payload.encode()).hexdigest()
    language = _string(meta, "language") or "text"
    fields = Fields(project, corpus, _string(meta, "path"), language, meta.tags)
    return Entry(f"{corpus}/{name}", content, vector, fields, payload)


def _string(meta: VectorMeta, key: str) -> str:
    value = meta.metadata.get(key)
    return value if isinstance(value, str) else ""


def _payload(name: str, text: str, metadata: Any) -> str:
    if len(json.dumps(metadata)) > _MAX_PAYLOAD // 2:
        metadata = {}
    shown = text
    while True:
        # ASCII, so each character is one byte
        payload = json.dumps({"id": name, "text": shown, "metadata": metadata}, sort_keys=True)
        if len(payload) <= _MAX_PAYLOAD:
            return payload
        text = text[: len(text) * 9 // 10]
        shown = f"{text}... [cut]"


ANY_AGENT = SemanticSettings(agent_name="any", top_k=MAX_TOP_K, similarity_threshold=-1.0)
"""Settings that limit nothing."""


@dataclass(slots=True)
class VectorSource:
    """The `CorpusSource` of a folder, which also compares its vectors with a query's.

    `agent`: whose tags, threshold and number of results count. `embedded`: whether the embedder of
    the queries may be the model that made the vectors.
    """

    label: ClassVar = Label.VECTORS
    folder: Path
    cache: Path
    reporter: Reporter
    agent: SemanticSettings = ANY_AGENT
    embedded: bool = True
    _index: VectorIndex | None = field(init=False, default=None)

    def passages(self, snapshot: Snapshot, cancel: threading.Event) -> Sequence[Passage]:
        """Return the vectors that have a text and all tags of the agent, by id.

        Raises CorpusUnavailable if there is none.
        """
        del snapshot, cancel
        try:
            index = load_vectors(self.folder, self.reporter, cache=self.cache, strict=True)
        except SemanticIndexError as error:
            raise CorpusUnavailable(str(error)) from None
        passages = tuple(_passages(index, self.agent.filter_by_tags, self.reporter))
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
        index, agent = self._index, self.agent
        if not self.embedded or index is None:
            raise StoreError(
                "no embedder is configured; set PATCHSHOT_EMBED_MODEL to the model of the vectors"
            )
        least, tags = agent.similarity_threshold, agent.filter_by_tags
        try:  # five times as many, because vectors without a text are dropped
            (results,) = await asyncio.to_thread(
                lambda: index.search(query[None, :], top_k * 5, at_least=least, tags=tags)
            )
        except SemanticQueryError as error:
            raise StoreError(str(error)) from None
        numbers = {passage.origin: number for number, passage in enumerate(passages)}
        return [(numbers[r.id], score_of(r.score)) for r in results if r.id in numbers]


def _passages(index: VectorIndex, tags: Sequence[str], reporter: Reporter) -> Iterator[Passage]:
    for row, meta in sorted(index.metas.items()):
        if not set(tags) <= set(meta.tags):
            continue
        name = index.ids[row]
        text = index.text(name, reporter)[:MAX_TEXT]
        if text.strip():
            path = _string(meta, "path")
            yield Passage(Label.VECTORS, name, text, path=path, origin=name, tags=meta.tags)
