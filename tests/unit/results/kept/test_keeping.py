"""`agent.results.kept`: taking up, locks, the limit of the folder, and what is masked."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from agent.errors import ConfigurationError, Status
from agent.llm.recording import exchange_of
from agent.repository import take_snapshot
from agent.results.kept import RunKeeper, find_run, keep_run, list_runs, make_origin
from agent.results.kept.keeping import remove_oldest
from agent.run.record import Ledger, make_record
from agent.types import Completion, Problem, Usage
from agent.types.events import Event
from tests.support.llm import make_prompt

MakeRepository = Callable[[Mapping[str, str | bytes]], Path]
PROMPT = make_prompt("Fix it.", "You fix.")


class Keeping:
    """Keeps runs of one repository in one folder."""

    def __init__(self, store: Path, repository: Path) -> None:
        self.store = store
        self.repository = repository
        self.events: list[Event] = []

    def run(
        self,
        status: Status | None = Status.ACCEPTED,
        issue: str = "add subtracts",
        during: Callable[[RunKeeper], None] = lambda _: None,
    ) -> str:
        """Keep a run with one reply that ends with `status`, None: it is killed; give its id."""
        problem = Problem(issue, "")
        origin = make_origin(problem, take_snapshot(self.repository), settings={})
        with keep_run(self.store, origin, problem.text, self.events.append) as keeper:
            assert keeper is not None
            during(keeper)
            if keeper.replies.take(PROMPT, "m", 9) is None:
                done = Completion("the reply", "m", "stop", Usage(1, 1, 0.1, 1), 1.0)
                keeper.replies.add(exchange_of(PROMPT, "m", 9, done))
            if status is not None:
                keeper.end(make_record(Ledger(), status=status, message="so"), None)
            return keeper.id


@pytest.fixture
def keeping(tmp_path: Path, make_repository: MakeRepository) -> Keeping:
    return Keeping(tmp_path / "runs", make_repository({"calc.py": "a = 1\n"}))


@pytest.mark.parametrize(
    "status", [None, Status.INTERRUPTED, Status.PROVIDER, Status.TIME_LIMIT, Status.BUDGET]
)
def test_a_run_that_was_cut_off_is_taken_up(keeping: Keeping, status: Status | None) -> None:
    first = keeping.run(status)
    assert keeping.run() == first
    (run,) = list_runs(keeping.store)
    assert len(run.exchanges) == 1  # it was served, not added again
    assert run.result is not None
    assert run.result.status is Status.ACCEPTED


@pytest.mark.parametrize("status", [Status.ACCEPTED, Status.BROKEN, Status.UNVERIFIED])
def test_a_run_with_an_answer_is_not_taken_up(keeping: Keeping, status: Status) -> None:
    assert keeping.run(status) != keeping.run()


def test_another_state_of_the_files_is_another_run(keeping: Keeping) -> None:
    first = keeping.run(None)
    (keeping.repository / "calc.py").write_text("a = 2\n")
    second = keeping.run(None)
    assert second != first
    (keeping.repository / "calc.py").write_text("a = 1\n")
    assert keeping.run() == first


def test_a_run_in_progress_is_not_taken_up(keeping: Keeping) -> None:
    inner: list[str] = []
    outer = keeping.run(during=lambda _: inner.append(keeping.run(None)))
    assert inner != [outer]
    assert len({*inner, outer}) == 2


def test_a_run_that_raises_before_it_has_a_reply_leaves_nothing(keeping: Keeping) -> None:
    def stop(_: RunKeeper) -> None:
        raise ConfigurationError("no model")

    with pytest.raises(ConfigurationError):
        keeping.run(during=stop)
    assert list(keeping.store.iterdir()) == []


def test_the_oldest_runs_are_removed_first_and_none_in_progress(keeping: Keeping) -> None:
    names = [keeping.run(issue=f"issue {number}") for number in range(4)]
    for age, name in enumerate(reversed(names)):
        os.utime(keeping.store / name / "origin.json", (10_000 - age, 10_000 - age))

    def size(name: str) -> int:
        return sum(file.stat().st_size for file in (keeping.store / name).iterdir())

    newer = sum(map(size, names[2:]))

    def evict(keeper: RunKeeper) -> None:
        os.utime(keeper.folder / "origin.json", (1, 1))  # the oldest of all, and in progress
        remove_oldest(keeping.store, newer + size(keeper.id), spare=keeping.store / "0")

    last = keeping.run(issue="going on", during=evict)
    assert {run.id for run in list_runs(keeping.store)} == {*names[2:], last}


def test_the_beginning_of_an_id_is_enough_and_must_be_unique(keeping: Keeping) -> None:
    with pytest.raises(ConfigurationError, match="no run is kept yet"):
        find_run(keeping.store, None)
    first, second = keeping.run(), keeping.run()
    assert [find_run(keeping.store, name[:4]).id for name in (first, second)] == [first, second]
    shutil.copytree(keeping.store / first, keeping.store / f"{first[:6]}00")
    with pytest.raises(ConfigurationError, match="2 runs begin with"):
        find_run(keeping.store, first[:6])
    with pytest.raises(ConfigurationError, match="no kept run begins with"):
        find_run(keeping.store, "../../etc")


def test_a_long_key_never_reaches_the_disk_in_any_text(
    keeping: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "zz9plural4z7alpha0123456789"
    monkeypatch.setenv("SERVICE_TOKEN", secret)

    def talk(keeper: RunKeeper) -> None:
        done = Completion(f"use {secret}", "m", "stop", Usage(1, 1, 0.1, 1), 1.0)
        keeper.replies.add(exchange_of(make_prompt(f"see {secret}"), "m", 9, done))
        result = make_record(
            Ledger(), status=Status.BROKEN, message=secret, notes=(f"see {secret}",)
        )
        keeper.end(result, None)

    name = keeping.run(None, issue=f"with {secret}", during=talk)
    texts = [path.read_text() for path in (keeping.store / name).iterdir()]
    assert any("***" in text for text in texts)
    assert not any(secret in text for text in texts)
    masked, plain = find_run(keeping.store, name).exchanges
    assert (masked.reply.masked, plain.reply.masked) == (True, False)


def test_the_folder_is_for_the_user_alone(keeping: Keeping) -> None:
    keeping.run()
    assert keeping.store.stat().st_mode & 0o077 == 0
