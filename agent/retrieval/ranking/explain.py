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

from agent.retrieval.ranking.features import BASE, FILE_NAMES, GROUP_OF, PIECE_NAMES, group_of
from agent.retrieval.ranking.signals import (
    AROUND,
    EVIDENCE_WEIGHTS,
    STATIC_WEIGHT,
    Candidates,
    Signals,
    file_matrix,
    normalised,
    piece_matrix,
)
from agent.types import Reason, ScoredChunk, ScoredFile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.retrieval.ranking.options import RetrievalOptions
    from agent.retrieval.ranking.ranker import Ensemble, Ranker
    from agent.types.protocols import Snapshot

_GROUP_OF_SUM = {"best-chunk": "lexical", "lexical": "lexical", BASE: BASE}
EXPLAINED = 120
"""Number of best chunks that get full reasons, more than a budget holds. Explaining all chunks
would take as long as ranking.
"""

EXPLAINED_FILES = 40
"""Number of best files that get reasons; people read only the first few."""

_NO_WORDS = "no words in common"
_NOTES = 2  # most notes for each group: a piece may have twenty callers
_SLACK = 1e-9  # rounding error allowed in a sum of floats

_BY = {
    "static": ("static", "static vectors"),
    "title": ("title", "words of the title"),
    "names": ("name", "words of its name"),
    "code": ("code", "words in the problem's code"),
    "prose": ("prose", "words in the problem's prose"),
}
"""For groups without evidence: the column whose place the note gives, and the column's description.
"""


