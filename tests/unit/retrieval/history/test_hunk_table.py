from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.retrieval.history.hunk_history import (
    decode_commit,
    decode_table,
    encode_commit,
    encode_table,
)
from agent.retrieval.history.hunk_table import (
    CountedHunks,
    HunkTable,
    build_table,
    count_hunks,
    hunk_text,
    without_secrets,
)
from agent.retrieval.history.hunks import AddedHunk, CommitHunks
from agent.retrieval.index.identifiers import Terms, term_hash
from agent.search.corpora.history import distinct_passages, passage_of
from agent.search.corpora.pull_requests import PullRequest
from agent.search.passages import Label, Passage
from agent.shared.secrets.finding import MASK


def hunk(path: str, text: str, *names: str, start: int = 1) -> AddedHunk:
    lines = text.count("\n") + 1
    context = f"def {names[0]}():" if names else ""
    return AddedHunk(path, start, start + lines - 1, context, names, text, lines)


def counted(*commits: CommitHunks) -> list[CountedHunks]:
    terms = Terms()
    return [count_hunks(commit, terms) for commit in commits]


def made(number: int, *hunks: AddedHunk, renames: Sequence[tuple[str, str]] = ()) -> CommitHunks:
    return CommitHunks(f"{number:040x}", f"subject {number}", 2, hunks, tuple(renames))


NEWEST = made(3, hunk("new/a.py", "parse header", "parse", start=7), hunk("b.py", "other words"))
RENAME = made(2, renames=[("a.py", "new/a.py")])
OLDEST = made(1, hunk("a.py", "header header", "parse", "header"), hunk("gone.py", "lost"))


def test_the_text_of_a_hunk() -> None:
    assert hunk_text("Fix it", hunk("a.py", "x = 1\ny = 2", "f")) == (
        "Fix it | a.py | def f():\nx = 1\ny = 2"
    )
    assert hunk_text("Fix it", hunk("a.py", "x = 1")) == "Fix it | a.py\nx = 1"


def test_occurrences_paths_and_functions() -> None:
    table = build_table(counted(NEWEST, RENAME, OLDEST))
    rows = zip(
        (table.paths[n] for n in table.path),
        (table.paths[n] for n in table.today),
        table.commit.tolist(),
        table.start.tolist(),
        table.end.tolist(),
        table.order.tolist(),
        strict=True,
    )
    assert list(rows) == [
        ("new/a.py", "new/a.py", 0, 7, 7, 0),
        ("b.py", "b.py", 0, 1, 1, 1),
        ("a.py", "new/a.py", 2, 1, 1, 0),
        ("gone.py", "gone.py", 2, 1, 1, 1),
    ]
    named = [(int(o), table.names[n]) for o, n in zip(table.name_of, table.name, strict=True)]
    assert named == [(0, "parse"), (2, "parse"), (2, "header")]
    assert (table.sizes.tolist(), table.functions.tolist()) == ([2, 2, 2], [1, 0, 2])


def test_postings_count_each_term_of_each_text() -> None:
    table = build_table(counted(NEWEST, OLDEST))
    at = int(np.searchsorted(table.vocabulary, np.uint64(term_hash("header"))))
    part = slice(int(table.offsets[at]), int(table.offsets[at + 1]))
    found = dict(zip(table.postings[part].tolist(), table.counts[part].tolist(), strict=True))
    assert found == {0: 1.0, 2: 2.0}
    total = sum(int(one.counts.sum()) for one in counted(NEWEST, OLDEST))
    assert table.lengths.sum() == table.counts.sum() == total


def test_a_text_that_occurs_twice_is_one_document() -> None:
    again = replace(OLDEST, commit="9" * 40)
    table = build_table(counted(again, NEWEST, OLDEST))
    assert table.text.tolist() == [0, 1, 2, 3, 0, 1]
    assert len(table.digests) == table.lengths.size == 4
    alone = build_table(counted(again, NEWEST))
    assert table.postings.tolist() == alone.postings.tolist()
    passages = list(distinct_passages(counted(again, NEWEST, OLDEST), {}))
    assert [p.origin for p in passages] == [again.commit] * 2 + [NEWEST.commit] * 2
    assert [[p.origin for p in one.also] for one in passages] == [[OLDEST.commit]] * 2 + [[]] * 2


