"""The learned ranker, the options of a retriever, and the models that they load. `python -m
training.ranker` trains the trees (LambdaMART: Burges, "From RankNet to LambdaRank to LambdaMART",
2010).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from agent.errors import ConfigurationError
from agent.retrieval.embedding import STATIC_MODEL, StaticEncoder, static_in
from agent.retrieval.ranking.signals import FILE_NAMES, PIECE_NAMES
from agent.retrieval.weights import MODELS

if TYPE_CHECKING:
    from numpy.typing import NDArray

MODEL = "ranker.json"
_ROWS_AT_ONCE = 64  # the nodes of so many rows stay in the processor's cache
FORMAT = 3

ARRAYS: tuple[tuple[str, type[np.generic]], ...] = (
    ("roots", np.int32),
    ("feature", np.int32),
    ("threshold", np.float32),
    ("right", np.int32),
    ("value", np.float64),
    ("slope", np.float64),
)


@dataclass(frozen=True, slots=True)
class Ensemble:
    """`t` trees in `m` nodes: `roots` int32 (t,); `feature` int32 (m,), -1 in a leaf; `threshold`
    float32 (m,). A row goes to the next node if its value is at most the threshold, else `right`
    nodes further, int32 (m,). `value` float64 (m,): output of a leaf. `slope`: weight of the first
    feature.
    """

    names: tuple[str, ...]
    roots: NDArray[np.int32]
    feature: NDArray[np.int32]
    threshold: NDArray[np.float32]
    right: NDArray[np.int32]
    value: NDArray[np.float64]
    slope: NDArray[np.float64]

    def scores(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the score of each row, float64 (n,). `rows` is float32 (n, k)."""
        return self.starts(rows) + self.corrections(rows)

    def starts(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the score from the plain sum alone, before the trees correct it, float64 (n,)."""
        return float(self.slope) * rows[:, 0].astype(np.float64)

    def corrections(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return what the trees add to the start of each row, float64 (n,). `rows`: (n, k)."""
        sums = [
            self._leaves(rows[first : first + _ROWS_AT_ONCE]).sum(axis=1)
            for first in range(0, len(rows), _ROWS_AT_ONCE)
        ]
        return np.concatenate([np.zeros(0), *sums])

    def _leaves(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the value of the leaf that each row reaches in each tree, float64 (n, t)."""
        node = np.tile(self.roots, len(rows)).astype(np.intp)
        row = np.repeat(np.arange(len(rows)), self.roots.size)
        inner = np.flatnonzero(self.feature[node] >= 0)
        while inner.size:
            at = node[inner]
            low = rows[row[inner], self.feature[at]] <= self.threshold[at]
            node[inner] = at + np.where(low, 1, self.right[at])
            inner = inner[self.feature[node[inner]] >= 0]
        return self.value[node].reshape(len(rows), self.roots.size)


@dataclass(frozen=True, slots=True)
class Ranker:
    """`files` scores rows of `signals.file_matrix`, `pieces` rows of `signals.piece_matrix`."""

    files: Ensemble
    pieces: Ensemble


@cache
def ranker_in(path: Path) -> Ranker | None:
    """Return the ranker in a file, read once; None if it is missing or made for other features."""
    return read_ranker(path.read_text("utf-8", "replace")) if path.is_file() else None


def read_ranker(text: str) -> Ranker | None:
    """Parse the output of `training.writing.write_ranker`. Returns None for anything else."""
    try:
        model = json.loads(text)
        if model["header"] != header():
            return None
        files, pieces = (
            Ensemble(names, *(np.array(model[part][array], dtype) for array, dtype in ARRAYS))
            for part, names in (("files", FILE_NAMES), ("pieces", PIECE_NAMES))
        )
    except (ValueError, KeyError, TypeError):
        return None
    return Ranker(files, pieces)


def header() -> dict[str, object]:
    """Return the first part of the file, which names the features in the order of the columns."""
    return {"format": FORMAT, "files": list(FILE_NAMES), "pieces": list(PIECE_NAMES)}


_FILENAME_BONUS = 0.2


@dataclass(frozen=True, slots=True)
class RetrievalOptions:
    """Parts and sizes of ranking. `original`: the system before this one. `prefilter`: chunks that
    are embedded (50 lose functions). `max_results`: chunks in a ranking.
    """

    original: bool = False
    static: bool = True  # the static encoder that ships with the package
    learned: bool = True  # the ranker that ships with the package; False: the plain sum
    embedding: bool = True
    prefilter: int = 100
    max_results: int = 400
    filename_bonus: float | None = None  # see `bonus`

    def bonus(self, *, learned: bool, embedded: bool) -> float:
        """Return what a file name in the problem adds; the learned ranker has a feature for it."""
        if self.filename_bonus is not None:
            return self.filename_bonus
        return _FILENAME_BONUS if embedded and not learned else 0.0


PRESETS: Mapping[str, RetrievalOptions] = MappingProxyType(
    {
        "default": RetrievalOptions(),
        "lexical": RetrievalOptions(embedding=False),
        "original": RetrievalOptions(
            original=True,
            static=False,
            learned=False,
            prefilter=50,
            max_results=50,
            filename_bonus=_FILENAME_BONUS,
        ),
    }
)


def preset(name: str) -> RetrievalOptions:
    """Return the options of a preset. Raises ConfigurationError for an unknown name."""
    options = PRESETS.get(name)
    if options is None:
        names = ", ".join(sorted(PRESETS))
        raise ConfigurationError(f"unknown retrieval preset {name!r}; known: {names}")
    return options


@dataclass(frozen=True, slots=True)
class Shipped:
    """The models that the options ask for. `notes` name those that are missing or damaged."""

    encoder: StaticEncoder | None
    ranker: Ranker | None
    notes: tuple[str, ...] = ()


def load_shipped(options: RetrievalOptions, folder: Path | None = None) -> Shipped:
    """Load the models in a folder (None: the package's); a bundle has no static vectors."""
    folder = folder or MODELS
    notes: list[str] = []
    encoder = static_in(folder / STATIC_MODEL) if options.static else None
    if options.static and encoder is None and (folder / STATIC_MODEL).is_file():
        notes.append(f"{_fault(folder / STATIC_MODEL)}; ranked without its vectors")
    trees = ranker_in(folder / MODEL) if options.learned else None
    if options.learned and trees is None:
        notes.append(f"{_fault(folder / MODEL)}; ranked by the plain sum")
    return Shipped(encoder, trees, tuple(notes))


def _fault(path: Path) -> str:
    if not path.is_file():
        return f"{path.name} is missing from the installation"
    return f"{path.name} is damaged or was made for another version"