class Writer:
    """Writes the scored chunks and files of one query's signals."""

    def __init__(self, signals: Signals, snapshot: Snapshot, options: RetrievalOptions) -> None:
        self._signals = signals
        self._corpus = signals.corpus
        self._options = options
        self._snapshot = snapshot
        self._lines: dict[str, list[str]] = {}
        self._pieces = _Places({**signals.piece_columns, BASE: signals.pieces})
        self._files = _Places({BASE: signals.files})
        self._file_shares = normalised(signals.files) * options.file_weight
        self._sums_of_files: dict[int, list[Reason]] = {}

    # ------------------------------------------------------------------------------- the plain sum

    def summed(self, candidates: Candidates) -> tuple[list[ScoredChunk], list[ScoredFile]]:
        """Return the candidates scored by the plain sum."""
        pieces, files = candidates.pieces.tolist(), candidates.files.tolist()
        self._read(pieces)
        chunks = [self._chunk(n, _strongest_first(self._piece_sum(n))) for n in pieces]
        return chunks, [self._file(n, _strongest_first(self._file_sum(n))) for n in files]

    def _piece_sum(self, number: int) -> list[Reason]:
        """Return reasons that add up to the piece's plain sum."""
        columns, file = self._signals.piece_columns, int(self._corpus.piece_file[number])
        reasons = [Reason("lexical", float(columns["bm25"][number]), self._by_words(number))]
        if self._options.file_scores:
            share = float(self._file_shares[file])
            reasons.append(Reason("file", share, self._file_note(file)))
        if "static" in columns:
            value = STATIC_WEIGHT * float(columns["static"][number])
            reasons.append(Reason("static", value, self._place("static", number)))
        reasons += _weighted(self._signals.evidence.pieces.get(number))
        return _completed(reasons, float(self._signals.pieces[number]))

    def _file_sum(self, number: int) -> list[Reason]:
        """Return reasons that add up to the file's plain sum."""
        if number not in self._sums_of_files:  # cached: a file has many pieces
            self._sums_of_files[number] = self._new_file_sum(number)
        return self._sums_of_files[number]

    def _new_file_sum(self, number: int) -> list[Reason]:
        columns = self._signals.file_columns
        reasons = [
            Reason("best-chunk", float(columns["file-best"][number]), "its best chunk's words")
        ]
        if self._options.file_scores:
            words = float(columns["file-bm25"][number])
            reasons.append(Reason("lexical", words, "words of the whole file"))
        if "file-static" in columns:
            value = STATIC_WEIGHT * float(columns["file-static"][number])
            reasons.append(Reason("static", value, "its best chunk's static vector"))
        reasons += _weighted(self._signals.evidence.files.get(number))
        return _completed(reasons, float(self._signals.files[number]))

    # ---------------------------------------------------------------------------- the learned order

    def learned(
        self, candidates: Candidates, ranker: Ranker
    ) -> tuple[list[ScoredChunk], list[ScoredFile]]:
        """Return the candidates scored by the learned ranker."""
        without = self._options.without
        pieces = piece_matrix(self._signals, candidates.pieces, without)
        files = file_matrix(self._signals, candidates.files, without)
        piece_parts = [
            # Pieces without a name were never answers in the training data, so the trees are
            # ignored.
            (start, parts if self._corpus.symbols[number] else dict.fromkeys(parts, 0.0))
            for number, (start, parts) in zip(
                candidates.pieces.tolist(),
                _grouped(ranker.pieces, PIECE_NAMES, pieces),
                strict=True,
            )
        ]
        file_parts = _grouped(ranker.files, FILE_NAMES, files)
        pieces_best, files_best = (
            _best_rows(piece_parts, EXPLAINED),
            _best_rows(file_parts, EXPLAINED_FILES),
        )
        self._read(candidates.pieces.tolist())
        chunks = [
            self._chunk(
                number,
                self._piece_reasons(number, *scores) if row in pieces_best else _whole(*scores),
            )
            for row, (number, scores) in enumerate(
                zip(candidates.pieces.tolist(), piece_parts, strict=True)
            )
        ]
        scored = [
            self._file(
                number,
                self._file_reasons(number, *scores) if row in files_best else _whole(*scores),
            )
            for row, (number, scores) in enumerate(
                zip(candidates.files.tolist(), file_parts, strict=True)
            )
        ]
        return chunks, scored

    def _piece_reasons(self, number: int, start: float, parts: dict[str, float]) -> list[Reason]:
        file = int(self._corpus.piece_file[number])
        summed = self._piece_sum(number)
        (own, share) = _without_file(summed)
        from_file = _shares(self._file_sum(file), share)
        _spread(parts, start, [*own, *from_file], float(self._signals.pieces[number]))
        evidence = self._signals.evidence
        notes = _notes(evidence.pieces.get(number), evidence.files.get(file))
        return _explained(parts, notes | self._piece_notes(number, file))

    def _file_reasons(self, number: int, start: float, parts: dict[str, float]) -> list[Reason]:
        _spread(parts, start, self._file_sum(number), float(self._signals.files[number]))
        notes = _notes(self._signals.evidence.files.get(number), None)
        words = self._file_note(number) if self._shares_words(number) else _NO_WORDS
        return _explained(parts, notes | {"lexical": words})

    # --------------------------------------------------------------------------------------- notes

    def _piece_notes(self, number: int, file: int) -> dict[str, str]:
        """Return notes by group, for groups that have no evidence."""
        piece = self._corpus.pieces[number]
        found = self._signals.names.found(self._corpus.files[file].path)
        notes = {group: self._place(column, number) for group, (column, _) in _BY.items()}
        return notes | {
            BASE: f"{self._pieces.of(BASE, number)} by the plain sum",
            "lexical": self._words_note(number, file),
            "path-words": f"{found} is in the problem" if found else "",
            "structure": f"{piece.kind.value}, {piece.end - piece.start + 1:,} lines",
        }

    def _words_note(self, number: int, file: int) -> str:
        """Return the place of the piece and its file by words, or a note that no word matches."""
        if not self._shares_words(file):
            return _NO_WORDS
        return f"{self._by_words(number)}; {self._file_note(file)}"

    def _by_words(self, number: int) -> str:
        if self._signals.piece_columns["bm25"][number] <= 0.0:
            return _NO_WORDS
        return f"{self._pieces.of('bm25', number)} by words in common"

    def _file_note(self, file: int) -> str:
        if self._signals.files[file] <= 0.0:
            return ""
        return f"its file is {self._files.of(BASE, file)}"

    def _shares_words(self, file: int) -> bool:
        return bool(self._signals.file_columns["file-bm25"][file] > 0.0)

    def _place(self, column: str, number: int) -> str:
        values = self._signals.piece_columns.get(column)
        if values is None or values[number] <= 0.0:
            return ""
        by = next(words for name, words in _BY.values() if name == column)
        return f"{self._pieces.of(column, number)} by {by}"

    # ------------------------------------------------------------------------------------- writing

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

    def _file(self, number: int, reasons: Sequence[Reason]) -> ScoredFile:
        kept = tuple(reason for reason in reasons if reason.value)
        path = self._corpus.files[number].path
        return ScoredFile(path, sum(reason.value for reason in kept), kept)


