"""What a folder of vectors gives: what is used, what is skipped and said, what is cached."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.search.precomputed import VectorIndex, VectorMeta, load_vectors, parse_meta, parse_vector
from agent.types.events import Event, Notice


def put(folder: Path, **files: Any) -> Path:
    """Files by name, `__` for a dot; what is no str or bytes is written as JSON."""
    folder.mkdir(exist_ok=True)
    for name, value in files.items():
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        (folder / name.replace("__", ".")).write_bytes(data)
    return folder


def load(folder: Path, **options: Any) -> tuple[VectorIndex, list[str]]:
    events: list[Event] = []
    index = load_vectors(folder, events.append, **options)
    return index, [event.message for event in events if isinstance(event, Notice)]


def test_both_forms_of_a_name_are_loaded_in_order_of_ids(tmp_path: Path) -> None:
    put(tmp_path, b__json=[0.5, 1], a=[1, 0], c__json=[0, 0])
    index, notices = load(tmp_path)
    assert index.ids == ("a", "b", "c")
    assert index.vectors.tolist() == [[1, 0], [0.5, 1], [0, 0]]
    assert index.vectors.dtype == np.float32
    assert (notices, index.skipped) == ([], {})


def test_metadata_is_read_and_numbers_cannot_be_changed(tmp_path: Path) -> None:
    put(tmp_path, a=[1, 0], a__meta__json={"tags": ["x", "x", "y"], "text": "T", "k": {"l": [1]}})
    (result,) = load(tmp_path)[0].search([[1, 0]], 1)[0]
    assert (result.id, result.tags, result.text) == ("a", ("x", "y"), "T")
    assert result.metadata == {"k": {"l": [1]}}
    with pytest.raises(ValueError, match="read-only"):
        result.vector[0] = 5


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("bad.json", b"[1, 2", "not JSON"),
        ("bad.json", b"[NaN, 1]", "not JSON"),
        ("bad.json", b"[Infinity, 1]", "not JSON"),
        ("bad.json", b"[1e999, 1]", "too large"),
        ("bad.json", b"[1e30, 1]", "too large"),
        ("bad.json", b'["1", 2]', "not a JSON array of numbers"),
        ("bad.json", b"[true, false]", "not a JSON array of numbers"),
        ("bad.json", b'{"vector": [1, 2]}', "not a JSON array of numbers"),
        ("bad.json", b"[]", "0 numbers"),
        ("bad.json", b"[1, 2, 3]", "3 dimensions; 2 are those of most"),
        ("bad.json", b"[" * 9999, "not JSON"),
        ("bad.json", b"\xff\xfe", "not JSON"),
        ("bad.json", b" " * 4_000_001, "cannot be read (larger than 4,000,000 bytes)"),
        ("a", b"[1, 2]", "the id is that of a"),
        ("none.meta.json", b"{}", "the vector that it belongs to is not used"),
        ("a.meta.json", b"[]", "not a JSON object"),
        ("a.meta.json", b'{"tags": "x"}', "tags"),
    ],
)
def test_what_cannot_be_used_is_said_once_and_left_out(
    tmp_path: Path, name: str, data: bytes, reason: str
) -> None:
    put(tmp_path, a__json=[1, 0], b__json=[0, 1])
    (tmp_path / name).write_bytes(data)
    index, notices = load(tmp_path)
    assert index.ids == ("a", "b")
    ((skipped, why),) = index.skipped.items()
    assert skipped.removesuffix(".json") == name.removesuffix(".json")
    assert reason in why
    assert len(notices) == 1
    assert reason in notices[0]


def test_links_are_not_followed(tmp_path: Path) -> None:
    inside = put(tmp_path / "in", a=[1, 0])
    outside = put(tmp_path / "out", secret=[3, 4])
    (inside / "b").symlink_to("a")
    (inside / "c").symlink_to(outside / "secret")
    (inside / "d").symlink_to("d")
    (inside / "e").symlink_to("nothing")
    os.mkfifo(inside / "f")
    index, _ = load(inside)
    assert index.ids == ("a",)
    assert [*index.skipped.items()] == [
        (name, "no regular file that can be read") for name in "bcdef"
    ]


def test_names_are_said_in_one_line(tmp_path: Path) -> None:
    folder = put(tmp_path / "two\nlines", a=[1], **{"x\x1b[31m\ny": b"?"})
    _, (notice,) = load(folder)
    assert notice.isprintable()
    assert r"x\x1b[31m\ny: not JSON" in notice


# ---------------------------------------------------------------------------------------- parsing

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("abct"), inner),
    max_leaves=20,
)


@given(st.binary() | VALUES.map(lambda v: json.dumps(v).encode()))
def test_parsers_take_anything(data: bytes) -> None:
    vector, meta = parse_vector(data), parse_meta(data)
    if not isinstance(vector, str):
        assert np.isfinite(vector).all()
        assert vector.ndim == 1
    assert isinstance(meta, VectorMeta | str)
