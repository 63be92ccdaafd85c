from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from agent.retrieval.ranking.ranker import RetrievalOptions, preset
from agent.retrieval.ranking.retriever import HybridRetriever
from agent.types import Problem, Ranking, Reason, ScoredChunk, ScoredFile
from agent.types.events import Event, Notice
from agent.types.protocols import Embedder, Retriever
from tests.support.fakes import MemorySnapshot
from tests.support.word_embedder import UnreachableEmbedder, WordEmbedder

FILES = {
    "pkg/client.py": """\
import time


class Client:
    timeout = 5

    def get(self, url):
        return self.send(url, self.timeout)

    def send_following_redirects(self, request):
        while redirect := self.next_redirect(request):
            request = redirect
        return request
""",
    "pkg/cookies.py": "def set_cookie(jar, name):\n    jar[name] = name\n",
    "pkg/colors.py": "def paint(text):\n    return text\n",
    "CHANGES.md": "# Changes\n\n- redirects honour the timeout when following redirects\n" * 3,
    "tests/test_client.py": "def test_redirect_timeout():\n    timeout_redirect_following()\n",
}
PLAIN = replace(preset("lexical"), learned=False, static=False)
"""Words, evidence and files alone, where a test is about one of them."""

PROBLEM = Problem(
    "Timeout ignored when following redirects",
    "`send_following_redirects` waits for ever, the timeout is not used.",
)


def rank(
    options: RetrievalOptions,
    *,
    embedder: Embedder | None = None,
    files: Mapping[str, str] = FILES,
    problem: Problem = PROBLEM,
    events: list[Event] | None = None,
) -> Ranking:
    said: list[Event] = [] if events is None else events
    retriever: Retriever = HybridRetriever(
        options, embedder=embedder, index_path=None, reporter=said.append
    )
    return asyncio.run(retriever.rank(problem, MemorySnapshot(files)))


def symbols(ranking: Ranking) -> list[str]:
    return [scored.chunk.symbol or scored.chunk.path for scored in ranking.chunks]


def assert_sound(ranking: Ranking) -> None:
    """Total order, and reasons that add up."""
    chunks: Sequence[ScoredChunk] = ranking.chunks
    keys = [(-c.score, c.chunk.path, c.chunk.start, c.chunk.end, c.chunk.symbol) for c in chunks]
    assert keys == sorted(set(keys))
    file_keys = [(-file.score, file.path) for file in ranking.files]
    assert file_keys == sorted(set(file_keys))
    scored: Sequence[ScoredChunk | ScoredFile] = [*chunks, *ranking.files]
    for entry in scored:
        assert entry.score == pytest.approx(sum(reason.value for reason in entry.reasons))


def test_hidden_folders_are_left_out_unless_the_problem_names_them() -> None:
    hidden = ".github/scripts/redirects.py"
    files = {**FILES, hidden: "def send_following_redirects():\n    timeout = redirects = None\n"}
    ranking = rank(preset("lexical"), files=files)
    assert hidden not in {file.path for file in ranking.files}
    assert hidden not in {scored.chunk.path for scored in ranking.chunks}
    for words in ("in .github", "in redirects.py"):
        named = replace(PROBLEM, body=f"{PROBLEM.body} {words}")
        found = rank(preset("lexical"), files=files, problem=named)
        assert hidden in {file.path for file in found.files}
    only = rank(preset("lexical"), files={hidden: files[hidden]})
    assert only.files[0].path == hidden


def test_examples_rank_behind_source_unless_the_problem_names_them() -> None:
    example = "bench/redirects.py"
    files = {**FILES, example: "def send_following_redirects():\n    timeout = redirects = None\n"}
    ranking = rank(preset("lexical"), files=files)
    assert (ranking.files[-1].path, ranking.chunks[-1].chunk.path) == (example, example)
    assert_sound(ranking)
    for body in (f"See {example}", "See bench/"):
        found = rank(preset("lexical"), files=files, problem=Problem(PROBLEM.title, body))
        assert found.files[-1].path != example


@pytest.mark.parametrize(
    ("word", "path"),
    [("T-SQL", "dialects/tsql.py"), ("ClickHouse", "dialects/clickhouse.py")],
)
def test_a_word_reaches_the_file_that_spells_it_otherwise(word: str, path: str) -> None:
    names = ("tsql", "clickhouse", "sql", "house", "click")
    files = {f"dialects/{name}.py": "def transpile():\n    return 1\n" for name in names}
    ranking = rank(preset("lexical"), files=files, problem=Problem(f"{word} is wrong", ""))
    assert ranking.files[0].path == path


