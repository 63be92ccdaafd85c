"""Embeds any number of texts through one model: in parallel, with retries, splitting and caches.

`ParallelEmbedder` turns a `BatchEmbedder` (one call, one attempt) into an `Embedder`. A text that
cannot be embedded costs itself only, a zero row; a server without embeddings switches them off for
the run, said once.
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

from agent.errors import AuthenticationFailed, BudgetRefused, ProviderError, UnknownModel
from agent.events import ModelCall, Notice, StageProgress
from agent.retrieval.embedding_protocol import EmbeddingsUnsupported, InputTooLong
from agent.retrieval.vector_cache import VectorCache, vector_key

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.protocols import Reporter
    from agent.retrieval.embedding_protocol import BatchEmbedder, EmbeddingKind

    Vector = NDArray[np.float32]

_T = TypeVar("_T")

_SHORTEST_HALF = 32  # characters; a text refused as too long at this size is refused for good
_SMALLEST_NORM = 1e-12  # below it a vector has no direction in float32

# How long a try may take is known once a few have succeeded: this many times the usual time.
_FEW_CALLS = 4
_PATIENCE = 10.0
_RECENT_CALLS = 64
# A batch that timed out is tried once more, then its texts stand alone: one of them may be slow.
_TRIES_OF_A_SLOW_BATCH = 2

# Ranking goes on by words without vectors, nothing goes on without the chat model: its time is not
# theirs to spend.
_SHARE_OF_TIME = 0.2


@dataclass(frozen=True, slots=True)
class EmbeddingOptions:
    """How calls are made. Times in seconds; concurrency and tries are the original system's."""

    concurrency: int = 8  # calls at once (EMBED_CONCURRENCY)
    tries: int = 3  # of one call
    timeout: float = 30.0  # of one try, at most: a hanging call must not hold its slot for good
    least_patience: float = 5.0  # of one try, however fast the server usually is
    backoff: float = 0.5  # the first wait is at most this, doubling, with full jitter
    longest_wait: float = 8.0
    longest_silence: float = 60.0  # of a server that has never answered: two tries
    give_up_after: int = 16  # failed calls in a row, over all slots: the server is down
    memory_entries: int = 20_000  # vectors of the cache in memory: 30 MB at 384 dimensions


