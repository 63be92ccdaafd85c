"""The second stage: cosine and file name added to the first stage's scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from agent.retrieval.explain import scored_chunk
from agent.retrieval.stages import Ranked, files_in_order, in_order
from agent.types import Reason, ScoredChunk, ScoredFile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.retrieval.options import RetrievalOptions
    from agent.retrieval.texts import FileNames

_ZERO_NORM = 1e-6  # rows shorter than this are texts that could not be embedded
LEARNED_COSINE_WEIGHT = 1.5
"""Of the best cosine beside the ranker's margins, which spread over about ten: chosen on four
projects that neither ranker nor encoder had seen; 0.5 to 3 hardly differ."""
UNRANKED = -1.0
"""Score of a chunk without a vector where the cosine decides alone: below every real one."""


def cosines(query: NDArray[np.float32], documents: NDArray[np.float32]) -> NDArray[np.float64]:
    """Cosine of each row of `documents` (n, d) with `query` (d,); NaN for rows that are zero.

    Both float32 and L2-normalised. Sums in float64, so that the order does not depend on how the
    platform adds floats.
    """
    rows = documents.astype(np.float64)
    values = rows @ query.astype(np.float64)
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    sound = np.isfinite(values) & (lengths > _ZERO_NORM)
    return np.where(sound, np.clip(values, -1.0, 1.0), np.nan)


def fuse(
    first: Ranked, values: NDArray[np.float64], names: FileNames, options: RetrievalOptions
) -> Ranked:
    """`values` float64 (n,): the cosines of the first n chunks of the first stage.

    With `lexical_weight` 0 only those n chunks are left.
    """
    head, tail = first.chunks[: values.size], first.chunks[values.size :]
    terms = _cosine_terms(values, options)
    if first.learned:
        terms *= LEARNED_COSINE_WEIGHT
    scale = _scale(first, [chunk.score for chunk in first.chunks], options)
    chunks = [
        _fused(chunk, scale, value, term, names, options, learned=first.learned)
        for chunk, value, term in zip(head, values.tolist(), terms.tolist(), strict=True)
    ]
    if options.lexical_weight:
        chunks.extend(_rescaled(chunk, scale) for chunk in tail)
    files = _fused_files(first, head, terms, options)
    return Ranked(in_order(chunks), files, first.total, first.notes, learned=first.learned)


def _scale(first: Ranked, scores: Sequence[float], options: RetrievalOptions) -> float:
    """Of the first stage's scores in the sum. The ranker's are margins, which have no maximum."""
    return options.lexical_weight if first.learned else options.lexical_weight / _top(scores)


def _cosine_terms(values: NDArray[np.float64], options: RetrievalOptions) -> NDArray[np.float64]:
    """What each cosine adds to a score. A zero vector never gets more than a real one."""
    if not options.normalise_cosine:
        return options.cosine_weight * np.nan_to_num(values, nan=UNRANKED)
    positive = np.clip(np.nan_to_num(values, nan=0.0), 0.0, None)
    return options.cosine_weight * positive / _top(positive.tolist())


def _top(scores: Sequence[float]) -> float:
    return max((score for score in scores if score > 0.0), default=1.0)


def _fused(
    chunk: ScoredChunk,
    scale: float,
    value: float,
    term: float,
    names: FileNames,
    options: RetrievalOptions,
    *,
    learned: bool,
) -> ScoredChunk:
    embedded = not np.isnan(value)
    note = f"cosine {value:.3f}" if embedded else "could not be embedded"
    reasons = [*_rescaled(chunk, scale).reasons, Reason("cosine", term, note)]
    name = names.found(chunk.chunk.path)
    if name and not learned and (embedded or options.normalise_cosine):
        reasons.append(Reason("filename", options.filename_bonus, f"{name} is in the problem"))
    return scored_chunk(chunk, reasons)


def _rescaled(chunk: ScoredChunk, scale: float) -> ScoredChunk:
    reasons = [replace(reason, value=reason.value * scale) for reason in chunk.reasons]
    return scored_chunk(chunk, reasons)


def _fused_files(
    first: Ranked,
    head: Sequence[ScoredChunk],
    terms: NDArray[np.float64],
    options: RetrievalOptions,
) -> tuple[ScoredFile, ...]:
    """Files by their own score and the cosine of their best chunk."""
    best: dict[str, float] = {}
    for chunk, term in zip(head, terms.tolist(), strict=True):
        best[chunk.chunk.path] = max(term, best.get(chunk.chunk.path, UNRANKED))
    scale = _scale(first, [file.score for file in first.files], options)
    files: list[ScoredFile] = []
    for file in first.files:
        if not options.lexical_weight and file.path not in best:
            continue
        reasons = [replace(reason, value=reason.value * scale) for reason in file.reasons]
        reasons.append(Reason("cosine", best.get(file.path, 0.0), "of its best chunk"))
        kept = tuple(reason for reason in reasons if reason.value)
        files.append(ScoredFile(file.path, sum(reason.value for reason in kept), kept))
    return files_in_order(files)
