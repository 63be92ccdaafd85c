"""Named code comes first in the ranking and in the context."""

from __future__ import annotations

from agent.retrieval.context import PackingOptions, pack
from agent.retrieval.context.asked import LOCATED, put_first
from agent.retrieval.index.chunking import TreeSitterChunker
from agent.types import Problem
from tests.support.chunks import make_ranking
from tests.support.fakes import MemorySnapshot
from tests.support.tokens import ApproximateCounter

LONG = "".join(f"def other_{n}(x):\n    return x + {n}\n\n\n" for n in range(120))
FILES = {
    "a.py": LONG,
    "b.py": (
        "TABLE = {\n    'x': 1,\n}\n\n\nclass Basket:\n    limit = 3\n\n    def total(self):\n"
        "        return 1\n\n    def add(self):\n        return 2\n\n\ndef free():\n    return 3\n"
    ),
}
SNAPSHOT = MemorySnapshot(FILES)
CHUNKER = TreeSitterChunker()
RANKING = make_ranking(
    [c for path, file in SNAPSHOT.files.items() for c in CHUNKER(file, SNAPSHOT.text(path))]
)


def located(*names: str):
    return put_first(names, RANKING, SNAPSHOT, CHUNKER)


def test_the_named_code_leads_the_ranking_in_its_order():
    found = located("b.py:free", "Basket.total", "nothing_like_it")
    chunks = found.ranking.chunks
    assert [s.chunk.symbol for s in chunks[:2]] == ["free", "Basket.total"]
    assert [s.reasons[0].feature for s in chunks[:3]] == [LOCATED, LOCATED, "lexical"]
    assert found.unknown == ("nothing_like_it",)
    scores = [scored.score for scored in chunks]
    assert scores == sorted(scores, reverse=True)
    assert all(abs(sum(r.value for r in s.reasons) - s.score) < 1e-9 for s in chunks)
    assert len(chunks) == len(RANKING.chunks)


def test_a_table_and_an_attribute_are_chunks_of_their_lines():
    found = located("TABLE", "b.py:Basket.limit")
    assert [(c.start, c.end, c.text) for c in found.chunks] == [
        (1, 3, "TABLE = {\n    'x': 1,\n}"),
        (7, 7, "    limit = 3"),
    ]


def test_what_stands_in_a_named_class_comes_behind_all_that_is_named():
    symbols = [chunk.symbol for chunk in located("Basket", "free").chunks]
    assert symbols == ["Basket", "free", "Basket.total", "Basket.add"]


def test_a_long_file_gives_its_best_chunks():
    found = located("a.py")
    assert [chunk.symbol for chunk in found.chunks] == [f"other_{n}" for n in range(6)]
    assert found.unknown == ()


def test_named_code_is_packed_before_smaller_chunks():
    names = ("Basket.total", "free", "TABLE")
    counter = ApproximateCounter()
    bundle = pack(
        Problem("x", ""), located(*names).ranking, SNAPSHOT, counter,
        PackingOptions(budget=200), chunker=CHUNKER,
    )  # fmt: skip
    assert {"return 3", "'x': 1", "return 1"} <= {
        line.strip(" ,") for line in bundle.text.split("\n")
    }
    assert bundle.likely_complete is None
