"""Packing with the real chunker and the real tokenizer."""

from __future__ import annotations

from pathlib import Path

import agent.retrieval.context
from agent.retrieval.context.builder import PackingOptions
from agent.retrieval.context.packing import pack
from agent.retrieval.index.chunking import TreeSitterChunker
from agent.shared.tokens import TiktokenCounter
from agent.types import Problem
from tests.support.chunks import make_ranking
from tests.support.fakes import MemorySnapshot


def test_own_sources() -> None:
    folder = Path(agent.retrieval.context.__file__).parent
    snapshot = MemorySnapshot({f"ctx/{p.name}": p.read_text() for p in sorted(folder.glob("*.py"))})
    chunker = TreeSitterChunker()
    chunks = [
        chunk
        for path, file in snapshot.files.items()
        for chunk in chunker(file, snapshot.text(path))
    ]
    wanted = "ContextBuilder._take_part"
    chunks.sort(key=lambda c: (c.symbol != wanted, c.path, c.start, c.symbol))
    counter = TiktokenCounter()
    options = PackingOptions(max_chunks=100)  # these modules have many short functions
    bundle = pack(
        Problem("parts", ""), make_ranking(chunks), snapshot, counter, options, chunker=chunker
    )

    assert 0.9 * bundle.budget < bundle.tokens <= bundle.budget
    (method,) = (piece for piece in bundle.pieces if piece.symbol == wanted)
    assert method.form == "whole"
    text = bundle.text
    assert "\nclass ContextBuilder:\n" in text
    assert "from agent.retrieval.context.excerpt import best_lines" in text
    assert "    def _added(self, share: FileShare) -> int:\n" in text
    # The helper of another file, imported here.
    assert "\ndef best_lines(\n" in text
