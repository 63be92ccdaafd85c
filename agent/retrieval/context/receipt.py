"""Reports why each chunk is in the context and what was cut, for people and for `--json`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from agent.types import Chunk, ContextBundle, ContextPiece, DroppedChunk, Ranking, Reason

_REASONS_SHOWN = 4  # of one piece, in the table; --json has all
_DROPPED_SHOWN = 15  # rows of the table; --json has all


@dataclass(frozen=True, slots=True)
class ReceiptPiece:
    """One piece of the context. `rank` counts from 1 and is None for signatures."""

    path: str
    start: int
    end: int
    symbol: str
    form: str
    tokens: int
    rank: int | None
    score: float
    reasons: tuple[Reason, ...]
    shown: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class ReceiptDropped:
    """One ranked chunk that is not in the context. `rank` counts from 1."""

    path: str
    start: int
    end: int
    symbol: str
    tokens: int
    rank: int | None
    score: float
    cut_by: str


@dataclass(frozen=True, slots=True)
class Receipt:
    """The report on one context: token totals, the pieces in it, and the chunks left out.

    `reserve`: tokens that were held back in addition to `budget`. `likely_complete`: the
    probability that all code to change is shown, None where it is not known.
    """

    tokens: int
    budget: int
    tokens_by_form: Mapping[str, int]
    total_chunks: int
    ranked_chunks: int
    pieces: tuple[ReceiptPiece, ...]
    dropped: tuple[ReceiptDropped, ...]
    notes: tuple[str, ...]
    reserve: int = 0
    likely_complete: float | None = None


def make_receipt(ranking: Ranking, bundle: ContextBundle) -> Receipt:
    """Make the receipt of a bundle that was packed from this ranking, in the bundle's order."""
    forms = Counter[str]()
    for piece in bundle.pieces:
        forms[piece.form] += piece.tokens
    ranks = _Ranks(ranking)
    return Receipt(
        tokens=bundle.tokens,
        budget=bundle.budget,
        tokens_by_form=dict(sorted(forms.items())),
        total_chunks=ranking.total_chunks,
        ranked_chunks=len(ranking.chunks),
        pieces=tuple(_piece(piece, ranks.of(piece)) for piece in bundle.pieces),
        dropped=tuple(
            ReceiptDropped(
                d.path,
                d.start,
                d.end,
                d.symbol,
                d.tokens,
                ranks.of(d),
                d.score,
                d.cut_by,
            )
            for d in bundle.dropped
        ),
        notes=(*ranking.notes, *bundle.notes),
        reserve=bundle.reserve,
        likely_complete=bundle.likely_complete,
    )


def render_receipt(receipt: Receipt) -> str:
    """Render the receipt as Markdown tables that are readable as plain text."""
    lines = [
        _total(receipt),
        f"{len(receipt.pieces)} pieces in {_files(receipt.pieces)} files, from "
        f"{receipt.ranked_chunks:,} ranked of {receipt.total_chunks:,} chunks",
        "",
    ]
    if receipt.pieces:
        header = ("rank", "piece", "form", "tokens", "score", "why")
        lines += [*_table(header, map(_piece_row, receipt.pieces)), ""]
    if receipt.dropped:
        lines += _dropped_section(receipt.dropped)
    lines += [f"- {_cell(note)}" for note in receipt.notes]
    return "\n".join(lines).rstrip("\n") + "\n"


def _total(receipt: Receipt) -> str:
    """Return a line with the tokens used, held back, and used by each form."""
    share = receipt.tokens / receipt.budget if receipt.budget else 0.0
    whole = receipt.budget + receipt.reserve
    kept = f"; of {whole:,}, {receipt.reserve / whole:.0%} kept in reserve" if whole else ""
    # The preamble and blank lines between files belong to no piece.
    rest = receipt.tokens - sum(receipt.tokens_by_form.values())
    owners = {**receipt.tokens_by_form, **({"preamble and blank lines": rest} if rest else {})}
    forms = ", ".join(f"{owner} {tokens:,}" for owner, tokens in owners.items())
    said = kept if receipt.reserve else ""
    likely = receipt.likely_complete
    return (
        f"{receipt.tokens:,} of {receipt.budget:,} tokens ({share:.0%}{said})"
        + (f", likely complete: {likely:.1f}" if likely is not None else "")
        + (f": {forms}" if forms else "")
    )


