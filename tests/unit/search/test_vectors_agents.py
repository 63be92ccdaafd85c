"""Agents with settings of their own over one index."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.errors import (
    PatchshotError,
    SemanticConfigError,
    SemanticIndexError,
    SemanticQueryError,
    SemanticRetrievalError,
)
from agent.search.precomputed import (
    SemanticRetriever,
    SemanticSettings,
    VectorIndex,
    cosine_similarity,
    load_vectors,
    make_settings,
    read_settings,
    write_vector,
)


def make_retriever(*agents: SemanticSettings) -> SemanticRetriever:
    rows = np.array([[1, 0], [1, 1], [0, 1], [-1, 0]], dtype=np.float32)
    return SemanticRetriever(VectorIndex(Path(), ("a", "b", "c", "d"), rows), agents)


def test_each_agent_gets_what_its_settings_say() -> None:
    retriever = make_retriever(
        make_settings(agent_name="few", top_k=1),
        make_settings(agent_name="alike", top_k=4, similarity_threshold=0.5),
        make_settings(agent_name="all", top_k=4, similarity_threshold=-1.0),
    )
    found = {n: [r.id for r in retriever.retrieve(n, [2, 0])] for n in ("few", "alike", "all")}
    assert found == {"few": ["a"], "alike": ["a", "b"], "all": ["a", "b", "c", "d"]}
    many = retriever.retrieve_batch("alike", [[2, 0], [0, 3]])
    assert [[r.id for r in one] for one in many] == [["a", "b"], ["c", "b"]]


def test_an_unknown_agent_and_a_bad_query_are_different_errors() -> None:
    retriever = make_retriever(make_settings(agent_name="x"))
    with pytest.raises(SemanticConfigError, match="no settings for the agent 'y'; known: x"):
        retriever.retrieve("y", [1, 0])
    with pytest.raises(SemanticQueryError, match="one dimension"):
        retriever.retrieve("x", [[1, 0]])
    with pytest.raises(SemanticQueryError, match="2 dimensions"):
        retriever.retrieve("x", [1, 0, 0])


def test_all_errors_have_one_base() -> None:
    kinds = (SemanticConfigError, SemanticIndexError, SemanticQueryError)
    assert all(issubclass(kind, SemanticRetrievalError) for kind in kinds)
    assert issubclass(SemanticRetrievalError, PatchshotError)


@pytest.mark.parametrize(
    "values",
    [
        {"agent_name": ""},
        {"agent_name": "x", "top_k": 0},
        {"agent_name": "x", "top_k": "5"},
        {"agent_name": "x", "similarity_threshold": 1.01},
        {"agent_name": "x", "similarity_threshold": -1.01},
        {"agent_name": "x", "similarity_threshold": float("nan")},
        {"agent_name": "x", "filter_by_tags": "ab"},
        {"agent_name": "x", "typo": 1},
        {"agent_name": object()},
        {},
    ],
)
def test_settings_that_cannot_be_meant_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(SemanticConfigError):
        make_settings(**values)


def test_settings_of_several_agents_come_from_a_file(tmp_path: Path) -> None:
    agents = [{"agent_name": "a", "top_k": 2}, {"agent_name": "b", "filter_by_tags": ["t"]}]
    as_json, as_toml = tmp_path / "s.json", tmp_path / "s.toml"
    as_json.write_text(json.dumps(agents))
    as_toml.write_text(
        '[[agents]]\nagent_name = "a"\ntop_k = 2\n'
        '[[agents]]\nagent_name = "b"\nfilter_by_tags = ["t"]\n'
    )
    found = read_settings(as_json)
    assert found == read_settings(as_toml)
    assert found["a"].top_k == 2
    assert found["b"].filter_by_tags == ("t",)


@pytest.mark.parametrize("text", ["{", "5", '{"agents": 5}', '[{"agent_name": 5}]', "[" * 9999])
def test_a_file_of_settings_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "s.json"
    path.write_text(text)
    with pytest.raises(SemanticConfigError, match=r"s\.json"):
        read_settings(path)
    with pytest.raises(SemanticConfigError, match="cannot be read"):
        read_settings(tmp_path / "none.json")


def test_one_agent_has_one_set_of_settings() -> None:
    with pytest.raises(SemanticConfigError, match="two settings"):
        make_retriever(make_settings(agent_name="x"), make_settings(agent_name="x", top_k=1))


def test_settings_may_be_given_for_one_call() -> None:
    retriever = make_retriever(make_settings(agent_name="x"))
    ad_hoc = make_settings(agent_name="once", top_k=2)
    assert [one.id for one in retriever.retrieve(ad_hoc, [1, 0])] == ["a", "b"]
    assert [len(found) for found in retriever.retrieve_batch(ad_hoc, [[1, 0], [0, 1]])] == [2, 2]
    assert len(retriever) == 4
    with pytest.raises(SemanticConfigError, match="'once'"):  # it is not kept
        retriever.retrieve("once", [1, 0])


def test_the_cosine_is_that_of_a_search() -> None:
    found = make_retriever(make_settings(agent_name="x")).retrieve("x", [2, 1])
    assert [cosine_similarity([2, 1], one.vector) for one in found] == [one.score for one in found]
    assert cosine_similarity([1, 0], [-3, 0]) == -1.0
    assert cosine_similarity([0, 0], [1, 0]) == 0.0
    for one, other in (([1], [1, 0]), ([[1, 0]], [1, 0]), ([1, 0], [[1, 0]]), (["a"], [1])):
        with pytest.raises(SemanticQueryError):
            cosine_similarity(one, other)
    with pytest.raises(SemanticQueryError, match="NaN"):
        cosine_similarity([1, 0], [float("nan"), 1])


def test_a_missing_folder_is_an_empty_index_unless_strict(tmp_path: Path) -> None:
    said: list[Any] = []
    index = load_vectors(tmp_path / "none", said.append)
    retriever = SemanticRetriever(index, [make_settings(agent_name="x")])
    assert (len(retriever), retriever.retrieve("x", [1, 0])) == (0, ())
    assert retriever.retrieve_batch("x", [[1, 0], [0, 1]]) == ((), ())
    assert [event.level for event in said] == ["warning"]
    assert "no such folder; the index is empty" in said[0].message
    (tmp_path / "empty").mkdir()
    assert len(load_vectors(tmp_path / "empty", said.append)) == 0
    assert len(said) == 2
    for name in ("none", "empty"):
        with pytest.raises(SemanticIndexError):
            load_vectors(tmp_path / name, said.append, strict=True)


def test_a_result_has_its_content(tmp_path: Path) -> None:
    write_vector(tmp_path, "a", [1.0, 0.0], text="the first")
    retriever = SemanticRetriever(load_vectors(tmp_path, print), [make_settings(agent_name="x")])
    (found,) = retriever.retrieve("x", [1, 0])
    assert (found.content, found.text) == ("the first", "the first")
