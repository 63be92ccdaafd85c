"""Evidence beside word statistics: what the problem names and the repository has.

An `EvidenceSource` gives reasons for files and pieces. The one here looks up mentions; others
(commit history, call graphs) join the retriever's list of sources.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from agent.retrieval.features import group_of
from agent.retrieval.identifiers import without_suffix
from agent.retrieval.mentions import Frame, Mentions, NameMention, Place
from agent.retrieval.words import WordScanner
from agent.types import Reason

if TYPE_CHECKING:
    from agent.protocols import Snapshot
    from agent.retrieval.chunking import Piece
    from agent.retrieval.corpus import Corpus
    from agent.types import Problem

# Weights stand beside lexical scores that are normalised to a maximum of 1 each.
FRAME_WEIGHT = 1.0  # the file of the innermost frame that is in the repository
FRAME_DECAY = 0.7  # each further frame: the cause is often one or two callers up
PATH_WEIGHT = 1.0  # a path written out
BASENAME_WEIGHT = 0.6  # "models.py" alone may be meant loosely
MODULE_WEIGHT = 0.8  # pkg.mod
SYMBOL_FILE_WEIGHT = 0.4  # the file that defines a named symbol
SYMBOL_WEIGHT = 0.5  # the symbol itself, qualified or unique
LINE_WEIGHT = 0.5  # the piece a frame or `path:12` points into

PLACE_FACTORS: Mapping[Place, float] = {
    Place.TITLE: 1.0,
    Place.QUOTED: 0.8,
    Place.PROSE: 0.7,
    Place.CODE: 0.4,  # a reproduction script names what it calls, not what is wrong
}

MAX_AMBIGUITY = 12
"""A name that more pieces or files share says nothing about any of them."""

_MIN_SYMBOL = 3  # characters of an unqualified name
_PACKAGE_FILES = frozenset({"__init__", "mod", "index"})


@dataclass(slots=True)
class Evidence:
    """Reasons by number of file and of piece in the corpus. A feature counts once: its best."""

    files: defaultdict[int, dict[str, Reason]] = field(default_factory=lambda: defaultdict(dict))
    pieces: defaultdict[int, dict[str, Reason]] = field(default_factory=lambda: defaultdict(dict))

    def add_file(self, file: int, reason: Reason) -> None:
        """Keep the reason unless a stronger one of its feature is known."""
        _keep_best(self.files[file], reason)

    def add_piece(self, piece: int, reason: Reason) -> None:
        """Keep the reason unless a stronger one of its feature is known."""
        _keep_best(self.pieces[piece], reason)

    def merge(self, other: Evidence) -> None:
        """Take in the reasons of another source."""
        for mine, theirs in ((self.files, other.files), (self.pieces, other.pieces)):
            for number, reasons in theirs.items():
                for reason in reasons.values():
                    _keep_best(mine[number], reason)

    def without(self, groups: frozenset[str]) -> Evidence:
        """The reasons whose features are not of these groups (see `features`)."""
        if not groups:
            return self
        kept = Evidence()
        for mine, theirs in ((kept.files, self.files), (kept.pieces, self.pieces)):
            for number, reasons in theirs.items():
                left = {n: r for n, r in reasons.items() if group_of(n) not in groups}
                if left:
                    mine[number] = left
        return kept


def _keep_best(reasons: dict[str, Reason], reason: Reason) -> None:
    known = reasons.get(reason.feature)
    if known is None or reason.value > known.value:
        reasons[reason.feature] = reason


class EvidenceSource(Protocol):
    """Finds evidence for the pieces of a corpus. Deterministic; may read the snapshot."""

    def __call__(
        self, problem: Problem, mentions: Mentions, snapshot: Snapshot, corpus: Corpus, /
    ) -> Evidence:
        """The reasons found."""
        ...


def mention_evidence(
    _problem: Problem, mentions: Mentions, _snapshot: Snapshot, corpus: Corpus
) -> Evidence:
    """Paths, modules, symbols and stack frames that the problem names. An `EvidenceSource`."""
    evidence = Evidence()
    named = [*(frame.path for frame in mentions.frames), *(path.path for path in mentions.paths)]
    paths = PathTable((file.path for file in corpus.files), named)
    _add_frames(mentions, corpus, paths, evidence)
    _add_paths(mentions, corpus, paths, evidence)
    _add_names(mentions, corpus, evidence)
    return evidence


# -------------------------------------------------------------------------------------------- paths


class PathTable:
    """Finds the files that a mentioned path may mean; no other than `mentions` may be asked for."""

    def __init__(self, paths: Iterable[str], mentions: Iterable[str]) -> None:
        self._by_name: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
        split = map(_path_parts, map(str.lower, mentions))
        wanted = frozenset(parts[-1] for parts in split if parts)
        for number, path in enumerate(paths) if wanted else ():
            name = path.rpartition("/")[2].lower()
            if name in wanted:
                self._by_name[name].append((number, path))

    def find(self, mention: str) -> tuple[int, ...]:
        """Files that share the longest tail of path components with the mention.

        `/usr/lib/site-packages/pkg/mod.py` means `src/pkg/mod.py`: two components in common are
        enough; one is when either path is no more than a file name.
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
    """Its components, the root one of them; not those that mean nothing (`./a//b`)."""
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
        rank = 1 if frame.rank == 1 else rank + 1  # of the frames inside the repository
        weight = FRAME_DECAY ** (rank - 1) / len(files)
        for file in files:
            note = f"traceback frame {rank}: {_frame_text(frame, corpus.files[file].path)}"
            evidence.add_file(file, Reason("traceback", FRAME_WEIGHT * weight, note))
            for piece in _pieces_at(corpus, file, frame.line, frame.function):
                evidence.add_piece(piece, Reason("traceback", LINE_WEIGHT * weight, note))