class ParallelEmbedder:
    """An `Embedder` on top of a `BatchEmbedder`.

    One instance serves one event loop at a time. The dimension is that of most answers; one of
    another dimension is asked for again. Once vectors have been given out theirs is fixed, and a
    server that stays with another is refused with ProviderError. A cached vector of another
    dimension is forgotten. A server that never answers is given up for good.
    """

    def __init__(
        self,
        model: BatchEmbedder,
        reporter: Reporter,
        options: EmbeddingOptions | None = None,
        cache: VectorCache | None = None,
        time_left: Callable[[], float] | None = None,
    ) -> None:
        """`time_left`: seconds of the run; one `embed` takes a fifth at most. None: no limit."""
        self._model = model
        self._reporter = reporter
        self._options = options or EmbeddingOptions()
        self._cache = cache
        self._time_left = time_left
        self._answered = False  # vectors have come back, ever
        self._memory: OrderedDict[bytes, Vector] = OrderedDict()
        self._dimension: int | None = None
        self._votes = Counter[int]()  # answers by dimension; a cache has one vote
        self._fixed = False  # vectors of this dimension have been given out
        self._off: ProviderError | None = None
        self._slots: tuple[asyncio.AbstractEventLoop, asyncio.Semaphore] | None = None
        self._failures_in_a_row = 0
        self._recent: deque[float] = deque(maxlen=_RECENT_CALLS)  # seconds of calls that succeeded

    @property
    def name(self) -> str:
        """The model's name."""
        return self._model.name

    async def embed(self, texts: Sequence[str], *, kind: EmbeddingKind) -> NDArray[np.float32]:
        """Vectors of `texts`, in their order.

        Returns float32 of shape (len(texts), d), rows L2-normalised; rows of blank texts and of
        texts that could not be embedded are zero. Raises ProviderError when nothing at all could
        be embedded, when the server has no embeddings, or when its dimension changes.
        """
        if self._off is not None:
            raise type(self._off)(str(self._off))
        keys = [vector_key(self.name, kind, text) if text.strip() else b"" for text in texts]
        wanted = {key: text for key, text in zip(keys, texts, strict=True) if key}
        known = await self._known(list(wanted))
        missing = {key: text for key, text in wanted.items() if key not in known}
        fresh = await self._fetch(missing, kind)
        vectors = known | fresh
        # The model changed behind its name since they were cached, or the first answer was a slip.
        stale = [key for key, vector in vectors.items() if len(vector) != self._dimension]
        if stale:
            fresh = await self._fetch({key: wanted[key] for key in stale}, kind)
            vectors = {key: v for key, v in vectors.items() if key not in set(stale)} | fresh
        # Two answers that agree: a single one may have been a slip.
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
        """Cached vectors, all of one dimension."""
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
        """Embed these texts. Those that fail are left out and told about."""
        self._failures_in_a_row = 0
        # Texts of like length together: a local model pads a batch to its longest text.
        keys = sorted(missing, key=lambda key: (len(missing[key]), key))
        size = max(1, self._model.max_batch)
        batches = [keys[start : start + size] for start in range(0, len(keys), size)]
        vectors: dict[bytes, Vector] = {}
        waiting = iter(batches)

        async def _worker() -> None:
            # A worker that waits between tries takes no other batch: a busy server gets less work.
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
            # What has come back when the time is up counts.
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
        """Embed a batch; on failure halve it until the failing texts stand alone."""
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
            tries = 1  # the batch has had its own; a hanging text must not cost minutes
            if isinstance(error, _TimedOut):
                alone = [self._isolated([text], kind, tries) for text in texts]
                return [rows[0] for rows in await _all(alone)]
        middle = len(texts) // 2
        left = await self._isolated(texts[:middle], kind, tries)
        return left + await self._isolated(texts[middle:], kind, tries)

    def _deadline(self, started: float) -> float | None:
        """When one `embed` has had its share, in the loop's time; None without a limit."""
        if self._time_left is None:
            return None
        waited = asyncio.get_running_loop().time() - started
        share = _SHARE_OF_TIME * max(0.0, self._time_left() + waited)
        return started + (share if self._answered else min(share, self._options.longest_silence))

    def _is_down(self) -> bool:
        return self._failures_in_a_row >= self._options.give_up_after

    async def _halved(self, text: str, kind: EmbeddingKind) -> Vector | None:
        """The mean of the vectors of both halves, weighted by their lengths."""
        if len(text) < 2 * _SHORTEST_HALF:
            return None
        middle = len(text) // 2
        # At a blank near the middle, so that no word is cut in two.
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
        """One call, tried again after faults that may pass. Raises ProviderError."""
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
        """Report one try of one batch when it ends, however it ends."""
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
        """One try in one slot; the slots bound all `embed` calls that run at once."""
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
        """Seconds that one try may take."""
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
        """Normalised rows of an answer, None for a row without direction. Raises ProviderError."""
        rows = np.asarray(answer, dtype=np.float32)
        if rows.ndim != 2 or len(rows) != count or rows.shape[1] == 0:
            raise ProviderError(
                f"{self.name} answered shape {rows.shape} for {count} texts: "
                "check that the server is an embedding server"
            )
        self._agree(rows.shape[1])
        return [_normalised(row) for row in rows]

    def _agree(self, dimension: int) -> None:
        """Count an answer's dimension. Raises _DimensionChanged when it is not that of most."""
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
    """The server answers vectors of another dimension than before."""


class _TimedOut(ProviderError):
    """One try took too long."""


class _NeverAnswered(ProviderError):
    """The server has had its time and has not answered once."""


def _silent(name: str, seconds: float) -> str:
    return f"{name} gave no vectors within {seconds:.3g} s: check the embedding server"


# No further call can succeed after these.
_FATAL = (
    EmbeddingsUnsupported,
    AuthenticationFailed,
    UnknownModel,
    BudgetRefused,
    _DimensionChanged,
    _NeverAnswered,
)


def _is_passing(error: BaseException) -> bool:
    """Whether another try of the same call may succeed; one wrong dimension may be a slip."""
    if isinstance(error, _DimensionChanged):
        return True
    return isinstance(error, ProviderError) and not isinstance(error, (*_FATAL, InputTooLong))


class _SlowBatch(tenacity.stop.stop_base):
    """Ends the tries of a batch of several texts that timed out."""

    def __init__(self, size: int) -> None:
        self._several = size > 1

    def __call__(self, retry_state: tenacity.RetryCallState) -> bool:
        error = retry_state.outcome.exception() if retry_state.outcome else None
        slow = self._several and isinstance(error, _TimedOut)
        return slow and retry_state.attempt_number >= _TRIES_OF_A_SLOW_BATCH


def _normalised(vector: Vector) -> Vector | None:
    """The vector at length 1 as float32, None when it has no direction or is not finite."""
    wide = np.asarray(vector, dtype=np.float64)  # squares of large float32 values overflow
    norm = float(np.linalg.norm(wide))
    if not _SMALLEST_NORM < norm < np.inf:
        return None
    return (wide / norm).astype(np.float32)


async def _all(jobs: Sequence[Coroutine[object, object, _T]]) -> list[_T]:
    """Run all; the first exception cancels the rest and is raised as itself."""
    tasks = [asyncio.ensure_future(job) for job in jobs]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
