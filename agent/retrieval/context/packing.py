"""Packs the best chunks of a ranking into a token budget.

Packing is greedy. Chunks are tried in the order of their worth, which is roughly the chance that
the chunk has to change divided by its tokens (see `by_worth`). A chunk that does not fit is passed
over, or shown in part if it ranks very high. A small share of the budget is kept for support: class
headers, imports and signatures (see `agent.retrieval.context.support`). Tokens that support leaves
go to more chunks, and tokens that these leave go to more support. The final count is exact, since
it is taken from the rendered text.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from agent.retrieval.context.builder import ContextBuilder, PackingOptions, PartCounter
from agent.retrieval.context.condensing import condensed
from agent.retrieval.context.confidence import sized
from agent.retrieval.context.layout import (
    ELISION,
    PREAMBLE,
    Choice,
    FileShare,
    FileViews,
    runs,
    without_blank_ends,
)
from agent.retrieval.context.locating import LOCATED
from agent.retrieval.context.support import SupportFinder
from agent.types import ChunkKind, ContextBundle, ContextPiece, Problem, Ranking, ScoredChunk
from agent.types.protocols import Chunker, Snapshot, TokenCounter


def pack(
    problem: Problem,
    ranking: Ranking,
    snapshot: Snapshot,
    counter: TokenCounter,
    options: PackingOptions | None = None,
    *,
    chunker: Chunker | None = None,
) -> ContextBundle:
    """Choose and render the context. The same input gives the same bytes.

    The ranking must be of this snapshot. With a `chunker`, signatures of definitions that are not
    in the ranking can be shown too. Raises KeyError for a chunk of a file that the snapshot lacks.
    """
    options = options or PackingOptions()
    parts = PartCounter(counter)
    options, likely = sized(options, ranking, parts.count)
    views = FileViews(snapshot)
    finder = SupportFinder(ranking, snapshot, views, chunker)
    selection = ContextBuilder(problem, views, finder, parts, options)
    support_tokens = int(options.limit * options.support_share)

    ranked = list(enumerate(_above_floor(ranking.chunks[: options.depth], options.floor)))
    if not options.stop_at_oversized:
        ranked = by_worth(ranked, parts)
    selection.choose(ranked, options.limit - support_tokens, parts=True)
    if support_tokens:
        selection.support(min(options.limit, selection.used + support_tokens))
    selection.choose_again(ranked, options.limit)
    if support_tokens:
        selection.support_rest(options.limit)
    bundle = _bundle(selection, counter, options, len(ranking.chunks))
    return replace(bundle, likely_complete=likely)


def _above_floor(chunks: Sequence[ScoredChunk], floor: float) -> Sequence[ScoredChunk]:
    """Return the chunks, best first, that lie high enough in the range of their scores."""
    if not floor or not chunks:
        return chunks
    best, last = chunks[0].score, chunks[-1].score
    least = last + floor * (best - last)
    return [one for one in chunks if one.score >= min(least, best)]


def _bundle(
    selection: ContextBuilder, counter: TokenCounter, options: PackingOptions, ranked: int
) -> ContextBundle:
    """Render all files, and drop the least important lines until the exact count fits."""
    while True:
        shares = selection.shares()
        text = _joined(share.render() for share in shares)
        tokens = counter.count(text)
        if tokens <= options.limit or not shares:
            break
        selection.shed()
    return ContextBundle(
        pieces=tuple(
            piece for share in shares for piece in _pieces(share, selection.tokens(share))
        ),
        text=text,
        tokens=tokens,
        budget=options.limit,
        reserve=options.budget - options.limit,
        dropped=selection.dropped,
        notes=tuple(_notes(selection, shares, options.depth, ranked)),
    )


def _joined(files: Iterable[str]) -> str:
    text = "\n".join(files)
    return PREAMBLE + text if f"\n{ELISION}\n" in text else text


def _pieces(share: FileShare, tokens: int) -> Sequence[ContextPiece]:
    """Return the chosen chunks and the other shown lines of a file, in line order."""
    pieces = [_chosen(choice) for choice in share.choices]
    rest = runs(without_blank_ends(share.shown - share.code, share.view))
    if rest:
        pieces.append(
            ContextPiece(
                path=share.view.path,
                start=rest[0][0],
                end=rest[-1][1],
                symbol="",
                form="signatures",
                tokens=tokens - sum(piece.tokens for piece in pieces),
                score=max((piece.score for piece in pieces), default=0.0),
                shown=rest,
            )
        )
    return sorted(pieces, key=lambda piece: piece.shown)


def _chosen(choice: Choice) -> ContextPiece:
    chunk = choice.chunk
    return ContextPiece(
        path=chunk.path,
        start=min(choice.lines),
        end=max(choice.lines),
        symbol=chunk.symbol,
        form=choice.form,
        tokens=choice.tokens,
        score=choice.scored.score,
        reasons=choice.scored.reasons,
        shown=runs(choice.lines),
    )


def _notes(
    selection: ContextBuilder, shares: Sequence[FileShare], depth: int, ranked: int
) -> Iterable[str]:
    for share in shares:
        if share.view.masked:
            yield f"{share.view.masked} secret value(s) masked in {share.view.path}"
    if ranked > depth:
        yield f"chunks after rank {depth} of {ranked} were not looked at"
    secret = Counter(dropped.cut_by for dropped in selection.dropped)["secret"]
    if secret:
        yield f"{secret} chunk(s) of files that hold secrets left out"


# ---------------------------------------------------------------------------------- order of worth

Ranked = tuple[int, ScoredChunk]
"""A chunk with its rank, from 0."""

# A chunk at rank r has to change with a probability of about 1 / (r + a few), so a long function
# must rank clearly better than a short one. Only the order of scores is used, since rankers differ
# in scale. The constants were chosen by simulated packing of the tune split (239 issues, the
# `lexical` ranking, budgets of 3,000 to 24,000 tokens). Recall of their neighbours (1 to 6, 0.35 to
# 0.5, 0.01 to 0.1) differs by at most two points, so these are values from the middle of a noisy
# grid.
_RANK_OFFSET = 3  # ranks this small are much alike
# 0 is rank order, 1 the full price of tokens, which fills the context with one-liners. At the same
# rank, functions that have to change are longer than others, so the price is discounted.
_SIZE_EXPONENT = 0.4
# Header and fence of a block. Without them, the shortest chunks would look too cheap.
_BLOCK_TOKENS = 18
# Imports, constants and prose share words with an issue but are never the function to change. They
# come after the functions of similar rank. Patches do touch them: 0.1 left out more of the lines
# that the fixes of 14 projects change.
_OUTSIDE_OF_FUNCTIONS = 0.3
_OUTSIDE = frozenset({ChunkKind.MODULE, ChunkKind.WINDOW})


def by_worth(ranked: Sequence[Ranked], counter: PartCounter) -> list[Ranked]:
    """Sort by worth, with the best ranked chunk first for any size; ties by rank.

    Chunks that a model has named come before all others, in its order.
    """
    keyed = [(_key(rank, scored, counter), (rank, scored)) for rank, scored in ranked]
    return [item for _, item in sorted(keyed, key=lambda pair: pair[0])]


def _key(rank: int, scored: ScoredChunk, counter: PartCounter) -> tuple[bool, float, int]:
    if rank == 0 or any(reason.feature == LOCATED for reason in scored.reasons[:1]):
        return False, 0.0, rank
    return True, -_worth(rank, scored, counter), rank


def _worth(rank: int, scored: ScoredChunk, counter: PartCounter) -> float:
    chunk = condensed(scored.chunk)
    tokens = counter.count(chunk.text.strip("\n")) + _BLOCK_TOKENS
    share = _OUTSIDE_OF_FUNCTIONS if scored.chunk.kind in _OUTSIDE else 1.0
    return share / ((rank + _RANK_OFFSET) * math.pow(tokens, _SIZE_EXPONENT))
