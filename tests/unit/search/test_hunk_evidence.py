from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.repository.snapshot import take_snapshot
from agent.retrieval.history.hunk_history import HunkHistory
from agent.retrieval.history.hunk_table import HunkTable, LineFollower, build_table, count_hunks
from agent.retrieval.history.hunks import AddedHunk, CommitHunks
from agent.retrieval.index.corpus import Corpus
from agent.retrieval.index.identifiers import Terms
from agent.retrieval.index.index import Index, all_files
from agent.retrieval.ranking.lexical import K1, B, LexicalQuery, make_query
from agent.retrieval.ranking.mentions import read_mentions
from agent.search.hunk_evidence import (
    MAX_FILES,
    HunkEvidence,
    HunkScores,
    evidence_of,
    score_hunks,
    similarities,
)
from agent.settings import Settings
from agent.types import Problem, Reason
from agent.wiring.retrieval import make_index, retrieval_options
from agent.wiring.search.evidence import evidence_sources
from tests.conftest import run_git
from tests.support.fakes import MemorySnapshot
from tests.support.ignored_events import ignore

Make = Callable[[Mapping[str, str | bytes]], Path]

CLIENT = """\
class Client:
    def get(self, url):
        return url


class Pool:
    def get(self):
        pass


def connect():
    pass
"""
FILES = {"client.py": CLIENT, "server.py": "def serve():\n    pass\n", "util.py": "X = 1\n"}
_SNAPSHOT = MemorySnapshot(FILES)
CORPUS: Corpus = Index(ignore).load(_SNAPSHOT, all_files(_SNAPSHOT), np.empty(0, dtype=np.uint64))


def hunk(path: str, text: str, *names: str, start: int = 5) -> AddedHunk:
    return AddedHunk(path, start, start + 2, "", names, text, 3)


def commit(
    number: int, *hunks: AddedHunk, renames: Sequence[tuple[str, str]] = (), size: int = 1
) -> CommitHunks:
    return CommitHunks(f"{number:040x}", "change", size, hunks, tuple(renames))


def table_of(*commits: CommitHunks) -> HunkTable:
    terms = Terms()
    return build_table([count_hunks(one, terms) for one in commits])


def query(title: str) -> LexicalQuery:
    return make_query(Problem(title, ""), Terms())


def score(title: str, *commits: CommitHunks) -> HunkScores:
    return score_hunks(table_of(*commits), query(title), CORPUS)


def files(scores: HunkScores) -> dict[str, float]:
    pairs = zip(CORPUS.files, scores.files, strict=True)
    return {file.path: round(float(v), 3) for file, v in pairs if v}


def symbols(scores: HunkScores) -> dict[str, float]:
    pairs = zip(CORPUS.pieces, scores.pieces, strict=True)
    return {piece.symbol: round(float(v), 3) for piece, v in pairs if v}


def test_similarity_is_bm25() -> None:
    table = table_of(
        commit(1, hunk("a", "proxy proxy timeout"), hunk("b", "proxy word")),
        commit(2, hunk("c", "nothing of it at all")),
    )
    found = similarities(table, query("proxy"))
    lengths = table.lengths
    rarity = math.log1p((3 - 2 + 0.5) / (2 + 0.5))
    weight = 2 * math.log(2)  # in the title
    want = [
        weight * rarity * n * (K1 + 1) / (n + K1 * (1 - B + B * length / lengths.mean()))
        if n
        else 0
        for n, length in zip((2, 1, 0), lengths, strict=True)
    ]
    assert found == pytest.approx(want)


def test_files_and_functions_of_similar_hunks() -> None:
    scores = score(
        "Timeout behind a proxy",
        commit(1, hunk("client.py", "proxy timeout", "connect")),
        commit(2, hunk("server.py", "log a line", "serve")),
        commit(3, hunk("util.py", "a proxy"), hunk("gone.py", "proxy timeout", "connect")),
    )
    assert list(files(scores)) == ["client.py", "util.py"]
    assert files(scores)["client.py"] == 1.0
    assert symbols(scores) == {"connect": 1.0}


def test_a_name_that_several_bear_is_shared() -> None:
    scores = score("proxy", commit(1, hunk("client.py", "proxy", "get", "connect")))
    assert symbols(scores) == {"Client.get": 0.5, "Pool.get": 0.5, "connect": 1.0}


def test_a_commit_of_many_functions_says_less_of_each() -> None:
    many = [hunk("util.py", "words", f"f{n}") for n in range(3)]
    scores = score(
        "proxy",
        commit(1, hunk("server.py", "the proxy", "serve"), *many),
        commit(2, hunk("client.py", "the proxy", "connect")),
    )
    assert files(scores) == {"client.py": 1.0, "server.py": 0.5}
    assert symbols(scores) == {"connect": 1.0, "serve": 0.5}


def test_sweeping_commits_are_no_evidence() -> None:
    one = hunk("client.py", "proxy", "connect")
    assert not score("proxy", commit(1, one, size=MAX_FILES + 1)).files.any()
    assert score("proxy", commit(1, one, size=MAX_FILES)).files.any()


