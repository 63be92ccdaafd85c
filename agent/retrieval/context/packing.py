"""Packs the best chunks of a ranking into a token budget, greedily by worth.

Chunks may use the tokens that support (`context.support`) does not need, and the other way round.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from agent.retrieval.context.asked import LOCATED
from agent.retrieval.context.builder import (
    ContextBuilder,
    PackingOptions,
    PartCounter,
    is_first,
)
from agent.retrieval.context.excerpt import condensed
from agent.retrieval.context.layout import (
    ELISION,
    PREAMBLE,
    Choice,
    FileShare,
    FileViews,
    chunk_lines,
    runs,
    without_blank_ends,
)
from agent.retrieval.context.support import SupportFinder
from agent.settings import AUTO_CONTEXT, CONTEXT_TOKENS
from agent.shared.secrets import is_secret_path
from agent.shared.terminal import counted, inert, markdown_table
from agent.types import (
    ChunkKind,
    ContextBundle,
    ContextPiece,
    CutBy,
    DroppedChunk,
    Problem,
    Ranking,
    ScoredChunk,
)
from agent.types.protocols import Chunker, Snapshot, TokenCounter

_TOKENS_A_WORD = 0.75  # of the original system


def pack(
    problem: Problem,
    ranking: Ranking,
    snapshot: Snapshot,
    counter: TokenCounter,
    options: PackingOptions | None = None,
    *,
    chunker: Chunker | None = None,
) -> ContextBundle:
    """Choose and render the context. The same input gives the same bytes."""
    options = options or PackingOptions()
    parts = PartCounter(counter)
    options, likely = sized(options, ranking, parts.count)
    views = FileViews(snapshot)
    if options.original:
        return _pack_in_order(ranking, views, counter, options)
    finder = SupportFinder(problem, ranking, snapshot, views, chunker)
    selection = ContextBuilder(problem, views, finder, parts, options)
    support_tokens = int(options.limit * options.support_share)

    ranked = by_worth(list(enumerate(ranking.chunks[: options.depth])), parts)
    selection.choose(ranked, options.limit - support_tokens, parts=True)
    if support_tokens:
        selection.support(min(options.limit, selection.used + support_tokens))
    selection.choose_again(ranked, options.limit)
    if support_tokens:
        selection.support_rest(options.limit)
    bundle = _bundle(selection, counter, options, len(ranking.chunks))
    return replace(bundle, likely_complete=likely)


def _pack_in_order(
    ranking: Ranking, views: FileViews, counter: TokenCounter, options: PackingOptions
) -> ContextBundle:
    """Return the chunks before the first that does not fit, as the original system chose them.

    It took three quarters of the words for tokens, so `tokens`, counted exactly, may exceed the
    budget. Chunks may overlap. Files that hold secrets are left out.
    """
    shares, dropped, used = list[FileShare](), list[DroppedChunk](), 0
    for rank, scored in enumerate(ranking.chunks):
        chunk = scored.chunk
        size = int(len(chunk.text.split()) * _TOKENS_A_WORD)
        used += size
        cut: CutBy = "secret" if is_secret_path(chunk.path) else "budget"
        if used > options.limit or len(shares) == options.slots or cut == "secret":
            place = (chunk.path, chunk.start, chunk.end, chunk.symbol)
            dropped.append(DroppedChunk(*place, size, scored.score, cut, rank + 1))
        else:
            view = views[chunk.path]
            span, lines = (chunk.start, chunk.end), chunk_lines(chunk, view)
            shares.append(FileShare(view, (Choice(rank, scored, lines, span, tokens=size),)))
    text = "\n".join(share.render() for share in shares)
    pieces = tuple(piece for share in shares for piece in _pieces(share, 0))
    reserve = options.budget - options.limit
    tokens = counter.count(text)
    return ContextBundle(pieces, text, tokens, options.limit, tuple(dropped), reserve=reserve)


def _bundle(
    selection: ContextBuilder, counter: TokenCounter, options: PackingOptions, ranked: int
) -> ContextBundle:
    while True:
        shares = selection.shares()
        text = "\n".join(share.render() for share in shares)
        if f"\n{ELISION}\n" in text:
            text = PREAMBLE + text
        tokens = counter.count(text)
        if tokens <= options.limit or not shares:
            break
        selection.shed()
    pieces = [piece for share in shares for piece in _pieces(share, selection.tokens(share))]
    return ContextBundle(
        pieces=tuple(pieces),
        text=text,
        tokens=tokens,
        budget=options.limit,
        reserve=options.budget - options.limit,
        dropped=selection.dropped,
        notes=tuple(_notes(selection, shares, options.depth, ranked)),
    )


def _pieces(share: FileShare, tokens: int) -> Sequence[ContextPiece]:
    pieces = [
        ContextPiece(
            path=choice.chunk.path,
            start=min(choice.lines),
            end=max(choice.lines),
            symbol=choice.chunk.symbol,
            form=choice.form,
            tokens=choice.tokens,
            score=choice.scored.score,
            reasons=choice.scored.reasons,
            shown=runs(choice.lines),
            rank=choice.rank + 1,
        )
        for choice in share.choices
    ]
    if rest := runs(without_blank_ends(share.shown - share.code, share.view)):
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


def _notes(
    selection: ContextBuilder, shares: Sequence[FileShare], depth: int, ranked: int
) -> Iterable[str]:
    for share in shares:
        if share.view.masked:
            yield f"{share.view.masked} secret value(s) masked in {share.view.path}"
    if ranked > depth:
        yield f"chunks after rank {depth} of {ranked} were not looked at"
    if secret := sum(dropped.cut_by == "secret" for dropped in selection.dropped):
        yield f"{secret} chunk(s) of files that hold secrets left out"


Ranked = tuple[int, ScoredChunk]
"""A chunk with its rank, from 0."""

# A chunk at rank r has to change with a probability of about 1 / (r + a few), so a long function
# must rank clearly better than a short one. Chosen by simulated packing of 239 issues of the tune
# split; recall of neighbouring values differs by at most two points.
_RANK_OFFSET = 3  # ranks this small are much alike
# 0 is rank order, 1 the full price of tokens, which fills the context with one-liners.
_SIZE_EXPONENT = 0.4
# Header and fence of a block. Without them, the shortest chunks would look too cheap.
_BLOCK_TOKENS = 18
# Imports, constants and prose share words with an issue, but patches rarely change them alone.
_OUTSIDE_OF_FUNCTIONS = 0.3
_OUTSIDE = frozenset({ChunkKind.MODULE, ChunkKind.WINDOW})


def by_worth(ranked: Sequence[Ranked], counter: PartCounter) -> list[Ranked]:
    """Sort by worth, with the best ranked chunk first for any size; ties by rank."""

    def _key(item: Ranked) -> tuple[bool, float, int]:
        rank, scored = item
        if is_first(rank, scored):
            return False, 0.0, rank
        tokens = counter.count(condensed(scored.chunk).text.strip("\n")) + _BLOCK_TOKENS
        share = _OUTSIDE_OF_FUNCTIONS if scored.chunk.kind in _OUTSIDE else 1.0
        worth = share / ((rank + _RANK_OFFSET) * math.pow(tokens, _SIZE_EXPONENT))
        return True, -worth, rank

    return sorted(ranked, key=_key)


# The probability that a context shows every line that has to change: a logistic model on signals of
# the ranking. It takes the scores of the learned ranker; for others there is no probability.
CHUNKS = 120
"""Best chunks that the signals are taken from."""

INCOMPLETE_TOKENS = 27_000
"""Tokens that an incomplete context costs later: the mean of 11 of 28 larger repairs of 2026."""

CONFIDENT = 0.85
SMALL, LARGE = AUTO_CONTEXT[0], 9000
"""An automatic budget is SMALL where that is complete with a probability of CONFIDENT, else LARGE.

