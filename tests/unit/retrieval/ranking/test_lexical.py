from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from agent.retrieval.index.words import Terms, term_hash
from agent.retrieval.ranking.lexical import K1 as K
from agent.retrieval.ranking.lexical import (
    NAME_WEIGHT,
    PATH_WEIGHT,
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


def by_term(query: LexicalQuery, column: str) -> dict[int, float]:
    values = zip(query.hashes.tolist(), getattr(query, column).tolist(), strict=True)
    return {term: value for term, value in values if value}


def test_query_weights() -> None:
    query = make_query(Problem("timeout", "redirect redirect timeout"), Terms())
    assert by_term(query, "weights") == pytest.approx(
        {
            term_hash("timeout"): TITLE_WEIGHT * math.log(3),
            term_hash("redirect"): math.log(3),
        }
    )
    assert query.hashes.tolist() == sorted(map(term_hash, ("timeout", "redirect")))


def test_title_prose_and_code_have_weights_of_their_own() -> None:
    body = "alpha alpha\n\n```\nalpha beta\n```\ngamma\n"
    query = make_query(Problem("beta", body), Terms())
    alpha, beta, gamma = map(term_hash, ("alpha", "beta", "gamma"))
    assert by_term(query, "title") == pytest.approx({beta: math.log(2)})
    assert by_term(query, "prose") == pytest.approx({alpha: math.log(3), gamma: math.log(2)})
    assert by_term(query, "code") == pytest.approx({alpha: math.log(2), beta: math.log(2)})
    assert by_term(query, "weights") == pytest.approx(
        {alpha: math.log(4), beta: TITLE_WEIGHT * math.log(3), gamma: math.log(2)}
    )


def test_bm25_is_the_published_formula() -> None:
    files = {"q.py": "alpha alpha beta\n", "r.py": "gamma\n"}
    weight = TITLE_WEIGHT * math.log(2)
    rarity = math.log(1 + (2 - 1 + 0.5) / (1 + 0.5))
    norm = K * (1 - B + B * 3 / 2)  # 3 terms, 2 on average; one-letter paths give none
    expected = weight * rarity * 2 * (K + 1) / (2 + norm)
    assert pieces(files, "alpha") == pytest.approx([expected, 0.0])
    assert whole(files, "alpha") == pytest.approx([expected, 0.0])


def test_fields_are_weighted_before_saturation() -> None:
    files = {"alpha/q.py": "def alpha():\n    return alpha\n", "r.py": "gamma = 1\n"}
    query, found = bags(files, "alpha")
    # In the piece's text twice beside `def` and `return`, in its name and its path once each.
    length = 4 + NAME_WEIGHT + PATH_WEIGHT
    frequency = 2 + NAME_WEIGHT + PATH_WEIGHT
    other = 1.0  # `gamma`
    norm = K * (1 - B + B * length / ((length + other) / 2))
    assert found.pieces.saturated.tolist() == pytest.approx(
        [frequency * (K + 1) / (frequency + norm)]
    )
    assert (found.pieces.owner.tolist(), query.hashes[found.pieces.term].tolist()) == (
        [0],
        [term_hash("alpha")],
    )


def test_the_name_counts_more_than_the_text() -> None:
    files = {"q.py": "def alpha():\n    return 1\n", "r.py": "def gamma():\n    alpha = 1\n"}
    named, used = pieces(files, "alpha")
    assert named > used > 0


def test_the_path_counts_for_all_its_pieces() -> None:
    files = {"alpha/q.py": "def one(): pass\n\n\ndef two(): pass\n", "r.py": "def one(): pass\n"}
    one, two, other = pieces(files, "alpha")
    assert one == two > other == 0.0


def test_rare_terms_count_more() -> None:
    files = {f"m{n}.py": f"common = {n}\n" for n in range(5)} | {"z.py": "special = 1\n"}
    found = pieces(files, "common special")
    assert found[5] > max(found[:5])


def test_coverage_is_the_share_of_the_query_that_occurs() -> None:
    files = {"q.py": "alpha alpha alpha\n", "r.py": "alpha beta\n", "s.py": "gamma\n"}
    query, found = bags(files, "alpha beta")
    rarity = dict(zip(query.hashes.tolist(), found.pieces.rarity.tolist(), strict=True))
    alpha, beta = rarity[term_hash("alpha")], rarity[term_hash("beta")]
    expected = [alpha / (alpha + beta), 1.0, 0.0]
    assert found.pieces.coverage(query.weights).tolist() == pytest.approx(expected)
    assert found.files.coverage(query.weights).tolist() == pytest.approx(expected)


def test_names_match_by_their_share_of_the_query() -> None:
    files = {
        "q.py": "def alpha():\n    pass\n",
        "r.py": "def alpha_gamma():\n    pass\n",
        "s.py": "def delta():\n    alpha = 1\n",
    }
    query, found = bags(files, "alpha")
    worth = float(query.weights[0] * found.pieces.rarity[0])
    # `alpha_gamma` is itself and its two parts.
    assert found.names.tolist() == pytest.approx([worth, worth / math.sqrt(3), 0.0])


@pytest.mark.parametrize("title", ["", "the of and", "日本語", "nothing_like_it"])
def test_problems_without_a_hit_score_nothing(title: str) -> None:
    query, found = bags({"a.py": "x = 1\n"}, title)
    for values in (
        found.pieces.bm25(query.weights),
        found.files.bm25(query.weights),
        found.pieces.coverage(query.weights),
        found.names,
        found.path_coverage,
    ):
        assert values.tolist() == [0.0]
