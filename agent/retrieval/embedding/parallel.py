"""Embeds any number of texts through one model: in parallel, with retries, splitting and a cache. A
text that cannot be embedded gives a zero row; a server without embeddings is not called again.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
import tenacity

from agent.errors import (
    AuthenticationFailed,
    BudgetRefused,
    EmbeddingsUnsupported,
    InputTooLong,
    ProviderError,
    UnknownModel,
)
from agent.shared.cache import RecordStore, record_format
from agent.types.events import ModelCall, Notice, StageProgress

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.types.protocols import Reporter

    Vector = NDArray[np.float32]

EmbeddingKind = Literal["query", "document"]

_SHORTEST_HALF = 32  # characters; a text that is too long even at this size is not retried
_SMALLEST_NORM = 1e-12  # below it a vector has no direction in float32

# Ranking works without vectors, but nothing works without the chat model, so embedding gets only a
# share of the run's time.
_SHARE_OF_TIME = 0.2


class BatchEmbedder(Protocol):
    """One embedding model: turns one batch of texts into vectors, in one attempt."""

    @property
    def name(self) -> str:
        """The model and every setting that changes its vectors: a part of every cache key."""

    @property
    def max_batch(self) -> int:
        """Largest number of texts in a call, at least 1."""

    async def embed_batch(
        self, texts: Sequence[str], *, kind: EmbeddingKind
    ) -> NDArray[np.float32]:
        """Embed 1 to `max_batch` non-empty texts, shape (len(texts), d). Raises ProviderError,
        whose kinds of a permanent refusal are not retried.
        """


@dataclass(frozen=True, slots=True)
class EmbeddingOptions:
    """Limits of calls. Times are in seconds; concurrency and tries are the original system's."""

    concurrency: int = 8  # calls at once (EMBED_CONCURRENCY)
    tries: int = 3  # for one call
    timeout: float = 30.0  # most for one try, so that a hanging call frees its worker
    backoff: float = 0.5  # upper bound of the first wait; doubles each time, with full jitter
    longest_wait: float = 8.0


