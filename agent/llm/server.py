"""One model server over HTTP: the path that works, retries, and its list of models."""

from __future__ import annotations

import asyncio
import difflib
import math
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from agent.errors import ConfigurationError, ProviderUnreachable, TimeLimitExceeded, UnknownModel
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

_LONGEST_ASKED = 120.0  # rate limits count in minutes; beyond two, a person should decide


@dataclass(frozen=True, slots=True)
class Retrier:
    """Tries calls again. Waits double from `first_wait` to `longest_wait` seconds, or are as asked.

    `time_left`: seconds until the deadline of the run. `jitter` gives values in [0, 1) that spread
    the waits of parallel callers.
    """

    tries: int = 4
    first_wait: float = 1.0
    longest_wait: float = 30.0
    report: Reporter = lambda _: None
    time_left: Callable[[], float] = lambda: math.inf
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    jitter: Callable[[], float] = random.SystemRandom().random

    async def run(self, attempt: Callable[[], Awaitable[Reply | Failure]]) -> Reply | Failure:
        """The first reply, or the last failure with the reason of the end in its message.

        A failure that is not retriable ends the tries; exceptions and cancellation pass through.
        """
        number = 0
        while True:
            number += 1
            outcome = await attempt()
            if not isinstance(outcome, Failure) or not outcome.retriable or self.tries == 1:
                return outcome
            wait = self._wait(number, outcome.retry_after)
            end = ""
            if outcome.retry_after is not None and outcome.retry_after > _LONGEST_ASKED:
                end = f"the server asks to wait {outcome.retry_after:.0f} s"
            elif number >= self.tries:
                end = f"tried {number} times"
            elif wait >= self.time_left():
                end = "no time is left for another try"
            if end:
                return replace(outcome, error=ProviderUnreachable(f"{outcome.error} ({end})"))
            # An error ends with advice for the case that all tries fail; a notice leaves it out.
            cause = str(outcome.error).rpartition(": ")[0] or str(outcome.error)
            again = f"trying again in {wait:.1f} s (try {number + 1} of {self.tries})"
            self.report(Notice(f"{cause}; {again}", "warning"))
            await self.sleep(wait)

    def _wait(self, number: int, asked: float | None) -> float:
        """Seconds: exponential with "equal jitter" (half fixed, half random), or as asked."""
        spread = self.jitter()
        if asked is not None:  # a little more, because all clients of the server return then
            return asked + 0.1 * spread * min(asked, 10.0)
        return min(self.longest_wait, self.first_wait * 2.0 ** (number - 1)) * (0.5 + 0.5 * spread)


_NEAREST = 3  # model names that an error suggests
REQUEST_SECONDS = 300.0  # long replies of reasoning models take minutes


class ModelServer:
    """Sends JSON to one endpoint. The first root of its protocol that serves is remembered.

    `client` is not closed here. With `embeddings`, `models` lists the models that embed.
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

    async def post(
        self,
        path: str,
        payload: Mapping[str, Any],
        check: Callable[[Any], Failure | None] = lambda _: None,
        stream: Callable[[], ReplyStream] | None = None,
    ) -> Outcome:
        """POST to `path`, with retries. `check` recognises 2xx replies that failed.

        `stream` makes the reader of one try. Raises TimeLimitExceeded.
        """

        async def attempt() -> Outcome:
            seconds = min(self._request_seconds, self._retrier.time_left())
            if seconds <= 0:
                raise TimeLimitExceeded(
                    "the time of the run is over before the model was asked: raise "
                    "PATCHSHOT_TIMEOUT"
                )
            reader = stream() if stream is not None else None
            outcome = await self._rooted(path, payload, seconds, reader)
            failure = check(outcome.value) if isinstance(outcome, JsonReply) else None
            return failure or outcome

        outcome = await self._retrier.run(attempt)
        if isinstance(outcome, Failure) and isinstance(outcome.error, UnknownModel):
            # Names that are most like the missing one, best first, whatever their vendor's prefix.
            listed = sorted(info.name for info in await self.models())
            names = {name.rpartition("/")[2]: name for name in listed}
            model = self.endpoint.model.rpartition("/")[2]
            nearest = difflib.get_close_matches(model, names, _NEAREST, cutoff=0.0)
            reason = one_line(f"{outcome.status}: {outcome.wording.partition(' | ')[0]}")
            error = unknown_model_error(self.endpoint, reason, [names[name] for name in nearest])
            return replace(outcome, error=error)
        return outcome

    async def models(self) -> tuple[ModelInfo, ...]:
        """The models that the server lists, in its order; empty when it has no such list."""
        protocol = self.protocol
        path = protocol.embedding_models_path if self.embeddings else protocol.models_path
        seconds = min(CONNECT_SECONDS, self._retrier.time_left())
        outcome = await self._rooted(path, None, seconds) if seconds > 0 else None
        return protocol.read_models(outcome.value if isinstance(outcome, JsonReply) else None)

    async def _rooted(
        self,
        path: str,
        payload: Mapping[str, Any] | None,
        seconds: float,
        stream: ReplyStream | None = None,
    ) -> Outcome:
        outcomes = []
        for root in self._roots:
            outcome = await exchange(
                self._client,
                self.endpoint,
                root + path,
                payload,
                seconds=seconds,
                headers=self._headers,
                stream=stream,
            )
            if not isinstance(outcome, Failure) or not outcome.wrong_path:
                if isinstance(outcome, JsonReply):  # gateways refuse keys on any path
                    self._roots = (root,)
                return outcome
            outcomes.append(outcome)
        return outcomes[0]


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

    A miner's proxy without a list chooses itself: `model` stays "". Raises ConfigurationError.
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
    if protocol.serves_runs and not listed:
        return Resolved(endpoint)
    chosen = rank_models(listed, demand)
    if not chosen or (len(listed) > 1 and not protocol.list_chooses):
        names = ", ".join(info.name for info in listed[:_SHOWN]) or "it lists none"
        raise ConfigurationError(
            f"no model is chosen for {without_credentials(endpoint.base_url)}: set "
            f"{endpoint.model_setting} to one that it has ({names})"
        )
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
