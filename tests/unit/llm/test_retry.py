"""`agent.llm.server`: what is tried again, how long it waits, when it ends."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from agent.errors import ProviderUnreachable
from agent.llm import Retrier
from agent.llm.failures import Failure
from agent.types.events import Notice
from tests.support.llm import FakeTime, run

BUSY = Failure(ProviderUnreachable("https://x fails (503): try again later"), retriable=True)


class Attempts:
    """Gives outcomes in order and counts the calls."""

    def __init__(self, *outcomes: str | Failure) -> None:
        self.outcomes = list(outcomes)
        self.calls = 0

    async def __call__(self) -> str | Failure:
        self.calls += 1
        return self.outcomes.pop(0)


def test_a_reply_after_two_failures() -> None:
    time = FakeTime()
    attempts = Attempts(BUSY, BUSY, "reply")

    assert run(time.retrier().run(attempts)) == "reply"
    assert time.slept == [0.5, 1.0]
    assert time.events == [
        Notice("https://x fails (503); trying again in 0.5 s (try 2 of 4)", "warning"),
        Notice("https://x fails (503); trying again in 1.0 s (try 3 of 4)", "warning"),
    ]


def test_waits_double_up_to_the_longest_and_are_spread() -> None:
    time = FakeTime()
    retrier = time.retrier(jitter=0.5, tries=6, first_wait=2, longest_wait=10)

    run(retrier.run(Attempts(*[BUSY] * 9)))

    assert time.slept == [1.5, 3.0, 6.0, 7.5, 7.5]


def test_retry_after_is_obeyed() -> None:
    time = FakeTime()

    run(time.retrier().run(Attempts(replace(BUSY, retry_after=40.0), "reply")))

    assert time.slept == [40.0]


def test_a_retry_after_that_is_too_long_ends_the_tries() -> None:
    time = FakeTime()
    attempts = Attempts(replace(BUSY, retry_after=3600.0), "reply")

    outcome = run(time.retrier().run(attempts))

    assert isinstance(outcome, Failure)
    assert "the server asks to wait 3600 s" in str(outcome.error)
    assert (attempts.calls, time.slept) == (1, [])


def test_no_wait_reaches_past_the_deadline() -> None:
    time = FakeTime(left=1.2)
    attempts = Attempts(*[BUSY] * 9)

    outcome = run(time.retrier().run(attempts))

    assert isinstance(outcome, Failure)
    assert "no time is left" in str(outcome.error)
    assert time.slept == [0.5]


def test_cancellation_ends_a_wait_at_once() -> None:
    async def go() -> None:
        slow = Retrier(first_wait=60, longest_wait=60)
        attempts = Attempts(*[BUSY] * 4)
        task = asyncio.create_task(slow.run(attempts))
        while not attempts.calls:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 2)
        assert attempts.calls == 1

    run(go())
