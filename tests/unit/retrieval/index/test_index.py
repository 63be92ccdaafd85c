from __future__ import annotations

import sqlite3
import threading
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from agent.retrieval.index import Corpus, Index, PieceTerms, all_files, term_hash
from agent.shared.workers import Cancelled
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


def test_second_run_reads_changed_groups_only(tmp_path: Path) -> None:
    index = Index(ignore, tmp_path / "index.db")
    first = CountingSnapshot(FILES)
    cold = load(index, first, "beta")
    assert first.reads == sorted(FILES)
    changed = CountingSnapshot({**FILES, "pkg/b.py": "beta = 1\n"})
    load(index, changed, "beta")
    assert changed.reads == sorted(FILES)
    renamed = CountingSnapshot({"pkg/a2.py": FILES["pkg/a.py"], **dict(list(FILES.items())[1:])})
    load(index, renamed, "beta")
    assert renamed.reads == []
    same = CountingSnapshot(FILES)
    warm = load(index, same, "beta")
    assert same.reads == []
    assert list(warm.pieces) == list(cold.pieces)
    np.testing.assert_array_equal(warm.counts, cold.counts)


def damage(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE record SET data = x'00'")
    connection.close()


def test_damaged_blocks_are_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    cold = load(Index(ignore, path), MemorySnapshot(FILES), "beta")
    damage(path)
    snapshot = CountingSnapshot(FILES)
    assert list(load(Index(ignore, path), snapshot, "beta").pieces) == list(cold.pieces)
    assert sorted(snapshot.reads) == sorted(FILES)
    again = CountingSnapshot(FILES)
    load(Index(ignore, path), again, "beta")
    assert again.reads == []


def test_cold_and_warm_corpora_are_the_same_to_the_last_posting(tmp_path: Path) -> None:
    """Many groups, of which two have changed."""
    texts = {f"d{n % 7}/m{n}.py": f"class C{n}:\n    def beta(self):\n        return beta({n})\n"
             for n in range(400)}  # fmt: skip
    index = Index(ignore, tmp_path / "index.db")
    load(index, MemorySnapshot(texts), "beta")
    changed = {**texts, "d3/m10.py": "beta = 1\n", "d0/new.py": "def beta(): pass\n"}
    warm = load(index, MemorySnapshot(changed), "beta", "c1")
    cold = load(Index(ignore), MemorySnapshot(changed), "beta", "c1")
    for name in ("piece", "term", "counts", "name_counts", "text_lengths", "piece_file"):
        np.testing.assert_array_equal(getattr(warm, name), getattr(cold, name))
    np.testing.assert_array_equal(warm.uses.values, cold.uses.values)
    assert list(warm.pieces) == list(cold.pieces)
    assert (warm.symbols, warm.imports) == (cold.symbols, cold.imports)


class Lengths:
    """Counts terms instead of embedding them."""

    dimension = 1

    def __init__(self, fingerprint: str) -> None:
        self.fingerprint = fingerprint

    def encode(self, terms: PieceTerms, /) -> bytes:
        return np.bincount(terms.pieces, terms.counts, terms.size).astype(np.int8).tobytes()


def test_vectors_of_an_encoder_reach_the_corpus_and_models_never_mix(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    corpus = load(Index(ignore, path, encoder=Lengths("one")), MemorySnapshot(FILES))
    assert np.concatenate(corpus.vectors).tolist() == [[4], [5], [3]]
    assert load(Index(ignore, path), MemorySnapshot(FILES)).vectors == ()
    other = CountingSnapshot(FILES)
    load(Index(ignore, path, encoder=Lengths("two")), other)
    assert other.reads == sorted(FILES)


def test_cancelled_loads_stop() -> None:
    cancel = threading.Event()
    cancel.set()
    snapshot = MemorySnapshot(FILES)
    with pytest.raises(Cancelled):
        Index(ignore).load(snapshot, all_files(snapshot), np.empty(0, dtype=np.uint64), cancel)


def test_blocks_that_processes_cut_are_those_of_one_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many = {f"pkg/m{number:04}.py": FILES["pkg/b.py"] for number in range(700)}
    corpora = []
    for cores in (1, 2):
        monkeypatch.setattr("os.cpu_count", lambda cores=cores: cores)
        corpora.append(load(Index(ignore), MemorySnapshot(many), "beta"))
    alone, together = corpora
    assert list(together.pieces) == list(alone.pieces)
    assert together.piece.tolist() == alone.piece.tolist()
    assert together.counts.tolist() == alone.counts.tolist()
