from __future__ import annotations

import dataclasses

from agent.retrieval.context.builder import PackingOptions
from agent.retrieval.context.packing import Receipt, make_receipt, pack, render_receipt
from agent.types import Problem, Ranking, Reason
from tests.support.chunks import make_chunk, make_ranking
from tests.support.fakes import MemorySnapshot
from tests.support.tokens import ApproximateCounter

BODY = "def parse(text):\n    return text\n\n\ndef other(text):\n    return text + 'x'\n"


def sample() -> Receipt:
    snapshot = MemorySnapshot({"a.py": "import os\n" + BODY, "b|c.py": BODY, ".env": "A=1\n"})
    chunks = [
        make_chunk(snapshot, "a.py", 2, 3, "parse"),
        make_chunk(snapshot, "b|c.py", 1, 2, "parse"),
        make_chunk(snapshot, "b|c.py", 5, 6, "other"),
        make_chunk(snapshot, ".env", 1, 1),
    ]
    ranking = make_ranking(chunks, total=9)
    first = dataclasses.replace(
        ranking.chunks[0],
        reasons=(
            Reason("lexical", 0.5),
            Reason("path", -0.75, "named in\nthe issue"),
            Reason("x", 0.0),
        ),
    )
    ranking = Ranking((first, *ranking.chunks[1:]), (), 9, notes=("embeddings off",))
    options = PackingOptions(budget=400)
    bundle = pack(Problem("t", ""), ranking, snapshot, ApproximateCounter(), options)
    return make_receipt(ranking, bundle)


def test_says_why_each_chunk_is_in_and_what_was_cut() -> None:
    assert render_receipt(sample()) == EXPECTED


EXPECTED = """\
78 of 340 tokens (23%; of 400, 15% kept in reserve): signatures 16, whole 62
4 pieces in 2 files, from 4 ranked of 9 chunks

| rank | piece              | form       | tokens | score | why                                                            |
|-----:|--------------------|------------|-------:|------:|----------------------------------------------------------------|
|      | a.py:L1-1          | signatures |      4 |       | class headers, imports and signatures around the chosen chunks |
|    1 | a.py:L2-3 parse    | whole      |     27 | 1.000 | path -0.75 (named in the issue), lexical 0.50                  |
|      | b\\|c.py:L1-2       | signatures |     12 |       | class headers, imports and signatures around the chosen chunks |
|    3 | b\\|c.py:L5-6 other | whole      |     35 | 0.980 | lexical 0.98                                                   |

Left out: 2 (duplicate 1, secret 1)

| rank | chunk              | tokens | score | cut by    |
|-----:|--------------------|-------:|------:|-----------|
|    2 | b\\|c.py:L1-2 parse |     11 | 0.990 | duplicate |
|    4 | .env:L1-1          |      3 | 0.970 | secret    |

- embeddings off
- 1 chunk(s) of files that hold secrets left out
"""  # noqa: E501
