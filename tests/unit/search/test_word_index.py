from __future__ import annotations

import math

import pytest

from agent.retrieval.index.words import term_hash
from agent.retrieval.ranking.lexical import K1, B
from agent.search.fusion import build_word_index, rank_corpus, weights_of
from agent.search.passages import Label, Passage, read_query


def passage(text: str, symbol: str = "") -> Passage:
    return Passage(Label.DOCS, text, text, symbol=symbol)


def test_bm25_is_the_formula() -> None:
    word_index = build_word_index([passage("cat cat dog"), passage("dog bird"), passage("fish")])
    scores = word_index.bm25({term_hash("cat"): 2.0, term_hash("dog"): 1.0, term_hash("none"): 1.0})
    lengths, mean = [3, 2, 1], 2.0

    def part(weight: float, count: int, holders: int, length: int) -> float:
        rarity = math.log1p((3 - holders + 0.5) / (holders + 0.5))
        norm = K1 * (1 - B + B * length / mean)
        return weight * rarity * count * (K1 + 1) / (count + norm)

    expected = [
        part(2.0, 2, 1, lengths[0]) + part(1.0, 1, 2, lengths[0]),
        part(1.0, 1, 2, lengths[1]),
        0.0,
    ]
    assert scores.tolist() == pytest.approx(expected)


def test_a_hit_in_the_name_counts_more() -> None:
    word_index = build_word_index([passage("cookie here"), passage("cookie here", symbol="cookie")])
    found = rank_corpus(word_index, weights_of(read_query("cookie"), (), word_index), (), 9)
    assert [one.passage.symbol for one in found] == ["cookie", ""]


def test_an_empty_corpus_finds_nothing() -> None:
    word_index = build_word_index([])
    assert word_index.bm25({term_hash("a"): 1.0}).size == 0
    words = weights_of(read_query("a word"), (), word_index)
    assert rank_corpus(word_index, words, (), 9) == []
