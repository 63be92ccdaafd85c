"""Several queries over one loaded corpus: the same signals as one at a time."""

from __future__ import annotations

import numpy as np

from agent.types import Problem
from tests.support.planning import make_queries

TEXTS = ("cart total", "`render_receipt` sends mail", "shop/config.py reads a path", "zzz unknown")


def test_a_query_scores_the_same_alone_and_among_others() -> None:
    together = make_queries().signals([Problem(text, "") for text in TEXTS])
    for text, signals in zip(TEXTS, together, strict=True):
        (alone,) = make_queries().signals([Problem(text, "")])
        assert np.array_equal(alone.pieces, signals.pieces)
        assert np.array_equal(alone.files, signals.files)
        for name, column in alone.piece_columns.items():
            assert np.array_equal(column, signals.piece_columns[name]), name


def test_the_best_piece_is_the_one_that_is_meant() -> None:
    queries = make_queries()
    for text, symbol in (("render_receipt", "render_receipt"), ("parse a price", "parse_price")):
        (signals,) = queries.signals([Problem(text, "")])
        assert queries.corpus.symbols[int(signals.pieces.argmax())] == symbol


def test_a_corpus_is_loaded_again_for_new_terms_only() -> None:
    queries = make_queries()
    queries.prepare("cart total coupon")
    loaded = queries.corpus
    queries.signals([Problem("total cart", ""), Problem("coupon", "")])
    assert queries.corpus is loaded
    queries.signals([Problem("receipt", "")])
    assert queries.corpus is not loaded
    assert queries.corpus.symbols == loaded.symbols


def test_nothing_to_score_loads_and_gives_nothing() -> None:
    assert make_queries().signals([]) == []