class ParallelEmbedder:
    """An `Embedder` on top of a `BatchEmbedder`."""

    def __init__(
        self,
        model: BatchEmbedder,
        reporter: Reporter,
        options: EmbeddingOptions | None = None,
        cache: RecordStore | None = None,
        time_left: Callable[[], float] | None = None,
    ) -> None:
        """`time_left`: seconds left in the run, of which one `embed` uses a fifth at most."""
        self._model = model
        self._reporter = reporter
        self._options = options or EmbeddingOptions()
        self._cache = cache
        self._time_left = time_left
        self._answered = False  # whether any call has returned vectors
        self._dimension = 0
        self._off: ProviderError | None = None

    @property
    def name(self) -> str:
        """The model's name."""
        return self._model.name

    async def embed(self, texts: Sequence[str], *, kind: EmbeddingKind) -> NDArray[np.float32]:
        """Embed `texts`: float32 (len(texts), d), L2-normalised or zero. Raises ProviderError."""
        if self._off is not None:
            raise type(self._off)(str(self._off))
        keys = [vector_key(self.name, kind, text) if text.strip() else b"" for text in texts]
        by_key = {key: text for key, text in zip(keys, texts, strict=True) if key}
        vectors = await self._cached(list(by_key))
        vectors |= await self._fetch({k: t for k, t in by_key.items() if k not in vectors}, kind)
        if stale := [key for key, vector in vectors.items() if len(vector) != self._dimension]:
            vectors |= await self._fetch({key: by_key[key] for key in stale}, kind)
        if by_key and not vectors:
            raise ProviderError(
                f"no text could be embedded with {self.name}: check the embedding server"
            )
        rows = np.zeros((len(texts), self._dimension), dtype=np.float32)
        for row, key in enumerate(keys):
            if key in vectors and len(vectors[key]) == self._dimension:
                rows[row] = vectors[key]
        return rows

    async def _cached(self, keys: Sequence[bytes]) -> dict[bytes, Vector]:
        stored = {} if self._cache is None else await asyncio.to_thread(self._cache.get, keys)
        read = ((key, _vector(data)) for key, data in stored.items())
        vectors = {key: vector for key, vector in read if vector is not None}
        if vectors and not self._dimension:
            self._dimension = len(next(iter(vectors.values())))
        return vectors

    async def _fetch(
        self, missing: Mapping[bytes, str], kind: EmbeddingKind
    ) -> dict[bytes, Vector]:
        # Similar lengths together: a local model pads a batch to its longest text.
        keys = sorted(missing, key=lambda key: (len(missing[key]), key))
        size = max(1, self._model.max_batch)
        batches = [keys[start : start + size] for start in range(0, len(keys), size)]
        vectors: dict[bytes, Vector] = {}
        waiting = iter(batches)

        async def work() -> None:
            # A worker that waits between tries takes no other batch: a busy server gets less work.
            for batch in waiting:
                rows = await self._batch([missing[key] for key in batch], kind, self._options.tries)
                good = {key: v for key, v in zip(batch, rows, strict=True) if v is not None}
                vectors.update(good)
                if good and self._cache is not None:
                    data = [(k, np.asarray(v, dtype="<f4").tobytes()) for k, v in good.items()]
                    await asyncio.to_thread(self._cache.put, data)
                if len(batches) > 1:
                    self._reporter(StageProgress("embedding", len(vectors), len(missing)))

        count = max(1, min(self._options.concurrency, len(batches)))
        bound = None if self._time_left is None else _SHARE_OF_TIME * max(0.0, self._time_left())
        try:
            # Results that arrived before the deadline are used.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(bound):
                    await _all(work, count)
            if batches and not vectors and not self._answered:
                raise _Silent(f"{self.name} gave no vectors in time: check the embedding server")
        except _LASTING as error:
            if self._off is None:
                self._off = error
                self._reporter(Notice(f"embeddings are switched off: {error}", level="warning"))
            raise
        if len(vectors) < len(missing):
            failed = f"{len(missing) - len(vectors)} of {len(missing)} texts"
            notice = f"{failed} could not be embedded: ranked without"
            self._reporter(Notice(notice, level="warning"))
        return vectors

    async def _batch(
        self, texts: Sequence[str], kind: EmbeddingKind, tries: int
    ) -> list[Vector | None]:
        """Embed a batch. If it fails, its texts are sent one by one, with one try each."""
        try:
            return await self._attempted(texts, kind, tries)
        except _LASTING:
            raise
        except ProviderError as error:
            if isinstance(error, _TimedOut) and not self._answered:
                raise _Silent(str(error)) from error
            if len(texts) > 1:
                return [(await self._batch([text], kind, 1))[0] for text in texts]
            too_long = isinstance(error, InputTooLong)
            return [await self._halved(texts[0], kind) if too_long else None]

    async def _halved(self, text: str, kind: EmbeddingKind) -> Vector | None:
        if len(text) < 2 * _SHORTEST_HALF:
            return None
        middle = len(text) // 2
        # Cut at a blank near the middle, so that no word is split.
        cut = text.rfind(" ", middle - _SHORTEST_HALF // 2, middle) + 1 or middle
        halves = [half for half in (text[:cut], text[cut:]) if half.strip()]
        tries = self._options.tries
        vectors = [(await self._batch([half], kind, tries))[0] for half in halves]
        pairs = [(len(h), v) for h, v in zip(halves, vectors, strict=True) if v is not None]
        return _normalised(np.sum([weight * v for weight, v in pairs], axis=0)) if pairs else None

    async def _attempted(
        self, texts: Sequence[str], kind: EmbeddingKind, tries: int
    ) -> list[Vector | None]:
        """Make one call and retry temporary errors. Raises ProviderError."""

        def is_temporary(error: BaseException) -> bool:
            if isinstance(error, _TimedOut):  # texts of a slow batch are sent one by one
                return len(texts) == 1 or not self._answered
            lasting = (*_LASTING, InputTooLong)
            return isinstance(error, ProviderError) and not isinstance(error, lasting)

        retrying = tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(tries),
            wait=tenacity.wait_random_exponential(
                self._options.backoff, self._options.longest_wait
            ),
            retry=tenacity.retry_if_exception(is_temporary),
            reraise=True,
        )
        async for attempt in retrying:
            with attempt, self._reported(len(texts), attempt.retry_state.attempt_number):
                vectors = self._checked(await self._called(texts, kind), len(texts))
        return vectors

    @contextlib.contextmanager
    def _reported(self, texts: int, attempt: int) -> Iterator[None]:
        started = time.perf_counter()
        status, error = "cancelled", ""
        try:
            yield
            status = "ok"
        except ProviderError as raised:
            status, error = "failed", str(raised)
            raise
        finally:
            seconds = time.perf_counter() - started
            self._reporter(
                ModelCall("embed", self.name, status, seconds, attempt, texts=texts, error=error)
            )

    async def _called(self, texts: Sequence[str], kind: EmbeddingKind) -> NDArray[np.float32]:
        try:
            async with asyncio.timeout(self._options.timeout):
                return await self._model.embed_batch(texts, kind=kind)
        except TimeoutError as error:
            raise _TimedOut(
                f"{self.name} gave no vectors within {self._options.timeout:.3g} s: "
                "raise the time limit or check the embedding server"
            ) from error

    def _checked(self, answer: NDArray[np.float32], count: int) -> list[Vector | None]:
        """Return the normalised rows of an answer, None for zero rows. Raises ProviderError."""
        rows = np.asarray(answer, dtype=np.float32)
        if rows.ndim != 2 or len(rows) != count or rows.shape[1] == 0:
            raise ProviderError(
                f"{self.name} answered shape {rows.shape} for {count} texts: "
                "check that the server is an embedding server"
            )
        if not self._answered:
            self._answered, self._dimension = True, rows.shape[1]
        if rows.shape[1] != self._dimension:
            raise ProviderError(
                f"{self.name} answered {rows.shape[1]} dimensions after {self._dimension}: "
                "check that one model serves all calls"
            )
        return [_normalised(row) for row in rows]


