"""Packs the best chunks of a ranking into a token budget.

Greedy in order of worth (see `agent.context.order`): a chunk that does not fit is passed over (or,
ranked very high, shown in part) and the next one is tried. A small share of the budget is kept for
support (see `agent.context.support`); what support does not use goes to further chunks, and what
these leave to further support. The count is exact: it is taken from the rendered text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from agent.context.counting import PartCounter
from agent.context.layout import ELISION, PREAMBLE, Choice, FileShare
from agent.context.options import PackingOptions
from agent.context.order import by_worth
from agent.context.selection import Selection
from agent.context.support import SupportFinder
from agent.context.views import FileViews, runs, without_blank_ends
from agent.protocols import Chunker, Snapshot, TokenCounter
from agent.types import ContextBundle, ContextPiece, Problem, Ranking

__all__ = ["PackingOptions", "pack"]


def pack(
    problem: Problem,
    ranking: Ranking,
    snapshot: Snapshot,
    counter: TokenCounter,
    options: PackingOptions | None = None,
    *,
    chunker: Chunker | None = None,
) -> ContextBundle:
    """Choose and render the context. Same input, same bytes.

    The ranking must be of this snapshot. With a `chunker`, signatures of definitions that the
    ranking lacks can be shown too. Raises KeyError for a chunk of a file the snapshot lacks.
    """
    options = options or PackingOptions()
    views = FileViews(snapshot)
    finder = SupportFinder(ranking, snapshot, views, chunker)
    parts = PartCounter(counter)
    selection = Selection(problem, views, finder, parts, options)
    support_tokens = int(options.limit * options.support_share)

    ranked = list(enumerate(ranking.chunks[: options.depth]))
    if not options.stop_at_oversized:
        ranked = by_worth(ranked, parts)
    selection.choose(ranked, options.limit - support_tokens, parts=True)
    if support_tokens:
        selection.support(min(options.limit, selection.used + support_tokens))
    selection.choose_again(ranked, options.limit)
    if support_tokens:
        selection.support_rest(options.limit)
    return _bundle(selection, counter, options, len(ranking.chunks))


def _bundle(
    selection: Selection, counter: TokenCounter, options: PackingOptions, ranked: int
) -> ContextBundle:
    """Render everything; drop the least important until the exact count is within the limit."""
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
    """The chosen chunks of a file and the rest of what it shows, in line order."""
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
    selection: Selection, shares: Sequence[FileShare], depth: int, ranked: int
) -> Iterable[str]:
    for share in shares:
        if share.view.masked:
            yield f"{share.view.masked} secret value(s) masked in {share.view.path}"
    if ranked > depth:
        yield f"chunks after rank {depth} of {ranked} were not looked at"
    secret = Counter(dropped.cut_by for dropped in selection.dropped)["secret"]
    if secret:
        yield f"{secret} chunk(s) of files that hold secrets left out"