def test_paths_are_followed_through_renames() -> None:
    scores = score(
        "proxy",
        commit(2, renames=[("old.py", "client.py")]),
        commit(1, hunk("old.py", "proxy", "connect")),
    )
    assert files(scores) == {"client.py": 1.0}
    assert symbols(scores) == {"connect": 1.0}


def test_reasons_name_the_change() -> None:
    table = table_of(commit(0xABC, hunk("client.py", "proxy", "connect", start=12)))
    evidence = evidence_of(table, score_hunks(table, query("proxy"), CORPUS), 0.4, 0.2)
    note = "a similar change, 0000000000 in client.py:12-14"
    (reasons,) = evidence.pieces.values()
    assert reasons == {"hunks": Reason("hunks", 0.4, note)}
    assert evidence.files[0] == {"hunks": Reason("hunks", 0.2, note)}
    assert [CORPUS.symbols[n] for n in evidence.pieces] == ["connect"]
    assert not evidence.without(frozenset({"hunks"})).files


@pytest.mark.parametrize("title", ["", "the of and", "words that no one has"])
def test_nothing_in_common_is_no_evidence(title: str) -> None:
    for table in (table_of(), table_of(commit(1, hunk("client.py", "proxy", "connect")))):
        scores = score_hunks(table, query(title), CORPUS)
        assert not scores.files.any()
        assert not scores.pieces.any()
        assert not evidence_of(table, scores, 1.0, 1.0).files


def test_the_source_reads_the_snapshots_history(make_repository: Make) -> None:
    root = make_repository({**FILES, "client.py": CLIENT + "    proxy = 1\n    a = 1\n    b = 2\n"})
    snapshot = take_snapshot(root)
    corpus = Index(ignore).load(snapshot, all_files(snapshot), np.empty(0, dtype=np.uint64))
    source = HunkEvidence(HunkHistory(None, ignore), file_weight=0.1)

    def found(snapshot: MemorySnapshot, problem: Problem) -> set[str]:
        evidence = source(problem, read_mentions(problem), snapshot, corpus)
        return {corpus.files[number].path for number in evidence.files}

    assert found(snapshot, Problem("A proxy", "")) == {"client.py"}  # type: ignore[arg-type]
    assert found(MemorySnapshot(FILES), Problem("A proxy", "")) == set()


@pytest.mark.parametrize(
    ("corpora", "without", "on"),
    [(("history",), (), True), (("code", "docs"), (), False), (("history",), ("hunks",), False)],
)
def test_it_is_on_where_the_settings_ask_for_the_history(
    tmp_path: Path, corpora: tuple[str, ...], without: tuple[str, ...], on: bool
) -> None:
    given: dict[str, Any] = {"corpora": corpora, "without": without, "cache_dir": tmp_path}
    settings = Settings(**given)
    index = make_index(settings, ignore)
    sources = evidence_sources(settings, retrieval_options(settings), index, ignore)
    assert any(isinstance(source, HunkEvidence) for source in sources) is on


ROWS = "    first_row = read_proxy(rows)\n    other_row = skip_header(rows)\n    last = 1\n"


def test_what_a_name_no_longer_leads_to_is_found_by_its_lines(make_repository: Make) -> None:
    root = make_repository({"a.py": "def other(rows):\n    return 1\n"})
    file = root / "a.py"
    file.write_text(f"{file.read_text()}\n\ndef old(rows):\n{ROWS}    return last\n")
    run_git(root, "commit", "-q", "-a", "-m", "Rows")
    file.write_text(file.read_text().replace("def old(", "def new("))
    run_git(root, "commit", "-q", "-a", "-m", "Another name")
    snapshot = take_snapshot(root)
    corpus = Index(ignore).load(snapshot, all_files(snapshot), np.empty(0, dtype=np.uint64))
    problem = Problem("read proxy", "")
    table = HunkHistory(None, ignore).table(snapshot)
    assert not score_hunks(table, query("read proxy"), corpus).pieces.any()
    source = HunkEvidence(HunkHistory(None, ignore))
    evidence = source(problem, read_mentions(problem), snapshot, corpus)
    assert [corpus.symbols[number] for number in evidence.pieces] == ["new"]


@pytest.mark.parametrize(
    ("added", "found"),
    [
        (ROWS, ["new"]),
        (ROWS.replace("    ", "\t"), ["new"]),  # indented otherwise
        ("    first_row = read_proxy(rows)\n", []),  # one line may be chance
        ("    last = 1\n    return last\n", []),  # short lines are anywhere
        ("    twice = the_same_line(1)\n    other = the_same_line(2)\n", []),  # stands there twice
        ("", []),
    ],
    ids=["lines", "indented", "one", "short", "repeated", "empty"],
)
def test_lines_of_today(added: str, found: list[str]) -> None:
    again = "    twice = the_same_line(1)\n    other = the_same_line(2)\n"
    text = f"X = 1\n\n\ndef new(rows):\n{ROWS}{again}    return 1\n\n\ndef next_one():\n{again}"
    snapshot = MemorySnapshot({"a.py": text})
    corpus = Index(ignore).load(snapshot, all_files(snapshot), np.empty(0, dtype=np.uint64))
    pieces = LineFollower(snapshot, corpus).pieces(0, added)
    assert [corpus.symbols[number] for number in pieces] == found
