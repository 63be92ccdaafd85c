"""One model server over HTTP: the path that works, retries, and its lists and accounts."""

from __future__ import annotations

import asyncio
import difflib
import math
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tenacity import AsyncRetrying, RetryCallState, retry_if_result, stop_after_attempt

from agent.errors import (
    ConfigurationError,
    ProviderUnreachable,
    TimeLimitExceeded,
    UnknownModel,
)
from agent.llm.endpoint import Endpoint, without_credentials
from agent.llm.failures import Failure, one_line, unknown_model_error
from agent.llm.http import CONNECT_SECONDS, JsonReply, Outcome, ReplyStream, exchange
from agent.llm.prices import Price, find_price
from agent.llm.protocols import PROTOCOLS
from agent.llm.protocols.base import ModelInfo
from agent.types.events import Notice
from agent.types.protocols import Reporter

if TYPE_CHECKING:
    import httpx

Reply = TypeVar("Reply")


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
    report: Reporter = lambda _: None
    time_left: Callable[[], float] = lambda: math.inf
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    jitter: Callable[[], float] = random.SystemRandom().random

    async def run(self, attempt: Callable[[], Awaitable[Reply | Failure]]) -> Reply | Failure:
        """The first reply, or the last failure with the number of tries in its message.

        A failure that is not retriable ends the tries; exceptions and cancellation pass through.
        """
        retrying = AsyncRetrying(
            retry=retry_if_result(
                lambda outcome: isinstance(outcome, Failure) and outcome.retriable
            ),
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
        if self.policy.tries == 1:
            return failure
        tries = state.attempt_number
        end = "tried once" if tries == 1 else f"tried {tries} times"
        if (failure.retry_after or 0.0) > self.policy.longest_asked:
            end = f"the server asks to wait {failure.retry_after:.0f} s"
        elif tries < self.policy.tries:
            end = f"{end}, no time is left for another"
        return replace(failure, error=ProviderUnreachable(f"{failure.error} ({end})"))


def _failure(state: RetryCallState) -> Failure:
    """The last failure: tenacity asks only after an outcome that is one."""
    assert state.outcome is not None
    return cast("Failure", state.outcome.result())


_NEAREST = 3  # model names that an error suggests
REQUEST_SECONDS = 300.0  # long replies of reasoning models take minutes


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
        check: Callable[[Any], Failure | None] = lambda _: None,
        stream: Callable[[], ReplyStream] | None = None,
    ) -> Outcome:
        """POST to `path` ("/chat/completions") under the base URL, with retries.

        `check` recognises 2xx replies that are failures. `stream` makes what reads the streamed
        reply of one try. Raises TimeLimitExceeded when the run's time is over before a try.
        """

        async def attempt() -> Outcome:
            reader = stream() if stream is not None else None
            outcome = await self._rooted(path, payload, self._seconds, reader)
            failure = check(outcome.value) if isinstance(outcome, JsonReply) else None
            return failure or outcome

        outcome = await self._retrier.run(attempt)
        if isinstance(outcome, Failure) and isinstance(outcome.error, UnknownModel):
            # Names that are most like the missing one, best first, whatever their vendor's prefix.
            models = {name.rpartition("/")[2]: name for name in await self.model_names()}
            model = self.endpoint.model.rpartition("/")[2]
            names = difflib.get_close_matches(model, models, _NEAREST, cutoff=0.0)
            reason = one_line(f"{outcome.status}: {outcome.wording.partition(' | ')[0]}")
            return replace(
                outcome,
                error=unknown_model_error(
                    self.endpoint, reason, tuple(map(models.__getitem__, names))
                ),
            )
        return outcome

    async def look_up(self, path: str, *, seconds: float = CONNECT_SECONDS) -> Outcome | None:
        """The outcome of a GET of `path`, tried once; None when no time is left.

        It is for lists and figures that a run can do without.
        """
        seconds = min(seconds, self._retrier.time_left())
        return await self._rooted(path, None, lambda: seconds) if seconds > 0 else None

    async def models(self) -> tuple[ModelInfo, ...]:
        """The models that the server lists, in its order; empty when it has no such list."""
        protocol = self.protocol
        path = protocol.embedding_models_path if self.embeddings else protocol.models_path
        outcome = await self.look_up(path)
        return protocol.read_models(outcome.value if isinstance(outcome, JsonReply) else None)

    async def model_names(self) -> tuple[str, ...]:
        """The names of `models`, sorted."""
        return tuple(sorted({info.name for info in await self.models()}))

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


