"""The preset `original` chooses the chunks that a plain transcription of that pipeline chooses."""

from __future__ import annotations

import ast
import asyncio
from pathlib import Path

import pytest

from agent.retrieval.context import pack
from agent.retrieval.ranking import HybridRetriever, preset
from agent.settings import load
from agent.shared.tokens import TiktokenCounter
from agent.types import Problem
from agent.wiring import packing_options
from tests.support.fakes import MemorySnapshot
from tests.support.ignored_events import ignore
from tests.support.word_embedder import WordEmbedder

WORDS = ["cookie", "jar", "expires", "session", "policy", "domain", "path", "value", "redirect"]
PROBLEM = Problem("cookie jar expires", "The session policy in jar_3.py, of domain and (path).")


def function(number: int, words: int) -> str:
    body = [WORDS[(number * 7 + n * (number % 5 + 1)) % 9] for n in range(words)]
    lines = ["    # " + " ".join(body[at : at + 9]) for at in range(0, words, 9)]
    return "\n".join((f"def handle_{number}(jar):", *lines, "    return jar.cookie.expires\n"))


FILES = {
    f"pkg/jar_{n}.py": "\n\n".join(function(10 * n + m, 5 + (n * m * 37) % 90) for m in range(9))
    for n in range(7)
} | {
    "pkg/jar_8.py": function(99, 2_400) + "\n\n" + function(98, 12),
    "web/jar.js": "// cookie jar expires session policy domain path\n" * 9,
}

Place = tuple[str, int, int]


def transcription(problem: str, budget: int) -> list[Place]:
    """Prefilter by shared words, order by cosine and file name, pack up to the first oversized."""
    wanted = set(problem.lower().split())
    chunks: list[tuple[Place, str]] = []
    for path, text in sorted(FILES.items()):
        if path.endswith(".py"):
            lines = text.removesuffix("\n").split("\n")
            spans = [(1, len(lines))]
            spans += [(d.lineno, d.end_lineno or 0) for d in ast.parse(text).body]  # type: ignore[attr-defined]
            chunks += [((path, a, b), "\n".join(lines[a - 1 : b])) for a, b in spans]
    shared = {place: len(wanted & set(text.lower().split())) for place, text in chunks}
    first = sorted(chunks, key=lambda chunk: (-shared[chunk[0]], chunk[0]))[:50]
    texts = [problem[:5_000], *(text[:5_000] for _, text in first)]
    rows = asyncio.run(WordEmbedder().embed(texts, kind="document")).astype(float)
    scores = {place: float(rows[0] @ row) for (place, _), row in zip(first, rows[1:], strict=True)}
    for place in scores:
        name = place[0].rpartition("/")[2]
        scores[place] += 0.2 if name in problem or name.removesuffix(".py") in problem else 0.0
    chosen, used = list[Place](), 0
    for place, text in sorted(first, key=lambda chunk: (-scores[chunk[0]], chunk[0])):
        used += int(len(text.split()) * 0.75)
        if used > int(budget * 0.85) or len(chosen) == 30:
            break
        chosen.append(place)
    return chosen


@pytest.mark.parametrize("budget", [200, 400, 1_200, 6_000, 40_000])
def test_the_preset_packs_what_the_original_packs(budget: int, tmp_path: Path) -> None:
    settings = load({"preset": "original", "context_tokens": budget, "cache_dir": tmp_path})
    retriever = HybridRetriever(
        preset("original"), embedder=WordEmbedder(), index_path=None, reporter=ignore
    )
    snapshot = MemorySnapshot(FILES)
    ranking = asyncio.run(retriever.rank(PROBLEM, snapshot))
    counter = TiktokenCounter("o200k_base")
    bundle = pack(PROBLEM, ranking, snapshot, counter, packing_options(settings))
    places = [(piece.path, piece.start, piece.end) for piece in bundle.pieces]
    assert places == transcription(PROBLEM.text, budget)
    assert bundle.tokens == counter.count(bundle.text)
    for path, start, end in places:
        assert f"### {path}:L{start}-{end}" in bundle.text