def _frame_text(frame: Frame, path: str) -> str:
    return f"{path}:{frame.line}" + (f" in {frame.function}" if frame.function else "")


def _pieces_at(corpus: Corpus, file: int, line: int, function: str) -> Iterator[int]:
    """The pieces that a frame means: by name where it has one (line numbers go stale)."""
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


def _path_factor(place: Place) -> float:
    """Paths in code blocks come from logs and tracebacks, which have their own evidence."""
    return 0.5 if place is Place.CODE else 1.0


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
    """`files` that a dotted name begins with, and what of the name is left after them."""

    files: tuple[int, ...]
    rest: str
    exact: bool  # the rest names something defined there


class _ModuleTable:
    """Dotted module names: of `src/pkg/mod.py`, `src.pkg.mod`, `pkg.mod` and `mod`.

    Holds modules that some part of a dotted one of `names` may mean; no other will be asked for.
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
        """The longest beginning of `name` that is a module; at least two parts or a known rest."""
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
    """The path without its suffix; of a package's own file, the folder's ("" at the top)."""
    path = without_suffix(path)
    folder, _, name = path.rpartition("/")
    return folder if name in _PACKAGE_FILES else path


def _defined(corpus: Corpus, file: int, symbol: str) -> Iterator[int]:
    """Pieces of a file with exactly this symbol."""
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
    """Pieces by the last part of their symbol, of those that `names` end in."""

    def __init__(self, corpus: Corpus, names: Iterable[str]) -> None:
        self._symbols = corpus.symbols
        self._by_leaf: defaultdict[str, list[int]] = defaultdict(list)
        wanted = frozenset(map(_leaf, names)) - {""}
        # The last word of a symbol that ends in such a name is that name: see `Names.leaves`.
        words = WordScanner().scan("\n".join(sorted(wanted)).encode("utf-8", "replace"))
        for number in np.flatnonzero(np.isin(corpus.names.leaves, words.hashes)).tolist():
            leaf = _leaf(self._symbols[number])
            if leaf in wanted:
                self._by_leaf[leaf].append(number)

    def find(self, name: str) -> tuple[tuple[int, ...], int]:
        """Pieces whose symbol shares the most parts at the end with `name`, and how many."""
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
    # `client.get` names a `get`, but hardly this one of five.
    factor = PLACE_FACTORS[mention.place] / len(pieces) ** 0.5
    note = f"{mention.name} is named in the {mention.place.value}"
    for piece in pieces:
        evidence.add_piece(piece, Reason("symbol", SYMBOL_WEIGHT * factor, note))
        file = int(corpus.piece_file[piece])
        evidence.add_file(file, Reason("symbol", SYMBOL_FILE_WEIGHT * factor, note))
