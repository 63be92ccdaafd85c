"""Evidence beside word statistics: names in the problem that exist in the repository.

An `EvidenceSource` returns reasons for ranking files and pieces. The source here looks up mentions;
the retriever takes a list of sources, and the others read commit history and call graphs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from agent.retrieval.index import WordScanner, without_suffix
from agent.retrieval.ranking.mentions import Frame, MentionPlace, Mentions, NameMention
from agent.types import Reason

if TYPE_CHECKING:
    from agent.retrieval.index import Corpus, Piece
    from agent.types import Problem
    from agent.types.protocols import Snapshot

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

    def add_file(self, file: int, reason: Reason) -> None:
        """Add the reason unless a stronger one of the same feature is known."""
        _keep_best(self.files[file], reason)

    def add_piece(self, piece: int, reason: Reason) -> None:
        """Add the reason unless a stronger one of the same feature is known."""
        _keep_best(self.pieces[piece], reason)

    def merge(self, other: Evidence) -> None:
        """Add the reasons of another source, keeping the strongest of each feature."""
        for mine, theirs in ((self.files, other.files), (self.pieces, other.pieces)):
            for number, reasons in theirs.items():
                for reason in reasons.values():
                    _keep_best(mine[number], reason)


def _keep_best(reasons: dict[str, Reason], reason: Reason) -> None:
    known = reasons.get(reason.feature)
    if known is None or reason.value > known.value:
        reasons[reason.feature] = reason


class EvidenceSource(Protocol):
    """Finds evidence for the pieces of a corpus. Must be deterministic; may read the snapshot."""

    def __call__(
        self, problem: Problem, mentions: Mentions, snapshot: Snapshot, corpus: Corpus, /
    ) -> Evidence:
        """Return the evidence for this problem."""
        ...


def mention_evidence(
    _problem: Problem, mentions: Mentions, _snapshot: Snapshot, corpus: Corpus
) -> Evidence:
    """Return evidence for the paths, modules, symbols and stack frames that the problem names.

    This function is an `EvidenceSource`.
    """
    evidence = Evidence()
    named = [*(frame.path for frame in mentions.frames), *(path.path for path in mentions.paths)]
    paths = PathTable((file.path for file in corpus.files), named)
    _add_frames(mentions, corpus, paths, evidence)
    _add_paths(mentions, corpus, paths, evidence)
    _add_names(mentions, corpus, evidence)
    return evidence


# -------------------------------------------------------------------------------------------- paths


class PathTable:
    """Finds the files that a mentioned path may mean. Only paths in `mentions` can be found."""

    def __init__(self, paths: Iterable[str], mentions: Iterable[str]) -> None:
        self._by_name: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
        split = map(_path_parts, map(str.lower, mentions))
        wanted = frozenset(parts[-1] for parts in split if parts)
        for number, path in enumerate(paths) if wanted else ():
            name = path.rpartition("/")[2].lower()
            if name in wanted:
                self._by_name[name].append((number, path))

    def find(self, mention: str) -> tuple[int, ...]:
        """Return the files that share the longest tail of path components with the mention.

        `/usr/lib/site-packages/pkg/mod.py` matches `src/pkg/mod.py`: two common components are
        enough. One is enough if either path is only a file name.
        """
        parts = _path_parts(mention.lower())
        best = 1
        found: list[int] = []
        for number, path in self._by_name.get(parts[-1] if parts else "", ()):
            own = path.lower().split("/")
            common = _common_tail(parts, own)
            if common < min(2, len(parts), len(own)) or common < best:
                continue
            if common > best:
                best, found = common, []
            found.append(number)
        return tuple(found)


def _path_parts(path: str) -> list[str]:
    """Return the path's components, including the root, without empty ones and `.`."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return ["/", *parts] if path.startswith("/") else parts


def _common_tail(left: Sequence[str], right: Sequence[str]) -> int:
    count = 0
    for a, b in zip(reversed(left), reversed(right), strict=False):
        if a != b:
            break
        count += 1
    return count


