"""Reports why each chunk is in the context and what was cut, for people and for `--json`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from agent.types import ContextBundle, ContextPiece, DroppedChunk, Ranking

_REASONS_SHOWN = 4  # of one piece, in the table; --json has all
_DROPPED_SHOWN = 15  # rows of the table; --json has all


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
        f"{len(receipt.pieces)} pieces in {files} files, from {receipt.ranked_chunks:,} ranked "
        f"of {receipt.total_chunks:,} chunks",
        "",
    ]
    if receipt.pieces:
        header = ("rank", "piece", "form", "tokens", "score", "why")
        lines += [*_table(header, map(_piece_row, receipt.pieces)), ""]
    if dropped := receipt.dropped:
        counts = Counter(piece.cut_by for piece in dropped)
        summary = ", ".join(f"{name} {counts[name]}" for name in sorted(counts))
        rows = (
            (str(d.rank or ""), _place(d), f"{d.tokens:,}", f"{d.score:.3f}", d.cut_by)
            for d in dropped[:_DROPPED_SHOWN]
        )
        lines += [f"Left out: {len(dropped)} ({summary})", ""]
        lines += [*_table(("rank", "chunk", "tokens", "score", "cut by"), rows), ""]
    lines += [f"- {_cell(note)}" for note in receipt.notes]
    return "\n".join(lines).rstrip("\n") + "\n"


def _total(receipt: Receipt) -> str:
    """Return a line with the tokens used, held back, and used by each form."""
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


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a Markdown table with padded columns; numbers are aligned to the right."""
    cells = [header, *([_cell(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    signs = [">" if name in ("rank", "tokens", "score") else "<" for name in header]
    columns = list(zip(signs, widths, strict=True))
    lines = [
        f"| {' | '.join(f'{v:{s}{w}}' for v, (s, w) in zip(row, columns, strict=True))} |"
        for row in cells
    ]
    rule = ("-" * (width + 1) + (":" if sign == ">" else "-") for sign, width in columns)
    return [lines[0], f"|{'|'.join(rule)}|", *lines[1:]]


def _cell(text: str) -> str:
    """Return a text that cannot break a table: one line, bars escaped, printable."""
    flat = "".join(c if c.isprintable() else " " for c in text)
    return flat.replace("|", "\\|")
