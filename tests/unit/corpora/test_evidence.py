from __future__ import annotations

from agent.corpora.documents import DocumentSource
from agent.corpora.evidence import WEIGHTS, PassageEvidence
from agent.corpora.intents import IntentSource
from agent.corpora.passages import CorpusSource, Label
from agent.corpora.shelf import Shelves
from agent.corpora.symbols import load_outline
from agent.retrieval.evidence import Evidence
from agent.retrieval.mentions import read_mentions
from agent.types import Problem
from tests.support.corpora import FILES, ListSource, quiet, small_index
from tests.support.fakes import MemorySnapshot


def evidence(source: CorpusSource, title: str) -> tuple[Evidence, dict[int, str], dict[int, str]]:
    import threading

    snapshot = MemorySnapshot(FILES)
    corpus = load_outline(snapshot, small_index(), threading.Event())
    problem = Problem(title, "")
    found = PassageEvidence(source, Shelves(None, quiet))(
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
