from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import Mock

import numpy as np
import pytest

from agent.errors import StoreUnreachable
from agent.retrieval.ranking.ranker import preset
from agent.retrieval.ranking.retriever import HybridRetriever
from agent.search.passages import Label, Passage, PoolResults
from tests.support.corpora import FILES, ListSource, pool_at, quiet
from tests.support.fakes import MemorySnapshot
from tests.support.word_embedder import UnreachableEmbedder, WordEmbedder

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def retriever() -> HybridRetriever:
    return HybridRetriever(preset("lexical"), embedder=None, index_path=None, reporter=quiet)


def labels(found: PoolResults) -> list[Label]:
    return [hit.passage.corpus for hit in found.hits]


def old(text: str, origin: str = "abc") -> Passage:
    return Passage(Label.HISTORY, text, text, "shop/old.py", 1, 2, origin=origin)


def test_results_of_all_corpora_are_labelled_and_in_order(tmp_path: Path) -> None:
    history = ListSource(Label.HISTORY, [old("expired cookies were kept too long")])
    with pool_at(tmp_path, retriever=retriever()) as plain:
        sources = [*plain.sources, history]
    with pool_at(tmp_path, retriever=retriever(), sources=sources) as pool:
        assert pool.corpora == (Label.CODE, Label.HISTORY, Label.DOCS, Label.INTENT)
        found = run(pool.search("which cookies are expired", top_k=30))
    assert set(labels(found)) == set(pool.corpora)
    assert set(labels(found)[:6]) == set(pool.corpora)
    assert found.hits[0].passage.place == "shop/cookies.py:7-12 CookieJar.expire"
    scores = [hit.score for hit in found.hits]
    assert scores == sorted(scores, reverse=True)
    assert all(0.0 <= hit.score <= 1.0 and 0.0 <= hit.similarity <= 1.0 for hit in found.hits)
    assert all(hit.reasons for hit in found.hits)
    assert found.searched[Label.HISTORY] == 1
    assert found.notes == ()


def test_the_same_query_gives_the_same_findings(tmp_path: Path) -> None:
    with pool_at(tmp_path, retriever=retriever()) as pool:
        first = run(pool.search("the total of prices"))
    with pool_at(tmp_path, retriever=retriever()) as pool:
        assert run(pool.search("the total of prices")) == first


def test_one_intent_a_symbol(tmp_path: Path) -> None:
    with pool_at(tmp_path, [Label.INTENT]) as pool:
        found = run(pool.search("drop cookies that are out of date"))
    symbols = [hit.passage.symbol for hit in found.hits]
    assert symbols[0] == "CookieJar.expire"
    assert len(symbols) == len(set(symbols))


def test_a_corpus_that_fails_costs_its_own_results_only(tmp_path: Path) -> None:
    broken = ListSource(Label.HISTORY, [], why="a shallow clone")
    with pool_at(tmp_path) as plain:
        sources = [*plain.sources, broken]
    with pool_at(tmp_path, sources=sources) as pool:
        found = run(pool.search("cookies"))
        reports = run(pool.fill())
    assert Label.DOCS in labels(found)
    assert found.notes == ("[history] left out: a shallow clone",)
    history = next(report for report in reports if report.label is Label.HISTORY)
    assert (history.passages, history.complete, history.note) == (0, False, "a shallow clone")


def test_an_exact_name_is_answered_without_embedding(tmp_path: Path) -> None:
    embedder = WordEmbedder()
    with pool_at(tmp_path, retriever=retriever(), embedder=embedder) as pool:
        found = run(pool.search("CookieJar.expire", top_k=1))
    assert [hit.passage.place for hit in found.hits] == ["shop/cookies.py:7-12 CookieJar.expire"]
    assert (found.hits[0].score, found.hits[0].similarity) == (1.0, 0.0)  # nothing was compared
    assert found.hits[0].reasons[0].feature == "exact"
    assert embedder.calls == []


def test_the_other_results_of_all_corpora_follow_an_exact_name(tmp_path: Path) -> None:
    with pool_at(tmp_path, (Label.CODE, Label.DOCS, Label.INTENT), retriever=retriever()) as pool:
        found = run(pool.search("expire", top_k=6))
    assert found.hits[0].passage.place == "shop/cookies.py:7-12 CookieJar.expire"
    assert len(found.hits) == 6
    assert set(labels(found)) == {Label.CODE, Label.DOCS, Label.INTENT}
    assert set(found.searched) == {Label.CODE, Label.DOCS, Label.INTENT}
    assert len({(hit.passage.corpus, hit.passage.place) for hit in found.hits}) == 6
    scores = [hit.score for hit in found.hits]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("query", ["?!", "...", "--- !!"])
