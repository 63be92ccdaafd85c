from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.retrieval.index.index import Place, groups_of, record_keys
from agent.types import SourceFile


def test_a_new_file_changes_few_groups() -> None:
    files = [SourceFile(f"pkg/m{n:04}.py", str(n), 1, "python") for n in range(2_000)]
    more = sorted([*files, SourceFile("pkg/m0777x.py", "x", 1, "python")], key=lambda f: f.path)
    before = {group.key for group in groups_of(files, record_keys(files))}
    after = {group.key for group in groups_of(more, record_keys(more))}
    assert len(after) > 15
    assert len(after - before) <= 2


def test_keys_depend_on_content_and_language_not_on_the_path() -> None:
    def key(path: str, blob: str, language: str) -> bytes:
        return record_keys([SourceFile(path, blob, 1, language)])[0]

    assert key("a.py", "1", "python") == key("b.py", "1", "python")
    assert key("a.py", "1", "python") != key("a.py", "2", "python")
    assert key("a.ts", "1", "typescript") != key("a.ts", "1", "tsx")


@given(st.binary(max_size=40))
def test_a_place_is_exactly_what_was_written(data: bytes) -> None:
    place = Place.read(data)
    assert (len(data) == 18) == (place is not None)
    assert place is None or place.written() == data
