"""Neighbours of the best pieces: callers, callees, same names, imports.

References are resolved by name alone, so a name that several pieces define counts less for each.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from agent.retrieval.index import ModuleTable
from agent.retrieval.ranking.evidence import Evidence, keep_best
from agent.types import Reason

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.retrieval.index import Corpus

MAX_DEFINERS = 12
"""Most pieces or files that may share a name. A `get` that forty classes define is not evidence."""

_MAX_IMPORTERS = 2_000  # most lines that are resolved to find importers of one name


def neighbours(corpus: Corpus, pieces: Mapping[int, float], files: Mapping[int, float]) -> Evidence:
    """Return "calls", "called-by" and "same-name" of pieces, "imports" and "imported-by" of files,
    for seeds with scores in (0, 1]. What a name may mean shares the seed's score.
    """
    evidence = Evidence()
    links = _PieceLinks(corpus, evidence)
    for seed in sorted(pieces):
        links.add_called(seed, pieces[seed])
        links.add_namesakes(seed, pieces[seed])
    links.add_callers(pieces)
    _add_imports(corpus, files, evidence)
    return evidence


@dataclass(slots=True)
class _PieceLinks:
    """Adds reasons for pieces. `by_leaf`: their numbers by the last part of their symbol."""

    corpus: Corpus
    evidence: Evidence
    by_leaf: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        for piece, leaf in enumerate(self.corpus.leaves.tolist()):
            self.by_leaf[leaf].append(piece)

    def definers(self, names: NDArray[np.uint64]) -> list[list[int]]:
        """Return the numbers of the pieces that each name may mean; [] if none or too many."""
        found = (self.by_leaf.get(name, []) if name else [] for name in names.tolist())
        return [pieces if len(pieces) <= MAX_DEFINERS else [] for pieces in found]

    def add_called(self, seed: int, score: float) -> None:
        names = self.corpus.uses.of(seed)
        for found in self.definers(names):
            near = [piece for piece in found if self._file(piece) == self._file(seed)]
            for piece in found:
                share = score / (len(near) if piece in near else len(found))
                self._add(piece, seed, Reason("calls", share))

    def add_namesakes(self, seed: int, score: float) -> None:
        leaf = self.corpus.leaves[seed : seed + 1]
        for found in self.definers(leaf):
            for piece in found:
                if piece != seed:
                    self._add(piece, seed, Reason("same-name", score / (len(found) - 1)))

    def add_callers(self, seeds: Mapping[int, float]) -> None:
        numbers = sorted(seeds)
        names = self.corpus.leaves[numbers]
        users = self._users(names)
        for seed, name, definers in zip(numbers, names.tolist(), self.definers(names), strict=True):
            for piece in users[name] if definers else ():
                value = seeds[seed] / len(definers) / len(users[name]) ** 0.5
                self._add(piece, seed, Reason("called-by", value))

    def _users(self, names: NDArray[np.uint64]) -> defaultdict[int, list[int]]:
        uses = self.corpus.uses
        places = np.flatnonzero(np.isin(uses.values, names))
        pieces = np.searchsorted(uses.offsets, places, side="right") - 1
        users: defaultdict[int, list[int]] = defaultdict(list)
        for name, piece in zip(uses.values[places].tolist(), pieces.tolist(), strict=True):
            users[name].append(piece)
        return users

    def _add(self, piece: int, seed: int, reason: Reason) -> None:
        if piece != seed:
            keep_best(self.evidence.pieces[piece], reason)

    def _file(self, piece: int) -> int:
        return int(self.corpus.piece_file[piece])


def _add_imports(corpus: Corpus, seeds: Mapping[int, float], evidence: Evidence) -> None:
    modules = ModuleTable([file.path for file in corpus.files])
    importers = _Importers(corpus.imports)
    for seed in sorted(seeds):
        score = seeds[seed]
        for line in corpus.imports[seed].splitlines():
            files = modules.find(line, seed)
            for file in files if len(files) <= MAX_DEFINERS else ():
                if file != seed:
                    keep_best(evidence.files[file], Reason("imports", score / len(files)))
        for file, line in importers.of(modules.leaf(seed)):
            files = modules.find(line, file)
            if seed in files and len(files) <= MAX_DEFINERS and file != seed:
                keep_best(evidence.files[file], Reason("imported-by", score / len(files)))


class _Importers:
    """Finds import lines in all files that import a given name."""

    def __init__(self, imports: Sequence[str]) -> None:
        files = list(imports)  # copied once: each access builds the items again
        self._text = "\n".join(files) + "\n"
        self._ends = list(accumulate(len(lines) + 1 for lines in files))

    def of(self, name: str) -> Iterator[tuple[int, str]]:
        if not name:
            return
        text, at, left = self._text, -1, _MAX_IMPORTERS
        while left and (at := text.find(name, at + 1)) >= 0:
            end = at + len(name)
            if text[end] in "/\n" and (at == 0 or text[at - 1] in "/\n"):
                start = text.rfind("\n", 0, at) + 1
                yield bisect_right(self._ends, at), text[start : text.index("\n", end)]
                left -= 1
