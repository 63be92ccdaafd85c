"""Turns piece and file numbers into scored chunks and files, with reasons that add up to the score.

The parts of the plain sum are known exactly. The learned ranker starts from a multiple of the plain
sum. That start is divided among the groups of features in the sum; each change by the trees is
added to the group of the feature that the tree tested.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from agent.retrieval.ranking.signals import (
    AROUND,
    BASE,
    EVIDENCE_WEIGHTS,
    FILE_NAMES,
    GROUP_OF,
    PIECE_NAMES,
    STATIC_WEIGHT,
    Candidates,
    Signals,
    file_matrix,
    group_of,
    normalised,
    piece_matrix,
)
from agent.types import Reason, ScoredChunk, ScoredFile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.retrieval.ranking.ranker import Ensemble, Ranker
    from agent.types.protocols import Snapshot

_GROUP_OF_SUM = {"best-chunk": "lexical", "lexical": "lexical", BASE: BASE}

# Best chunks and files that get a reason for each part, more than a budget holds or a person reads.
# Explaining all of them would take as long as ranking.
_EXPLAINED, _EXPLAINED_FILES = 120, 40

_NO_WORDS = "no words in common"
_NOTES = 2  # most notes for each group: a piece may have twenty callers
_SLACK = 1e-9  # rounding error allowed in a sum of floats

_Parts = tuple[float, dict[str, float]]
"""The start of a learned score, and what each group adds to it."""


class Writer:
    """Writes the scored chunks and files of one query's signals."""

    def __init__(self, signals: Signals, snapshot: Snapshot) -> None:
        self._signals = signals
        self._corpus = signals.corpus
        self._snapshot = snapshot
        self._lines: dict[str, list[str]] = {}
        self._file_shares = normalised(signals.files)
        self._sums_of_files: dict[int, list[Reason]] = {}

    def summed(self, candidates: Candidates) -> tuple[list[ScoredChunk], list[ScoredFile]]:
        """Return the candidates scored by the plain sum."""
        return self._written(
            candidates,
            [_strongest_first(self._piece_sum(n)) for n in candidates.pieces.tolist()],
            [_strongest_first(self._file_sum(n)) for n in candidates.files.tolist()],
        )

    def learned(
        self, candidates: Candidates, ranker: Ranker
    ) -> tuple[list[ScoredChunk], list[ScoredFile]]:
        """Return the candidates scored by the learned ranker."""
        pieces, files = candidates.pieces.tolist(), candidates.files.tolist()
        rows = piece_matrix(self._signals, candidates.pieces)
        parts = [
            # Pieces without a name were never answers in the training data: the trees are ignored.
            (start, groups if self._corpus.symbols[number] else dict.fromkeys(groups, 0.0))
            for number, (start, groups) in zip(
                pieces, _grouped(ranker.pieces, PIECE_NAMES, rows), strict=True
            )
        ]
        file_rows = file_matrix(self._signals, candidates.files)
        file_parts = _grouped(ranker.files, FILE_NAMES, file_rows)
        best, best_files = _best_rows(parts, _EXPLAINED), _best_rows(file_parts, _EXPLAINED_FILES)
        return self._written(
            candidates,
            [
                self._piece_reasons(number, *parts[row]) if row in best else _whole(*parts[row])
                for row, number in enumerate(pieces)
            ],
            [
                self._file_reasons(number, *file_parts[row])
                if row in best_files
                else _whole(*file_parts[row])
                for row, number in enumerate(files)
            ],
        )

    # --------------------------------------------------------------------------------- reasons

    def _piece_sum(self, number: int) -> list[Reason]:
        """Return reasons that add up to the piece's plain sum."""
        columns, file = self._signals.piece_columns, int(self._corpus.piece_file[number])
        words = float(columns["bm25"][number])
        reasons = [
            Reason("lexical", words, "" if words > 0.0 else _NO_WORDS),
            Reason("file", float(self._file_shares[file])),
        ]
        if "static" in columns:
            reasons.append(Reason("static", STATIC_WEIGHT * float(columns["static"][number])))
        reasons += _weighted(self._signals.evidence.pieces.get(number))
        return _completed(reasons, float(self._signals.pieces[number]))

    def _file_sum(self, number: int) -> list[Reason]:
        """Return reasons that add up to the file's plain sum."""
        if number not in self._sums_of_files:  # cached: a file has many pieces
            columns = self._signals.file_columns
            reasons = [
                Reason("best-chunk", float(columns["file-best"][number]), "its best chunk's words"),
                Reason("lexical", float(columns["file-bm25"][number]), "words of the whole file"),
            ]
            if "file-static" in columns:
                value = STATIC_WEIGHT * float(columns["file-static"][number])
                reasons.append(Reason("static", value, "its best chunk's static vector"))
            reasons += _weighted(self._signals.evidence.files.get(number))
            total = float(self._signals.files[number])
            self._sums_of_files[number] = _completed(reasons, total)
        return self._sums_of_files[number]

    def _piece_reasons(self, number: int, start: float, parts: dict[str, float]) -> list[Reason]:
        file = int(self._corpus.piece_file[number])
        summed = self._piece_sum(number)
        own = [reason for reason in summed if reason.feature != "file"]
        share = sum(reason.value for reason in summed if reason.feature == "file")
        shares = _shares(self._file_sum(file), share)
        _spread(parts, start, [*own, *shares], float(self._signals.pieces[number]))
        evidence = self._signals.evidence
        notes = _notes(evidence.pieces.get(number), evidence.files.get(file))
        if name := self._signals.names.found(self._corpus.files[file].path):
            notes["path-words"] = f"{name} is in the problem"
        return _explained(parts, notes | self._word_notes(file))

    def _file_reasons(self, number: int, start: float, parts: dict[str, float]) -> list[Reason]:
        _spread(parts, start, self._file_sum(number), float(self._signals.files[number]))
        notes = _notes(self._signals.evidence.files.get(number), None)
        return _explained(parts, notes | self._word_notes(number))

    def _word_notes(self, file: int) -> dict[str, str]:
        shared = self._signals.file_columns["file-bm25"][file] > 0.0
        return {} if shared else {"lexical": _NO_WORDS}

    # --------------------------------------------------------------------------------- writing

    def _written(
        self,
        candidates: Candidates,
        pieces: Sequence[Sequence[Reason]],
        files: Sequence[Sequence[Reason]],
    ) -> tuple[list[ScoredChunk], list[ScoredFile]]:
        self._read(candidates.pieces.tolist())
        chunks = zip(candidates.pieces.tolist(), pieces, strict=True)
        paths = (self._corpus.files[number].path for number in candidates.files.tolist())
        return (
            [self._chunk(number, reasons) for number, reasons in chunks],
            [scored_file(path, reasons) for path, reasons in zip(paths, files, strict=True)],
        )

    def _read(self, pieces: Iterable[int]) -> None:
        """Read the lines of the pieces' files, splitting each only as far as its pieces reach."""
        ends: dict[str, int] = {}
        for number in pieces:
            path = self._corpus.path_of(number)
            ends[path] = max(ends.get(path, 0), self._corpus.pieces[number].end)
        texts = {path: self._snapshot.text(path) for path in ends}
        self._lines |= {path: texts[path].split("\n", end) for path, end in ends.items()}

    def _chunk(self, number: int, reasons: Sequence[Reason]) -> ScoredChunk:
        source = self._corpus.files[int(self._corpus.piece_file[number])]
        chunk = self._corpus.pieces[number].chunk(source, self._lines[source.path])
        return scored_chunk(ScoredChunk(chunk, 0.0), reasons)


