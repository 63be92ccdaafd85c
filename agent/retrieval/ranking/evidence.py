"""Evidence beside word statistics: names in the problem that exist in the repository."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING

import numpy as np

from agent.retrieval.index import name_hash, without_suffix
from agent.retrieval.ranking.mentions import MentionPlace, Mentions, NameMention
from agent.types import Reason

if TYPE_CHECKING:
    from agent.retrieval.index import Corpus, Piece

# Weights in the plain sum. The lexical scores in it are normalised to a maximum of 1.
FRAME_WEIGHT = 1.0  # the file of the innermost frame inside the repository
FRAME_DECAY = 0.7  # for each outer frame: the cause is often one or two callers up
PATH_WEIGHT = 1.0  # a full path
BASENAME_WEIGHT = 0.6  # "models.py" alone may match loosely
MODULE_WEIGHT = 0.8  # pkg.mod
SYMBOL_FILE_WEIGHT = 0.4  # the file that defines a named symbol
SYMBOL_WEIGHT = 0.5  # the symbol itself, qualified or unique
LINE_WEIGHT = 0.5  # the piece a frame or `path:12` points into

PLACE_FACTORS: Mapping[MentionPlace, float] = {
    MentionPlace.TITLE: 1.0,
    MentionPlace.QUOTED: 0.8,
    MentionPlace.PROSE: 0.7,
    MentionPlace.CODE: 0.4,  # a reproduction script names functions it calls, not the fault
}

MAX_AMBIGUITY = 12
"""Names that more pieces or files share are ignored as too ambiguous."""

_MIN_SYMBOL = 3  # minimum length of an unqualified name, in characters
_PACKAGE_FILES = frozenset({"__init__", "mod", "index"})


@dataclass(slots=True)
class Evidence:
    """Reasons by number of file and of piece, only the strongest of each feature."""

    files: defaultdict[int, dict[str, Reason]] = field(default_factory=lambda: defaultdict(dict))
    pieces: defaultdict[int, dict[str, Reason]] = field(default_factory=lambda: defaultdict(dict))

    def merge(self, other: Evidence) -> None:
        """Add the reasons of another source, keeping the strongest of each feature."""
        for mine, theirs in ((self.files, other.files), (self.pieces, other.pieces)):
            for number, reasons in theirs.items():
                for reason in reasons.values():
                    keep_best(mine[number], reason)


def keep_best(reasons: dict[str, Reason], reason: Reason) -> None:
    """Add the reason unless a stronger one of the same feature is known."""
    best = reasons.get(reason.feature)
    if best is None or reason.value > best.value:
        reasons[reason.feature] = reason


def mention_evidence(mentions: Mentions, corpus: Corpus) -> Evidence:
    """Return evidence for the paths, modules, symbols and stack frames that the problem names."""
    evidence = Evidence()
    paths = PathTable(file.path for file in corpus.files)
    _add_frames(mentions, corpus, paths, evidence)
    _add_paths(mentions, corpus, paths, evidence)
    _add_names(mentions, corpus, evidence)
    return evidence


class PathTable:
    """Finds the files that a mentioned path may mean."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._by_name: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
        for number, path in enumerate(paths):
            self._by_name[path.rpartition("/")[2].lower()].append((number, path))

    def find(self, mention: str) -> tuple[int, ...]:
        """Return the files that share the longest tail with the mention."""
        parts = _path_parts(mention.lower())
        tails: list[tuple[int, int]] = []
        for number, path in self._by_name.get(parts[-1] if parts else "", ()):
            own = path.lower().split("/")
            common = _common_tail(parts, own)
            if common >= min(2, len(parts), len(own)):
                tails.append((common, number))
        return _longest(tails)


