"""The wider context: the issue's own ranking, moved by what the winning plan's intents found.

Reciprocal rank fusion (Cormack, Clarke & Büttcher, SIGIR 2009) of the issue's ranking and one
ranking for each intent, weighted by how well the intent is grounded:

    score(piece) = 1 / (K + rank) + weight * sum over intents of quality_i / (K + rank_i)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agent.planning.search import Judged
from agent.retrieval.chunking import split_lines
from agent.types import Ranking, Reason, ScoredChunk

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.protocols import Snapshot
    from agent.retrieval.corpus import Corpus
    from agent.types import Chunk

K = 10.0
"""Of the fusion; small, so that the first ranks count: 60, as published, is for long lists."""

PLAN_WEIGHT = 0.1
"""Of all intents of a plan made without a model together. Tuned: docs/plan-search.md."""

MODEL_WEIGHT = 1.0
"""Of each intent that a model proposed: it names places. Set before any reply was seen."""


@dataclass(frozen=True, slots=True)
class _Place:
    """What the fusion knows of one piece."""

    score: float
    why: tuple[Reason, ...]


def widened(
    ranking: Ranking,
    ranks: Mapping[int, int],
    winner: Judged,
    corpus: Corpus,
    snapshot: Snapshot,
    weight: float,
) -> Ranking:
    """The ranking that the wider context is packed from; `ranks` is what
    `numbers_of` gave, `weight` that of each intent.

    Scores are those of the fusion; what the issue did not rank joins by its intents alone. Files
    keep their order.
    """
    places = _places(ranks, winner, weight)
    known = {number: ranking.chunks[rank] for number, rank in ranks.items()}
    lines: dict[str, list[str]] = {}
    chunks = []
    for number, place in places.items():
        scored = known.get(number)
        chunk = _chunk(corpus, number, snapshot, lines) if scored is None else scored.chunk
        chunks.append(ScoredChunk(chunk, place.score, place.why))
    there = frozenset(scored.chunk.id for scored in chunks)
    unknown = [scored for scored in ranking.chunks if scored.chunk.id not in there]
    chunks += [ScoredChunk(scored.chunk, 0.0) for scored in unknown]
    chunks.sort(key=lambda c: (-c.score, c.chunk.path, c.chunk.start, c.chunk.end))
    return replace(ranking, chunks=tuple(chunks))


def _places(ranks: Mapping[int, int], winner: Judged, weight: float) -> dict[int, _Place]:
    found: dict[int, list[Reason]] = {}
    for number, rank in ranks.items():
        found[number] = [Reason("issue", 1.0 / (K + rank), f"{rank + 1} of the issue's ranking")]
    for intent in winner.grounded:
        for rank, number in enumerate(intent.pieces):
            value = weight * intent.quality / (K + rank)
            reason = Reason("plan", value, f"{rank + 1} for: {intent.intent.text}")
            found.setdefault(number, []).append(reason)
    return {
        number: _Place(sum(reason.value for reason in reasons), tuple(reasons))
        for number, reasons in sorted(found.items())
    }


def _chunk(corpus: Corpus, number: int, snapshot: Snapshot, lines: dict[str, list[str]]) -> Chunk:
    source = corpus.files[int(corpus.piece_file[number])]
    if source.path not in lines:
        lines[source.path] = split_lines(snapshot.text(source.path))
    return corpus.pieces[number].chunk(source, lines[source.path])
