from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from agent.events import Event, StageProgress
from agent.retrieval.candidates import all_files
from agent.retrieval.corpus import Corpus
from agent.retrieval.identifiers import term_hash
from agent.retrieval.index import Index, IndexSummary, record_keys
from agent.retrieval.pool import Cancelled
from agent.types import SourceFile
from tests.support.fakes import MemorySnapshot
from tests.support.ignored_events import ignore

FILES = {
    "pkg/a.py": "def alpha():\n    return beta\n",
    "pkg/b.py": "def beta():\n    return beta, beta\n\nclass Gamma:\n    pass\n",
    "pkg/empty.py": "",
}


class CountingSnapshot(MemorySnapshot):
    """Knows which files were read."""

    def __init__(self, files: Mapping[str, str | bytes]) -> None:
        super().__init__(files)
        self.reads: list[str] = []

    def text(self, path: str) -> str:
        self.reads.append(path)
        return super().text(path)


def load(index: Index, snapshot: MemorySnapshot, *words: str) -> Corpus:
    hashes = np.array(sorted(term_hash(word) for word in words), dtype=np.uint64)
    return index.load(snapshot, all_files(snapshot), hashes)


def test_corpus_is_in_path_order_with_postings_of_the_query() -> None:
    corpus = load(Index(ignore), MemorySnapshot(FILES), "beta")
    assert [file.path for file in corpus.files] == ["pkg/a.py", "pkg/b.py", "pkg/empty.py"]
    assert [piece.symbol for piece in corpus.pieces] == ["alpha", "beta", "Gamma"]
    assert corpus.first_piece == (0, 1, 3, 3)
    assert corpus.piece_file.tolist() == [0, 1, 1]
    assert list(zip(corpus.piece, corpus.counts, corpus.name_counts, strict=True)) == [
        (0, 1.0, 0.0),
        (1, 3.0, 1.0),
    ]
    assert corpus.text_lengths.tolist() == [4.0, 5.0, 3.0]  # stop words and `pass` apart
    assert corpus.name_lengths.tolist() == [1.0, 1.0, 1.0]


def test_a_query_without_terms_gives_no_postings() -> None:
    corpus = load(Index(ignore), MemorySnapshot(FILES))
    assert corpus.piece.size == 0
    assert len(corpus.pieces) == 3


def test_no_files_give_an_empty_corpus() -> None:
    corpus = load(Index(ignore), MemorySnapshot({}), "beta")
    assert (corpus.pieces, corpus.first_piece) == ((), (0,))


def test_second_run_reads_changed_files_only(tmp_path: Path) -> None:
    index = Index(ignore, tmp_path / "index.db")
    first = CountingSnapshot(FILES)
    cold = load(index, first, "beta")
    assert first.reads == sorted(FILES)
    changed = CountingSnapshot({**FILES, "pkg/b.py": "beta = 1\n", "pkg/c.py": FILES["pkg/a.py"]})
    load(index, changed, "beta")
    assert changed.reads == ["pkg/b.py"]  # c.py has the content of a.py
    same = CountingSnapshot(FILES)
    warm = load(index, same, "beta")
    assert same.reads == []
    assert warm.pieces == cold.pieces
    np.testing.assert_array_equal(warm.counts, cold.counts)


def test_damaged_records_are_made_anew(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "index.db"
    load(Index(ignore, path), MemorySnapshot(FILES), "beta")
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE record SET data = x'00'")
    connection.close()
    snapshot = CountingSnapshot(FILES)
    assert len(load(Index(ignore, path), snapshot, "beta").pieces) == 3
    assert snapshot.reads == sorted(FILES)


def test_keys_depend_on_content_and_language_not_on_the_path() -> None:
    def key(path: str, blob: str, language: str) -> bytes:
        return record_keys([SourceFile(path, blob, 1, language)])[0]

    assert key("a.py", "1", "python") == key("b.py", "1", "python")
    assert key("a.py", "1", "python") != key("a.py", "2", "python")
    assert key("a.ts", "1", "typescript") != key("a.ts", "1", "tsx")


def test_progress_counts_the_files_that_are_cut() -> None:
    events: list[Event] = []
    load(Index(events.append), MemorySnapshot({f"m{n}.py": f"x = {n}\n" for n in range(60)}))
    assert events == [StageProgress("index", n, 60) for n in (25, 50, 60)]


def test_large_trees_are_cut_in_worker_processes_alike() -> None:
    body = "".join(f"    name_{n} = {n}\n" for n in range(12_000))
    snapshot = MemorySnapshot({f"m{n}.py": f"def f{n}():\n{body}" for n in range(15)})
    alone = load(Index(ignore, workers=1), snapshot, "name")
    pooled = load(Index(ignore, workers=2), snapshot, "name")
    assert pooled.pieces == alone.pieces
    np.testing.assert_array_equal(pooled.counts, alone.counts)


def test_cancelled_loads_stop() -> None:
    cancel = threading.Event()
    cancel.set()
    snapshot = MemorySnapshot(FILES)
    with pytest.raises(Cancelled):
        Index(ignore).load(snapshot, all_files(snapshot), np.empty(0, dtype=np.uint64), cancel)


def test_refresh_counts_what_it_did(tmp_path: Path) -> None:
    index = Index(ignore, tmp_path / "index.db")
    snapshot = MemorySnapshot({**FILES, "tests/test_a.py": "def test_a(): pass\n"})
    assert index.refresh(snapshot) == IndexSummary(files=3, built=3, chunks=3)
    assert index.refresh(snapshot) == IndexSummary(files=3, built=0, chunks=3)