def test_swapped_names_are_followed() -> None:
    swap = made(2, renames=[("a.py", "b.py"), ("b.py", "a.py")])
    before = made(1, hunk("a.py", "one"), hunk("b.py", "two"))
    table = build_table(counted(swap, before))
    assert [table.paths[n] for n in table.today] == ["b.py", "a.py"]


def test_a_passage() -> None:
    request = PullRequest(12, "Parse headers", "https://git.example.org/a/b/pull/12")
    (one, _) = distinct_passages(counted(NEWEST), {NEWEST.commit: request})
    assert one == Passage(
        corpus=Label.HISTORY,
        title="0000000000 (#12 Parse headers): subject 3",
        text="NAME: parse\nTYPE: change\nFILE: new/a.py\nDESCRIPTION: subject 3\nparse header",
        path="new/a.py",
        start=7,
        end=7,
        symbol="parse",
        language="python",
        origin=NEWEST.commit,
        link="https://git.example.org/a/b/pull/12",
    )


def test_a_title_is_one_printable_line() -> None:
    commit = replace(NEWEST, subject="Fix \x1b[31mred\u202e\n" + "x" * 200)
    title = passage_of(counted(commit)[0], commit.hunks[0], None).title
    assert title.isprintable()
    assert len(title) < 120


def test_secrets_are_masked() -> None:
    key = "AKIA" + "ABCDEFGHIJKLMNOP"
    masked = without_secrets(made(1, hunk("a.py", f"x = 1\nKEY = '{key}'\ny = 2")))
    assert masked.hunks[0].text.count("\n") == 2
    assert key not in masked.hunks[0].text
    assert MASK in masked.hunks[0].text


# ------------------------------------------------------------------------------------------ records


def same(left: HunkTable, right: HunkTable | None) -> bool:
    return right is not None and encode_table(left) == encode_table(right)


@pytest.mark.parametrize("commits", [(), (RENAME,), (NEWEST, RENAME, OLDEST)])
def test_what_is_kept_comes_back(commits: Sequence[CommitHunks]) -> None:
    table = build_table(counted(*commits))
    assert same(table, decode_table(encode_table(table)))
    for one in counted(*commits):
        back = decode_commit(one.commit.commit, encode_commit(one))
        assert back is not None
        assert (back.commit, back.digests) == (one.commit, one.digests)
        assert same(build_table([one]), build_table([back]))


def test_arrays_come_back_with_their_types() -> None:
    table = build_table(counted(NEWEST, OLDEST))
    back = decode_table(encode_table(table))
    assert back is not None
    for name in HunkTable.__slots__:
        value = getattr(table, name)
        if isinstance(value, np.ndarray):
            assert getattr(back, name).dtype == value.dtype, name


@settings(deadline=None)
@given(st.binary(max_size=60), st.integers(0, 400), st.integers(0, 30))
def test_a_damaged_record_is_none_or_sound(noise: bytes, at: int, drop: int) -> None:
    table = encode_table(build_table(counted(NEWEST, OLDEST)))
    commit = encode_commit(counted(OLDEST)[0])
    for data in (noise, table[:at] + noise + table[at + drop :]):
        found = decode_table(data)
        if found is not None:
            assert found.text.max(initial=-1) < len(found.digests)
            assert found.postings.max(initial=-1) < len(found.digests)
            assert found.today.max(initial=-1) < len(found.paths)
    assert decode_commit("1" * 40, noise) is None
    changed = commit[:at] + noise + commit[at + drop :]
    back = decode_commit("1" * 40, changed)
    assert back is None or len(back.digests) == len(back.commit.hunks)


def test_a_table_that_points_outside_itself_is_refused() -> None:
    table = build_table(counted(NEWEST, OLDEST))
    for name in ("text", "postings", "commit", "today", "name", "name_of"):
        bad = replace(table, **{name: getattr(table, name) + 1000})
        assert decode_table(encode_table(bad)) is None, name
    assert decode_table(encode_table(replace(table, digests=table.digests[1:]))) is None
    assert decode_table(encode_table(replace(table, offsets=table.offsets[::-1]))) is None
