from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from agent.retrieval.index.words import Terms
from agent.retrieval.ranking.evidence import Evidence
from agent.retrieval.ranking.lexical import make_bags, make_query
from agent.retrieval.ranking.mentions import read_mentions
from agent.retrieval.ranking.signals import (
    EVIDENCE_WEIGHTS,
    FILE_NAMES,
    PIECE_NAMES,
    STATIC_WEIGHT,
    Signals,
    choose_candidates,
    file_matrix,
    measure,
    normalised,
    piece_matrix,
    ranks_of,
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


def signals_of(
    files: Mapping[str, str] = FILES,
    *,
    problem: Problem = PROBLEM,
    evidence: Evidence | None = None,
    static: NDArray[np.float64] | None = None,
) -> Signals:
    terms = Terms()
    query = make_query(problem, terms)
    corpus = corpus_of(files, query.hashes)
    bags = make_bags(corpus, query, terms)
    found = Evidence() if evidence is None else evidence
    mentions = read_mentions(problem)
    return measure(problem, mentions, corpus, bags, query, found, static)


def size() -> int:
    return len(signals_of().corpus.piece_file)


def cosines() -> NDArray[np.float64]:
    """One for each piece of FILES: one unknown, one below 0."""
    values = np.linspace(0.1, 0.5, size())
    values[:2] = np.nan, -0.4
    return values


def everything(signals: Signals) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return np.arange(len(signals.corpus.piece_file)), np.arange(len(signals.corpus.files))


def file_column(signals: Signals, name: str) -> dict[str, float]:
    rows = file_matrix(signals, everything(signals)[1])
    column = rows[:, FILE_NAMES.index(name)].tolist()
    return {f.path: value for f, value in zip(signals.corpus.files, column, strict=True)}


def piece_column(signals: Signals, name: str) -> dict[str, float]:
    rows = piece_matrix(signals, everything(signals)[0])
    column = rows[:, PIECE_NAMES.index(name)].tolist()
    places = (
        f"{signals.corpus.path_of(n)}:{symbol}" for n, symbol in enumerate(signals.corpus.symbols)
    )
    return dict(zip(places, column, strict=True))


def test_the_plain_sum_is_what_it_is_said_to_be() -> None:
    evidence = Evidence()
    evidence.add_file(3, Reason("path", 0.8, ""))
    evidence.add_file(3, Reason("churn", 0.7, ""))
    evidence.add_piece(2, Reason("history-function", 0.5, ""))
    found = signals_of(evidence=evidence, static=cosines())
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


def test_ranks_count_from_the_highest_and_ties_by_position() -> None:
    scores = np.array([0.0, 0.5, 0.9, 0.5, 0.0, 0.5])
    assert ranks_of(np.arange(6), scores).tolist() == [5, 2, 1, 3, 6, 4]
    assert ranks_of(np.array([5, 2, 4]), scores).tolist() == [4, 1, 6]
    assert ranks_of(np.empty(0, np.int64), np.empty(0)).tolist() == []


def test_features_of_files_by_name() -> None:
    found = signals_of(static=cosines())
    assert file_column(found, "file-depth")["pkg/client.py"] == 2.0
    assert [p for p, value in file_column(found, "file-init").items() if value] == [
        "pkg/__init__.py"
    ]
    assert [p for p, v in file_column(found, "file-aside").items() if v] == ["docs/conf.py"]
    assert [p for p, v in file_column(found, "file-prose-language").items() if v] == ["README.md"]
    assert [p for p, v in file_column(found, "file-name-found").items() if v] == ["pkg/client.py"]
    ranks = file_column(found, "file-rank")
    assert min(ranks, key=ranks.__getitem__) == "pkg/client.py"
    assert min(ranks.values()) == pytest.approx(np.log1p(1))
    sizes = np.diff(np.array(found.corpus.first_piece))
    assert list(file_column(found, "file-size").values()) == pytest.approx(np.log1p(sizes).tolist())


def test_features_of_pieces_by_name_and_those_of_their_files() -> None:
    found = signals_of(static=cosines())
    sent, made = "pkg/client.py:Client._send", "pkg/client.py:Client.__init__"
    assert piece_column(found, "private")[sent] == 1.0
    assert (piece_column(found, "dunder")[sent], piece_column(found, "dunder")[made]) == (0.0, 1.0)
    nesting = piece_column(found, "nesting")
    assert (nesting[sent], nesting["pkg/client.py:gamma"]) == (2.0, 1.0)
    assert set(piece_column(found, "file-depth").values()) == {1.0, 2.0}
    ranks = [
        value
        for place, value in piece_column(found, "rank-in-file").items()
        if "client.py" in place
    ]
    assert sorted(ranks) == pytest.approx(np.log1p(np.arange(1, len(ranks) + 1)).tolist())
    whole = sorted(piece_column(found, "bm25-rank").values())
    assert whole == pytest.approx(np.log1p(np.arange(1, size() + 1)).tolist())


def test_the_same_input_gives_the_same_bytes_whatever_the_order_of_reasons() -> None:
    reasons = [Reason(name, value, "") for name, value in (("a", 0.1), ("b", 0.2), ("c", 0.3))]
    rows = []
    for order in (reasons, reasons[::-1]):
        evidence = Evidence()
        for reason in order:
            evidence.add_file(3, reason)
        found = signals_of(evidence=evidence, static=cosines())
        pieces, _ = choose_candidates(found, 4)
        rows.append((found.files.tobytes(), piece_matrix(found, pieces).tobytes()))
    assert rows[0] == rows[1]