def _add_frames(mentions: Mentions, corpus: Corpus, paths: PathTable, evidence: Evidence) -> None:
    rank = 0
    seen: set[tuple[str, int]] = set()
    for frame in mentions.frames:
        files = paths.find(frame.path)
        if not files or len(files) > MAX_AMBIGUITY or (frame.path, frame.line) in seen:
            continue
        seen.add((frame.path, frame.line))
        rank = 1 if frame.rank == 1 else rank + 1  # counts frames inside the repository only
        weight = FRAME_DECAY ** (rank - 1) / len(files)
        for file in files:
            note = f"traceback frame {rank}: {_frame_text(frame, corpus.files[file].path)}"
            evidence.add_file(file, Reason("traceback", FRAME_WEIGHT * weight, note))
            for piece in _pieces_at(corpus, file, frame.line, frame.function):
                evidence.add_piece(piece, Reason("traceback", LINE_WEIGHT * weight, note))


def _frame_text(frame: Frame, path: str) -> str:
    return f"{path}:{frame.line}" + (f" in {frame.function}" if frame.function else "")


def _pieces_at(corpus: Corpus, file: int, line: int, function: str) -> Iterator[int]:
    """Yield the pieces that a frame means, by function name if known: line numbers change."""
    pieces = list(corpus.pieces_of(file))
    named = [number for number, piece in pieces if _leaf(piece.symbol) == function and function]
    here = [number for number, piece in pieces if _holds(piece, line)]
    both = [number for number in named if number in here]
    yield from both or named or here


def _holds(piece: Piece, line: int) -> bool:
    inside = piece.start <= line <= piece.end
    return inside and not any(start <= line <= end for start, end in piece.holes)


def _leaf(symbol: str) -> str:
    return symbol.rpartition(".")[2]


def _add_paths(mentions: Mentions, corpus: Corpus, paths: PathTable, evidence: Evidence) -> None:
    for mention in mentions.paths:
        files = paths.find(mention.path)
        if not files or len(files) > MAX_AMBIGUITY:
            continue
        full = "/" in mention.path
        factor = _path_factor(mention.place) / len(files)
        for file in files:
            note = f"{mention.path} is named in the {mention.place.value}"
            weight = PATH_WEIGHT if full else BASENAME_WEIGHT
            evidence.add_file(file, Reason("path", weight * factor, note))
            if mention.line:
                for piece in _pieces_at(corpus, file, mention.line, ""):
                    reason = Reason("line", LINE_WEIGHT * factor, f"{note} at line {mention.line}")
                    evidence.add_piece(piece, reason)


def _path_factor(place: MentionPlace) -> float:
    """Return the weight of a place. Paths in code blocks come from logs and tracebacks, which have
    their own evidence.
    """
    return 0.5 if place is MentionPlace.CODE else 1.0


# -------------------------------------------------------------------------------------------- names


def _add_names(mentions: Mentions, corpus: Corpus, evidence: Evidence) -> None:
    names = [mention.name for mention in mentions.names]
    symbols = _SymbolTable(corpus, names)
    modules = _ModuleTable(corpus, names)
    for mention in mentions.names:
        module = modules.find(mention.name)
        if module is not None:
            _add_module(mention, module, corpus, evidence)
        if module is None or not module.exact:
            _add_symbols(mention, symbols, corpus, evidence)


@dataclass(frozen=True, slots=True)
class _ModuleHit:
    """The files that match the beginning of a dotted name, and the rest of the name."""

    files: tuple[int, ...]
    rest: str
    exact: bool  # the rest names something that the files define