def test_a_query_without_a_word_finds_nothing(tmp_path: Path, query: str) -> None:
    with pool_at(tmp_path, (Label.CODE, Label.DOCS, Label.INTENT), retriever=retriever()) as pool:
        assert run(pool.search(query)).hits == ()


def test_similarities_are_cosines_and_a_threshold_is_one(tmp_path: Path) -> None:
    embedder = WordEmbedder()
    with pool_at(tmp_path, [Label.DOCS], embedder=embedder) as pool:
        query = "drop cookies that are out of date"
        found = run(pool.search(query, top_k=50))
        row = run(embedder.embed([f"DESCRIPTION: {query}"], kind="query"))[0]
        texts = [hit.passage.text for hit in found.hits]
        rows = run(embedder.embed(texts, kind="document"))
        expected = [float(np.dot(row, other)) for other in rows]
        assert [hit.similarity for hit in found.hits] == pytest.approx(expected, abs=1e-3)
        assert {hit.score_name for hit in found.hits} == {"cosine"}
        bar = max(hit.similarity for hit in found.hits) - 1e-3
        few = run(pool.search(query, top_k=50, at_least=bar))
        assert [hit.value >= bar for hit in few.hits] == [True]
        pool.vectors = None
        assert {hit.score_name for hit in run(pool.search(query)).hits} == {"bm25"}
        assert run(pool.search(query, at_least=0.1)).hits == ()


def test_without_embeddings_words_find(tmp_path: Path) -> None:
    with pool_at(tmp_path, [Label.DOCS], embedder=UnreachableEmbedder()) as pool:
        found = run(pool.search("cookies out of date"))
    assert found.hits[0].passage.symbol == "CookieJar.expire"
    assert found.notes[0].startswith("searched by words alone: embedding server")


def test_a_store_that_is_gone_costs_the_vectors_only(tmp_path: Path) -> None:
    with pool_at(tmp_path, [Label.DOCS]) as pool:
        assert pool.vectors is not None
        pool.vectors.store = Mock(**{"collections.side_effect": StoreUnreachable("down: start it")})
        found = run(pool.search("cookies out of date"))
        assert found.hits[0].passage.symbol == "CookieJar.expire"
        assert any("down: start it" in note for note in found.notes)
        with pytest.raises(StoreUnreachable):
            run(pool.fill())


def test_only_the_best_by_words_are_embedded_where_that_costs(tmp_path: Path) -> None:
    sources = [ListSource(Label.DOCS, [passage(n) for n in range(300)])]
    embedder = WordEmbedder()
    with pool_at(tmp_path, embedder=embedder, sources=sources) as pool:
        run(pool.search("common word here"))
    embedded = [text for kind, texts in embedder.calls if kind == "document" for text in texts]
    assert len(embedded) == 100


def passage(number: int) -> Passage:
    text = f"common word number x{number} y{number}"
    return Passage(Label.DOCS, text, text, f"{number:03}.md", 1, 1)


def test_what_changed_is_found_and_what_is_gone_is_not(tmp_path: Path) -> None:
    with pool_at(tmp_path, [Label.DOCS]) as pool:
        run(pool.fill())
    changed = {**FILES, "README.md": "# Shop\n\nPelicans are delivered on Tuesdays only.\n"}
    with pool_at(tmp_path, [Label.DOCS], snapshot=MemorySnapshot(changed)) as pool:
        found = run(pool.search("delivery of pelicans", top_k=50))
        assert found.hits[0].passage.text.endswith("Pelicans are delivered on Tuesdays only.")
        assert not any("Expired cookies" in hit.passage.title for hit in found.hits)


def test_secrets_of_a_query_are_not_sent(tmp_path: Path) -> None:
    key = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    embedder = WordEmbedder()
    with pool_at(tmp_path, [Label.DOCS], embedder=embedder) as pool:
        run(pool.search(f"why is the token {key} refused"))
    assert not any(key in text for _, texts in embedder.calls for text in texts)
