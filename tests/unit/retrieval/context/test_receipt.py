from __future__ import annotations

import dataclasses
import json

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


def test_json_carries_the_same() -> None:
    receipt = sample()
    value = json.loads(json.dumps(dataclasses.asdict(receipt)))
    assert value["tokens"] == receipt.tokens
    assert value["tokens_by_form"] == dict(receipt.tokens_by_form)
    assert [piece["rank"] for piece in value["pieces"]] == [None, 1, None, 3]
    assert value["pieces"][1]["reasons"][1] == {
        "feature": "path",
        "value": -0.75,
        "note": "named in\nthe issue",
    }
    assert [(d["rank"], d["cut_by"]) for d in value["dropped"]] == [(2, "duplicate"), (4, "secret")]
    assert value["notes"] == ["embeddings off", "1 chunk(s) of files that hold secrets left out"]


def test_an_empty_context() -> None:
    bundle = pack(Problem("t", ""), make_ranking([]), MemorySnapshot({}), ApproximateCounter())
    receipt = make_receipt(make_ranking([]), bundle)
    assert render_receipt(receipt) == (
        "0 of 5,100 tokens (0%; of 6,000, 15% kept in reserve)\n"
        "0 pieces in 0 files, from 0 ranked of 0 chunks\n"
    )


def test_tokens_of_no_piece_have_an_owner_too() -> None:
    inner = "    pass  # long enough for a mark in its place\n"
    snapshot = MemorySnapshot({"a.py": f"A = 1\n\ndef f():\n{inner}{inner}\nB = 2\n"})
    ranking = make_ranking([make_chunk(snapshot, "a.py", 1, 7, holes=((3, 5),))])
    options = PackingOptions(budget=1000, reserve=0.0)
    bundle = pack(Problem("t", ""), ranking, snapshot, ApproximateCounter(), options)
    receipt = make_receipt(ranking, bundle)
    rest = bundle.tokens - sum(piece.tokens for piece in bundle.pieces)
    assert rest > 0  # the sentence about elisions
    (first, *_) = render_receipt(receipt).splitlines()
    whole = bundle.tokens - rest
    assert first.endswith(f"%): whole {whole}, preamble and blank lines {rest}")  # no reserve


def test_a_part_knows_its_rank() -> None:
    lines = "\n".join(f"    value_{i} = {i}" for i in range(400))
    snapshot = MemorySnapshot({"a.py": f"def long():\n{lines}\n"})
    ranking = make_ranking([make_chunk(snapshot, "a.py", 1, 401, "long")])
    options = PackingOptions(budget=1000)
    bundle = pack(Problem("value_300", ""), ranking, snapshot, ApproximateCounter(), options)
    (piece,) = make_receipt(ranking, bundle).pieces
    assert (piece.form, piece.rank) == ("part", 1)


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