def scored_chunk(chunk: ScoredChunk, reasons: Sequence[Reason]) -> ScoredChunk:
    """Return the chunk with these reasons and their sum as its score."""
    telling = tuple(reason for reason in reasons if reason.value)
    return ScoredChunk(chunk.chunk, sum(reason.value for reason in telling), telling)


def scored_file(path: str, reasons: Sequence[Reason]) -> ScoredFile:
    """Return the file with these reasons and their sum as its score."""
    telling = tuple(reason for reason in reasons if reason.value)
    return ScoredFile(path, sum(reason.value for reason in telling), telling)


# ------------------------------------------------------------------------------ parts of the scores


def _best_rows(parts: Sequence[_Parts], most: int) -> frozenset[int]:
    """Return the row numbers of the `most` best scores."""
    totals = [start + sum(groups.values()) for start, groups in parts]
    return frozenset(sorted(range(len(totals)), key=lambda row: (-totals[row], row))[:most])


def _whole(start: float, parts: Mapping[str, float]) -> list[Reason]:
    """Return the whole score as one reason."""
    return [Reason(BASE, start + sum(parts.values()), "too far down to be explained")]


def _weighted(features: Mapping[str, Reason] | None) -> list[Reason]:
    """Return the evidence with its weights in the plain sum, strongest first."""
    return _strongest_first(
        replace(reason, value=reason.value * EVIDENCE_WEIGHTS.get(reason.feature, 1.0))
        for reason in (features or {}).values()
        if group_of(reason.feature) not in AROUND
    )


