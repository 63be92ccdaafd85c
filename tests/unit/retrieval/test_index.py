from __future__ import annotations

import sqlite3
import threading
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from agent.events import Event, StageProgress
from agent.retrieval.candidates import all_files
from agent.retrieval.corpus import Corpus
from agent.retrieval.identifiers import term_hash
from agent.retrieval.index import Index, IndexSummary, groups_of, record_keys
from agent.retrieval.pool import Cancelled
from agent.retrieval.records import PieceTerms
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


def test_pieces_one_by_one_and_all_at_once_are_the_same() -> None:
    text = "import a\n\nclass A:\n    '''é'''\n    def b(self):\n        pass\n    x = 1\n"
    pieces = load(Index(ignore), MemorySnapshot({**FILES, "a.py": text})).pieces
    assert list(pieces) == [pieces[number] for number in range(len(pieces))]
    assert [piece.holes for piece in pieces][:3] == [(), ((5, 6),), ()]
    assert pieces[-1] == pieces[len(pieces) - 1] == pieces[:][-1]
    with pytest.raises(IndexError):
        pieces[len(pieces)]


def test_a_query_without_terms_gives_no_postings() -> None:
    corpus = load(Index(ignore), MemorySnapshot(FILES))
    assert corpus.piece.size == 0
    assert len(corpus.pieces) == 3


def test_no_files_give_an_empty_corpus() -> None:
    corpus = load(Index(ignore), MemorySnapshot({}), "beta")
    assert (tuple(corpus.pieces), corpus.first_piece) == ((), (0,))


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


def damage(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE record SET data = x'00'")
    connection.close()


def test_damaged_blocks_are_merged_anew(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    cold = load(Index(ignore, path), MemorySnapshot(FILES), "beta")
    damage(tmp_path / "index-blocks.db")
    snapshot = CountingSnapshot(FILES)
    again = load(Index(ignore, path), snapshot, "beta")
    assert (again.pieces, snapshot.reads) == (cold.pieces, [])


def test_damaged_records_are_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    cold = load(Index(ignore, path), MemorySnapshot(FILES), "beta")
    damage(path)
    damage(tmp_path / "index-blocks.db")
    snapshot = CountingSnapshot(FILES)
    assert load(Index(ignore, path), snapshot, "beta").pieces == cold.pieces
    assert snapshot.reads == sorted(FILES)


def test_files_of_one_content_are_cut_once(tmp_path: Path) -> None:
    snapshot = CountingSnapshot({"a.py": "x = 1\n", "b.py": "x = 1\n"})
    corpus = load(Index(ignore), snapshot, "x")
    assert (len(corpus.pieces), snapshot.reads) == (2, ["a.py"])


def test_cold_and_warm_corpora_are_the_same_to_the_last_posting(tmp_path: Path) -> None:
    """Many groups, some merged from records of an earlier state, some known as a whole."""
    texts = {f"d{n % 7}/m{n}.py": f"class C{n}:\n    def beta(self):\n        return beta({n})\n"
             for n in range(400)}  # fmt: skip
    index = Index(ignore, tmp_path / "index.db")
    load(index, MemorySnapshot(texts), "beta")
    changed = {**texts, "d3/m10.py": "beta = 1\n", "d0/new.py": "def beta(): pass\n"}
    warm = load(index, MemorySnapshot(changed), "beta", "c1")
    cold = load(Index(ignore), MemorySnapshot(changed), "beta", "c1")
    for name in ("piece", "term", "counts", "name_counts", "text_lengths", "piece_file"):
        np.testing.assert_array_equal(getattr(warm, name), getattr(cold, name))
    np.testing.assert_array_equal(warm.names.uses.values, cold.names.uses.values)
    assert (warm.pieces, warm.symbols, warm.imports) == (cold.pieces, cold.symbols, cold.imports)


def test_a_new_file_changes_few_groups() -> None:
    files = [SourceFile(f"pkg/m{n:04}.py", str(n), 1, "python") for n in range(2_000)]
    more = sorted([*files, SourceFile("pkg/m0777x.py", "x", 1, "python")], key=lambda f: f.path)
    before = {group.key for group in groups_of(files, record_keys(files))}
    after = {group.key for group in groups_of(more, record_keys(more))}
    assert len(after) > 15
    assert len(after - before) <= 2


class Lengths:
    """Counts terms instead of embedding them."""

    dimension = 1
    path = Path("unused")

    def __init__(self, fingerprint: str) -> None:
        self.fingerprint = fingerprint

    def encode(self, terms: PieceTerms, /) -> bytes:
        return np.bincount(terms.pieces, terms.counts, terms.size).astype(np.int8).tobytes()


def test_vectors_of_an_encoder_reach_the_corpus_and_models_never_mix(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    corpus = load(Index(ignore, path, encoder=Lengths("one")), MemorySnapshot(FILES))
    assert corpus.vectors.tolist() == [[4], [5], [3]]
    assert load(Index(ignore, path), MemorySnapshot(FILES)).vectors.shape == (3, 0)
    other = CountingSnapshot(FILES)
    load(Index(ignore, path, encoder=Lengths("two")), other)
    assert other.reads == sorted(FILES)


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


def test_a_refresh_makes_blocks_anew_whose_heads_are_damaged(tmp_path: Path) -> None:
    snapshot = MemorySnapshot(FILES)
    index = Index(ignore, tmp_path / "index.db")
    index.refresh(snapshot)
    with closing(sqlite3.connect(tmp_path / "index-blocks.db")) as blocks:
        blocks.execute("UPDATE record SET data = zeroblob(length(data))")
        blocks.commit()
    assert index.refresh(snapshot) == IndexSummary(files=3, built=0, chunks=3)
    with closing(sqlite3.connect(tmp_path / "index-blocks.db")) as blocks:
        (head,) = blocks.execute("SELECT substr(data, 1, 4) FROM record").fetchone()
    assert head == b"psb2"
