"""Embeds any number of texts through one model: in parallel, with retries, splitting and caches.

`ParallelEmbedder` turns a `BatchEmbedder` (one call, one attempt) into an `Embedder`. A text that
cannot be embedded gives a zero row and no error. If the server has no embeddings, they are off for
the rest of the run, and this is reported once.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

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
from agent.retrieval.embedding.vector_cache import VectorCache, vector_key
from agent.types.events import ModelCall, Notice, StageProgress

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.retrieval.embedding.protocol import BatchEmbedder, EmbeddingKind
    from agent.types.protocols import Reporter

    Vector = NDArray[np.float32]

_T = TypeVar("_T")

_SHORTEST_HALF = 32  # characters; a text that is too long even at this size is not retried
_SMALLEST_NORM = 1e-12  # below it a vector has no direction in float32

# After a few successful calls the usual time of a call is known. A try may take this many times as
# long.
_FEW_CALLS = 4
_PATIENCE = 10.0
_RECENT_CALLS = 64
# A batch that timed out is tried once more. Then its texts are sent one by one, because one of them
# may be slow.
_TRIES_OF_A_SLOW_BATCH = 2

# Ranking works without vectors, but nothing works without the chat model, so embedding gets only a
# share of the run's time.
_SHARE_OF_TIME = 0.2


@dataclass(frozen=True, slots=True)
class EmbeddingOptions:
    """Limits of calls. Times are in seconds; concurrency and tries are the original system's."""

    concurrency: int = 8  # calls at once (EMBED_CONCURRENCY)
    tries: int = 3  # for one call
    timeout: float = 30.0  # most for one try, so that a hanging call frees its slot
    least_patience: float = 5.0  # least for one try, even if the server is usually faster
    backoff: float = 0.5  # upper bound of the first wait; doubles each time, with full jitter
    longest_wait: float = 8.0
    longest_silence: float = 60.0  # for a server that has never answered: two tries
    give_up_after: int = 16  # failed calls in a row, over all slots: the server is down
    memory_entries: int = 20_000  # vectors cached in memory: 30 MB at 384 dimensions


