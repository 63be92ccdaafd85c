"""The first stage with and without the ranker: orders, switches, and reasons that add up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from agent.retrieval.ranking.ranker import RetrievalOptions
from agent.retrieval.ranking.retriever import HybridRetriever, no_words
from agent.types import Problem, Ranking, ScoredChunk, ScoredFile
from agent.types.events import Event, Notice
from tests.support.fakes import MemorySnapshot
from tests.support.models import write_models

FILES = {
    "pkg/client.py": """\
import pkg.cookies


class Client:
    timeout = 5

    def get(self, url):
        return self.send(url, self.timeout)

    def send(self, url, timeout):
        return self.follow_redirects(url)

    def follow_redirects(self, request):
        while redirect := self.next_redirect(request):
            request = redirect
        return request
""",
    "pkg/cookies.py": "def set_cookie(jar, name):\n    jar[name] = name\n",
    "pkg/colors.py": "def paint(text):\n    return text\n",
    "docs/guide.md": "# Guide\n\nredirects honour the timeout\n",
}
PROBLEM = Problem(
    "Timeout ignored when following redirects",
    "`Client.follow_redirects` in client.py waits for ever.\n\n"
    '  File "pkg/client.py", line 14, in follow_redirects\n',
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_models(tmp_path_factory.mktemp("models"))


def rank(
    models: Path,
    *,
    events: list[Event] | None = None,
    problem: Problem = PROBLEM,
    **options: bool,
) -> Ranking:
    retriever = HybridRetriever(
        RetrievalOptions(embedding=False, **options),  # type: ignore[arg-type]
        embedder=None,
        index_path=None,
        reporter=lambda event: None if events is None else events.append(event),
        models=models,
    )
    return asyncio.run(retriever.rank(problem, MemorySnapshot(FILES)))


def features(ranking: Ranking) -> set[str]:
    return {reason.feature for scored in ranking.chunks for reason in scored.reasons}


def assert_sound(ranking: Ranking) -> None:
    """Total orders, and reasons that add up to the scores."""
    keys = [(-c.score, c.chunk.path, c.chunk.start) for c in ranking.chunks]
    assert keys == sorted(set(keys))
    file_keys = [(-file.score, file.path) for file in ranking.files]
    assert file_keys == sorted(set(file_keys))
    scored: Sequence[ScoredChunk | ScoredFile] = [*ranking.chunks, *ranking.files]
    for entry in scored:
        assert entry.score == pytest.approx(sum(r.value for r in entry.reasons), abs=1e-12)


def scores(ranking: Ranking) -> dict[str, float]:
    return {scored.chunk.id: scored.score for scored in ranking.chunks}


def notes(ranking: Ranking, symbol: str) -> dict[str, str]:
    (found,) = (s for s in ranking.chunks if s.chunk.symbol == symbol)
    return {reason.feature: reason.note for reason in found.reasons}


def test_the_ranker_orders_and_its_reasons_are_groups(models: Path) -> None:
    learned, plain = rank(models), rank(models, learned=False)
    assert_sound(learned)
    assert features(learned) == {*features(plain), "ranker"}
    assert scores(learned).keys() == scores(plain).keys()
    assert scores(learned) != scores(plain)
    assert learned == rank(models)


def test_notes_name_the_frame_and_the_place(models: Path) -> None:
    said = notes(rank(models), "Client.follow_redirects")
    assert "traceback frame" in said["traceback"]
    assert "pkg/client.py:14 in follow_redirects" in said["traceback"]
    assert said["symbol"].startswith("Client.follow_redirects is named in the ")


@pytest.mark.parametrize("learned", [True, False])
def test_a_problem_whose_words_do_not_occur_is_noted(models: Path, learned: bool) -> None:
    ranking = rank(models, learned=learned, problem=Problem("日本語", ""))
    (note,) = ranking.notes
    assert note.startswith("no word of the problem occurs in the code: ordered by ")
    assert no_words(ranking) == (note,)
    assert no_words(rank(models, learned=learned)) == ()
    assert (
        no_words(rank(models, learned=learned, problem=Problem("x", ""))) == ()
    )  # too short to look for


def notices(events: Sequence[Event]) -> list[str]:
    return [event.message for event in events if isinstance(event, Notice)]


def test_without_the_ranker_the_plain_sum_decides_and_it_is_said(
    models: Path, tmp_path: Path
) -> None:
    events: list[Event] = []
    folder = write_models(tmp_path / "m", ranker=False)
    ranking = rank(folder, events=events)
    assert scores(ranking) == pytest.approx(scores(rank(models, learned=False)))
    said = "ranker.npz is missing from the installation; ranked by the plain sum"
    assert notices(events) == [said]
    assert ranking.notes == (said,)


def test_without_the_encoder_no_vectors_are_compared(models: Path, tmp_path: Path) -> None:
    events: list[Event] = []
    ranking = rank(write_models(tmp_path / "m", static=False), events=events)
    assert scores(ranking) == pytest.approx(scores(rank(models, static=False)))
    assert notices(events) == [
        "static.npz is missing from the installation; ranked without its vectors"
    ]


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04"])
def test_damaged_models_are_like_missing_ones(models: Path, tmp_path: Path, content: bytes) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    for name in ("ranker.npz", "static.npz"):
        (folder / name).write_bytes(content)
    events: list[Event] = []
    assert scores(rank(folder, events=events)) == scores(rank(models, learned=False, static=False))
    assert notices(events) == [
        "static.npz is damaged or was made for another version; ranked without its vectors",
        "ranker.npz is damaged or was made for another version; ranked by the plain sum",
    ]
