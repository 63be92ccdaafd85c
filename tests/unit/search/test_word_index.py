from __future__ import annotations

import math
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from agent.retrieval.index.words import term_hash
from agent.retrieval.ranking.lexical import K1, B
from agent.search.fusion import rank_corpus, weights_of
from agent.search.passages import Label, Passage, read_query
from agent.search.word_index import WordIndexCache, build_word_index
from tests.support.corpora import quiet


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


def test_word_indexes_come_back_from_the_cache_as_they_were(tmp_path: Path) -> None:
    passages = [passage("one two"), passage("two three", "x.y")]
    word_indexes = WordIndexCache(tmp_path / "s.sqlite", quiet)
    first, second = word_indexes.of(passages), word_indexes.of(passages)
    for name in ("hashes", "starts", "owner", "count", "lengths"):
        assert np.array_equal(getattr(first, name), getattr(second, name))
        assert getattr(first, name).dtype == getattr(second, name).dtype
    with sqlite3.connect(tmp_path / "s.sqlite") as database:
        assert database.execute("SELECT count(*) FROM record").fetchone() == (1,)
    database.close()
    assert word_indexes.of([passage("one two")]).lengths.size == 1


def test_a_damaged_record_is_made_again(tmp_path: Path) -> None:
    word_indexes = WordIndexCache(tmp_path / "s.sqlite", quiet)
    word_indexes.of([passage("one two")])
    with sqlite3.connect(tmp_path / "s.sqlite") as database:
        database.execute("UPDATE record SET data = ?", (b"nonsense",))
    database.close()
    assert word_indexes.of([passage("one two")]).lengths.tolist() == [2.0]


def test_an_empty_corpus_finds_nothing() -> None:
    word_index = build_word_index([])
    assert word_index.bm25({term_hash("a"): 1.0}).size == 0
    words = weights_of(read_query("a word"), (), word_index)
    assert rank_corpus(word_index, words, (), 9) == []


def test_keywords_find_what_the_query_does_not_say() -> None:
    texts = ["invoice billing"] * 4 + ["billing alone"] + [f"w{n} v{n}" for n in range(200)]
    word_index = build_word_index([passage(text) for text in texts])
    plain = weights_of(read_query("the invoice"), (), word_index)
    more = weights_of(read_query("the invoice"), ("billing",), word_index)
    assert 4 not in plain.best(word_index, 10)
    assert 4 in more.best(word_index, 10)
    assert more.note == "with billing"
