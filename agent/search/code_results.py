"""Search results from the code: symbols looked up by name, and the matching chunks of a ranking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agent.retrieval.index import WORD, split_lines, without_suffix
from agent.search.calibration import code_relevance
from agent.search.passages import Label, Passage, PoolHit
from agent.search.text_format import Query, described, read_query
from agent.shared.secrets import is_secret_path
from agent.types import Chunk, ChunkKind, Reason

if TYPE_CHECKING:
    from agent.retrieval.index import Corpus
    from agent.types import Ranking, ScoredChunk
    from agent.types.protocols import Snapshot


def has_words(query: str) -> bool:
    """Whether the query has a word to search for."""
    return WORD.search(query) is not None


def matching_chunks(query: str, ranking: Ranking) -> tuple[ScoredChunk, ...]:
    """Return the chunks that match the query, in order.

    A ranking contains all chunks. A chunk without a reason has a rank that does not depend on the
    query, so it is left out. A query without a word matches no chunk.
    """
    if not has_words(query):
        return ()
    return tuple(hit for hit in ranking.chunks if hit.score != 0.0 or hit.reasons)


FUNCTIONS = (ChunkKind.FUNCTION, ChunkKind.METHOD)


def relevance_of(found: Sequence[ScoredChunk]) -> list[float]:
    """Return the probability that each of these results, best first, is what a query describes."""
    functions = [hit.chunk.kind in FUNCTIONS for hit in found]
    return code_relevance([hit.score for hit in found], functions)


MAX_EXACT = 12
"""If more symbols share a name, the name is searched as an ordinary word."""

_LEAST_LETTERS = 3  # minimum length of a name without dots


def find_exact(query: Query, corpus: Corpus, snapshot: Snapshot) -> tuple[PoolHit, ...]:
    """Return the symbols with the queried name by path and line.

    Returns () if there are none or more than `MAX_EXACT`.
    """
    places = [(symbol, corpus.path_of(n)) for n, symbol in enumerate(corpus.symbols)]
    chosen = _named(query, places)
    reasons = (Reason("exact", 1.0, f"{query.name} is its name"),)
    return tuple(PoolHit(code_passage(_chunk(corpus, n, snapshot)), 1.0, reasons) for n in chosen)


def named_first(text: str, found: Sequence[ScoredChunk]) -> list[tuple[ScoredChunk, float]]:
    """Return results with their relevance, those whose name is the whole query first, with 1.0."""
    named = _named(read_query(text), [(hit.chunk.symbol, hit.chunk.path) for hit in found])
    first = frozenset(named)
    rest = [hit for n, hit in enumerate(found) if n not in first]
    return [(found[n], 1.0) for n in named] + list(zip(rest, relevance_of(rest), strict=True))


def _named(query: Query, places: Sequence[tuple[str, str]]) -> list[int]:
    """Return the numbers of the symbols and paths that the query names; [] if too many."""
    if len(query.name) < _LEAST_LETTERS:
        return []
    parts = tuple(query.name.split("."))
    leaf = parts[-1]
    named = [n for n, (symbol, _) in enumerate(places) if symbol.rpartition(".")[2] == leaf]
    numbers = [n for n in named if _means(parts, *places[n])]
    whole = [n for n in numbers if places[n][0] == query.name]
    chosen = whole or numbers
    return chosen if len(chosen) <= MAX_EXACT else []


def code_passage(chunk: Chunk) -> Passage:
    """Convert a chunk to a passage of the corpus `code`."""
    code = "" if is_secret_path(chunk.path) else chunk.text  # a server may receive it
    return Passage(
        corpus=Label.CODE,
        title=chunk.symbol or chunk.kind.value,
        text=described(chunk.symbol, chunk.kind.value, chunk.path, code),
        path=chunk.path,
        start=chunk.start,
        end=chunk.end,
        symbol=chunk.symbol,
        language=chunk.language,
        tags=(chunk.kind.value,),
    )


def _means(parts: Sequence[str], symbol: str, path: str) -> bool:
    """Whether `pkg.mod.Class.method`, or a suffix of it, names this symbol of this file."""
    own = tuple(symbol.split("."))
    common = min(len(own), len(parts))
    if own[-common:] != tuple(parts[-common:]):
        return False
    module = tuple(parts[: len(parts) - common])
    folders = tuple(without_suffix(path).removesuffix("/__init__").split("/"))
    return not module or folders[-len(module) :] == module


def _chunk(corpus: Corpus, number: int, snapshot: Snapshot) -> Chunk:
    file = corpus.files[int(corpus.piece_file[number])]
    return corpus.pieces[number].chunk(file, split_lines(snapshot.text(file.path)))
