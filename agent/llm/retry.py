"""Tries again what may succeed later, within a number of tries and the time that is left."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar, cast

from tenacity import AsyncRetrying, RetryCallState, retry_if_result, stop_after_attempt

from agent.errors import ProviderUnreachable
from agent.events import Notice
from agent.llm.failures import Failure
from agent.protocols import Reporter

Reply = TypeVar("Reply")


def _silent(_: object) -> None:
    """A reporter for callers that want no events."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how patiently. Waits double from `first_wait` to `longest_wait` seconds.

    A Retry-After up to `longest_asked` seconds is obeyed; a longer one ends the tries at once.
    """

    tries: int = 4
    first_wait: float = 1.0
    longest_wait: float = 30.0
    longest_asked: float = 120.0  # rate limits count in minutes; beyond two, a person should decide


@dataclass(frozen=True, slots=True)
class Retrier:
    """A policy with what it needs from outside: events, the clock of the run, and sleep.

    `time_left` gives the seconds until the deadline of the whole run. `jitter` gives values in
    [0, 1) that spread waits, so that parallel callers do not return in step.
    """

    policy: RetryPolicy = field(default_factory=RetryPolicy)
    report: Reporter = _silent
    time_left: Callable[[], float] = lambda: math.inf
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    jitter: Callable[[], float] = random.SystemRandom().random

    async def run(self, attempt: Callable[[], Awaitable[Reply | Failure]]) -> Reply | Failure:
        """The first reply, or the last failure with the tries told in its message.

        A failure that is not retriable ends the tries; exceptions and cancellation pass through.
        """
        retrying = AsyncRetrying(
            retry=retry_if_result(_may_succeed_later),
            stop=self._give_up,
            wait=self._wait,
            before_sleep=self._notify,
            sleep=self.sleep,
            retry_error_callback=self._exhausted,
        )

        async def once() -> Reply | Failure:  # tenacity awaits only what is declared `async def`
            return await attempt()

        return await retrying(once)

    def _wait(self, state: RetryCallState) -> float:
        """Seconds: exponential with "equal jitter" (half fixed, half random), or as asked."""
        asked = _failure(state).retry_after
        spread = self.jitter()
        doubled = self.policy.first_wait * 2.0 ** (state.attempt_number - 1)
        backoff = min(self.policy.longest_wait, doubled) * (0.5 + 0.5 * spread)
        # A little is added to what the server asks: at that very moment all its clients come back.
        return backoff if asked is None else asked + 0.1 * spread * min(asked, 10.0)

    def _give_up(self, state: RetryCallState) -> bool:
        asked = _failure(state).retry_after or 0.0
        return (
            stop_after_attempt(self.policy.tries)(state)
            or asked > self.policy.longest_asked
            or state.upcoming_sleep >= self.time_left()
        )

    def _notify(self, state: RetryCallState) -> None:
        # Errors end in advice for the case that all tries fail; a notice is too early for it.
        message = str(_failure(state).error)
        cause = message.rpartition(": ")[0] or message
        self.report(
            Notice(
                f"{cause}; trying again in {state.upcoming_sleep:.1f} s "
                f"(try {state.attempt_number + 1} of {self.policy.tries})",
                "warning",
            )
        )

    def _exhausted(self, state: RetryCallState) -> Failure:
        failure = _failure(state)
        asked = failure.retry_after or 0.0
        if self.policy.tries == 1:
            return failure
        if asked > self.policy.longest_asked:
            end = f"the server asks to wait {asked:.0f} s"
        elif state.attempt_number >= self.policy.tries:
            end = _tried(state.attempt_number)
        else:
            end = f"{_tried(state.attempt_number)}, no time is left for another"
        return replace(failure, error=ProviderUnreachable(f"{failure.error} ({end})"))


def _tried(times: int) -> str:
    return "tried once" if times == 1 else f"tried {times} times"


def _may_succeed_later(outcome: object) -> bool:
    return isinstance(outcome, Failure) and outcome.retriable


def _failure(state: RetryCallState) -> Failure:
    """The failure just seen: tenacity asks only after `_may_succeed_later` said yes."""
    assert state.outcome is not None
    return cast(Failure, state.outcome.result())
