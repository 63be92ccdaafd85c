from __future__ import annotations

import dataclasses
import re

from agent.retrieval.context.builder import PackingOptions
from agent.retrieval.context.packing import make_receipt, pack, render_receipt
from agent.types import Problem, Ranking, Reason
from tests.support.chunks import make_chunk, make_ranking
from tests.support.fakes import MemorySnapshot
from tests.support.tokens import ApproximateCounter

BODY = "def parse(text):\n    return text\n\n\ndef other(text):\n    return text + 'x'\n"


def test_says_why_each_chunk_is_in_and_what_was_cut() -> None:
    snapshot = MemorySnapshot({"a.py": "import os\n" + BODY, "b|c.py": BODY, ".env": "A=1\n"})
    chunks = [
        make_chunk(snapshot, "a.py", 2, 3, "parse"),
        make_chunk(snapshot, "b|c.py", 1, 2, "parse"),
        make_chunk(snapshot, ".env", 1, 1),
    ]
    ranking = make_ranking(chunks, total=9)
    reasons = (Reason("lexical", 0.5), Reason("path", -0.75, "named in\nthe issue"))
    first = dataclasses.replace(ranking.chunks[0], reasons=reasons)
    ranking = Ranking((first, *ranking.chunks[1:]), (), 9, notes=("embeddings off",))
    options = PackingOptions(budget=400)
    bundle = pack(Problem("t", ""), ranking, snapshot, ApproximateCounter(), options)
    text = re.sub(" +", " ", render_receipt(make_receipt(ranking, bundle)))
    for line in (
        "35 of 340 tokens (10%; of 400, 15% kept in reserve): signatures 4, whole 31",
        "2 pieces in 1 file, from 3 ranked of 9 chunks",
        "| 1.000 | path -0.75 (named in the issue), lexical 0.50 |",
        "Left out: 2 (duplicate 1, secret 1)",
        "| 2 | b\\|c.py:L1-2 parse | 11 | 0.990 | duplicate |",
        "- embeddings off",
    ):
        assert f"{line}\n" in text