On 104 repairs of the tune split, with locating calls, a run is expected to take 17,200 tokens;
17,400 with 0.8, 17,300 with 0.9, 17,700 with a LARGE of 6,000, and 17,400 with one of 12,000.
"""

# Chunks that the learned ranker scored have a reason with this feature.
_LEARNED = "ranker"

_WHOLE = 0.98  # where all code of the repository is shown
_SUPPORT_SHARE = 0.1  # of the budget


def signals(scores: Sequence[float], tokens: Sequence[int], limit: int) -> dict[str, float]:
    """Return the signals of a ranking for a context of at most `limit` tokens."""
    weights = [math.exp(score - scores[0]) for score in scores]
    room = limit * (1 - _SUPPORT_SHARE)
    covered = 0.0
    for weight, size in zip(weights, tokens, strict=True):
        if size + _BLOCK_TOKENS <= room:
            room -= size + _BLOCK_TOKENS
            covered += weight
    return {
        "size": math.log(limit / CONTEXT_TOKENS),
        "covered": covered / sum(weights),
        "gap": scores[0] - scores[min(29, len(scores) - 1)],
        "first_tokens": math.log1p(tokens[0]),
    }


BIAS = 0.0503
WEIGHTS: Mapping[str, float] = {
    "size": 0.3075,
    "covered": 2.015,
    "gap": 0.4354,
    "first_tokens": -0.399,
}
"""Fitted to 299 repairs of 16 projects. On projects that it was not fitted to, the Brier score is
0.177; that of the mean is 0.215.
"""


def sized(
    options: PackingOptions, ranking: Ranking, count: Callable[[str], int]
) -> tuple[PackingOptions, float | None]:
    """Return the options with an automatic budget decided, and the probability for the budget."""
    chunks = ranking.chunks[:CHUNKS]
    features = {reason.feature for scored in chunks for reason in scored.reasons}
    # Known are only the scores of the learned ranker alone.
    if options.original or _LEARNED not in features or LOCATED in features:
        return options, None
    tokens = [count(scored.chunk.text) for scored in chunks]
    if not options.automatic:
        return options, _likely(options, ranking, tokens)
    small = replace(options, budget=SMALL)
    likely = _likely(small, ranking, tokens)
    if likely >= CONFIDENT:
        return small, likely
    large = replace(options, budget=LARGE)
    return large, max(likely, _likely(large, ranking, tokens))


def _likely(options: PackingOptions, ranking: Ranking, tokens: Sequence[int]) -> float:
    scores = [scored.score for scored in ranking.chunks[: len(tokens)]]
    known = signals(scores, tokens, options.limit)
    total = BIAS + sum(weight * known[name] for name, weight in WEIGHTS.items())
    likely = 1.0 / (1.0 + math.exp(-total))
    whole = sum(tokens) + _BLOCK_TOKENS * len(tokens)
    if ranking.total_chunks <= len(tokens) and whole <= options.limit:
        return max(likely, _WHOLE)
    return likely


_REASONS_SHOWN = 4  # of one piece, in the table; --json has all
_DROPPED_SHOWN = 15  # rows of the table; --json has all
_NUMBERS = ("rank", "tokens", "score")


@dataclass(frozen=True, slots=True)
class Receipt:
    """The report on one context. `reserve`: tokens held back in addition to `budget`."""

    tokens: int
    budget: int
    tokens_by_form: Mapping[str, int]
    total_chunks: int
    ranked_chunks: int
    pieces: tuple[ContextPiece, ...]
    dropped: tuple[DroppedChunk, ...]
    notes: tuple[str, ...]
    reserve: int = 0
    likely_complete: float | None = None


def make_receipt(ranking: Ranking, bundle: ContextBundle) -> Receipt:
    """Make the receipt of a bundle that was packed from this ranking, in the bundle's order."""
    forms: dict[str, int] = {}
    for piece in sorted(bundle.pieces, key=lambda piece: piece.form):
        forms[piece.form] = forms.get(piece.form, 0) + piece.tokens
    return Receipt(
        tokens=bundle.tokens,
        budget=bundle.budget,
        tokens_by_form=forms,
        total_chunks=ranking.total_chunks,
        ranked_chunks=len(ranking.chunks),
        pieces=bundle.pieces,
        dropped=bundle.dropped,
        notes=(*ranking.notes, *bundle.notes),
        reserve=bundle.reserve,
        likely_complete=bundle.likely_complete,
    )


