"""The HTTP side of one endpoint: it finds the path that works, and retries."""

from __future__ import annotations

import asyncio
import difflib
import math
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tenacity import AsyncRetrying, RetryCallState, retry_if_result, stop_after_attempt

from agent.errors import ProviderUnreachable, TimeLimitExceeded, UnknownModel
from agent.llm.endpoint import Endpoint
from agent.llm.failures import Failure, unknown_model_error
from agent.llm.http import CONNECT_SECONDS, JsonReply, Outcome, exchange
from agent.llm.protocols import PROTOCOLS
from agent.llm.protocols.base import ModelInfo
from agent.llm.redaction import one_line
from agent.llm.streaming import ReplyStream
from agent.types.events import Notice
from agent.types.protocols import Reporter

if TYPE_CHECKING:
    import httpx

Reply = TypeVar("Reply")


def _silent(_: object) -> None:
    """A reporter for callers that want no events."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Number of tries, and waits that double from `first_wait` to `longest_wait` seconds.

    A Retry-After of up to `longest_asked` seconds is obeyed; a longer one ends the tries at once.
    """

    tries: int = 4
    first_wait: float = 1.0
    longest_wait: float = 30.0
    longest_asked: float = 120.0  # rate limits count in minutes; beyond two, a person should decide


@dataclass(frozen=True, slots=True)
class Retrier:
    """A policy with its reporter, the clock of the run, and sleep.

    `time_left` gives the seconds until the deadline of the whole run. `jitter` gives values in
    [0, 1) that spread the waits, so that parallel callers do not return together.
    """

    policy: RetryPolicy = field(default_factory=RetryPolicy)
    report: Reporter = _silent
    time_left: Callable[[], float] = lambda: math.inf
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    jitter: Callable[[], float] = random.SystemRandom().random

    async def run(self, attempt: Callable[[], Awaitable[Reply | Failure]]) -> Reply | Failure:
        """The first reply, or the last failure with the number of tries in its message.

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
        # A little is added to the server's wait, because all its clients return at that moment.
        return backoff if asked is None else asked + 0.1 * spread * min(asked, 10.0)

    def _give_up(self, state: RetryCallState) -> bool:
        asked = _failure(state).retry_after or 0.0
        return (
            stop_after_attempt(self.policy.tries)(state)
            or asked > self.policy.longest_asked
            or state.upcoming_sleep >= self.time_left()
        )

    def _notify(self, state: RetryCallState) -> None:
        # An error ends with advice for the case that all tries fail; a notice leaves it out.
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
    """The last failure. tenacity asks only after `_may_succeed_later` returned true."""
    assert state.outcome is not None
    return cast("Failure", state.outcome.result())


REQUEST_SECONDS = 300.0  # long replies of reasoning models take minutes
_NEAREST = 3  # model names an error suggests

Check = Callable[[Any], Failure | None]


def _accept(_: Any) -> None:
    """A check that finds nothing wrong."""


class ModelServer:
    """Sends JSON to one endpoint, in the headers of its protocol.

    A protocol has several roots for its paths (`/v1` or none, `/api` or `/agents`). If the first
    answers 404, 405 or with a web page, the next one is tried, and the one that works is
    remembered. `client` is shared and not closed here. With `embeddings`, `models` lists the
    models that embed.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        client: httpx.AsyncClient,
        *,
        retrier: Retrier | None = None,
        request_seconds: float = REQUEST_SECONDS,
        embeddings: bool = False,
    ) -> None:
        self.endpoint = endpoint
        self.protocol = PROTOCOLS[endpoint.kind]
        self.embeddings = embeddings
        self._client = client
        self._retrier = retrier or Retrier()
        self._request_seconds = request_seconds
        self._headers = self.protocol.headers(endpoint)
        self._roots = self.protocol.roots(endpoint.base_url)
        self._answered: set[str] = set()  # paths that have given an answer

    async def post(
        self,
        path: str,
        payload: Mapping[str, Any],
        check: Check = _accept,
        stream: Callable[[], ReplyStream] | None = None,
    ) -> Outcome:
        """POST to `path` ("/chat/completions") under the base URL, with retries.

        `check` recognises 2xx replies that are failures. `stream` makes what reads the streamed
        reply of one try. Raises TimeLimitExceeded when the run's
        time is over before a try.
        """
        outcome = await self._retrier.run(lambda: self._attempt(path, payload, check, stream))
        if isinstance(outcome, Failure) and isinstance(outcome.error, UnknownModel):
            return replace(outcome, error=await self._suggest(outcome))
        return outcome

    async def get(self, path: str, *, seconds: float = CONNECT_SECONDS) -> Any:
        """The JSON of a GET of `path`, tried once; None if there is none.

        It is for lists and figures that a run can do without.
        """
        outcome = await self.look_up(path, seconds=seconds)
        return outcome.value if isinstance(outcome, JsonReply) else None

    async def look_up(self, path: str, *, seconds: float) -> Outcome | None:
        """The outcome of a GET of `path`, tried once; None when no time is left."""
        seconds = min(seconds, self._retrier.time_left())
        return await self._rooted(path, None, lambda: seconds) if seconds > 0 else None

    async def models(self) -> tuple[ModelInfo, ...]:
        """The models that the server lists, in its order; empty when it has no such list."""
        protocol = self.protocol
        path = protocol.embedding_models_path if self.embeddings else protocol.models_path
        return protocol.read_models(await self.get(path))

    async def model_names(self) -> tuple[str, ...]:
        """The names of `models`, sorted."""
        return tuple(sorted({info.name for info in await self.models()}))

    async def _attempt(
        self,
        path: str,
        payload: Mapping[str, Any],
        check: Check,
        stream: Callable[[], ReplyStream] | None,
    ) -> Outcome:
        reader = stream() if stream is not None else None
        outcome = await self._rooted(path, payload, self._seconds, reader)
        if isinstance(outcome, JsonReply):
            return check(outcome.value) or outcome
        return outcome

    async def _rooted(
        self,
        path: str,
        payload: Mapping[str, Any] | None,
        seconds: Callable[[], float],
        stream: ReplyStream | None = None,
    ) -> Outcome:
        """The answer under the first root that serves the path."""
        first: Outcome | None = None
        for root in self._roots:
            outcome = await exchange(
                self._client,
                self.endpoint,
                root + path,
                payload,
                seconds=seconds(),
                headers=self._headers,
                stream=stream,
            )
            if not isinstance(outcome, Failure) or not outcome.wrong_path:
                if _is_served(outcome):
                    self._roots = (root,)
                if isinstance(outcome, JsonReply):
                    self._answered.add(path)
                return outcome
            first = first or outcome
        assert isinstance(first, Failure), "a protocol has at least one root"
        if path in self._answered:  # the gateway failed; the address is right
            return replace(first, retriable=True, wrong_path=False)
        return first

    def _seconds(self) -> float:
        seconds = min(self._request_seconds, self._retrier.time_left())
        if seconds <= 0:
            raise TimeLimitExceeded(
                "the time of the run is over before the model was asked: raise PATCHSHOT_TIMEOUT"
            )
        return seconds

    async def _suggest(self, failure: Failure) -> UnknownModel:
        names = nearest(self.endpoint.model, await self.model_names())
        said = one_line(f"{failure.status}: {failure.wording.partition(' | ')[0]}")
        return unknown_model_error(self.endpoint, said, names)


def _is_served(outcome: Outcome) -> bool:
    """Whether an outcome proves that its path is served. Gateways refuse keys on any path."""
    if isinstance(outcome, JsonReply):
        return True
    return outcome.status is not None and outcome.status < 500 and outcome.status not in (401, 403)


def nearest(wanted: str, names: tuple[str, ...], limit: int = _NEAREST) -> tuple[str, ...]:
    """Up to `limit` of `names`, those most like `wanted` first, with or without vendor prefixes.

    Returns all names when there are no more than `limit`.
    """
    if len(names) <= limit:
        return names
    tail = wanted.rpartition("/")[2].lower()

    def likeness(name: str) -> float:
        whole = difflib.SequenceMatcher(None, wanted.lower(), name.lower()).ratio()
        last = name.rpartition("/")[2].lower()
        return max(whole, difflib.SequenceMatcher(None, tail, last).ratio())

    return tuple(sorted(names, key=lambda name: (-likeness(name), name))[:limit])
