"""Records that machines share, with those of this machine in front."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from agent.repository.snapshot import take_snapshot
from agent.retrieval.index.index import Index, target_files
from agent.shared.cache.records import ReadThrough, RecordStore
from agent.types.events import Event

KEYS = [bytes([number]) * 16 for number in range(3)]


def test_what_is_not_here_is_taken_from_there_and_kept(tmp_path: Path) -> None:
    said: list[Event] = []

    def opened(name: str) -> RecordStore:
        return RecordStore(tmp_path / name, reporter=said.append)

    with opened("shared") as shared:
        shared.put([(KEYS[0], b"shared")])
    with ReadThrough(opened("here"), lambda: opened("shared")) as both:
        assert both.heads(KEYS, 2) == {KEYS[0]: (b"sh", 6)}
        both.put(iter([(KEYS[1], b"new")]))
        assert both.get(KEYS) == {KEYS[0]: b"shared", KEYS[1]: b"new"}
    for name in ("here", "shared"):
        with opened(name) as store:
            assert store.get(KEYS) == {KEYS[0]: b"shared", KEYS[1]: b"new"}
    assert said == []


def test_the_shared_records_are_opened_when_something_is_missing_here(tmp_path: Path) -> None:
    opened: list[None] = []
    with RecordStore(tmp_path / "here", reporter=lambda _: None) as here:
        here.put([(KEYS[0], b"own")])
    local = RecordStore(tmp_path / "here", reporter=lambda _: None)
    with ReadThrough(local, lambda: opened.append(None)) as both:
        assert both.get(KEYS[:1]) == {KEYS[0]: b"own"}
        assert both.heads(KEYS[:1], 1) == {KEYS[0]: (b"o", 3)}
        assert opened == []
        assert both.get(KEYS) == {KEYS[0]: b"own"}
        both.put([(KEYS[1], b"new")])
        assert both.get(KEYS[:2]) == {KEYS[0]: b"own", KEYS[1]: b"new"}
    assert opened == [None]  # there are none: asked once


def test_a_second_machine_cuts_nothing(
    tmp_path: Path, make_repository: Callable[[Mapping[str, str]], Path]
) -> None:
    said: list[Event] = []
    snapshot = take_snapshot(
        make_repository({f"m{n}.py": f"def f{n}():\n    return {n}\n" for n in range(20)})
    )

    def machine(name: str) -> Index:
        return Index(
            said.append,
            tmp_path / name / "index.db",
            workers=1,
            shared=lambda: RecordStore(tmp_path / "shared.db", reporter=said.append),
        )

    assert machine("one").refresh(snapshot).built == 20
    assert machine("two").refresh(snapshot).built == 0
    nothing = np.empty(0, np.uint64)
    corpora = [
        machine(name).load(snapshot, target_files(snapshot), nothing) for name in ("one", "three")
    ]
    assert corpora[0].piece_file.tolist() == corpora[1].piece_file.tolist()


def test_damaged_shared_records_are_made_again(
    tmp_path: Path, make_repository: Callable[[Mapping[str, str]], Path]
) -> None:
    said: list[Event] = []
    snapshot = take_snapshot(make_repository({"m.py": "def f():\n    return 1\n"}))

    class Harmful(RecordStore):
        def get(self, keys: object) -> Mapping[bytes, bytes]:
            return dict.fromkeys(keys, b"\xff" * 100)  # type: ignore[attr-defined]

        def heads(self, keys: object, size: int) -> Mapping[bytes, tuple[bytes, int]]:
            return dict.fromkeys(keys, (b"\xff" * size, 100))  # type: ignore[attr-defined]

    index = Index(
        said.append,
        tmp_path / "index.db",
        workers=1,
        shared=lambda: Harmful(tmp_path / "shared.db", reporter=said.append),
    )
    corpus = index.load(snapshot, target_files(snapshot), np.empty(0, np.uint64))
    assert len(corpus.piece_file) >= 1