def render_receipt(receipt: Receipt) -> str:
    """Render the receipt as Markdown tables that are readable as plain text."""
    files = len({piece.path for piece in receipt.pieces})
    lines = [
        _total(receipt),
        f"{counted(len(receipt.pieces), 'piece')} in {counted(files, 'file')}, "
        f"from {receipt.ranked_chunks:,} ranked of {counted(receipt.total_chunks, 'chunk')}",
        "",
    ]
    if receipt.pieces:
        header: tuple[str, ...] = ("rank", "piece", "form", "tokens", "score", "why")
        lines += [*markdown_table(header, map(_piece_row, receipt.pieces), _NUMBERS), ""]
    if dropped := receipt.dropped:
        counts = Counter(piece.cut_by for piece in dropped)
        summary = ", ".join(f"{name} {counts[name]}" for name in sorted(counts))
        rows = (
            (str(d.rank or ""), _place(d), f"{d.tokens:,}", f"{d.score:.3f}", d.cut_by)
            for d in dropped[:_DROPPED_SHOWN]
        )
        lines += [f"Left out: {len(dropped)} ({summary})", ""]
        header = ("rank", "chunk", "tokens", "score", "cut by")
        lines += [*markdown_table(header, rows, _NUMBERS), ""]
    lines += [f"- {inert(note, ' ', kept='')}" for note in receipt.notes]
    return "\n".join(lines).rstrip("\n") + "\n"


