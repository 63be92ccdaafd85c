"""The HTTP side of one endpoint: which path works, how often to try, what its refusals mean."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent.errors import TimeLimitExceeded, UnknownModel
from agent.llm.endpoint import Endpoint
from agent.llm.failures import Failure
from agent.llm.http import CONNECT_SECONDS, JsonReply, Outcome, exchange
from agent.llm.protocols.base import ModelInfo
from agent.llm.protocols.registry import PROTOCOLS
from agent.llm.refusals import unknown_model
from agent.llm.retry import Retrier
from agent.llm.wording import one_line

if TYPE_CHECKING:
    import httpx

REQUEST_SECONDS = 300.0  # long replies of reasoning models take minutes
_NEAREST = 3  # model names an error suggests

Check = Callable[[Any], Failure | None]


def _accept(_: Any) -> None:
    """A check that finds nothing wrong."""


class ModelServer:
    """Sends JSON to one endpoint, in the headers of its protocol.

    A protocol has several roots for its paths (`/v1` or not, `/api` or `/agents`): where the first
    answers 404, 405 or with a web page the next is tried, and what works is remembered. `client`
    is shared and not closed here. `embeddings`: its models are those that embed.
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

    async def post(self, path: str, payload: Mapping[str, Any], check: Check = _accept) -> Outcome:
        """POST to `path` ("/chat/completions") under the base URL, with retries.

        `check` finds what a 2xx reply is a failure nonetheless. Raises TimeLimitExceeded when the
        run's time is over before a try.
        """
        outcome = await self._retrier.run(lambda: self._attempt(path, payload, check))
        if isinstance(outcome, Failure) and isinstance(outcome.error, UnknownModel):
            return replace(outcome, error=await self._suggest(outcome))
        return outcome

    async def get(self, path: str, *, seconds: float = CONNECT_SECONDS) -> Any:
        """The JSON that a GET of `path` gives, None where there is none; tried once.

        For lists and figures that a run can do without.
        """
        outcome = await self.look_up(path, seconds=seconds)
        return outcome.value if isinstance(outcome, JsonReply) else None

    async def look_up(self, path: str, *, seconds: float) -> Outcome | None:
        """What a GET of `path` gives, tried once; None where no time is left."""
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

    async def _attempt(self, path: str, payload: Mapping[str, Any], check: Check) -> Outcome:
        outcome = await self._rooted(path, payload, self._seconds)
        if isinstance(outcome, JsonReply):
            return check(outcome.value) or outcome
        return outcome

    async def _rooted(
        self, path: str, payload: Mapping[str, Any] | None, seconds: Callable[[], float]
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
            )
            if not isinstance(outcome, Failure) or not outcome.wrong_path:
                if _is_served(outcome):
                    self._roots = (root,)
                if isinstance(outcome, JsonReply):
                    self._answered.add(path)
                return outcome
            first = first or outcome
        assert isinstance(first, Failure), "a protocol has at least one root"
        if path in self._answered:  # a gateway's slip, not a wrong address
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
        return unknown_model(self.endpoint, said, names)


def _is_served(outcome: Outcome) -> bool:
    """Whether an outcome proves that its path is served; gateways refuse keys on any path."""
    if isinstance(outcome, JsonReply):
        return True
    return outcome.status is not None and outcome.status < 500 and outcome.status not in (401, 403)


def nearest(wanted: str, names: tuple[str, ...], limit: int = _NEAREST) -> tuple[str, ...]:
    """Up to `limit` of `names`, most like `wanted` first; vendor prefixes (`openai/`) count little.

    All names when there are no more than `limit`.
    """
    if len(names) <= limit:
        return names
    tail = wanted.rpartition("/")[2].lower()

    def likeness(name: str) -> float:
        whole = difflib.SequenceMatcher(None, wanted.lower(), name.lower()).ratio()
        last = name.rpartition("/")[2].lower()
        return max(whole, difflib.SequenceMatcher(None, tail, last).ratio())

    return tuple(sorted(names, key=lambda name: (-likeness(name), name))[:limit])