def scored_chunk(chunk: ScoredChunk, reasons: Sequence[Reason]) -> ScoredChunk:
    """Return the chunk with these reasons and their sum as its score."""
    kept = tuple(reason for reason in reasons if reason.value)
    return ScoredChunk(chunk.chunk, sum(reason.value for reason in kept), kept)


# ------------------------------------------------------------------------------ parts of the scores


def _best_rows(parts: Sequence[tuple[float, Mapping[str, float]]], most: int) -> frozenset[int]:
    """Return the row numbers of the `most` best scores, which get a reason for each part."""
    totals = [start + sum(groups.values()) for start, groups in parts]
    return frozenset(sorted(range(len(totals)), key=lambda row: (-totals[row], row))[:most])


def _whole(start: float, parts: Mapping[str, float]) -> list[Reason]:
    """Return the whole score as one reason."""
    return [Reason(BASE, start + sum(parts.values()), "too far down to be explained")]


def _weighted(features: Mapping[str, Reason] | None) -> list[Reason]:
    """Return the evidence with its weights in the plain sum, strongest first."""
    reasons = [
        replace(reason, value=reason.value * EVIDENCE_WEIGHTS.get(reason.feature, 1.0))
        for reason in (features or {}).values()
        if group_of(reason.feature) not in AROUND
    ]
    return _strongest_first(reasons)


def _completed(reasons: list[Reason], total: float) -> list[Reason]:
    """Add a reason for the rest of `total` that the reasons do not cover."""
    rest = total - sum(reason.value for reason in reasons)
    return [*reasons, Reason(BASE, rest)] if abs(rest) > _SLACK else reasons


def _without_file(reasons: Sequence[Reason]) -> tuple[list[Reason], float]:
    """Return the piece's own reasons, and the value that its file contributes."""
    own = [reason for reason in reasons if reason.feature != "file"]
    return own, sum(reason.value for reason in reasons if reason.feature == "file")


def _shares(reasons: Sequence[Reason], total: float) -> list[Reason]:
    """Scale the reasons so that they add up to the total."""
    whole = sum(reason.value for reason in reasons)
    if whole <= 0.0:
        return [Reason(BASE, total)]
    return [replace(reason, value=reason.value * total / whole) for reason in reasons]


def _grouped(
    ensemble: Ensemble, names: Sequence[str], rows: NDArray[np.float32]
) -> list[tuple[float, dict[str, float]]]:
    """Return for each row the start from the plain sum, and what each group adds to it."""
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
    """Return the notes of the evidence by group, strongest first.

    The piece's own notes come before its file's.
    """
    said: dict[str, dict[str, None]] = {}
    for prefix, features in (("", own), ("its file: ", files)):
        for reason in _strongest_first((features or {}).values()):
            notes = said.setdefault(group_of(reason.feature), {})
            if reason.note not in notes and reason.note:
                notes[f"{prefix}{reason.note}"] = None
    return {group: "; ".join(list(notes)[:_NOTES]) for group, notes in said.items()}


def _strongest_first(reasons: Iterable[Reason]) -> list[Reason]:
    return sorted(reasons, key=lambda reason: (-reason.value, reason.feature))


class _Places:
    """Places within columns: 1 is the highest value, and equal values share a place."""

    def __init__(self, columns: Mapping[str, NDArray[np.float64]]) -> None:
        self._columns = columns
        self._sorted: dict[str, NDArray[np.float64]] = {}

    def of(self, column: str, number: int) -> str:
        """Return the place as text, such as `3 of 2,412`."""
        if column not in self._sorted:
            self._sorted[column] = np.sort(self._columns[column])
        values, own = self._sorted[column], self._columns[column][number]
        above = values.size - int(values.searchsorted(own, side="right"))
        return f"{above + 1:,} of {values.size:,}"
