from __future__ import annotations

from collections.abc import Mapping

import pytest

from agent.retrieval.history import CommitFacts, Touch, build_table
from agent.retrieval.index.words import Terms
from agent.retrieval.ranking.evidence import Evidence
from agent.retrieval.ranking.history_evidence import MAX_FILES, cochange, history_evidence
from agent.retrieval.ranking.lexical import make_query
from agent.types import Problem
from tests.support.corpus import corpus_of

CLIENT = """\
class Client:
    def __init__(self):
        self.proxy = None

    def get(self, url):
        return url


class Pool:
    def get(self):
        pass


def connect():
    pass
"""
FILES = {"client.py": CLIENT, "server.py": "def serve():\n    pass\n", "util.py": "X = 1\n"}


def facts(
    number: int,
    subject: str,
    touched: Mapping[str, tuple[str, ...]],
    renames: tuple[tuple[str, str], ...] = (),
    size: int = 0,
) -> CommitFacts:
    touches = tuple(Touch(path, names) for path, names in touched.items())
    return CommitFacts(f"{number:040x}", subject, "", size or len(touches), touches, renames)


CORPUS = corpus_of(FILES)


def score(title: str, *commits: CommitFacts) -> Evidence:
    query = make_query(Problem(title, ""), Terms())
    return history_evidence(build_table(commits), query, CORPUS)


def by_path(evidence: Evidence, feature: str = "history") -> dict[str, float]:
    return {
        CORPUS.files[number].path: round(reasons[feature].value, 3)
        for number, reasons in evidence.files.items()
        if feature in reasons
    }


def test_files_of_similar_commits() -> None:
    evidence = score(
        "Timeout behind a proxy",
        facts(1, "Fix the proxy timeout", {"client.py": ()}),
        facts(2, "Document the server", {"server.py": ()}),
        facts(3, "Proxy in utilities", {"util.py": (), "gone.py": ()}),
    )
    files = by_path(evidence)
    assert list(files) == ["client.py", "util.py"]
    assert files["client.py"] == 1.0 > files["util.py"] > 0


def test_functions_by_leaf_name_shared_where_ambiguous() -> None:
    evidence = score("proxy", facts(1, "proxy", {"client.py": ("get", "connect", "gone")}))
    values = {
        CORPUS.pieces[number].symbol: reasons["history-function"].value
        for number, reasons in evidence.pieces.items()
    }
    assert values == {"Client.get": 0.5, "Pool.get": 0.5, "connect": 1.0}


def test_renames_are_followed_from_newest_to_oldest() -> None:
    table = build_table(
        (
            facts(5, "again", {"first.py": ()}),  # a new file of an old name
            facts(4, "c", {"client.py": ()}, (("second.py", "client.py"),)),
            facts(3, "b", {"second.py": ()}, (("first.py", "second.py"),)),
            facts(2, "a", {"first.py": ("get",)}),
        )
    )
    touched = [table.paths[path] for path in table.touch_path]
    assert touched == ["first.py", "client.py", "client.py", "client.py"]
    assert table.paths[int(table.function_path[0])] == "client.py"


def test_churn_is_recent_and_frequent() -> None:
    quiet = [facts(n, "x", {"other.py": ()}) for n in range(10, 1_010)]
    evidence = score(
        "",
        *(facts(n, "x", {"client.py": ()}) for n in range(5)),
        facts(6, "x", {"server.py": ()}),
        *quiet,
        facts(2_000, "x", {"util.py": ()}),
    )
    churn = by_path(evidence, "churn")
    assert churn["client.py"] == 1.0 > churn["server.py"] > churn["util.py"] > 0


def test_files_that_change_together() -> None:
    pair = [facts(n, "x", {"client.py": (), "server.py": ()}) for n in range(6)]
    table = build_table(
        (
            *pair,
            facts(7, "x", {"client.py": (), "util.py": ()}),
            facts(8, "x", {"client.py": (), "bulk.py": ()}, size=MAX_FILES + 1),
        )
    )
    found = cochange(table, ["client.py", "unknown.py"])
    assert list(found) == ["server.py", "util.py"]
    assert found["server.py"] == pytest.approx(6 / (7 + 3))
    assert cochange(table, []) == {}
