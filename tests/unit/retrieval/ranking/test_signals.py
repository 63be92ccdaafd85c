from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from agent.retrieval.index.words import Terms
from agent.retrieval.ranking.evidence import Evidence, keep_best
from agent.retrieval.ranking.lexical import make_bags, make_query
from agent.retrieval.ranking.mentions import read_mentions
from agent.retrieval.ranking.signals import (
    EVIDENCE_WEIGHTS,
    STATIC_WEIGHT,
    Signals,
    choose_candidates,
    measure,
    normalised,
    piece_matrix,
)
from agent.types import Problem, Reason
from tests.support.corpus import corpus_of

FILES = {
    "README.md": "# Alpha\n\nalpha beta alpha\n",
    "docs/conf.py": "alpha = 1\n",
    "pkg/__init__.py": "from pkg.client import Client\n",
    "pkg/client.py": (
        "class Client:\n    def __init__(self):\n        self.alpha = 1\n\n"
        "    def _send(self):\n        return alpha + beta\n\n\ndef gamma():\n    return 2\n"
    ),
    "pkg/empty.py": "",
}
PROBLEM = Problem("alpha in client", "beta `gamma`\n\n```\nsend(alpha)\n```\n")


def signals_of(evidence: Evidence, static: NDArray[np.float64] | None = None) -> Signals:
    terms = Terms()
    query = make_query(PROBLEM, terms)
    corpus = corpus_of(FILES, query.hashes)
    bags = make_bags(corpus, query, terms)
    return measure(PROBLEM, read_mentions(PROBLEM), corpus, bags, query, evidence, static)


def size() -> int:
    return len(signals_of(Evidence()).corpus.piece_file)


def cosines() -> NDArray[np.float64]:
    """One for each piece of FILES: one unknown, one below 0."""
    values = np.linspace(0.1, 0.5, size())
    values[:2] = np.nan, -0.4
    return values


def test_the_plain_sum_is_what_it_is_said_to_be() -> None:
    evidence = Evidence()
    keep_best(evidence.files[3], Reason("path", 0.8, ""))
    keep_best(evidence.files[3], Reason("churn", 0.7, ""))
    keep_best(evidence.pieces[2], Reason("history-function", 0.5, ""))
    found = signals_of(evidence, cosines())
    known = normalised(np.clip(np.nan_to_num(cosines(), nan=0.0), 0.0, None))
    files = (
        found.file_columns["file-best"]
        + found.file_columns["file-bm25"]
        + STATIC_WEIGHT * found.file_columns["file-static"]
    )
    files[3] += 0.8 + EVIDENCE_WEIGHTS["churn"] * 0.7
    pieces = found.piece_columns["bm25"] + STATIC_WEIGHT * known
    pieces[2] += EVIDENCE_WEIGHTS["history-function"] * 0.5
    assert found.files.tolist() == pytest.approx(files.tolist())
    shares = normalised(files)[found.corpus.piece_file]
    assert found.pieces.tolist() == pytest.approx((pieces + shares).tolist())


def test_the_same_input_gives_the_same_bytes_whatever_the_order_of_reasons() -> None:
    reasons = [Reason(name, value, "") for name, value in (("a", 0.1), ("b", 0.2), ("c", 0.3))]
    rows = []
    for order in (reasons, reasons[::-1]):
        evidence = Evidence()
        for reason in order:
            keep_best(evidence.files[3], reason)
        found = signals_of(evidence, cosines())
        pieces, _ = choose_candidates(found, 4)
        rows.append((found.files.tobytes(), piece_matrix(found, pieces).tobytes()))
    assert rows[0] == rows[1]
