from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from agent.retrieval.index.words import Terms
from agent.retrieval.ranking.lexical import K1 as K
from agent.retrieval.ranking.lexical import (
    TITLE_WEIGHT,
    B,
    Bags,
    LexicalQuery,
    make_bags,
    make_query,
)
from agent.types import Problem
from tests.support.corpus import corpus_of


def bags(files: Mapping[str, str], title: str, body: str = "") -> tuple[LexicalQuery, Bags]:
    terms = Terms()
    query = make_query(Problem(title, body), terms)
    return query, make_bags(corpus_of(files, query.hashes), query, terms)


def pieces(files: Mapping[str, str], title: str, body: str = "") -> list[float]:
    query, found = bags(files, title, body)
    return list(found.pieces.bm25(query.weights))


def whole(files: Mapping[str, str], title: str, body: str = "") -> list[float]:
    query, found = bags(files, title, body)
    return list(found.files.bm25(query.weights))


def test_bm25_is_the_published_formula() -> None:
    files = {"q.py": "alpha alpha beta\n", "r.py": "gamma\n"}
    weight = TITLE_WEIGHT * math.log(2)
    rarity = math.log(1 + (2 - 1 + 0.5) / (1 + 0.5))
    norm = K * (1 - B + B * 3 / 2)  # 3 terms, 2 on average; one-letter paths give none
    expected = weight * rarity * 2 * (K + 1) / (2 + norm)
    assert pieces(files, "alpha") == pytest.approx([expected, 0.0])
    assert whole(files, "alpha") == pytest.approx([expected, 0.0])


def test_the_name_counts_more_than_the_text() -> None:
    files = {"q.py": "def alpha():\n    return 1\n", "r.py": "def gamma():\n    alpha = 1\n"}
    named, used = pieces(files, "alpha")
    assert named > used > 0


def test_the_path_counts_for_all_its_pieces() -> None:
    files = {"alpha/q.py": "def one(): pass\n\n\ndef two(): pass\n", "r.py": "def one(): pass\n"}
    one, two, other = pieces(files, "alpha")
    assert one == two > other == 0.0