class _Ranks:
    """Finds the rank of the chunk that a piece shows: same name, around its lines."""

    def __init__(self, ranking: Ranking) -> None:
        self._ranked = defaultdict[tuple[str, str, float], list[tuple[int, Chunk]]](list)
        for rank, scored in enumerate(ranking.chunks, start=1):
            chunk = scored.chunk
            self._ranked[chunk.path, chunk.symbol, scored.score].append((rank, chunk))

    def of(self, piece: ContextPiece | DroppedChunk) -> int | None:
        """Return the rank, from 1; None if unknown."""
        for rank, chunk in self._ranked.get((piece.path, piece.symbol, piece.score), ()):
            if chunk.start <= piece.start and piece.end <= chunk.end:
                return rank
        return None


def _piece(piece: ContextPiece, rank: int | None) -> ReceiptPiece:
    return ReceiptPiece(
        piece.path,
        piece.start,
        piece.end,
        piece.symbol,
        piece.form,
        piece.tokens,
        rank if piece.form != "signatures" else None,
        piece.score,
        piece.reasons,
        piece.shown,
    )


def _files(pieces: Iterable[ReceiptPiece]) -> int:
    return len({piece.path for piece in pieces})


def _piece_row(piece: ReceiptPiece) -> tuple[str, ...]:
    if piece.form == "signatures":
        why = "class headers, imports and signatures around the chosen chunks"
        return "", _place(piece), piece.form, f"{piece.tokens:,}", "", why
    rank = str(piece.rank) if piece.rank else ""
    why = _why(piece.reasons)
    return rank, _place(piece), piece.form, f"{piece.tokens:,}", f"{piece.score:.3f}", why


def _why(reasons: Sequence[Reason]) -> str:
    telling = (reason for reason in reasons if reason.value)
    strongest = sorted(telling, key=lambda r: (-abs(r.value), r.feature, r.note))[:_REASONS_SHOWN]
    return ", ".join(
        f"{reason.feature} {reason.value:.2f}" + (f" ({reason.note})" if reason.note else "")
        for reason in strongest
    )


def _dropped_section(dropped: Sequence[ReceiptDropped]) -> list[str]:
    counts = Counter(piece.cut_by for piece in dropped)
    summary = ", ".join(f"{name} {counts[name]}" for name in sorted(counts))
    rows = (
        (str(d.rank or ""), _place(d), f"{d.tokens:,}", f"{d.score:.3f}", d.cut_by)
        for d in dropped[:_DROPPED_SHOWN]
    )
    lines = [f"Left out: {len(dropped)} ({summary})", ""]
    lines += _table(("rank", "chunk", "tokens", "score", "cut by"), rows)
    if len(dropped) > _DROPPED_SHOWN:
        lines.append(f"and {len(dropped) - _DROPPED_SHOWN} more")
    return [*lines, ""]


def _place(piece: ReceiptPiece | ReceiptDropped) -> str:
    name = f" {piece.symbol}" if piece.symbol else ""
    return f"{piece.path}:L{piece.start}-{piece.end}{name}"


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Return a Markdown table with padded columns; numbers are aligned to the right."""
    cells = [header, *(tuple(_cell(value) for value in row) for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    right = [name in ("rank", "tokens", "score") for name in header]
    lines = [
        "| "
        + " | ".join(
            value.rjust(width) if to_right else value.ljust(width)
            for value, width, to_right in zip(row, widths, right, strict=True)
        )
        + " |"
        for row in cells
    ]
    rule = [
        "-" * (width + 1) + ":" if to_right else "-" * (width + 2)
        for width, to_right in zip(widths, right, strict=True)
    ]
    return [lines[0], "|" + "|".join(rule) + "|", *lines[1:]]


def _cell(text: str) -> str:
    """Return a text that cannot break a table: one line, bars escaped, printable."""
    flat = "".join(c if c.isprintable() else " " for c in text)
    return flat.replace("|", "\\|")
