"""Cuts files and counts their contents. A file's part depends only on its content and language."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Protocol

import numpy as np

from agent.retrieval.index.chunking import TreeSitterChunker, split_lines
from agent.retrieval.index.corpus import KINDS, Block
from agent.retrieval.index.outline import GRAMMARS
from agent.retrieval.index.references import imports
from agent.retrieval.index.words import IDENTIFIER, Terms, name_hash

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.retrieval.index.chunking import Piece

FORMAT = 8
"""Increase when chunking, terms or the layout change; older records are then ignored."""

MAX_USES = 200
"""Most names that one piece uses: a longer list is a registry, not a caller."""

_MAX_LINE = 200_000  # characters; what follows in a line is data
_MAX_WORDS = 1 << 19  # distinct words cached; beyond it, the cache is emptied

# `.name`, `->name`, `::name`, `name(`, and names with several capitalised parts (`HTTPError`); what
# is defined matches without a group.
_USED = re.compile(
    rf"(?<!{IDENTIFIER})(?:"
    rf"(?:def|class|fn|func|function|struct|interface|trait|enum)(?!{IDENTIFIER}).{IDENTIFIER}+"
    rf"|((?<=[.:>]){IDENTIFIER}+|{IDENTIFIER}+(?=\()"
    rf"|(?:[A-Z]\w*[a-z0-9][A-Z]|[A-Z]{{2,}}[a-z]){IDENTIFIER}*))",
    re.DOTALL,
)
# They come before brackets without being called.
_KEYWORDS = frozenset(
    """
    if elif else for while return and or not in is with assert yield await del print switch catch
    except raise throw function match case when until unless elsif foreach sizeof lambda self this
    super cls
    """.split()  # noqa: SIM905 - as STOP_WORDS
)


@dataclass(frozen=True, slots=True)
class PieceTerms:
    """Terms of pieces: ascending `vocabulary` uint64 (v,); `pieces`, `terms` indices and counts
    int64 (m,), ordered by term.
    """

    size: int
    vocabulary: NDArray[np.uint64]
    pieces: NDArray[np.int64]
    terms: NDArray[np.int64]
    counts: NDArray[np.int64]
    name_counts: NDArray[np.int64]


class PieceEncoder(Protocol):
    """Computes a vector for every piece from its terms alone. `fingerprint` changes with the
    vectors.
    """

    @property
    def dimension(self) -> int: ...  # noqa: D102

    @property
    def fingerprint(self) -> str: ...  # noqa: D102

    def encode(self, terms: PieceTerms, /) -> bytes:
        """Return the vectors as bytes: int8 of shape (terms.size, dimension), C order."""


class BlockBuilder:
    """Cuts files and counts their contents. Holds parsers and cached words; use one per thread."""

    def __init__(self, encoder: PieceEncoder | None = None) -> None:
        self._chunker = TreeSitterChunker()
        self._encoder = encoder
        self._terms = Terms()
        self._hash = cache(name_hash)

    def build(self, files: Sequence[tuple[str, str]]) -> Block:
        """Return the block of files, each a language and a decoded text."""
        if len(self._terms) > _MAX_WORDS:
            self._terms, self._hash = Terms(), cache(name_hash)
        pieces: list[Piece] = []
        sizes: list[int] = []
        texts: list[str] = []
        uses: list[list[int]] = []
        for language, text in files:
            lines = [line[:_MAX_LINE] for line in split_lines(text)]
            own = self._chunker.pieces(text, language)
            bodies = [piece.text(lines) for piece in own]
            sizes.append(len(own))
            pieces += own
            texts += bodies
            is_code = language in GRAMMARS
            uses += [
                self._uses(body, piece) if is_code else []
                for body, piece in zip(bodies, own, strict=True)
            ]
        read = ["\n".join(imports(text, language)) for language, text in files]
        return {
            **self._counted(pieces, texts),
            **self._named(pieces, uses),
            "file_sizes": _column(sizes),
            "starts": _column([piece.start for piece in pieces]),
            "ends": _column([piece.end for piece in pieces]),
            "kinds": _column([KINDS.index(piece.kind) for piece in pieces]),
            **_texts("symbol", [piece.symbol for piece in pieces]),
            **_texts("signature", [piece.signature for piece in pieces]),
            **_runs("hole", [[line for hole in piece.holes for line in hole] for piece in pieces]),
            **_texts("import", read),
        }

    def _counted(self, pieces: Sequence[Piece], texts: Sequence[str]) -> Block:
        """Return the columns of terms."""
        rows: list[tuple[int, int, int]] = []
        hashes: list[int] = []
        for number, (piece, text) in enumerate(zip(pieces, texts, strict=True)):
            counts, named = self._terms.count_hashes(text), self._terms.count_hashes(piece.symbol)
            hashes += counts
            rows += [(number, count, named.pop(term, 0)) for term, count in counts.items()]
            hashes += named
            rows += [(number, 0, count) for count in named.values()]
        vocabulary, ranks = np.unique(np.array(hashes, dtype=np.uint64), return_inverse=True)
        columns = np.array(rows, dtype=np.int64).reshape(-1, 3).T
        order = np.lexsort((columns[0], ranks))
        owners, counts_, name_counts = columns[:, order]
        size = len(pieces)
        terms = PieceTerms(size, vocabulary, owners, ranks[order], counts_, name_counts)
        vectors = self._encoder.encode(terms) if self._encoder else b""
        return {
            "vocabulary": vocabulary,
            "postings": np.bincount(terms.terms, minlength=vocabulary.size),
            "posting_pieces": owners,
            "counts": counts_,
            "name_counts": name_counts,
            "text_lengths": np.bincount(owners, counts_, size),
            "name_lengths": np.bincount(owners, name_counts, size),
            "vectors": np.frombuffer(vectors, np.uint8),
        }

    def _named(self, pieces: Sequence[Piece], uses: Sequence[list[int]]) -> Block:
        """Return the columns of identifiers."""
        leaves = [self._leaf(piece) for piece in pieces]
        hashes = np.array([*leaves, *chain.from_iterable(uses)], dtype=np.uint64)
        names, places = np.unique(hashes, return_inverse=True)
        return {
            "names": names,
            "leaves": places[: len(leaves)],
            "use_sizes": _column([len(run) for run in uses]),
            "uses": places[len(leaves) :],
        }

    def _leaf(self, piece: Piece) -> int:
        """Return the hash of the last word of the symbol, 0 for none."""
        words = _WORD.findall(piece.symbol)
        return self._hash(words[-1]) if words else 0

    def _uses(self, text: str, piece: Piece) -> list[int]:
        """Return hashes of the names other than its leaf that the piece calls, reads or types."""
        names = {*_USED.findall(text)} - _KEYWORDS - {""}
        hashes = {self._hash(name) for name in names if not name[0].isdigit()}
        return sorted(hashes - {self._leaf(piece)})[:MAX_USES]


_WORD = re.compile(f"{IDENTIFIER}+")


def _column(values: list[int]) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def _runs(name: str, runs: list[list[int]]) -> Block:
    values = _column([value for run in runs for value in run])
    return {f"{name}_sizes": _column([len(run) for run in runs]), f"{name}s": values}


def _texts(name: str, texts: list[str]) -> Block:
    encoded = [text.encode("utf-8", "replace") for text in texts]
    data = np.frombuffer(b"".join(encoded), np.uint8)
    return {f"{name}_sizes": _column([len(text) for text in encoded]), f"{name}s": data}
