"""The code that a reply named under `missing`, found and packed for the repair prompt.

The names are the model's: `path`, `path:Class.method`, or a bare symbol. What cannot be resolved to
code that exists is left out; what the model has already been shown is not sent twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agent.context.options import PackingOptions
from agent.context.packing import pack
from agent.context.views import FileViews, chunk_lines
from agent.protocols import Chunker, Snapshot, TokenCounter
from agent.types import Chunk, ContextBundle, Problem, Ranking, ScoredChunk

# A repair call repeats the whole conversation; what is added should stay small beside it.
MISSING_TOKENS = 2000

# Names beyond these are a model that asks for everything.
MAX_NAMES = 8


def missing_context(
    names: Sequence[str],
    problem: Problem,
    ranking: Ranking,
    bundle: ContextBundle,
    snapshot: Snapshot,
    counter: TokenCounter,
    chunker: Chunker,
) -> str:
    """The named code within MISSING_TOKENS, rendered like the context; "" if there is none."""
    views = FileViews(snapshot)
    shown: dict[str, set[int]] = {}
    for piece in bundle.pieces:
        for first, last in piece.shown:
            shown.setdefault(piece.path, set()).update(range(first, last + 1))
    found: dict[str, Chunk] = {}
    for name in names[:MAX_NAMES]:
        for chunk in _resolve(name, ranking, snapshot, chunker):
            view = views[chunk.path]
            lines = {n for n in chunk_lines(chunk, view) if not view.is_blank(n)}
            if not lines <= shown.get(chunk.path, set()):
                found.setdefault(chunk.id, chunk)
    if not found:
        return ""
    wanted = Ranking(
        tuple(ScoredChunk(c, float(len(found) - i)) for i, c in enumerate(found.values())),
        (),
        len(found),
    )
    options = PackingOptions(budget=MISSING_TOKENS, reserve=0.0)
    return pack(problem, wanted, snapshot, counter, options).text


def _resolve(name: str, ranking: Ranking, snapshot: Snapshot, chunker: Chunker) -> Iterator[Chunk]:
    path, _, symbol = name.strip().partition(":")
    file = _file(path, snapshot)
    if file is None:
        wanted = name.rpartition(":")[2].strip().removesuffix("()")
        yield from (s.chunk for s in ranking.chunks if _is_called(s.chunk, wanted))
        return
    chunks = chunker(snapshot.files[file], snapshot.text(file))
    symbol = symbol.strip().removesuffix("()")
    yield from (c for c in chunks if not symbol or _is_called(c, symbol))


def _file(path: str, snapshot: Snapshot) -> str | None:
    """The file of that path, or the only one that ends with it."""
    wanted = path.strip().removeprefix("./")
    if wanted in snapshot.files:
        return wanted
    ends = [p for p in snapshot.files if wanted and p.endswith(f"/{wanted}")]
    return ends[0] if len(ends) == 1 else None


def _is_called(chunk: Chunk, symbol: str) -> bool:
    return bool(symbol) and (chunk.symbol == symbol or chunk.symbol.endswith(f".{symbol}"))