def _total(receipt: Receipt) -> str:
    share = f"{receipt.tokens / receipt.budget if receipt.budget else 0.0:.0%}"
    whole = receipt.budget + receipt.reserve
    if receipt.reserve:
        share += f"; of {whole:,}, {receipt.reserve / whole:.0%} kept in reserve"
    line = f"{receipt.tokens:,} of {receipt.budget:,} tokens ({share})"
    if receipt.likely_complete is not None:
        line += f", likely complete: {receipt.likely_complete:.1f}"
    owners = [f"{form} {tokens:,}" for form, tokens in receipt.tokens_by_form.items()]
    # The preamble and blank lines between files belong to no piece.
    if rest := receipt.tokens - sum(receipt.tokens_by_form.values()):
        owners.append(f"preamble and blank lines {rest:,}")
    return f"{line}: {', '.join(owners)}" if owners else line


def _piece_row(piece: ContextPiece) -> tuple[str, ...]:
    place, tokens = _place(piece), f"{piece.tokens:,}"
    if piece.form == "signatures":
        why = "class headers, imports and signatures around the chosen chunks"
        return "", place, piece.form, tokens, "", why
    telling = (reason for reason in piece.reasons if reason.value)
    strongest = sorted(telling, key=lambda r: (-abs(r.value), r.feature, r.note))[:_REASONS_SHOWN]
    why = ", ".join(
        f"{reason.feature} {reason.value:.2f}" + (f" ({reason.note})" if reason.note else "")
        for reason in strongest
    )
    return str(piece.rank or ""), place, piece.form, tokens, f"{piece.score:.3f}", why


def _place(piece: ContextPiece | DroppedChunk) -> str:
    name = f" {piece.symbol}" if piece.symbol else ""
    return f"{piece.path}:L{piece.start}-{piece.end}{name}"
