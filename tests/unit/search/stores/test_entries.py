"""Texts and vectors on their way in and out, and the plain arithmetic of a search."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import StoreMismatch
from agent.search.stores.base import EntryFilter, score_of
from agent.search.stores.entries import (
    escaped,
    escaped_filter,
    joined,
    restored,
    rows_of,
    split,
    tag_mark,
    unit_queries,
)
from agent.search.stores.exact import cosines, is_clear, nearest
from tests.support.stores import DIMENSION, entry, plainly, random_units

texts = st.text(st.characters(codec=None, exclude_categories=()), max_size=20)


@given(texts)
def test_any_text_comes_back_and_can_be_stored(text: str) -> None:
    kept = escaped(text)
    assert restored(kept) == text
    kept.encode()
    assert not set("\x00\x1f") & set(kept)


@given(st.lists(texts, max_size=4), texts)
def test_tags_come_back_whole(tags: list[str], other: str) -> None:
    kept = joined(tuple(tags))
    assert split(kept) == tuple(tags)
    assert (tag_mark(escaped(other)) in kept) == (other in tags)


@given(st.sets(texts, max_size=30))
def test_no_two_ids_become_one(names: set[str]) -> None:
    assert len(rows_of((entry(name) for name in names), DIMENSION)) == len(names)


def test_what_is_under_a_folder_is_written_in_one_way() -> None:
    for under, expected in (("a/", "a"), ("./a/b//", "a/b"), (".", ""), ("./", ""), ("", "")):
        assert escaped_filter(EntryFilter(under=under)).under == expected


def test_vectors_are_brought_to_length_1() -> None:
    rows = rows_of([entry("a", np.full(DIMENSION, 7, np.float32))], DIMENSION)
    assert np.linalg.norm(rows["a"].vector) == pytest.approx(1.0)
    queries = unit_queries(np.array([[3.0, 4.0], [0, 0], [np.inf, 1]], np.float32), 2)
    np.testing.assert_allclose(queries, [[0.6, 0.8], [0, 0], [0, 0]], rtol=1e-6)
    with pytest.raises(StoreMismatch):
        unit_queries(np.ones((1, 3), np.float32), 2)
    assert unit_queries(np.ones(2, np.float32), 2).shape == (1, 2)


def test_equal_rows_have_equal_cosines_wherever_they_stand() -> None:
    rows = random_units(1_001, seed=1, dimension=37)
    rows[::3] = rows[0]
    found = cosines(rows, random_units(1, seed=2, dimension=37)[0])
    assert len(set(found[::3].tolist())) == 1
    assert cosines(rows[:1], random_units(1, seed=2, dimension=37)[0])[0] == found[0]


@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize("chosen", [None, [3, 1, 40, 41, 59]])
def test_the_nearest_are_found_with_all_that_tie(kind: type, chosen: list[int] | None) -> None:
    matrix = random_units(60, seed=3).astype(kind)
    matrix[40:50] = matrix[7]
    matrix[50:] = 0
    rows = np.arange(60) * 10
    queries = np.stack([matrix[7].astype(np.float32), random_units(1, seed=4)[0]])
    positions = None if chosen is None else np.array(sorted(chosen))
    found = nearest(matrix, rows, queries, 3, positions)
    entries = [entry(f"{n:02}", matrix[n].astype(np.float32)) for n in chosen or range(60)]
    for query, candidates in zip(queries, found, strict=True):
        got = {
            f"{row // 10:02}": score_of(c)
            for row, c in zip(candidates.rows, candidates.cosines, strict=True)
        }
        for name, score in plainly(entries, query, 3):
            assert got[name] == pytest.approx(score, abs=1e-3)
    if chosen is None:
        assert len(found[0].rows) == 11


def test_when_more_must_be_asked_for() -> None:
    assert is_clear([0.9, 0.8], 2, 10)
    assert is_clear([0.9, 0.8, 0.7], 2, 3)
    assert not is_clear([0.9, 0.8, 0.8], 2, 3)
    assert not is_clear([0.9, 0.8], 2, 2)
