"""The static encoder learns which function a message is about."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from agent.retrieval.embedding import read_static, static_cosines
from agent.retrieval.index.words import Terms, term_hash
from agent.retrieval.ranking.lexical import make_query
from agent.types import ChunkKind, Problem
from training import static as module
from training.pairs import FunctionText, Pair
from training.static import (
    count_vocabulary,
    make_examples,
    read_counts,
    train,
)
from training.writing import write_static

# Messages never use the words of the code: nothing but training connects them.
TOPICS = {
    "cookie": "jar_store",
    "redirect": "follow_location",
    "timeout": "deadline_clock",
    "colour": "paint_palette",
}


def function(symbol: str, text: str) -> FunctionText:
    return FunctionText(
        path="pkg/mod.py", symbol=symbol, kind=ChunkKind.FUNCTION, start=1, end=2, text=text
    )


def pairs(repo: str, count: int = 24) -> Iterator[Pair]:
    names = list(TOPICS)
    for number in range(count):
        topic, other = names[number % 4], names[(number + 1) % 4]
        code, wrong = TOPICS[topic], TOPICS[other]
        yield Pair(
            repo=repo,
            commit=f"{number:040x}",
            parent=f"{number + 1:040x}",
            subject=f"Fix {topic} handling, part {number}",
            body=f"The {topic} was wrong in {code}.",
            fix=True,
            test_added=f"assert {code}()",
            names_in_message=(code,),
            functions=(function(code, f"def {code}():\n    return {code}_{number % 3}\n"),),
            negatives=(function(wrong, f"def {wrong}():\n    return {wrong}_{number % 3}\n"),),
        )


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small vectors and large steps, on one core: enough for four words."""
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(module, "DIMENSION", 16)
    monkeypatch.setattr(module, "BATCH", 8)
    for name, value in {"VECTOR_RATE": 0.1, "DROPPED": 0.0, "TEST_SHARE": 0.0}.items():
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(module, "HIDE_SHARE", 1.0)  # the names of the code never give it away
    yield
    torch.set_num_threads(threads)


def counts() -> dict[str, list[module._Counts]]:
    return read_counts((p for repo in ("a/one", "b/two") for p in pairs(repo)), Terms())


def test_names_of_what_was_changed_can_be_hidden() -> None:
    terms = Terms()
    (one, *_) = read_counts(pairs("a/one", 1), terms)["a/one"]
    assert one.hidden == {"jar_store"}
    vocabulary = count_vocabulary(counts())
    (example, *_) = make_examples({"a/one": [one]}, vocabulary)["a/one"]
    number = vocabulary.numbers["jar_store"]
    assert number in example.plain.terms
    assert number not in example.masked.terms


def test_vocabulary_keeps_what_occurs_often_and_in_several_projects() -> None:
    only_one = read_counts(pairs("a/one"), Terms())
    assert count_vocabulary(only_one).terms == []
    both = count_vocabulary(counts())
    assert {"cooki", "jar_store", "redirect"} <= set(both.terms) | {"cookie"}
    assert both.numbers == {term: number for number, term in enumerate(both.terms)}


def test_training_connects_the_words_of_messages_and_code(few: None, tmp_path: Path) -> None:
    made = counts()
    vocabulary = count_vocabulary(made)
    examples = make_examples(made, vocabulary)
    size = len(vocabulary.terms)
    start = np.random.default_rng(1).normal(0, 0.1, (size, 16)).astype(np.float32)
    rarity = np.ones(size, np.float32)
    once = [train(examples, vocabulary, start, 7, 1, rarity)[0].tobytes() for _ in range(2)]
    assert once[0] == once[1]  # the same each time
    table, queries, documents = train(examples, vocabulary, start, 7, 8, rarity)
    hashes = np.array([term_hash(term) for term in vocabulary.terms], np.uint64)
    order = np.argsort(hashes)
    file = tmp_path / "static.npz"
    file.write_bytes(write_static(hashes[order], table[order], queries[order], documents[order]))
    encoder = read_static(file)
    assert encoder is not None
    rows = np.stack([encoder_row(table, vocabulary, code) for code in TOPICS.values()])
    for number, topic in enumerate(TOPICS):
        terms = make_query(Problem(f"{topic} broken", ""), Terms())
        query = encoder.query(terms.hashes, terms.weights)
        assert int(np.nanargmax(static_cosines(query, rows))) == number


def encoder_row(table: np.ndarray, vocabulary: module.Vocabulary, name: str) -> np.ndarray:
    row = table[vocabulary.numbers[name]]
    return np.rint(row * 127 / np.abs(row).max()).astype(np.int8)
