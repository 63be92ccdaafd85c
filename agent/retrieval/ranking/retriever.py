"""The retriever: first stage, embedding of the best chunks, fusion, total order."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from agent.errors import ProviderError
from agent.retrieval.ranking.lexical import (
    FileNames,
    document_text,
    query_text,
    without_boilerplate,
)
from agent.retrieval.ranking.mentions import Mentions, read_mentions
from agent.retrieval.ranking.stages import (
    NO_WORDS,
    UNRANKED,
    Ranked,
    by_cosine,
    collect_signals,
    files_in_order,
    in_order,
    order_candidates,
    overlap_stage,
)
from agent.shared.workers import in_thread
from agent.types import Ranking, Reason, ScoredChunk, ScoredFile
from agent.types.events import Notice

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from agent.retrieval.ranking.ranker import RetrievalOptions
    from agent.types import Problem
    from agent.types.protocols import Embedder, Reporter, Snapshot

_ORIGINAL_CHARS = 5_000  # of a text that the original system embedded
_ZERO_NORM = 1e-6  # shorter rows belong to texts that could not be embedded
LEARNED_COSINE_WEIGHT = 1.5
"""Weight of the best cosine relative to the ranker's margins, chosen on four projects that neither
ranker nor encoder was trained on; 0.5 to 3 give nearly the same results.
"""


def cosines(query: NDArray[np.float32], documents: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the cosine of each row of `documents` (n, d) with `query` (d,); NaN for zero rows."""
    rows = documents.astype(np.float64)
    values = rows @ query.astype(np.float64)
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    sound = np.isfinite(values) & (lengths > _ZERO_NORM)
    return np.where(sound, np.clip(values, -1.0, 1.0), np.nan)


def fuse(first: Ranked, values: NDArray[np.float64]) -> Ranked:
    """Add the cosines of the first n chunks, `values` float64 (n,), to the first stage's scores."""
    positive = np.clip(np.nan_to_num(values, nan=0.0), 0.0, None)
    terms = positive / _top(positive.tolist())
    chunks, files = list(first.chunks), list(first.files)
    if first.learned:
        terms *= LEARNED_COSINE_WEIGHT
    else:  # the ranker's margins have no maximum, so only plain sums are scaled
        chunks = _scaled(chunks)
        files = _scaled(files)
    best: dict[str, float] = {}
    for number, (term, value) in enumerate(zip(terms.tolist(), values.tolist(), strict=True)):
        note = "could not be embedded" if np.isnan(value) else f"cosine {value:.3f}"
        chunks[number] = _with_reason(chunks[number], Reason("cosine", term, note))
        path = chunks[number].chunk.path
        best[path] = max(term, best.get(path, 0.0))
    files = [_with_reason(file, Reason("cosine", best.get(file.path, 0.0))) for file in files]
    return replace(first, chunks=in_order(chunks), files=files_in_order(files))


def _with_bonus(ranked: Ranked, problem: Problem, bonus: float, *, files: bool) -> Ranked:
    """Add `bonus` to the chunks of files that the problem names, and to the `files` themselves."""
    if not bonus:
        return ranked
    names = FileNames(problem)

    def _raised(scored: _Scored, path: str) -> _Scored:
        name = names.found(path)
        if not name or scored.score == UNRANKED:
            return scored
        return _with_reason(scored, Reason("filename", bonus, f"{name} is in the problem"))

    chunks = in_order(_raised(scored, scored.chunk.path) for scored in ranked.chunks)
    named = files_in_order(_raised(file, file.path) for file in ranked.files)
    return replace(ranked, chunks=chunks, files=named if files else ranked.files)


_Scored = TypeVar("_Scored", ScoredChunk, ScoredFile)


def _scaled(scored: Sequence[_Scored]) -> list[_Scored]:
    scale = 1.0 / _top([one.score for one in scored])
    return [
        replace(
            one,
            score=one.score * scale,
            reasons=tuple(replace(reason, value=reason.value * scale) for reason in one.reasons),
        )
        for one in scored
    ]


def _with_reason(scored: _Scored, reason: Reason) -> _Scored:
    if not reason.value:
        return scored
    return replace(scored, score=scored.score + reason.value, reasons=(*scored.reasons, reason))


def _top(scores: Sequence[float]) -> float:
    return max((score for score in scores if score > 0.0), default=1.0)


