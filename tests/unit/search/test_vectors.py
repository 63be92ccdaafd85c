from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from agent.errors import ProviderUnreachable
from agent.retrieval.index.words import Terms
from agent.retrieval.ranking.lexical import make_query
from agent.search.passages import Label, Passage
from agent.search.stores import open_store
from agent.search.vectors import PassageVectors, StaticEmbedder, collection_name
from agent.types import Problem
from tests.support.corpora import encoder, quiet
from tests.support.word_embedder import Kind, WordEmbedder


def passage(text: str, path: str = "a.md") -> Passage:
    return Passage(Label.DOCS, text, text, path, 1, 1)


def fill(vectors: PassageVectors, passages: list[Passage]) -> tuple[int, int, int]:
    """How many texts were known, embedded and failed."""
    report = asyncio.run(vectors.fill(Label.DOCS, passages))
    return report.known, report.embedded, report.failed


def test_each_text_is_embedded_once_however_often_it_occurs(tmp_path: Path) -> None:
    embedder = WordEmbedder()
    passages = [passage("one thing"), passage("one thing", "b.md"), passage("two things")]
    with open_store(f"sqlite://{tmp_path / 's'}", quiet) as store:
        vectors = PassageVectors(store, embedder, "p")
        assert fill(vectors, passages) == (0, 2, 0)
        assert fill(vectors, [*passages, passage("three")]) == (2, 1, 0)
        (info,) = store.collections()
        assert (info.name, info.entries, info.dimension) == (collection_name("words"), 3, 256)
    texts = [text for _, texts in embedder.calls for text in texts]
    assert texts == ["one thing", "two things", "three"]


def test_what_was_written_before_a_failure_stays(tmp_path: Path) -> None:
    class Failing(WordEmbedder):
        async def embed(self, texts: object, *, kind: Kind) -> np.ndarray:  # type: ignore[type-arg]
            if len(self.calls) == 2:
                raise ProviderUnreachable("down: start it")
            return await super().embed(texts, kind=kind)  # type: ignore[arg-type]

    passages = [passage(f"word{n} text") for n in range(3 * 256)]
    with open_store(f"sqlite://{tmp_path / 's'}", quiet) as store:
        done = fill(PassageVectors(store, Failing(), "p"), passages)
        assert done == (0, 2 * 256, 256)
        assert fill(PassageVectors(store, WordEmbedder(), "p"), passages) == (2 * 256, 256, 0)


def test_a_text_that_got_no_vector_is_tried_again(tmp_path: Path) -> None:
    with open_store(f"sqlite://{tmp_path / 's'}", quiet) as store:
        first = PassageVectors(store, WordEmbedder(blank=lambda text: "bad" in text), "p")
        assert fill(first, [passage("bad one"), passage("good one")]) == (0, 1, 1)
        second = PassageVectors(store, WordEmbedder(), "p")
        assert fill(second, [passage("bad one"), passage("good one")]) == (1, 1, 0)


def test_projects_and_corpora_in_one_store_are_apart(tmp_path: Path) -> None:
    mine, theirs = [passage("red apples")], [passage("red apples"), passage("red cars")]
    with open_store(f"sqlite://{tmp_path / 's'}", quiet) as store:
        one, two = (PassageVectors(store, WordEmbedder(), name) for name in ("p", "q"))
        fill(one, mine)
        fill(two, theirs)
        query = asyncio.run(one.query("red cars"))
        found = asyncio.run(one.search(Label.DOCS, mine, query, 5))
        assert [number for number, _ in found] == [0]
        found = asyncio.run(two.search(Label.DOCS, theirs, query, 5))
        assert [number for number, _ in found] == [1, 0]
        assert asyncio.run(one.search(Label.INTENT, mine, query, 5)) == []
        assert one.forget(Label.DOCS) == 1
        assert two.forget(Label.INTENT) == 0
        assert fill(two, theirs) == (2, 0, 0)


def test_another_model_has_a_collection_of_its_own(tmp_path: Path) -> None:
    with open_store(f"sqlite://{tmp_path / 's'}", quiet) as store:
        fill(PassageVectors(store, WordEmbedder(), "p"), [passage("a text")])
        other = WordEmbedder(dimension=32, name="org/other model:v2")
        assert fill(PassageVectors(store, other, "p"), [passage("a text")]) == (0, 1, 0)
        assert {info.dimension for info in store.collections()} == {32, 256}


def test_static_rows_are_those_of_the_encoder() -> None:
    embedder = StaticEmbedder(encoder())
    query = asyncio.run(embedder.embed(["parse the cookie header"], kind="query"))[0]
    terms = make_query(Problem("", "parse the cookie header"), Terms())
    own = encoder().query(terms.hashes, terms.weights)
    assert np.allclose(query, own, atol=1e-6)
    rows = asyncio.run(
        embedder.embed(
            ["NAME: parse_cookie\nDESCRIPTION: reads the header", "draw a window", "\0"],
            kind="document",
        )
    )
    assert np.linalg.norm(rows, axis=1) == pytest.approx([1.0, 1.0, 0.0], abs=1e-5)
    assert float(rows[0] @ query) > float(rows[1] @ query)


@pytest.mark.parametrize("model", ["a", "org/model", "x" * 200, "ünï", "..."])
def test_collection_names_suit_every_engine(model: str) -> None:
    name = collection_name(model)
    assert len(name) <= 48
    assert name[0].isalnum()
    assert name.isascii()
