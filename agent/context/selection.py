"""The context while it is being filled: chosen chunks, outlines of support, and what was cut."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agent.context.excerpt import best_lines
from agent.context.options import PackingOptions
from agent.context.pieces import (
    ELISION,
    PREAMBLE,
    Block,
    FileViews,
    chunk_lines,
    render,
    with_blank_gaps,
)
from agent.context.secrets import is_secret_path
from agent.context.support import SupportFinder, SupportItem
from agent.protocols import TokenCounter
from agent.types import (
    Chunk,
    ContextBundle,
    ContextPiece,
    CutBy,
    DroppedChunk,
    Problem,
    ScoredChunk,
)


@dataclass(frozen=True, slots=True)
class _Chosen:
    rank: int
    scored: ScoredChunk
    lines: frozenset[int]
    header: frozenset[int]  # of its class, shown in the outline of the file
    block: Block
    tokens: int


@dataclass(frozen=True, slots=True)
class _Outline:
    lines: frozenset[int]
    block: Block
    tokens: int


class Selection:
    """What is in the context so far. No line of a file is in it twice."""

    def __init__(
        self,
        problem: Problem,
        views: FileViews,
        finder: SupportFinder,
        counter: TokenCounter,
        options: PackingOptions,
    ) -> None:
        self._views = views
        self._finder = finder
        self._problem = problem
        self._counter = counter
        self._options = options
        self._chosen: list[_Chosen] = []
        self._outlines: dict[str, _Outline] = {}
        self._shown: dict[str, set[int]] = {}  # lines of chosen chunks only
        self._texts: set[str] = set()
        self._cut: dict[int, tuple[ScoredChunk, CutBy, int]] = {}  # by rank
        self._stopped = False
        self._preamble = counter.count(PREAMBLE)

    @property
    def used(self) -> int:
        """Tokens of all blocks and the preamble; the rendered whole is checked at the end."""
        pieces: Iterable[_Chosen | _Outline] = itertools.chain(
            self._chosen, self._outlines.values()
        )
        return self._preamble + sum(piece.tokens for piece in pieces)

    def over_budget(self) -> list[tuple[int, ScoredChunk]]:
        """The chunks that the budget has cut so far, in rank order."""
        if self._stopped:
            return []
        return [(rank, cut[0]) for rank, cut in sorted(self._cut.items()) if cut[1] == "budget"]

    # ---------------------------------------------------------------------------------- choosing

    def choose(self, ranked: Sequence[tuple[int, ScoredChunk]], limit: int, *, parts: bool) -> None:
        """Take what fits into `limit`, in rank order; `parts` also caps a single chunk's share."""
        for rank, scored in ranked:
            self._cut.pop(rank, None)
            self._consider(rank, scored, limit, parts=parts)

    def _consider(self, rank: int, scored: ScoredChunk, limit: int, *, parts: bool) -> None:
        chunk = scored.chunk
        if is_secret_path(chunk.path):
            self._drop(rank, scored, "secret", self._counter.count(chunk.text))
            return
        view = self._views[chunk.path]
        lines = chunk_lines(chunk, view)
        if not lines or not view.has_text(lines) or lines & self._shown.get(chunk.path, set()):
            self._drop(rank, scored, "overlap", self._counter.count(chunk.text))
            return
        block = render(view, lines, symbol=chunk.symbol)
        tokens = self._tokens(block)
        # Most chunks after the first dozens are too large for what is left: spare their headers.
        may_fit = tokens <= self._room(chunk.path, limit) or rank < self._options.part_ranks
        header = self._header(chunk) if may_fit else frozenset()
        candidate = _Chosen(rank, scored, lines, header, block, tokens)
        cut_by = self._refusal(candidate, limit, parts=parts)
        if cut_by == "budget" and parts and rank < self._options.part_ranks:
            cut_by = None if self._take_part(candidate, limit) else cut_by
        elif cut_by is None:
            self._take(candidate)
        if cut_by:
            self._drop(rank, scored, cut_by, candidate.tokens)

    def _refusal(self, candidate: _Chosen, limit: int, *, parts: bool) -> CutBy | None:
        if _normal(candidate.block.body) in self._texts:
            return "duplicate"
        if len(self._chosen) >= self._options.max_chunks:
            return "max-chunks"
        cap = int(self._options.chunk_share * self._options.limit) if parts else limit
        cap = min(cap, self._room(candidate.block.path, limit))
        if (
            self._stopped
            or candidate.tokens > cap
            or candidate.tokens > limit - self._used_with(candidate)
        ):
            self._stopped = self._options.stop_at_oversized
            return "budget"
        return None

    def _take_part(self, whole: _Chosen, limit: int) -> bool:
        """Show the signature and the best matching lines of an oversized chunk, if they fit."""
        chunk = whole.scored.chunk
        if self._options.stop_at_oversized or self._options.part_share == 0:
            return False
        room = int(self._options.part_share * self._options.limit)
        room = min(room, limit - self._used_with(whole))
        view = self._views[chunk.path]

        def _block(lines: frozenset[int]) -> Block:
            span = (min(whole.lines), max(whole.lines))
            return render(view, lines, symbol=chunk.symbol, form="part", span=span)

        lines = best_lines(
            chunk, whole.lines, view, self._problem, lambda n: self._tokens(_block(n)) <= room
        )
        if not lines:
            return False
        block = _block(lines)
        tokens = self._tokens(block)
        self._take(dataclasses.replace(whole, lines=lines, block=block, tokens=tokens))
        return True

    def _take(self, chosen: _Chosen) -> None:
        path = chosen.scored.chunk.path
        self._chosen.append(chosen)
        self._texts.add(_normal(chosen.block.body))
        self._shown.setdefault(path, set()).update(chosen.lines)
        self._set_outline(path, self._outline_lines(path) | chosen.header)

    def _room(self, path: str, limit: int) -> int:
        """Tokens left at most for a chunk of this file: its lines may leave the file's outline."""
        outline = self._outlines.get(path)
        return limit - self.used + (outline.tokens if outline else 0)

    def _used_with(self, candidate: _Chosen) -> int:
        """Tokens of all else once the candidate is in.

        Its class header has then joined the outline of its file, its own lines have left it.
        """
        path = candidate.scored.chunk.path
        present = self._outlines.get(path)
        lines = (self._outline_lines(path) | candidate.header) - candidate.lines
        changed = self._outline(path, lines)
        return self.used - (present.tokens if present else 0) + (changed.tokens if changed else 0)

    def _header(self, chunk: Chunk) -> frozenset[int]:
        return self._finder.class_header(chunk) if self._options.support_share else frozenset()

    def _outline_lines(self, path: str) -> frozenset[int]:
        return self._outlines[path].lines if path in self._outlines else frozenset()

    def _drop(self, rank: int, scored: ScoredChunk, cut_by: CutBy, tokens: int) -> None:
        self._cut[rank] = (scored, cut_by, tokens)

    # ----------------------------------------------------------------------------------- support

    def support(self, limit: int) -> None:
        """Add what the chosen chunks need, the best ranked chunk's needs first."""
        for chosen in self._by_rank():
            for item in self._finder.around(chosen.scored.chunk, chosen.lines):
                self._add_support(item, limit)

    def support_rest(self, limit: int) -> None:
        """Add the remaining imports and signatures of the chosen files, best file first."""
        for path in dict.fromkeys(chosen.scored.chunk.path for chosen in self._by_rank()):
            for item in self._finder.rest_of_file(path):
                self._add_support(item, limit)

    def _add_support(self, item: SupportItem, limit: int) -> None:
        if is_secret_path(item.path):
            return
        before = self._outlines.get(item.path)
        after = self._outline(item.path, self._outline_lines(item.path) | item.lines)
        added = (after.tokens if after else 0) - (before.tokens if before else 0)
        if self.used + added <= limit:
            self._set_outline(item.path, after.lines if after else frozenset())

    def _outline(self, path: str, lines: frozenset[int]) -> _Outline | None:
        """Of these lines, those that no chosen chunk shows; None when nothing is left."""
        view = self._views[path]
        shown = self._shown.get(path, set())
        lines = with_blank_gaps(lines - shown, view) - shown
        if not lines or not view.has_text(lines):
            return None
        block = render(view, lines, form="signatures")
        return _Outline(lines, block, self._tokens(block))

    def _set_outline(self, path: str, lines: frozenset[int]) -> None:
        outline = self._outline(path, lines)
        if outline is None:
            self._outlines.pop(path, None)
        else:
            self._outlines[path] = outline

    # --------------------------------------------------------------------------------- rendering

    def bundle(self, ranked: int) -> ContextBundle:
        """Render everything; drop the least important until the exact count is within the limit."""
        while True:
            pieces = self._pieces()
            text = _joined(piece.block for piece in pieces)
            tokens = self._counter.count(text)
            if tokens <= self._options.limit or not pieces:
                break
            self._shed()
        return ContextBundle(
            pieces=tuple(_piece(piece, self._best(piece.block.path)) for piece in pieces),
            text=text,
            tokens=tokens,
            budget=self._options.limit,
            dropped=tuple(_dropped(*self._cut[rank]) for rank in sorted(self._cut)),
            notes=tuple(self._notes(pieces, ranked)),
        )

    def _pieces(self) -> list[_Chosen | _Outline]:
        """Files by their best rank, files of callees last; inside a file by line."""
        best = {path: chosen.rank for path in self._shown if (chosen := self._best(path))}
        pieces: list[_Chosen | _Outline] = [*self._chosen, *self._outlines.values()]
        return sorted(
            pieces,
            key=lambda piece: (
                best.get(piece.block.path, self._options.depth),
                piece.block.path,
                piece.block.start,
                piece.block.form,
            ),
        )

    def _best(self, path: str) -> _Chosen | None:
        ranked = (chosen for chosen in self._by_rank() if chosen.block.path == path)
        return next(ranked, None)

    def _by_rank(self) -> list[_Chosen]:
        return sorted(self._chosen, key=lambda chosen: chosen.rank)

    def _shed(self) -> None:
        if self._outlines:
            self._outlines.popitem()
            return
        last = self._by_rank()[-1]
        self._chosen.remove(last)
        self._drop(last.rank, last.scored, "budget", last.tokens)

    def _notes(self, pieces: Sequence[_Chosen | _Outline], ranked: int) -> Iterable[str]:
        for path in dict.fromkeys(piece.block.path for piece in pieces):
            if masked := self._views[path].masked:
                yield f"{masked} secret value(s) masked in {path}"
        if ranked > self._options.depth:
            yield f"chunks after rank {self._options.depth} of {ranked} were not looked at"
        counts = Counter(cut[1] for cut in self._cut.values())
        if counts["secret"]:
            yield f"{counts['secret']} chunk(s) of files that hold secrets left out"

    def _tokens(self, block: Block) -> int:
        return self._counter.count(block.text + "\n")


def _joined(blocks: Iterable[Block]) -> str:
    text = "\n".join(block.text for block in blocks)
    return PREAMBLE + text if f"\n{ELISION}\n" in text else text


def _normal(body: str) -> str:
    return "\n".join(line.rstrip() for line in body.split("\n")).strip("\n")


def _piece(piece: _Chosen | _Outline, best: _Chosen | None) -> ContextPiece:
    scored = piece.scored if isinstance(piece, _Chosen) else None
    score = scored.score if scored else (best.scored.score if best else 0.0)
    return ContextPiece(
        path=piece.block.path,
        start=piece.block.start,
        end=piece.block.end,
        symbol=piece.block.symbol,
        form=piece.block.form,
        text=piece.block.body,
        tokens=piece.tokens,
        score=score,
        reasons=scored.reasons if scored else (),
        shown=piece.block.shown,
    )


def _dropped(scored: ScoredChunk, cut_by: CutBy, tokens: int) -> DroppedChunk:
    chunk = scored.chunk
    return DroppedChunk(
        chunk.path, chunk.start, chunk.end, chunk.symbol, tokens, scored.score, cut_by
    )
