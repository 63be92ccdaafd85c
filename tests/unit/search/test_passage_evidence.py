from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agent.retrieval.ranking.evidence import Evidence
from agent.retrieval.ranking.mentions import read_mentions
from agent.search.corpora.documents import DocumentSource
from agent.search.corpora.intents import IntentSource
from agent.search.corpora.symbols import load_outline
from agent.search.passage_evidence import WEIGHTS, PassageEvidence
from agent.search.passages import CorpusSource, Label
from agent.search.word_index import WordIndexCache
from agent.settings import Settings
from agent.types import Problem
from agent.wiring.retrieval import make_retriever
from tests.support.corpora import FILES, ListSource, quiet, small_index
from tests.support.fakes import MemorySnapshot


def evidence(source: CorpusSource, title: str) -> tuple[Evidence, dict[int, str], dict[int, str]]:
    import threading

    snapshot = MemorySnapshot(FILES)
    corpus = load_outline(snapshot, small_index(), threading.Event())
    problem = Problem(title, "")
    found = PassageEvidence(source, WordIndexCache(None, quiet))(
        problem, read_mentions(problem), snapshot, corpus
    )
    pieces = {n: corpus.symbols[n] for n in found.pieces}
    files = {n: corpus.files[n].path for n in found.files}
    return found, pieces, files


def test_a_section_speaks_for_the_symbols_that_it_names() -> None:
    found, pieces, files = evidence(DocumentSource(small_index(), docstrings=False), "time is over")
    assert set(pieces.values()) == {"CookieJar.expire"}
    assert set(files.values()) == {"shop/cookies.py"}
    (reasons,) = found.pieces.values()
    assert reasons["docs"].note == "[docs] Shop > Expired cookies"
    assert 0.0 < reasons["docs"].value <= WEIGHTS[Label.DOCS]


def test_an_intent_speaks_for_its_symbol() -> None:
    found, pieces, _ = evidence(IntentSource(small_index()), "orders never reach the warehouse")
    best = max(found.pieces, key=lambda number: found.pieces[number]["intents"].value)
    assert pieces[best] == "sendOrder"
    assert found.pieces[best]["intents"].value == WEIGHTS[Label.INTENT]


def test_what_is_switched_off_or_missing_says_nothing() -> None:
    found, _, _ = evidence(IntentSource(small_index()), "orders never reach the warehouse")
    assert not found.without(frozenset({"intents"})).pieces
    nothing, _, _ = evidence(ListSource(Label.DOCS, [], why="no"), "orders")
    assert not nothing.pieces
    assert not nothing.files


@pytest.mark.parametrize(
    ("corpora", "without", "features"),
    [
        ((), (), set()),
        (("docs",), (), {"docs"}),
        (("docs", "intent"), (), {"docs", "intents"}),
        (("docs", "intent"), ("intents",), {"docs"}),
    ],
)
def test_the_setting_brings_corpora_into_the_ranking(
    tmp_path: Path, corpora: tuple[str, ...], without: tuple[str, ...], features: set[str]
) -> None:
    settings = Settings(
        preset="lexical", cache_dir=tmp_path, corpora=corpora, without=(*without, "ranker")
    )
    problem = Problem("Cookies whose time is over are kept", "They should be dropped.")
    ranking = asyncio.run(
        make_retriever(settings, None, quiet).rank(problem, MemorySnapshot(FILES))
    )
    found = {reason.feature for chunk in ranking.chunks for reason in chunk.reasons}
    assert found & {"docs", "intents"} == features


def test_the_learned_order_takes_them_too(tmp_path: Path) -> None:
    settings = Settings(preset="lexical", cache_dir=tmp_path, corpora=("docs",))
    problem = Problem("Cookies whose time is over are kept", "")
    ranking = asyncio.run(
        make_retriever(settings, None, quiet).rank(problem, MemorySnapshot(FILES))
    )
    best = ranking.chunks[0]
    assert best.chunk.symbol == "CookieJar.expire"
    assert sum(reason.value for reason in best.reasons) == pytest.approx(best.score)
    assert any(reason.feature == "docs" and "[docs]" in reason.note for reason in best.reasons)