def _is_served(outcome: Outcome) -> bool:
    """Whether an outcome proves that its path is served. Gateways refuse keys on any path."""
    if isinstance(outcome, JsonReply):
        return True
    return outcome.status is not None and outcome.status < 500 and outcome.status not in (401, 403)


# --------------------------------------------------------------- a model from the server's own list

# Calls of a long run: the first, a repair, and a few steps of the iterative mode.
_CALLS = 5
_SHOWN = 5  # names that an error lists
_OTHERS = 24  # models to try after a refusal; each refusal takes about a second


@dataclass(frozen=True, slots=True)
class Demand:
    """The needs of a run: tokens of one call, and US dollars for all calls (None: no limit)."""

    input_tokens: int
    output_tokens: int
    max_cost: float | None = None

    def cost(self, price: Price) -> float:
        """The cost of one call in US dollars."""
        return (self.input_tokens * price.input + self.output_tokens * price.output) / 1_000_000

    def fits(self, info: ModelInfo) -> bool:
        """Whether the window holds a call and the budget a run. Unknown figures fit."""
        window = info.context_tokens
        if window is not None and window < self.input_tokens + self.output_tokens:
            return False
        if info.price is None or self.max_cost is None:
            return True
        return self.cost(info.price) * _CALLS <= self.max_cost


@dataclass(frozen=True, slots=True)
class Resolved:
    """An endpoint with its model, its price, and models to try if it is refused."""

    endpoint: Endpoint
    others: tuple[str, ...] = ()
    price: Price | None = None


async def resolve_model(server: ModelServer, demand: Demand) -> Resolved:
    """The server's endpoint with a model: its own, or one of the server's list.

    Asks the server only when the endpoint has no model or only the server knows its price: a
    miner's proxy has its own prices, and a limit on the cost may need one that the table lacks. A
    miner's proxy without a list chooses itself: `model` stays "". Raises ConfigurationError, which
    names some models, when the user has to choose.
    """
    endpoint, protocol = server.endpoint, server.protocol
    needs_price = protocol.serves_runs or (
        demand.max_cost is not None and find_price(endpoint.model) is None
    )
    if endpoint.model and (server.embeddings or not needs_price):
        return Resolved(endpoint)
    listed = await server.models()
    if endpoint.model:
        prices = {info.name: info.price for info in listed}
        return Resolved(endpoint, price=prices.get(endpoint.model))
    if server.embeddings:
        return Resolved(replace(endpoint, model=listed[0].name if listed else ""))
    chosen = rank_models(listed, demand)
    if len(listed) > 1 and not protocol.list_chooses:
        chosen = ()
    if not chosen:
        if protocol.serves_runs and not listed:
            return Resolved(endpoint)
        raise ConfigurationError(_please_choose(endpoint, listed))
    first, *rest = chosen
    return Resolved(
        replace(endpoint, model=first.name, why=f"{endpoint.why}; the model is from its list"),
        tuple(info.name for info in rest[:_OTHERS]),
        first.price,
    )


def rank_models(listed: Sequence[ModelInfo], demand: Demand) -> tuple[ModelInfo, ...]:
    """The models that fit, the most expensive first, then in the order of the list.

    Within one list the price is the best sign of ability.
    """
    fitting = [info for info in listed if demand.fits(info)]
    return tuple(sorted(fitting, key=lambda one: -demand.cost(one.price) if one.price else 0.0))


def _please_choose(endpoint: Endpoint, listed: Sequence[ModelInfo]) -> str:
    place = without_credentials(endpoint.base_url)
    if not listed:
        return f"{place} does not say which models it has: set {endpoint.model_setting}"
    names = [info.name for info in listed[:_SHOWN]]
    more = f" and {len(listed) - len(names)} more" if len(listed) > len(names) else ""
    return (
        f"no model is chosen for {place}: set {endpoint.model_setting} to one that it has "
        f"({', '.join(names)}{more})"
    )