class _ModuleTable:
    """Dotted module names. `src/pkg/mod.py` is `src.pkg.mod`, `pkg.mod` and `mod`.

    Only modules that match some part of a dotted name in `names` are stored.
    """

    def __init__(self, corpus: Corpus, names: Iterable[str]) -> None:
        self._corpus = corpus
        self._by_leaf: defaultdict[str, list[tuple[int, tuple[str, ...]]]] = defaultdict(list)
        wanted = frozenset(part for name in names if "." in name for part in name.split("."))
        for number, file in enumerate(corpus.files) if wanted else ():
            module = _module_path(file.path)
            if module.rpartition("/")[2] in wanted:
                parts = tuple(module.split("/"))
                self._by_leaf[parts[-1]].append((number, parts))

    def find(self, name: str) -> _ModuleHit | None:
        """Return the longest prefix of `name` that is a module.

        The prefix must have at least two parts, or the module must define the rest of the name.
        """
        parts = tuple(name.split("."))
        if len(parts) < 2:
            return None
        for length in range(len(parts), 0, -1):
            files = self._named(parts[:length])
            if not files:
                continue
            rest = ".".join(parts[length:])
            exact = bool(rest) and any(self._defines(file, rest) for file in files)
            if length >= 2 or exact:
                return _ModuleHit(files, rest, exact)
        return None

    def _named(self, parts: tuple[str, ...]) -> tuple[int, ...]:
        found = tuple(
            n for n, own in self._by_leaf.get(parts[-1], ()) if own[-len(parts) :] == parts
        )
        return found if len(found) <= MAX_AMBIGUITY else ()

    def _defines(self, file: int, symbol: str) -> bool:
        return any(True for _ in _defined(self._corpus, file, symbol))


def _module_path(path: str) -> str:
    """Return the path without its suffix; for a package's own file, its folder ("" at the top)."""
    path = without_suffix(path)
    folder, _, name = path.rpartition("/")
    return folder if name in _PACKAGE_FILES else path


def _defined(corpus: Corpus, file: int, symbol: str) -> Iterator[int]:
    """Yield the pieces of a file that have exactly this symbol."""
    first, end = corpus.first_piece[file], corpus.first_piece[file + 1]
    return (first + at for at, own in enumerate(corpus.symbols[first:end]) if own == symbol)


def _add_module(mention: NameMention, hit: _ModuleHit, corpus: Corpus, evidence: Evidence) -> None:
    factor = PLACE_FACTORS[mention.place]
    note = f"{mention.name} is named in the {mention.place.value}"
    for file in hit.files:
        weight = MODULE_WEIGHT * factor / len(hit.files)
        evidence.add_file(file, Reason("module", weight, note))
        for piece in _defined(corpus, file, hit.rest) if hit.exact else ():
            evidence.add_piece(piece, Reason("symbol", SYMBOL_WEIGHT * factor, note))


class _SymbolTable:
    """Pieces by the last part of their symbol, limited to the last parts of `names`."""

    def __init__(self, corpus: Corpus, names: Iterable[str]) -> None:
        self._symbols = corpus.symbols
        self._by_leaf: defaultdict[str, list[int]] = defaultdict(list)
        wanted = frozenset(map(_leaf, names)) - {""}
        # A symbol that ends in such a name has it as its last word: see `Names.leaves`.
        words = WordScanner().scan("\n".join(sorted(wanted)).encode("utf-8", "replace"))
        for number in np.flatnonzero(np.isin(corpus.names.leaves, words.hashes)).tolist():
            leaf = _leaf(self._symbols[number])
            if leaf in wanted:
                self._by_leaf[leaf].append(number)

    def find(self, name: str) -> tuple[tuple[int, ...], int]:
        """Return the pieces whose symbol shares the most trailing parts, and that number."""
        parts = tuple(name.split("."))
        best = 1
        found: list[int] = []
        for number in self._by_leaf.get(parts[-1], ()):
            common = _common_tail(parts, self._symbols[number].split("."))
            if common > best:
                best, found = common, []
            if common == best:
                found.append(number)
        return tuple(found), best


def _add_symbols(
    mention: NameMention, symbols: _SymbolTable, corpus: Corpus, evidence: Evidence
) -> None:
    pieces, depth = symbols.find(mention.name)
    leaf = _leaf(mention.name)
    if not pieces or len(pieces) > MAX_AMBIGUITY or (depth == 1 and len(leaf) < _MIN_SYMBOL):
        return
    # `client.get` names a `get`, but probably not this one of five.
    factor = PLACE_FACTORS[mention.place] / len(pieces) ** 0.5
    note = f"{mention.name} is named in the {mention.place.value}"
    for piece in pieces:
        evidence.add_piece(piece, Reason("symbol", SYMBOL_WEIGHT * factor, note))
        file = int(corpus.piece_file[piece])
        evidence.add_file(file, Reason("symbol", SYMBOL_FILE_WEIGHT * factor, note))