class ParallelEmbedder:
    """An `Embedder` on top of a `BatchEmbedder`.

    One instance serves one event loop at a time. The dimension is that of most answers; answers
    with another dimension are requested again. Once vectors have been returned, the dimension is
    fixed, and a server that keeps returning another one raises ProviderError. Cached vectors of
    another dimension are dropped. A server that never answers is not called again.
    """

    def __init__(
        self,
        model: BatchEmbedder,
        reporter: Reporter,
        options: EmbeddingOptions | None = None,
        cache: VectorCache | None = None,
        time_left: Callable[[], float] | None = None,
    ) -> None:
        """`time_left`: seconds left in the run; one `embed` uses a fifth at
        most. None: no limit.
        """
        self._model = model
        self._reporter = reporter
        self._options = options or EmbeddingOptions()
        self._cache = cache
        self._time_left = time_left
        self._answered = False  # whether any call has returned vectors
        self._memory: OrderedDict[bytes, Vector] = OrderedDict()
        self._dimension: int | None = None
        self._votes = Counter[int]()  # answers by dimension; the cache counts as one
        self._fixed = False  # vectors of this dimension have been returned
        self._off: ProviderError | None = None
        self._slots: tuple[asyncio.AbstractEventLoop, asyncio.Semaphore] | None = None
        self._failures_in_a_row = 0
        self._recent: deque[float] = deque(maxlen=_RECENT_CALLS)  # seconds of successful calls

    @property
    def name(self) -> str:
        """The model's name."""
        return self._model.name

    async def embed(self, texts: Sequence[str], *, kind: EmbeddingKind) -> NDArray[np.float32]:
        """Embed `texts`, in their order.

        Returns float32 of shape (len(texts), d), rows L2-normalised; rows of blank texts and of
        texts that could not be embedded are zero. Raises ProviderError if no text could be
        embedded, the server has no embeddings, or its dimension changes.
        """
        if self._off is not None:
            raise type(self._off)(str(self._off))
        keys = [vector_key(self.name, kind, text) if text.strip() else b"" for text in texts]
        wanted = {key: text for key, text in zip(keys, texts, strict=True) if key}
        known = await self._known(list(wanted))
        missing = {key: text for key, text in wanted.items() if key not in known}
        fresh = await self._fetch(missing, kind)
        vectors = known | fresh
        # Either the model changed under the same name since they were cached, or the first answer
        # was wrong.
        stale = [key for key, vector in vectors.items() if len(vector) != self._dimension]
        if stale:
            fresh = await self._fetch({key: wanted[key] for key in stale}, kind)
            vectors = {key: v for key, v in vectors.items() if key not in set(stale)} | fresh
        # Two answers must agree, because a single one may be wrong.
        self._fixed = self._fixed or (bool(fresh) and self._votes[self._dimension or 0] > 1)
        if wanted and not vectors:
            raise ProviderError(
                f"no text could be embedded with {self.name}: check the embedding server"
            )
        rows = np.zeros((len(texts), self._dimension or 0), dtype=np.float32)
        for row, key in enumerate(keys):
            if key in vectors and len(vectors[key]) == self._dimension:
                rows[row] = vectors[key]
        return rows

    # ------------------------------------------------------------------------------------ caches

    async def _known(self, keys: Sequence[bytes]) -> dict[bytes, Vector]:
        """Return cached vectors, all of one dimension."""
        found = {key: self._memory[key] for key in keys if key in self._memory}
        for key in found:
            self._memory.move_to_end(key)
        rest = [key for key in keys if key not in found]
        if rest and self._cache is not None:
            stored = await asyncio.to_thread(self._cache.get, rest)
            found |= stored
            self._remember(stored)
        dimensions = {len(vector) for vector in found.values()}
        if self._dimension is None and len(dimensions) == 1:
            self._dimension = dimensions.pop()
            self._votes[self._dimension] += 1
        return {key: v for key, v in found.items() if len(v) == self._dimension}

    def _remember(self, vectors: Mapping[bytes, Vector]) -> None:
        self._memory.update(vectors)
        while len(self._memory) > self._options.memory_entries:
            self._memory.popitem(last=False)

    # ------------------------------------------------------------------------------------- calls

    async def _fetch(
        self, missing: Mapping[bytes, str], kind: EmbeddingKind
    ) -> dict[bytes, Vector]:
        """Embed texts. Those that fail are left out and reported."""
        self._failures_in_a_row = 0
        # Similar lengths together: a local model pads a batch to its longest text.
        keys = sorted(missing, key=lambda key: (len(missing[key]), key))
        size = max(1, self._model.max_batch)
        batches = [keys[start : start + size] for start in range(0, len(keys), size)]
        vectors: dict[bytes, Vector] = {}
        waiting = iter(batches)

        async def _worker() -> None:
            # A worker that waits between tries takes no other batch, so a busy server gets less
            # work.
            for batch in waiting:
                texts = [missing[key] for key in batch]
                found = await self._isolated(texts, kind, self._options.tries)
                good = {key: v for key, v in zip(batch, found, strict=True) if v is not None}
                vectors.update(good)
                if good and not self._answered:
                    self._answered = True
                    bound.reschedule(self._deadline(started))
                self._remember(good)
                if good and self._cache is not None:
                    await asyncio.to_thread(self._cache.put, good)
                if len(batches) > 1:
                    self._reporter(StageProgress("embedding", len(vectors), len(missing)))

        started = asyncio.get_running_loop().time()
        try:
            # Results that arrived before the deadline are used.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._deadline(started)) as bound:
                    await _all([_worker() for _ in range(min(self._slot_count, len(batches)))])
            if bound.expired() and not self._answered:
                seconds = asyncio.get_running_loop().time() - started
                raise _NeverAnswered(_silent(self.name, seconds))
        except _FATAL as error:
            self._switch_off(error)
            raise
        if len(vectors) < len(missing):
            failed = len(missing) - len(vectors)
            self._reporter(
                Notice(
                    f"{failed} of {len(missing)} texts could not be embedded: ranked without",
                    level="warning",
                )
            )
        return vectors

    async def _isolated(
        self, texts: Sequence[str], kind: EmbeddingKind, tries: int
    ) -> list[Vector | None]:
        """Embed a batch. On failure, halve it until the failing texts are alone."""
        if self._is_down():
            return [None] * len(texts)
        try:
            return await self._attempted(texts, kind, tries)
        except _FATAL:
            raise
        except InputTooLong:
            if len(texts) == 1:
                return [await self._halved(texts[0], kind)]
        except ProviderError as error:
            self._failures_in_a_row += 1
            if isinstance(error, _TimedOut) and not self._answered:
                raise _NeverAnswered(str(error)) from error
            if len(texts) == 1:
                return [None]
            tries = 1  # the batch has used its tries; a hanging text must not cost minutes
            if isinstance(error, _TimedOut):
                alone = [self._isolated([text], kind, tries) for text in texts]
                return [rows[0] for rows in await _all(alone)]
        middle = len(texts) // 2
        left = await self._isolated(texts[:middle], kind, tries)
        return left + await self._isolated(texts[middle:], kind, tries)

    def _deadline(self, started: float) -> float | None:
        """Return the deadline of one `embed` in the loop's time; None without a limit."""
        if self._time_left is None:
            return None
        waited = asyncio.get_running_loop().time() - started
        share = _SHARE_OF_TIME * max(0.0, self._time_left() + waited)
        return started + (share if self._answered else min(share, self._options.longest_silence))

    def _is_down(self) -> bool:
        return self._failures_in_a_row >= self._options.give_up_after

    async def _halved(self, text: str, kind: EmbeddingKind) -> Vector | None:
        """Return the mean of the vectors of both halves, weighted by their lengths."""
        if len(text) < 2 * _SHORTEST_HALF:
            return None
        middle = len(text) // 2
        # Cut at a blank near the middle, so that no word is split.
        cut = text.rfind(" ", middle - _SHORTEST_HALF // 2, middle) + 1 or middle
        halves = [half for half in (text[:cut], text[cut:]) if half.strip()]
        tries = self._options.tries
        vectors = [(await self._isolated([half], kind, tries))[0] for half in halves]
        pairs = [(len(h), v) for h, v in zip(halves, vectors, strict=True) if v is not None]
        if not pairs:
            return None
        return _normalised(np.sum([weight * vector for weight, vector in pairs], axis=0))

    async def _attempted(
        self, texts: Sequence[str], kind: EmbeddingKind, tries: int
    ) -> list[Vector | None]:
        """Make one call and retry temporary errors. Raises ProviderError."""
        options = self._options
        async for attempt in tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(tries) | _SlowBatch(len(texts)),
            wait=tenacity.wait_random_exponential(options.backoff, options.longest_wait),
            retry=tenacity.retry_if_exception(_is_passing),
            reraise=True,
        ):
            with attempt, self._told(len(texts), attempt.retry_state.attempt_number):
                vectors = self._checked(await self._called(texts, kind), len(texts))
        self._failures_in_a_row = 0
        return vectors

    @contextlib.contextmanager
    def _told(self, texts: int, attempt: int) -> Iterator[None]:
        """Report each try of a batch when it ends, in success or failure."""
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
        """Make one try in one slot. The slots limit the calls of all concurrent `embed` calls."""
        async with self._slot():
            seconds = self._patience()
            started = time.perf_counter()
            try:
                async with asyncio.timeout(seconds):
                    answer = await self._model.embed_batch(texts, kind=kind)
            except TimeoutError as error:
                raise _TimedOut(
                    f"{self.name} gave no vectors within {seconds:.3g} s: "
                    "raise the time limit or check the embedding server"
                ) from error
            self._recent.append(time.perf_counter() - started)
            return answer

    def _patience(self) -> float:
        """Return the timeout of one try in seconds."""
        longest = self._options.timeout
        if len(self._recent) < _FEW_CALLS:
            return longest
        return min(
            longest, max(self._options.least_patience, _PATIENCE * statistics.median(self._recent))
        )

    def _slot(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        if self._slots is None or self._slots[0] is not loop:
            self._slots = (loop, asyncio.Semaphore(self._slot_count))
        return self._slots[1]

    @property
    def _slot_count(self) -> int:
        own = self._options.concurrency
        return max(1, min(own, self._model.max_concurrency or own))

    def _checked(self, answer: NDArray[np.float32], count: int) -> list[Vector | None]:
        """Return the normalised rows of an answer, None for zero rows. Raises ProviderError."""
        rows = np.asarray(answer, dtype=np.float32)
        if rows.ndim != 2 or len(rows) != count or rows.shape[1] == 0:
            raise ProviderError(
                f"{self.name} answered shape {rows.shape} for {count} texts: "
                "check that the server is an embedding server"
            )
        self._agree(rows.shape[1])
        return [_normalised(row) for row in rows]

    def _agree(self, dimension: int) -> None:
        """Count an answer's dimension. Raises _DimensionChanged if it is not the majority's."""
        self._votes[dimension] += 1
        current = self._dimension
        if current is None or (not self._fixed and self._votes[dimension] > self._votes[current]):
            self._dimension = dimension
        elif dimension != current:
            raise _DimensionChanged(
                f"{self.name} answered {dimension} dimensions after {current}: "
                "check that one model serves all calls"
            )

    def _switch_off(self, error: ProviderError) -> None:
        if self._off is None:
            self._off = error
            self._reporter(Notice(f"embeddings are switched off: {error}", level="warning"))


class _DimensionChanged(ProviderError):
    """The server returned vectors of another dimension than before."""


class _TimedOut(ProviderError):
    """One try exceeded its timeout."""


class _NeverAnswered(ProviderError):
    """The server has not answered a single call within the allowed time."""


def _silent(name: str, seconds: float) -> str:
    return f"{name} gave no vectors within {seconds:.3g} s: check the embedding server"


# No later call can succeed after these.
_FATAL = (
    EmbeddingsUnsupported,
    AuthenticationFailed,
    UnknownModel,
    BudgetRefused,
    _DimensionChanged,
    _NeverAnswered,
)


def _is_passing(error: BaseException) -> bool:
    """Whether another try may succeed. A wrong dimension may be temporary."""
    if isinstance(error, _DimensionChanged):
        return True
    return isinstance(error, ProviderError) and not isinstance(error, (*_FATAL, InputTooLong))


class _SlowBatch(tenacity.stop.stop_base):
    """Stops retrying a batch of several texts that timed out."""

    def __init__(self, size: int) -> None:
        self._several = size > 1

    def __call__(self, retry_state: tenacity.RetryCallState) -> bool:
        error = retry_state.outcome.exception() if retry_state.outcome else None
        slow = self._several and isinstance(error, _TimedOut)
        return slow and retry_state.attempt_number >= _TRIES_OF_A_SLOW_BATCH


def _normalised(vector: Vector) -> Vector | None:
    """Return the vector at length 1 as float32; None if it is zero or not finite."""
    wide = np.asarray(vector, dtype=np.float64)  # squares of large float32 values overflow
    norm = float(np.linalg.norm(wide))
    if not _SMALLEST_NORM < norm < np.inf:
        return None
    return (wide / norm).astype(np.float32)


async def _all(jobs: Sequence[Coroutine[object, object, _T]]) -> list[_T]:
    """Run all. The first exception cancels the rest and is raised unchanged."""
    tasks = [asyncio.ensure_future(job) for job in jobs]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
