from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from agent.retrieval.candidates import all_files
from agent.retrieval.identifiers import Terms, term_hash
from agent.retrieval.index import Index
from agent.retrieval.lexical import K1 as K
from agent.retrieval.lexical import TITLE_WEIGHT, B, LexicalScores, make_query, score
from agent.types import Problem
from tests.support.fakes import MemorySnapshot
from tests.support.ignored_events import ignore


def scores(files: Mapping[str, str], title: str, body: str = "") -> LexicalScores:
    snapshot = MemorySnapshot(files)
    terms = Terms()
    query = make_query(Problem(title, body), terms)
    corpus = Index(ignore).load(snapshot, all_files(snapshot), query.hashes)
    return score(corpus, query, terms)


def test_query_weights() -> None:
    query = make_query(Problem("timeout", "redirect redirect timeout"), Terms())
    weights = dict(zip(query.hashes.tolist(), query.weights.tolist(), strict=True))
    assert weights == pytest.approx(
        {
            term_hash("timeout"): TITLE_WEIGHT * math.log(3),
            term_hash("redirect"): math.log(3),
        }
    )
    assert query.hashes.tolist() == sorted(weights)


def test_bm25_is_the_published_formula() -> None:
    files = {"q.py": "alpha alpha beta\n", "r.py": "gamma\n"}
    weight = TITLE_WEIGHT * math.log(2)
    rarity = math.log(1 + (2 - 1 + 0.5) / (1 + 0.5))
    norm = K * (1 - B + B * 3 / 2)  # 3 terms, 2 on average; one-letter paths give none
    expected = weight * rarity * 2 * (K + 1) / (2 + norm)
    found = scores(files, "alpha")
    assert found.pieces.tolist() == pytest.approx([expected, 0.0])
    assert found.files.tolist() == pytest.approx([expected, 0.0])


def test_the_name_counts_more_than_the_text() -> None:
    files = {"q.py": "def alpha():\n    return 1\n", "r.py": "def gamma():\n    alpha = 1\n"}
    named, used = scores(files, "alpha").pieces
    assert named > used > 0


def test_the_path_counts_for_all_its_pieces() -> None:
    files = {"alpha/q.py": "def one(): pass\n\n\ndef two(): pass\n", "r.py": "def one(): pass\n"}
    one, two, other = scores(files, "alpha").pieces
    assert one == two > other == 0.0


def test_rare_terms_count_more() -> None:
    files = {f"m{n}.py": f"common = {n}\n" for n in range(5)} | {"z.py": "special = 1\n"}
    found = scores(files, "common special").pieces
    assert found[5] > max(found[:5])


@pytest.mark.parametrize("title", ["", "the of and", "日本語", "nothing_like_it"])
def test_problems_without_a_hit_score_nothing(title: str) -> None:
    found = scores({"a.py": "x = 1\n"}, title)
    assert (found.pieces.tolist(), found.files.tolist()) == ([0.0], [0.0])


def test_no_files() -> None:
    found = scores({}, "alpha")
    assert (found.pieces.size, found.files.size) == (0, 0)
