from __future__ import annotations

import pytest

from agent.retrieval.ranking.signals import (
    BASE,
    FILE_FEATURES,
    FILE_NAMES,
    GROUP_OF,
    GROUPS,
    PIECE_FEATURES,
    PIECE_NAMES,
    group_of,
)


def test_every_column_has_a_name_of_its_own() -> None:
    assert len(set(PIECE_NAMES)) == len(PIECE_NAMES) == len(PIECE_FEATURES) + len(FILE_FEATURES)
    assert set(FILE_NAMES) < set(PIECE_NAMES)


def test_the_plain_sum_comes_first_and_cannot_be_switched_off() -> None:
    # A ranker starts from a multiple of the first column.
    assert (FILE_NAMES[0], PIECE_NAMES[0]) == ("file-score", "score")
    assert GROUP_OF["score"] == GROUP_OF["file-score"] == BASE
    assert BASE not in GROUPS
    assert set(GROUPS) == set(GROUP_OF.values()) - {BASE}


@pytest.mark.parametrize(
    ("reason", "group"),
    [
        ("traceback", "traceback"),
        ("path", "mentions"),  # of files alone: the column is `file-path`
        ("imported-by", "imports"),
        ("history-function", "history"),
        ("same-name", "graph"),
        ("of another source", "of another source"),
    ],
)
def test_the_group_of_a_reason(reason: str, group: str) -> None:
    assert group_of(reason) == group
