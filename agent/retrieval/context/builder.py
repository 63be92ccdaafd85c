"""Fills the context chunk by chunk, within a token limit. The cost of a chunk is the rendered size
of its file with it, less the size without it.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from agent.retrieval.context.asked import LOCATED
from agent.retrieval.context.excerpt import best_lines, condensed, little_told
from agent.retrieval.context.layout import (
    PREAMBLE,
    Choice,
    FileShare,
    FileView,
    FileViews,
    chunk_lines,
    without_blank_ends,
)
from agent.retrieval.context.support import SupportFinder, SupportItem
from agent.settings import CONTEXT_TOKENS
from agent.shared.secrets import is_secret_path
from agent.types import Chunk, ChunkKind, CutBy, DroppedChunk, Problem, ScoredChunk
from agent.types.protocols import TokenCounter

# A line with the blank lines after it. Tokenizers cut where a line that is not blank begins, so the
# counts of such parts add up, except for rare joins (`)` with `//` on the next line).
_PART = re.compile(r"[^\n]*+\n(?>(?:[^\S\n]*+\n)*)|[^\n]++")


class PartCounter:
    """Counts tokens line by line and remembers the count of each line."""

    def __init__(self, counter: TokenCounter) -> None:
        part = functools.cache(counter.count)
        self.count = functools.cache(lambda text: sum(map(part, _PART.findall(text))))


# The original system's limit, and the budget it was made for.
_CHUNKS, _CHUNKS_BUDGET = 30, CONTEXT_TOKENS


@dataclass(frozen=True, slots=True)
class PackingOptions:
    """Settings of packing. Shares lie in 0..1."""

    budget: int = CONTEXT_TOKENS
    automatic: bool = False  # `budget` is chosen by how likely the context is complete
    reserve: float = 0.15  # of the budget, left for differences between tokenizers
    # Most functions, methods and windows. None: 30, as in the original, by 6,000 tokens of budget.
    max_chunks: int | None = None
    # Without support, 10 more of 130 contexts of 6,000 tokens lack a line to change.
    support_share: float = 0.1
    part_ranks: int = 5  # an oversized chunk among the first this many is shown in part
    depth: int = 400  # chunks that are tried; past this rank one in a thousand has to change
    original: bool = False  # packs as the system before this one did
    allow_empty: bool = False  # a prompt may be sent although no code fits into it

    @property
    def limit(self) -> int:
        """Usable tokens: the budget without its reserve."""
        return int(self.budget * (1 - self.reserve))

    @property
    def slots(self) -> int:
        """The greatest number of chunks."""
        if self.max_chunks is not None:
            return self.max_chunks
        return max(_CHUNKS, _CHUNKS * self.budget // _CHUNKS_BUDGET)


# Chunks among the first this many are the likely place and are shown with long docstrings.
_WHOLE_RANKS = 5

# A function beyond this share of the limit counts as oversized, so that it cannot crowd out others.
_CHUNK_SHARE = 0.5
_PART_SHARE = 0.25  # that a part of such a function may take

# Items of support in a row that may not fit before the others of a file are given up.
_MISSES = 20

# Chunks whose file is shown with its list of exports.
_FIRST_EXPORTS = 3

_AROUND = frozenset({ChunkKind.CLASS, ChunkKind.MODULE})

# Tokens, beside the path, that are saved when a chunk joins two blocks: a header and fences.
_JOIN_SAVES = 40


def is_first(rank: int, scored: ScoredChunk) -> bool:
    """Whether the chunk is shown before all others: the best one, or one that a model has named."""
    return rank == 0 or any(reason.feature == LOCATED for reason in scored.reasons[:1])


class ContextBuilder:
    """The context so far, and the chunks that were cut. No line of a file is in it twice."""

    def __init__(
        self,
        problem: Problem,
        views: FileViews,
        finder: SupportFinder,
        counter: PartCounter,
        options: PackingOptions,
    ) -> None:
        self._problem = problem
        self._views = views
        self._finder = finder
        self._counter = counter
        self._options = options
        self._shares: dict[str, FileShare] = {}
        self._tokens: dict[str, int] = {}  # of each share, rendered
        self._shown: dict[str, frozenset[int]] = {}  # of each share
        self._bodies: set[str] = set()
        self._cut: dict[int, tuple[ScoredChunk, CutBy]] = {}  # by rank
        self._preamble = counter.count(PREAMBLE)

    @property
    def used(self) -> int:
        """Tokens of the preamble and all files as rendered."""
        return self._preamble + sum(self._tokens.values())

    @property
    def dropped(self) -> tuple[DroppedChunk, ...]:
        """The cut chunks in rank order. A chunk that others brought in counts as an overlap."""
        return tuple(
            DroppedChunk(
                scored.chunk.path,
                scored.chunk.start,
                scored.chunk.end,
                scored.chunk.symbol,
                self._counter.count(scored.chunk.text),
                scored.score,
                "overlap" if cut_by == "budget" and self._is_shown(scored.chunk) else cut_by,
                rank + 1,
            )
            for rank, (scored, cut_by) in sorted(self._cut.items(), key=lambda item: item[0])
        )

    def choices(self) -> list[Choice]:
        """Return the chosen chunks, best rank first."""
        found = (choice for share in self._shares.values() for choice in share.choices)
        return sorted(found, key=lambda choice: choice.rank)

    def shares(self) -> list[FileShare]:
        """Return the files by the best rank of their chunks; files with only support come last."""
        ranks = {choice.chunk.path: choice.rank for choice in reversed(self.choices())}
        last = self._options.depth
        return sorted(
            self._shares.values(), key=lambda s: (ranks.get(s.view.path, last), s.view.path)
        )

    def tokens(self, share: FileShare) -> int:
        """Return the tokens of a file of the context, as rendered."""
        return self._tokens[share.view.path]

    def choose(self, ranked: Sequence[tuple[int, ScoredChunk]], limit: int, *, parts: bool) -> None:
        """Add the chunks that fit into `limit`, in this order; with `parts`, also shares of large
        ones.
        """
        for rank, scored in ranked:
            if cut_by := self._consider(rank, scored, limit, parts=parts):
                self._cut[rank] = (scored, cut_by)
            else:
                self._cut.pop(rank, None)

    def choose_again(self, ranked: Sequence[tuple[int, ScoredChunk]], limit: int) -> None:
        """Add chunks that the budget has cut so far and that fit into `limit` now."""
        cut = {rank for rank, (_, cut_by) in self._cut.items() if cut_by == "budget"}
        self.choose([item for item in ranked if item[0] in cut], limit, parts=False)

    def _consider(self, rank: int, scored: ScoredChunk, limit: int, *, parts: bool) -> CutBy | None:
        chunk = scored.chunk
        if is_secret_path(chunk.path):
            return "secret"
        in_part = parts and rank < self._options.part_ranks
        if not in_part and self._is_hopeless(
            chunk if rank < _WHOLE_RANKS else condensed(chunk), limit - self.used
        ):
            return "budget"
        share = self._share(chunk.path)
        lines = chunk_lines(chunk, share.view)
        if not lines or lines & share.code:
            return "overlap"
        body = _body(share.view, lines)
        if body in self._bodies:
            return "duplicate"
        if self._lacks_slot(chunk):
            return "max-chunks"
        choice = Choice(rank, scored, lines, (min(lines), max(lines)))
        if shorter := self._condensed(choice, share.view):
            choice = replace(choice, lines=shorter, form="part")
        shown = _body(share.view, choice.lines)
        if not self._fit(choice, shown, limit, parts=parts):
            return "budget"
        self._bodies.add(body)
        return None

    def _condensed(self, choice: Choice, view: FileView) -> frozenset[int]:
        """Return the lines without what tells little; empty if nothing is to be left out."""
        if choice.rank < _WHOLE_RANKS:
            return frozenset()
        left_out = little_told(choice.chunk)
        return without_blank_ends(choice.lines - left_out, view) if left_out else frozenset()

    def _is_hopeless(self, chunk: Chunk, room: int) -> bool:
        """Whether the chunk is too large in any form, judged without reading its file."""
        tokens = self._counter.count(chunk.text.strip("\n"))
        shown = self._shown.get(chunk.path)
        if shown is None:
            return tokens > room
        if not shown.isdisjoint(range(chunk.start, chunk.end + 1)):
            return False
        return tokens > room + self._saved_by_joining(chunk.path)

    def _saved_by_joining(self, path: str) -> int:
        return self._counter.count(path) + _JOIN_SAVES

    def _fit(self, choice: Choice, body: str, limit: int, *, parts: bool) -> bool:
        room = limit - self.used
        # The rendered file has at least these lines.
        most = room + self._tokens.get(choice.chunk.path, 0)
        if parts and not (is_first(choice.rank, choice.scored) and choice.chunk.symbol):
            most = min(most, int(_CHUNK_SHARE * self._options.limit))
        if self._counter.count(body) <= most and self._take_whole(choice, room):
            return True
        if parts and self._take_part(choice, room):
            return True
        # The best chunk is shown even at the cost of all others.
        return parts and choice.rank == 0 and self._take_whole(choice, room)

    def _take_whole(self, choice: Choice, room: int) -> bool:
        if choice.chunk.kind is ChunkKind.METHOD:
            # Finding the class header may parse the file, which is wasted on a chunk that is too
            # large.
            if self._added(self._share(choice.chunk.path).with_choice(choice)) > room:
                return False
            choice = replace(choice, header=self._header(choice.chunk))
        return self._take(choice, room)

    def _take_part(self, choice: Choice, room: int) -> bool:
        if choice.rank >= self._options.part_ranks:
            return False
        chunk, share = choice.chunk, self._share(choice.chunk.path)
        room = min(room, int(_PART_SHARE * self._options.limit))
        header = self._header(chunk)

        def _part(lines: frozenset[int]) -> Choice:
            lines = without_blank_ends(lines, share.view)
            return replace(choice, lines=lines, form="part", header=header)

        lines = best_lines(
            chunk,
            choice.lines - little_told(chunk),
            share.view,
            self._problem,
            lambda lines: self._added(share.with_choice(_part(lines))) <= room,
        )
        return bool(lines) and self._take(_part(lines), room)

    def _take(self, choice: Choice, room: int) -> bool:
        share = self._share(choice.chunk.path)
        added = self._added(share.with_choice(choice))
        if added <= room:
            self._put(share.with_choice(replace(choice, tokens=added)), added)
        return added <= room

    def _lacks_slot(self, chunk: Chunk) -> bool:
        """Whether all slots are taken. Class headers and module code of shown files need none."""
        if chunk.kind in _AROUND and self._share(chunk.path).choices:
            return False
        kinds = ([choice.chunk.kind for choice in s.choices] for s in self._shares.values())
        taken = sum(max(1, sum(kind not in _AROUND for kind in k)) for k in kinds if k)
        return taken >= self._options.slots

    def _header(self, chunk: Chunk) -> frozenset[int]:
        return self._finder.class_header(chunk) if self._options.support_share else frozenset()

    def _is_shown(self, chunk: Chunk) -> bool:
        shown = self._shown.get(chunk.path)
        if shown is None:
            return False
        view = self._views[chunk.path]
        return all(n in shown or not view.lines[n - 1].strip() for n in chunk_lines(chunk, view))

    def support(self, limit: int) -> None:
        """Add the support of the chosen chunks, best rank first."""
        choices = self.choices()
        names = Counter(c.chunk.name for c in choices if c.chunk.kind is ChunkKind.METHOD)
        for choice in choices[:_FIRST_EXPORTS]:
            self._add_support(self._finder.exports(choice.chunk.path), limit)
        for choice in [c for c in choices if c.chunk.symbol][:1]:
            self._add_support(self._finder.callers(choice.chunk), limit)
        for choice in choices:
            if names[choice.chunk.name] > 1 and choice.chunk.kind is ChunkKind.METHOD:
                self._add_support(self._finder.base_method(choice.chunk), limit)
            self._add_support(self._finder.around(choice.chunk, choice.lines), limit)

    def support_rest(self, limit: int) -> None:
        """Add the remaining imports and signatures of the chosen files, best file first."""
        for path in dict.fromkeys(choice.chunk.path for choice in self.choices()):
            self._add_support(self._finder.rest_of_file(path), limit)

    def _add_support(self, items: Iterable[SupportItem], limit: int) -> None:
        misses = 0
        for item in items:
            if misses == _MISSES:
                return
            share = self._share(item.path)
            new = item.lines - self._shown.get(item.path, frozenset())
            if not new or is_secret_path(item.path):
                continue
            room = limit - self.used
            least = self._counter.count(_body(share.view, new)) - self._saved_by_joining(item.path)
            share = share.with_support(item.lines)
            if least <= room and (added := self._added(share)) <= room:
                self._put(share, added)
            else:
                misses += 1

    def shed(self) -> None:
        """Remove what matters least: the support of the last file with any, or the last chunk."""
        shares = self.shares()
        supported = next((share for share in reversed(shares) if share.support), None)
        if supported:
            left = replace(supported, support=frozenset())
        else:
            last = self.choices()[-1]
            share = self._share(last.chunk.path)
            left = replace(share, choices=tuple(c for c in share.choices if c is not last))
            self._cut[last.rank] = (last.scored, "budget")
        self._put(left, self._added(left))

    def _share(self, path: str) -> FileShare:
        return self._shares.get(path) or FileShare(self._views[path])

    def _added(self, share: FileShare) -> int:
        # A blank line ends each block. Most blocks are as they were when last counted.
        now = sum(self._counter.count(f"{block}\n") for block in share.blocks())
        return now - self._tokens.get(share.view.path, 0)

    def _put(self, share: FileShare, added: int) -> None:
        path = share.view.path
        self._shares[path] = share
        self._tokens[path] = self._tokens.get(path, 0) + added
        self._shown[path] = share.shown
        if not share.shown:
            del self._shares[path], self._tokens[path], self._shown[path]


def _body(view: FileView, lines: frozenset[int]) -> str:
    return "\n".join(view.lines[number - 1].rstrip() for number in sorted(lines))