def test_the_right_function_ranks_first() -> None:
    ranking = rank(preset("lexical"))
    assert symbols(ranking)[0] == "Client.send_following_redirects"
    assert ranking.files[0].path == "pkg/client.py"
    assert ranking.notes == ()
    assert_sound(ranking)


def test_tests_are_no_targets_and_prose_ranks_below_code() -> None:
    ranking = rank(preset("lexical"))
    paths = [scored.chunk.path for scored in ranking.chunks]
    assert "tests/test_client.py" not in paths
    assert paths.index("CHANGES.md") > paths.index("pkg/client.py")


def features(ranking: Ranking) -> set[str]:
    return {reason.feature for scored in ranking.chunks for reason in scored.reasons}


def test_only_the_prefiltered_are_embedded_path_name_and_code_first() -> None:
    embedder = WordEmbedder()
    rank(replace(preset("default"), prefilter=2), embedder=embedder)
    (query_kind, query), (document_kind, documents) = embedder.calls
    assert (query_kind, document_kind) == ("query", "document")
    assert query == (f"send_following_redirects\n{PROBLEM.title}\n{PROBLEM.body}",)
    assert len(documents) == 2
    assert documents[0].startswith("pkg/client.py\nClient.send_following_redirects\n    def send")


def test_cosine_lifts_what_means_the_same() -> None:
    files = {
        "a.py": "def first():\n    request = 1\n",
        "b.py": "def second():\n    request = 1\n",
    }

    class Preferring(WordEmbedder):
        async def embed(self, texts: Sequence[str], *, kind: object) -> NDArray[np.float32]:
            rows = [[1.0, 0.0] if kind == "query" or "second" in t else [0.6, 0.8] for t in texts]
            return np.array(rows, dtype=np.float32)

    problem = Problem("request", "")
    assert symbols(rank(PLAIN, files=files, problem=problem)) == ["first", "second"]
    options = replace(PLAIN, embedding=True)
    ranking = rank(options, files=files, problem=problem, embedder=Preferring())
    assert symbols(ranking) == ["second", "first"]
    assert Reason("cosine", 1.0, "cosine 1.000") in ranking.chunks[0].reasons
    assert [file.path for file in ranking.files] == ["b.py", "a.py"]
    assert_sound(ranking)


def test_without_embeddings_words_decide_and_it_is_said_once() -> None:
    events: list[Event] = []
    retriever = HybridRetriever(
        preset("default"), embedder=UnreachableEmbedder(), index_path=None, reporter=events.append
    )
    snapshot = MemorySnapshot(FILES)
    first = asyncio.run(retriever.rank(PROBLEM, snapshot))
    again = asyncio.run(retriever.rank(PROBLEM, snapshot))
    assert first == again
    assert first.chunks == rank(preset("lexical")).chunks
    assert len(first.notes) == 1
    assert "ranked by words alone" in first.notes[0]
    assert first.degraded == first.notes[0]
    assert rank(preset("lexical")).degraded == ""
    assert len([event for event in events if isinstance(event, Notice)]) == 1


@pytest.mark.parametrize("name", ["default", "original"])
def test_a_zero_vector_never_beats_a_real_one(name: str) -> None:
    best = "send_following_redirects(self"
    options = preset(name)
    embedder = WordEmbedder(blank=lambda text: best in text and "class Client" not in text)
    problem = Problem(PROBLEM.title, PROBLEM.body + " client.py")
    ranking = rank(options, embedder=embedder, problem=problem)
    blank = [best in scored.chunk.text for scored in ranking.chunks]
    cosine = [
        reason.value
        for scored in ranking.chunks
        if "Client.send" in scored.chunk.symbol
        for reason in scored.reasons
        if reason.feature == "cosine"
    ]
    assert any(blank)
    assert all(value <= 0.0 for value in cosine)
    assert any("could not be embedded" in note for note in ranking.notes)
    assert ranking.degraded == "some chunks could not be embedded"


def test_original_ranks_functions_and_whole_files_by_cosine_and_file_name() -> None:
    problem = Problem(PROBLEM.title, PROBLEM.body + " It is in client.py")
    ranking = rank(preset("original"), embedder=WordEmbedder(), problem=problem)
    whole = [s for s in ranking.chunks if s.chunk.kind == "module"]
    assert {s.chunk.path for s in whole} == {p for p in FILES if p.endswith(".py")}
    assert all(not s.chunk.holes and s.chunk.start == 1 for s in whole)
    assert features(ranking) == {"cosine", "filename"}
    bonus = [r.value for s in ranking.chunks for r in s.reasons if r.feature == "filename"]
    assert set(bonus) == {0.2}
    assert_sound(ranking)