class HybridRetriever:
    """The `Retriever`. `index_path` None: nothing is stored between runs."""

    def __init__(
        self,
        options: RetrievalOptions,
        *,
        embedder: Embedder | None,
        index_path: Path | None,
        reporter: Reporter,
        models: Path | None = None,
    ) -> None:
        self._options = options
        self._embedder = embedder if options.embedding else None
        self._index_path = index_path
        self._report = reporter
        self._models = models
        self._reported: set[str] = set()

    async def rank(self, problem: Problem, snapshot: Snapshot) -> Ranking:
        """Rank the snapshot's chunks. If the embedder fails, the first stage decides."""
        if not self._options.original:
            problem = without_boilerplate(problem, snapshot)
        mentions = read_mentions(problem)
        first = await in_thread(partial(self._rank_words, problem, mentions, snapshot))
        first = _without_hidden(first, problem.text)
        if self._embedder is None or not first.chunks:
            return self._ranking(problem, first)
        head = [one.chunk for one in first.chunks[: self._options.prefilter]]
        if self._options.original:
            asked, *texts = (t[:_ORIGINAL_CHARS] for t in (problem.text, *(c.text for c in head)))
        else:
            asked, texts = query_text(problem, mentions), [document_text(chunk) for chunk in head]
        try:
            query, documents = await embed_both(self._embedder, asked, texts)
        except ProviderError as error:
            note = f"no embeddings, ranked by words alone: {error}"
            return self._ranking(problem, first, note)
        return await asyncio.to_thread(self._fuse, problem, first, query, documents)

    def _rank_words(
        self, problem: Problem, mentions: Mentions, snapshot: Snapshot, cancel: threading.Event
    ) -> Ranked:
        # Imported here: tree-sitter would delay the command line.
        from agent.retrieval.history import CommitHistory, history_path
        from agent.retrieval.index import Index
        from agent.retrieval.ranking.ranker import load_shipped

        options = self._options
        if options.original:
            return overlap_stage(problem, snapshot, options.max_results, cancel)
        models = load_shipped(options, self._models)
        for note in models.notes:
            self._warn(note)
        index = Index(self._report, self._index_path, encoder=models.encoder)
        history = CommitHistory(history_path(self._index_path), self._report, cancel=cancel)
        signals = collect_signals(problem, mentions, snapshot, index, history, cancel)
        ranked = order_candidates(signals, snapshot, models.ranker, options.max_results)
        return replace(ranked, notes=(*models.notes, *ranked.notes))

    def _fuse(
        self,
        problem: Problem,
        first: Ranked,
        query: NDArray[np.float32],
        documents: NDArray[np.float32],
    ) -> Ranking:
        if query.shape != (1, documents.shape[1]) or not query.any():
            return self._ranking(problem, first, "no usable embeddings, ranked by words alone")
        values = cosines(query[0], documents)
        fused = by_cosine(first, values) if self._options.original else fuse(first, values)
        note = "some chunks could not be embedded" if np.isnan(values).any() else ""
        return self._ranking(problem, fused, note, embedded=True)

    def _ranking(
        self, problem: Problem, ranked: Ranked, note: str = "", *, embedded: bool = False
    ) -> Ranking:
        if note:
            self._warn(note)
        bonus = self._options.bonus(learned=ranked.learned, embedded=embedded)
        ranked = _with_bonus(ranked, problem, bonus, files=not self._options.original)
        if not self._options.original:
            ranked = _source_first(ranked, problem)
        notes = (*ranked.notes, note) if note else ranked.notes
        return Ranking(ranked.chunks, ranked.files, ranked.total, notes, note)

    def _warn(self, message: str) -> None:
        """Report a message once, because every problem of a batch fails for the same reason."""
        if message not in self._reported:
            self._reported.add(message)
            self._report(Notice(message, "warning"))


async def embed_both(
    embedder: Embedder, query: str, texts: Sequence[str]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Embed query (1, d) and texts (n, d) at the same time. Raises ProviderError."""
    tasks = (embedder.embed([query], kind="query"), embedder.embed(texts, kind="document"))
    first, second = await asyncio.gather(*tasks, return_exceptions=True)
    if isinstance(first, BaseException):
        raise first
    if isinstance(second, BaseException):
        raise second
    return first, second


def no_words(ranking: Ranking) -> tuple[str, ...]:
    """Return the note that no word of the problem occurs in the repository, or ()."""
    return tuple(note for note in ranking.notes if note == NO_WORDS)


def _without_hidden(ranked: Ranked, problem: str) -> Ranked:
    """Leave out hidden folders (`.github/`), unless the problem names the folder or the file."""
    chunks = tuple(one for one in ranked.chunks if _is_visible(one.chunk.path, problem))
    files = tuple(one for one in ranked.files if _is_visible(one.path, problem))
    return replace(ranked, chunks=chunks, files=files) if chunks else ranked


# Folders of code that shows or measures the project's own, and of generated code.
_EXAMPLES = frozenset(
    {"benchmark", "benchmarks", "bench", "asv_bench", "perf", "example", "examples", "sample",
     "samples", "demo", "demos", "playground", "generated", "__generated__"}
)  # fmt: skip


def _source_first(ranked: Ranked, problem: Problem) -> Ranked:
    """Put benchmarks, examples and generated code last, unless the problem names them."""
    title, text = problem.title.lower(), problem.text

    def _lowered(all_scored: Sequence[_Scored], paths: Sequence[str]) -> Iterator[_Scored]:
        scores = [one.score for one in all_scored]
        span = max(scores, default=0.0) - min(scores, default=0.0) + 1.0
        for one, path in zip(all_scored, paths, strict=True):
            *above, name = path.split("/")
            folders = _EXAMPLES.intersection(above)
            named = name in text or any(f in title or f"{f}/" in text for f in folders)
            yield one if named or not folders else _with_reason(one, Reason("aside", -span))

    chunks = in_order(_lowered(ranked.chunks, [one.chunk.path for one in ranked.chunks]))
    files = files_in_order(_lowered(ranked.files, [one.path for one in ranked.files]))
    return replace(ranked, chunks=chunks, files=files)


def _is_visible(path: str, problem: str) -> bool:
    *folders, name = path.split("/")
    hidden = [folder for folder in folders if folder.startswith(".")]
    return not hidden or any(one in problem for one in (*hidden, name))
