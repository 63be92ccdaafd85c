"""Precomputed vectors in a real vector store."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from agent.search.precomputed import store_import as importing
from agent.search.precomputed.loading import load_vectors
from agent.search.precomputed.store_import import MAX_PAYLOAD, entries_of, import_vectors
from agent.search.precomputed.vector_files import write_vector
from agent.search.stores.base import EntryFilter
from agent.search.stores.sqlite.store import SqliteStore
from agent.types.events import Event, Notice, StageProgress


def ignore(_: Event) -> None:
    """No one listens."""


def test_imported_vectors_are_found_by_direction_and_tag(tmp_path: Path) -> None:
    folder = tmp_path / "v"
    write_vector(folder, "a", [3.0, 0.0], tags=["x"], text="A", metadata={"path": "p/a.py"})
    write_vector(folder, "b", [0.0, 2.0], tags=["x", "y"], metadata={"language": "python"})
    write_vector(folder, "c", [0.0, 0.0])
    index = load_vectors(folder, ignore)
    with SqliteStore(tmp_path / "store.db", ignore) as store:
        collection = store.collection("memory", "their-model", index.dimension)
        options = {"project": "p", "corpus": "memory", "reporter": ignore}
        assert import_vectors(index, collection, **options) == 3  # type: ignore[arg-type]
        assert import_vectors(index, collection, **options) == 0  # type: ignore[arg-type]
        query = np.array([[1.0, 0.0]], dtype=np.float32)
        (found,) = collection.search(query, 3)
        assert [match.id for match in found] == ["memory/a", "memory/b", "memory/c"]
        assert found[0].score == pytest.approx(1.0)
        assert (found[0].fields.path, found[1].fields.language) == ("p/a.py", "python")
        assert json.loads(found[0].payload) == {
            "id": "a",
            "text": "A",
            "metadata": {"path": "p/a.py"},
        }
        (tagged,) = collection.search(query, 3, EntryFilter(tags=frozenset({"y"})))
        assert [match.id for match in tagged] == ["memory/b"]


def test_a_changed_vector_or_text_is_written_again(tmp_path: Path) -> None:
    def contents() -> set[str]:
        index = load_vectors(tmp_path, ignore)
        return {entry.content for entry in entries_of(index, "p", "memory", ignore)}

    seen = set()
    for vector, text in (([1.0, 0.0], "A"), ([1.0, 0.5], "A"), ([1.0, 0.5], "B")):
        write_vector(tmp_path, "a", vector, text=text)
        seen |= contents()
    assert len(seen) == 3


@pytest.mark.parametrize("text", ["x" * 100_000, "é" * 20_000, '"' * 60_000])
def test_long_texts_are_cut_to_what_a_store_takes(tmp_path: Path, text: str) -> None:
    write_vector(tmp_path, "a", [1.0], text=text, metadata={"k": "v" * 1000})
    (entry,) = entries_of(load_vectors(tmp_path, ignore), "p", "memory", ignore)
    assert MAX_PAYLOAD * 0.85 < len(entry.payload.encode()) <= MAX_PAYLOAD
    payload = json.loads(entry.payload)
    assert payload["text"].endswith("... [cut]")
    assert payload["metadata"] == {"k": "v" * 1000}


def test_metadata_that_alone_is_too_large_is_left_out(tmp_path: Path) -> None:
    write_vector(tmp_path, "a", [1.0], text="T", metadata={"k": "v" * 70_000})
    (entry,) = entries_of(load_vectors(tmp_path, ignore), "p", "memory", ignore)
    assert json.loads(entry.payload) == {"id": "a", "text": "T", "metadata": {}}


def test_a_text_that_is_gone_is_said_and_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[1]")
    (tmp_path / "a.meta.json").write_text('{"text_file": "gone.txt"}')
    events: list[Event] = []
    (entry,) = entries_of(load_vectors(tmp_path, ignore), "p", "memory", events.append)
    assert json.loads(entry.payload)["text"] == ""
    (notice,) = events
    assert isinstance(notice, Notice)
    assert "gone.txt" in notice.message


def test_many_are_written_in_parts_that_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "BATCH", 4)
    for number in range(10):
        write_vector(tmp_path / "v", f"{number}", [1.0, number])
    index = load_vectors(tmp_path / "v", ignore)
    said: list[Event] = []
    with SqliteStore(tmp_path / "store.db", ignore) as store:
        collection = store.collection("c", "m", 2)
        assert (
            import_vectors(index, collection, project="p", corpus="c", reporter=said.append) == 10
        )
        assert collection.count() == 10
    assert said == [StageProgress(importing.STAGE, done, 10) for done in (4, 8, 10)]
