"""A map of the files that most likely matter: the names that each defines, without code.

    src/shop/basket.py: RATES, Basket(currency, total, add), checkout, +3 names

A class has its attributes and methods in brackets. The likelier a file, the more of its names are
listed; within a file, what the ranking prefers comes in first. A file says how many names it lacks.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from agent.context.assignments import bound_names
from agent.context.layout import FileViews
from agent.protocols import Chunker, Snapshot, TokenCounter
from agent.secrets import is_secret_path
from agent.types import DEFINITIONS, Ranking

_MAX_FILES = 40  # a file of a later rank has to change in one issue of a hundred
_NAME_LENGTH = 80  # characters; a longer name is generated
# The share of a file at rank r falls as 1 / (r + this), so that the first five get half of all.
_RANK_OFFSET = 2
# Tokens of `: , +12 names` in the line of a file.
_LINE_TOKENS = 9


@dataclass(frozen=True, slots=True)
class RepositoryMap:
    """A rendered map. `tokens` counts `text`; `left_out`: names of the files that it lacks."""

    text: str
    tokens: int
    files: int
    names: int
    left_out: int


def make_map(
    ranking: Ranking, snapshot: Snapshot, counter: TokenCounter, chunker: Chunker, budget: int
) -> RepositoryMap:
    """Return the map of the best ranked files in at most `budget` tokens."""
    files = _files(ranking, snapshot, chunker)
    chosen = _choose(files, counter, budget)
    while True:
        text = "\n".join(file.line(chosen.get(file.path, 0)) for file in files)
        tokens = counter.count(text)
        if tokens <= budget or not files:
            break
        # The estimate of a name is a token or two off; what is least likely goes.
        worst = next((file for file in reversed(files) if chosen[file.path]), None)
        if worst is None:
            files = files[:-1]
        else:
            chosen[worst.path] -= min(chosen[worst.path], 5)
    listed = sum(chosen[file.path] for file in files)
    names = sum(len(file.names) for file in files)
    return RepositoryMap(text, tokens, len(files), listed, names - listed)


@dataclass(frozen=True, slots=True)
class _File:
    """A file. `names`: its dotted names, best first; `order`: their places in the file."""

    path: str
    names: Sequence[str]
    order: Mapping[str, int]

    def line(self, count: int) -> str:
        """Return the line of the map that lists the first `count` names."""
        listed = sorted(self.names[:count], key=self.order.__getitem__)
        members: dict[str, list[str]] = {}
        for name in listed:
            owner, _, member = name.rpartition(".")
            if owner:
                members.setdefault(owner, []).append(member)
            else:
                members.setdefault(name, [])
        parts = [f"{n}({', '.join(inner)})" if inner else n for n, inner in members.items()]
        rest = len(self.names) - count
        if rest:
            parts.append(f"+{rest} name{'s' * (rest > 1)}")
        return f"{self.path}: {', '.join(parts)}" if parts else self.path


def _files(ranking: Ranking, snapshot: Snapshot, chunker: Chunker) -> list[_File]:
    """Return the best ranked files with their names."""
    ranks: dict[tuple[str, str], int] = {}
    for rank, scored in enumerate(ranking.chunks):
        ranks.setdefault((scored.chunk.path, scored.chunk.symbol), rank)
    last = len(ranking.chunks)
    views = FileViews(snapshot)
    found = []
    paths = [file.path for file in ranking.files if file.path in snapshot.files]
    for path in [path for path in paths if not is_secret_path(path)][:_MAX_FILES]:
        order = dict(_names(path, snapshot, views, chunker))
        names = sorted(order, key=lambda n: (ranks.get((path, n), last), order[n], n))
        found.append(_File(path, names, order))
    return found


def _names(
    path: str, snapshot: Snapshot, views: FileViews, chunker: Chunker
) -> Iterator[tuple[str, int]]:
    """Yield each name that a file defines with its line, of equal names the last."""
    chunks = chunker(snapshot.files[path], snapshot.text(path))
    defined = [(chunk.symbol, chunk.start) for chunk in chunks if chunk.kind in DEFINITIONS]
    for name, line in (*defined, *bound_names(views[path])):
        if name and len(name) <= _NAME_LENGTH:
            yield name, line


def _choose(files: Sequence[_File], counter: TokenCounter, budget: int) -> dict[str, int]:
    """Return how many names of each file fit, the likelier files first (D'Hondt's method)."""
    room = budget - sum(counter.count(file.path) + _LINE_TOKENS for file in files)
    chosen = {file.path: 0 for file in files}
    waiting = [(-1.0 / (rank + _RANK_OFFSET), rank) for rank, file in enumerate(files)]
    heapq.heapify(waiting)
    while waiting and room > 0:
        _, rank = heapq.heappop(waiting)
        file = files[rank]
        at = chosen[file.path]
        if at == len(file.names):
            continue
        room -= counter.count(f", {file.names[at].rpartition('.')[2]}")
        if room >= 0:
            chosen[file.path] += 1
            share = 1.0 / ((rank + _RANK_OFFSET) * (at + 2))
            heapq.heappush(waiting, (-share, rank))
    return chosen
