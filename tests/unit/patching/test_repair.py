"""Slips are repaired without a second call only if the reply leaves one way to do so."""

from __future__ import annotations

from typing import Any

import pytest

from agent.patching import apply_proposal
from agent.types import AppliedPatch, Edit, PatchProposal, SearchReplace
from tests.support.memory_files import MemoryFiles

SOURCE = '''\
"""A module."""

from __future__ import annotations

import os


def first(values):
    for value in values:
        if value:
            return value
    return None
'''


def run(*edits: Edit, thought: str = "", source: str = SOURCE, **options: Any) -> AppliedPatch:
    proposal = PatchProposal(edits, thought)
    outcome = apply_proposal(proposal, MemoryFiles({"m.py": source}), **options)
    assert isinstance(outcome, AppliedPatch), outcome
    return outcome


def after(patch: AppliedPatch) -> str:
    return (patch.changes[0].after or b"").decode()


def change(search: str, replace: str) -> SearchReplace:
    return SearchReplace("m.py", search, replace)


# ----------------------------------------------------------------------------------- final newline


def test_a_lost_line_feed_is_put_back_and_reported() -> None:
    patch = run(change("    return None\n", "    return 0"), source=SOURCE + "x = 1\n")
    assert after(patch).endswith("    return 0\nx = 1\n")
    assert [(r.name, r.saved, r.edit) for r in patch.repairs] == [
        ("final-newline", "broken-syntax", 0)
    ]


@pytest.mark.parametrize(
    ("search", "replace", "end"),
    [
        ("    return None\n", "", "            return value\n"),
        ("    return None\n", "    return 0", "    return 0"),
        ("    return None", "    return 0", "    return 0\n"),
    ],
)
def test_no_line_feed_is_added_where_none_is_lost(search: str, replace: str, end: str) -> None:
    patch = run(change(search, replace))
    assert after(patch).endswith(end)
    assert patch.repairs == ()
