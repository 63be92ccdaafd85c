"""The worker's parts: where the repository is, what is reported, which patch counts."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from agent.errors import RepositoryError, SandboxUnavailable, Status
from agent.miner.worker import (
    AnswerWatch,
    Channel,
    best_valid_diff,
    find_repository,
    make_reporter,
    open_best,
    say_end,
)
from agent.run.attempts import Attempt
from agent.run.record import Ledger, make_record
from agent.settings import Settings
from agent.types import AppliedPatch, ValidationReport, Verdict
from agent.types.events import Event, ModelCall, Notice

MakeRepository = Callable[[Mapping[str, str | bytes]], Path]

# ----------------------------------------------------------------------------------- the repository


def test_the_agreed_place_comes_before_the_working_directory(
    make_repository: MakeRepository, tmp_path: Path
) -> None:
    agreed, here = (make_repository({"a.py": "1\n"}, name) for name in ("agreed", "here"))
    assert find_repository(None, here, agreed) == agreed
    assert find_repository(None, here, tmp_path / "nowhere") == here
    assert find_repository(None, here, tmp_path) == here  # there, but no repository


def test_the_setting_wins_and_must_be_right(
    make_repository: MakeRepository, tmp_path: Path
) -> None:
    agreed, chosen = (make_repository({"a.py": "1\n"}, name) for name in ("agreed", "chosen"))
    assert find_repository(str(chosen), tmp_path, agreed) == chosen
    with pytest.raises(RepositoryError):
        find_repository(str(tmp_path / "nowhere"), agreed, agreed)


def test_without_a_repository_all_places_are_named(tmp_path: Path) -> None:
    with pytest.raises(RepositoryError) as caught:
        find_repository(None, tmp_path, tmp_path / "agreed")
    assert str(tmp_path / "agreed") in str(caught.value)
    assert "PATCHSHOT_REPO" in str(caught.value)


# -------------------------------------------------------------------------------------- the channel


@pytest.fixture
def pipe() -> Iterator[tuple[Channel, Callable[[], list[object]]]]:
    source, sink = os.pipe()
    before = signal.getsignal(signal.SIGINT)

    def lines() -> list[object]:
        os.close(sink)
        with os.fdopen(source, "rb") as file:
            return [json.loads(line) for line in file]

    yield Channel(sink), lines
    signal.signal(signal.SIGINT, before)


Pipe = tuple[Channel, Callable[[], list[object]]]


def test_a_diff_that_is_no_text_cannot_be_handed_back(pipe: Pipe) -> None:
    channel, lines = pipe
    channel.patch(b"one")
    assert not channel.unsendable
    channel.patch(b"\xff")
    assert channel.unsendable
    assert lines() == [{"patch": "one"}, {"patch": None}]


# --------------------------------------------------------------------------- services and reporting


def open_with(
    begin: Callable[[Settings], AbstractAsyncContextManager[object]],
) -> tuple[object, list[Event]]:
    events: list[Event] = []

    async def run() -> object:
        async with AsyncExitStack() as stack:
            return await open_best(stack, begin, Settings(), events.append)  # type: ignore[arg-type]

    return asyncio.run(run()), events


def test_where_nothing_isolates_the_syntax_is_checked_and_that_is_said() -> None:
    @asynccontextmanager
    async def begin(settings: Settings) -> AsyncIterator[object]:
        if settings.tests:
            raise SandboxUnavailable("no user namespaces")
        yield settings

    settings, events = open_with(begin)
    assert isinstance(settings, Settings)
    assert not settings.tests
    assert not settings.unsafe_no_sandbox
    (notice,) = events
    assert isinstance(notice, Notice)
    assert notice.level == "warning"
    assert "no user namespaces" in notice.message


def test_keys_are_masked(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-or-v1-0123456789abcdef")
    make_reporter()(Notice("refused sk-or-v1-0123456789abcdef"))
    assert "0123456789" not in capfd.readouterr().err


# ------------------------------------------------------------------------------------ which patch


def attempt(diff: bytes, verdict: Verdict | None = None) -> Attempt:
    patch = AppliedPatch(diff=diff, changes=(), edits=())
    report = None if verdict is None else ValidationReport(verdict, "reason", "none")
    return Attempt("one-shot", patch=patch, report=report)


def test_the_best_valid_patch_at_every_moment() -> None:
    told: list[bytes | None] = []
    ledger = Ledger(on_record=lambda attempts: told.append(best_valid_diff(attempts)))
    ledger.record(attempt(b"one"))  # not yet validated: better than none
    ledger.record(attempt(b"one", Verdict.BROKEN_SYNTAX), replacing_last=True)
    ledger.record(attempt(b"two"))  # the pipeline's own order would still prefer the broken one
    ledger.record(attempt(b"two", Verdict.REGRESSED), replacing_last=True)
    ledger.record(attempt(b"three"))
    ledger.record(attempt(b"three", Verdict.VERIFIED), replacing_last=True)
    ledger.record(attempt(b"four", Verdict.REGRESSED))
    ledger.record(Attempt("repair"))
    assert told == [b"one", None, b"two", b"two", b"two", b"three", b"three", b"three"]


# ------------------------------------------------------------------------------ who had the time


@pytest.mark.parametrize(
    ("calls", "dead"),
    [
        ([], False),  # the clock ran out before the model was asked: ours
        (["cancelled"], True),
        (["provider-unreachable"], True),
        (["ok", "cancelled"], False),
        (["cancelled", "cut-off"], False),
        (["budget-exceeded"], False),  # never sent
    ],
)
def test_a_model_that_never_answered_is_a_transport_failure(
    pipe: Pipe, calls: list[str], dead: bool
) -> None:
    channel, lines = pipe
    told: list[Event] = []
    watch = AnswerWatch(told.append)
    watch(ModelCall("embed", "e", "cancelled", 1.0))
    for status in calls:
        watch(ModelCall("chat", "m", status, 1.0))
    assert len(told) == 1 + len(calls)
    assert watch.is_dead is dead
    result = make_record(Ledger(), status=Status.TIME_LIMIT, message="3.03294 s (--timeout)")
    say_end(channel, result, 3.03294, is_dead=watch.is_dead)
    (end,) = lines()
    assert isinstance(end, dict)
    assert end["end"]["error"] == ("ProviderError" if dead else "TimeLimitExceeded")
    assert "the 3 s of the run are over (AGENT_TIMEOUT" in end["end"]["message"]
    assert "--timeout" not in end["end"]["message"]