def _completed(reasons: list[Reason], total: float) -> list[Reason]:
    """Add a reason for the rest of `total` that the reasons do not cover."""
    rest = total - sum(reason.value for reason in reasons)
    return [*reasons, Reason(BASE, rest)] if abs(rest) > _SLACK else reasons


def _shares(reasons: Sequence[Reason], total: float) -> list[Reason]:
    """Scale the reasons so that they add up to the total."""
    whole = sum(reason.value for reason in reasons)
    if whole <= 0.0:
        return [Reason(BASE, total)]
    return [replace(reason, value=reason.value * total / whole) for reason in reasons]


def _grouped(ensemble: Ensemble, names: Sequence[str], rows: NDArray[np.float32]) -> list[_Parts]:
    """Return the parts of each row's score."""
    parts = ensemble.contributions(rows)
    starts = ensemble.starts(rows)
    parts[:, 0] -= starts
    groups = [*(GROUP_OF[name] for name in names), BASE]  # the bias
    distinct = list(dict.fromkeys(groups))
    member = np.array([[group == one for one in distinct] for group in groups], dtype=np.float64)
    grouped = [dict(zip(distinct, row, strict=True)) for row in (parts @ member).tolist()]
    return list(zip(starts.tolist(), grouped, strict=True))


def _spread(parts: dict[str, float], start: float, reasons: Iterable[Reason], whole: float) -> None:
    """Divide the start among the groups in proportion to their parts of the plain sum `whole`."""
    if whole <= 0.0:
        parts[BASE] = parts.get(BASE, 0.0) + start
        return
    for reason in reasons:
        group = _GROUP_OF_SUM.get(reason.feature) or group_of(reason.feature)
        parts[group] = parts.get(group, 0.0) + start * reason.value / whole


def _explained(parts: Mapping[str, float], notes: Mapping[str, str]) -> list[Reason]:
    """Return one reason for each group, strongest first."""
    return _strongest_first(
        Reason(group, value, notes.get(group, "")) for group, value in parts.items()
    )


def _notes(own: Mapping[str, Reason] | None, files: Mapping[str, Reason] | None) -> dict[str, str]:
    """Return the notes of the evidence by group, strongest first; a piece's own come first."""
    by_group: dict[str, dict[str, None]] = {}
    for prefix, features in (("", own), ("its file: ", files)):
        for reason in _strongest_first((features or {}).values()):
            notes = by_group.setdefault(group_of(reason.feature), {})
            if reason.note not in notes and reason.note:
                notes[f"{prefix}{reason.note}"] = None
    return {group: "; ".join(list(notes)[:_NOTES]) for group, notes in by_group.items()}


def _strongest_first(reasons: Iterable[Reason]) -> list[Reason]:
    return sorted(reasons, key=lambda reason: (-reason.value, reason.feature))
