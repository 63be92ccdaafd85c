from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from agent.repository.snapshot import take_snapshot
from agent.retrieval.history import (
    AddedHunk,
    CommitHunks,
    HunkHistory,
    without_secrets,
)
from agent.search.history import HunkSource, distinct_passages
from agent.search.passages import CorpusUnavailable, Label, Passage
from agent.shared.secrets.finding import MASK
from tests.conftest import run_git
from tests.support.fakes import MemorySnapshot
from tests.support.histories import hide_git
from tests.support.ignored_events import ignore

Make = Callable[[Mapping[str, str | bytes]], Path]

QUIET = threading.Event()


@pytest.fixture
def root(make_repository: Make) -> Path:
    """Three commits after the first; the second moves the file."""
    root = make_repository({"old.py": "import os\n\n\ndef parse():\n    return 0\n"})
    grow(root, "old.py", "quote", "Parse quotes")
    run_git(root, "mv", "old.py", "reader.py")
    run_git(root, "commit", "-q", "-m", "Move the reader")
    grow(root, "reader.py", "comma", "Parse commas")
    return root


def grow(root: Path, path: str, word: str, subject: str) -> str:
    body = f"    {word} = find_{word}()\n    if {word}:\n        skip({word})\n    return 0\n"
    file = root / path
    file.write_text(file.read_text().replace("    return 0\n", body))
    run_git(root, "commit", "-q", "-a", "-m", subject)
    return run_git(root, "rev-parse", "HEAD").strip()


def test_the_corpus(root: Path, cache: Path) -> None:
    source = HunkSource(HunkHistory(cache, ignore))
    found = source.passages(take_snapshot(root), QUIET)
    assert source.label is Label.HISTORY
    assert [(p.title[12:], p.path, p.start, p.end, p.symbol) for p in found] == [
        ("Parse commas", "reader.py", 8, 10, "parse"),
        ("Parse quotes", "old.py", 5, 7, "parse"),
        ("base", "old.py", 1, 5, "parse"),
    ]
    assert found[0].origin == run_git(root, "rev-parse", "HEAD").strip()
    assert len({passage.place for passage in found}) == len(found)
    hide_git(root)
    with pytest.raises(CorpusUnavailable):
        HunkSource(HunkHistory(cache, ignore)).passages(take_snapshot_of(root), QUIET)


def take_snapshot_of(root: Path) -> MemorySnapshot:
    """A snapshot of a repository whose objects are gone."""
    snapshot = MemorySnapshot({})
    snapshot.root = root
    return snapshot


def hunk(path: str, text: str, *names: str, start: int = 1) -> AddedHunk:
    lines = text.count("\n") + 1
    context = f"def {names[0]}():" if names else ""
    return AddedHunk(path, start, start + lines - 1, context, names, text, lines)


def made(number: int, *hunks: AddedHunk) -> CommitHunks:
    return CommitHunks(f"{number:040x}", f"subject {number}", hunks)


NEWEST = made(3, hunk("new/a.py", "parse header", "parse", start=7), hunk("b.py", "other words"))
OLDEST = made(1, hunk("a.py", "header header", "parse", "header"), hunk("gone.py", "lost"))


def test_a_text_that_occurs_twice_is_one_passage() -> None:
    again = replace(OLDEST, commit="9" * 40)
    passages = list(distinct_passages((again, NEWEST, OLDEST)))
    assert [p.origin for p in passages] == [again.commit] * 2 + [NEWEST.commit] * 2
    assert [[p.origin for p in one.also] for one in passages] == [[OLDEST.commit]] * 2 + [[]] * 2


def test_commits_of_one_pull_request_share_the_most_hunks() -> None:
    hunks = [hunk(f"{n:03}.py", "\n".join([f"word{n}"] * (1 + n % 2))) for n in range(80)]
    first, second, other = (made(n, *hunks) for n in (1, 2, 3))
    pulled = [replace(one, subject=f"part {one.commit[-1]} (#7)") for one in (first, second)]
    passages = list(distinct_passages((*pulled, other)))
    assert [p.origin for p in passages].count(pulled[0].commit) == 80
    last = [p.text.count("word") for p in passages if p.origin == pulled[1].commit]
    assert last == [2] * 20  # the largest
    assert [p.origin for p in passages].count(other.commit) == 80


def test_a_passage() -> None:
    (one, _) = distinct_passages((NEWEST,))
    assert one == Passage(
        corpus=Label.HISTORY,
        title="0000000000: subject 3",
        text="NAME: parse\nTYPE: change\nFILE: new/a.py\nDESCRIPTION: subject 3\nparse header",
        path="new/a.py",
        start=7,
        end=7,
        symbol="parse",
        language="python",
        origin=NEWEST.commit,
    )


def test_secrets_are_masked() -> None:
    key = "AKIA" + "Q3EGRIZX7M4WNPL2"
    masked = without_secrets(made(1, hunk("a.py", f"x = 1\nKEY = '{key}'\ny = 2")))
    assert masked.hunks[0].text.count("\n") == 2
    assert key not in masked.hunks[0].text
    assert MASK in masked.hunks[0].text