class _TimedOut(ProviderError):
    """One try exceeded its timeout."""


class _Silent(ProviderError):
    """The server has not answered a single call within the allowed time."""


# No later call can succeed after these.
_LASTING = (EmbeddingsUnsupported, AuthenticationFailed, UnknownModel, BudgetRefused, _Silent)


def _normalised(vector: Vector) -> Vector | None:
    """Return the vector at length 1 as float32; None if it is zero or not finite."""
    wide = np.asarray(vector, dtype=np.float64)  # squares of large float32 values overflow
    norm = float(np.linalg.norm(wide))
    if not _SMALLEST_NORM < norm < np.inf:
        return None
    return (wide / norm).astype(np.float32)


async def _all(work: Callable[[], Coroutine[None, None, None]], count: int) -> None:
    tasks = [asyncio.ensure_future(work()) for _ in range(count)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


_CACHE_BYTES = 512 * 1024 * 1024
_FORMAT = record_format("embedding cache", 0x50535643, 2)  # "PSVC"; version 1 had its own table


def vector_key(embedder: str, kind: EmbeddingKind, text: str) -> bytes:
    """Return 32 bytes that identify one vector: hash of embedder name, kind and text."""
    digest = hashlib.sha256()
    for part in (embedder, kind, text):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))  # separates the parts
        digest.update(data)
    return digest.digest()


def open_vector_cache(path: Path, reporter: Reporter) -> RecordStore:
    """Open a file of vectors by `vector_key`."""
    return RecordStore(path, reporter=reporter, limit=_CACHE_BYTES, file_format=_FORMAT)


def _vector(data: bytes) -> NDArray[np.float32] | None:
    """Return the vector of a record; None if it cannot be one."""
    if not data or len(data) % 4:
        return None
    vector = np.frombuffer(data, dtype="<f4").astype(np.float32)
    return vector if bool(np.isfinite(vector).all()) else None