def _path_parts(path: str) -> list[str]:
    """Return the path's components, including the root, without empty ones and `.`."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return ["/", *parts] if path.startswith("/") else parts


def _common_tail(left: Sequence[str], right: Sequence[str]) -> int:
    pairs = zip(reversed(left), reversed(right), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _longest(tails: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    """Return the numbers with the longest tail; () if they are too many to be evidence."""
    tails = list(tails)
    best = max((common for common, _ in tails), default=0)
    numbers = tuple(number for common, number in tails if common == best)
    return numbers if len(numbers) <= MAX_AMBIGUITY else ()


def _add_frames(mentions: Mentions, corpus: Corpus, paths: PathTable, evidence: Evidence) -> None:
    rank = 0
    seen: set[tuple[str, int]] = set()
    for frame in mentions.frames:
        files = paths.find(frame.path)
        if not files or (frame.path, frame.line) in seen:
            continue
        seen.add((frame.path, frame.line))
        rank = 1 if frame.rank == 1 else rank + 1  # counts frames inside the repository only
        weight = FRAME_DECAY ** (rank - 1) / len(files)
        for file in files:
            note = f"traceback frame {rank}: {corpus.files[file].path}:{frame.line}"
            if frame.function:
                note += f" in {frame.function}"
            keep_best(evidence.files[file], Reason("traceback", FRAME_WEIGHT * weight, note))
            for piece in _pieces_at(corpus, file, frame.line, frame.function):
                keep_best(evidence.pieces[piece], Reason("traceback", LINE_WEIGHT * weight, note))


def _pieces_at(corpus: Corpus, file: int, line: int, function: str) -> list[int]:
    pieces = list(corpus.pieces_of(file))
    named = [number for number, piece in pieces if _leaf(piece.symbol) == function and function]
    here = [number for number, piece in pieces if _holds(piece, line)]
    both = [number for number in named if number in here]
    return both or named or here


def _holds(piece: Piece, line: int) -> bool:
    inside = piece.start <= line <= piece.end
    return inside and not any(start <= line <= end for start, end in piece.holes)


def _leaf(symbol: str) -> str:
    return symbol.rpartition(".")[2]


def _add_paths(mentions: Mentions, corpus: Corpus, paths: PathTable, evidence: Evidence) -> None:
    for mention in mentions.paths:
        files = paths.find(mention.path)
        # Paths in code blocks come from logs and tracebacks, which have their own evidence.
        factor = 0.5 if mention.place is MentionPlace.CODE else 1.0
        weight = PATH_WEIGHT if "/" in mention.path else BASENAME_WEIGHT
        note = f"{mention.path} is named in the {mention.place.value}"
        for file in files:
            share = factor / len(files)
            keep_best(evidence.files[file], Reason("path", weight * share, note))
            for piece in _pieces_at(corpus, file, mention.line, "") if mention.line else ():
                reason = Reason("line", LINE_WEIGHT * share, f"{note} at line {mention.line}")
                keep_best(evidence.pieces[piece], reason)


def _add_names(mentions: Mentions, corpus: Corpus, evidence: Evidence) -> None:
    names = [mention.name for mention in mentions.names]
    symbols = _SymbolTable(corpus, names)
    modules = _ModuleTable(corpus, names)
    for mention in mentions.names:
        files, rest, pieces = modules.find(mention.name)
        factor, note = PLACE_FACTORS[mention.place], _named_in(mention)
        for file in files:
            keep_best(
                evidence.files[file], Reason("module", MODULE_WEIGHT * factor / len(files), note)
            )
        for piece in pieces:
            keep_best(evidence.pieces[piece], Reason("symbol", SYMBOL_WEIGHT * factor, note))
        if not (rest and pieces):
            _add_symbols(mention, symbols.find(mention.name), corpus, evidence)


def _named_in(mention: NameMention) -> str:
    return f"{mention.name} is named in the {mention.place.value}"


class _ModuleTable:
    """Dotted module names. `src/pkg/mod.py` is `src.pkg.mod`, `pkg.mod` and `mod`."""

    def __init__(self, corpus: Corpus, names: Iterable[str]) -> None:
        self._corpus = corpus
        self._by_leaf: defaultdict[str, list[tuple[int, list[str]]]] = defaultdict(list)
        leaves = frozenset(part for name in names if "." in name for part in name.split("."))
        for number, file in enumerate(corpus.files) if leaves else ():
            path = without_suffix(file.path)
            folder, _, name = path.rpartition("/")
            parts = (folder if name in _PACKAGE_FILES else path).split("/")
            if parts[-1] in leaves:
                self._by_leaf[parts[-1]].append((number, parts))

    def find(self, name: str) -> tuple[tuple[int, ...], str, list[int]]:
        """Return the files of the longest prefix that is a module, the rest, and the pieces it
        names.
        """
        parts = name.split(".")
        for length in range(len(parts), 0, -1) if len(parts) > 1 else ():
            prefix, rest = parts[:length], ".".join(parts[length:])
            modules = self._by_leaf.get(prefix[-1], ())
            files = tuple(number for number, own in modules if own[-length:] == prefix)
            if len(files) > MAX_AMBIGUITY:
                continue
            pieces = [piece for file in files for piece in self._defined(file, rest)]
            if files and (length >= 2 or pieces):
                return files, rest, pieces
        return (), "", []

    def _defined(self, file: int, symbol: str) -> list[int]:
        first, end = self._corpus.first_piece[file], self._corpus.first_piece[file + 1]
        names = self._corpus.symbols[first:end] if symbol else ()
        return [first + at for at, own in enumerate(names) if own == symbol]


class _SymbolTable:
    """Pieces by the last part of their symbol, limited to the last parts of `names`."""

    def __init__(self, corpus: Corpus, names: Iterable[str]) -> None:
        self._symbols = corpus.symbols
        self._by_leaf: defaultdict[str, list[int]] = defaultdict(list)
        leaves = frozenset(map(_leaf, names)) - {""}
        hashes = np.array(sorted(map(name_hash, leaves)), dtype=np.uint64)
        for number in np.flatnonzero(np.isin(corpus.leaves, hashes)).tolist():
            if (leaf := _leaf(self._symbols[number])) in leaves:
                self._by_leaf[leaf].append(number)

    def find(self, name: str) -> tuple[int, ...]:
        """Return the pieces whose symbol shares the most trailing parts; () if ambiguous."""
        parts = name.split(".")
        pieces = self._by_leaf.get(parts[-1], ())
        tails = [(_common_tail(parts, self._symbols[piece].split(".")), piece) for piece in pieces]
        short = len(parts[-1]) < _MIN_SYMBOL and all(common == 1 for common, _ in tails)
        return () if short else _longest(tails)


def _add_symbols(
    mention: NameMention, pieces: Sequence[int], corpus: Corpus, evidence: Evidence
) -> None:
    # `client.get` names a `get`, but probably not this one of five.
    factor = PLACE_FACTORS[mention.place] / max(len(pieces), 1) ** 0.5
    note = _named_in(mention)
    for piece in pieces:
        keep_best(evidence.pieces[piece], Reason("symbol", SYMBOL_WEIGHT * factor, note))
        file = int(corpus.piece_file[piece])
        keep_best(evidence.files[file], Reason("symbol", SYMBOL_FILE_WEIGHT * factor, note))
