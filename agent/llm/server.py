"""The HTTP side of one endpoint: which path works, how often to try, what its refusals mean."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from agent.errors import TimeLimitExceeded, UnknownModel
from agent.llm.endpoint import Endpoint
from agent.llm.failures import Failure, unknown_model
from agent.llm.http import CONNECT_SECONDS, JsonReply, Outcome, exchange
from agent.llm.retry import Retrier
from agent.llm.wording import one_line

if TYPE_CHECKING:
    import httpx

REQUEST_SECONDS = 300.0  # long replies of reasoning models take minutes
_NEAREST = 3  # model names an error suggests
_VERSION = re.compile(r"/v\d+\w*(/|$)")


class ModelServer:
    """Sends JSON to one endpoint.

    A base URL without a version segment that answers 404, 405 or with a web page is tried once
    with `/v1` added; what works is remembered. `client` is shared and not closed here.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        client: httpx.AsyncClient,
        *,
        retrier: Retrier | None = None,
        request_seconds: float = REQUEST_SECONDS,
    ) -> None:
        self.endpoint = endpoint
        self._client = client
        self._retrier = retrier or Retrier()
        self._request_seconds = request_seconds
        self._root = endpoint.base_url
        self._alternative = _with_version(endpoint.base_url)

    async def post(self, path: str, payload: Mapping[str, Any]) -> Outcome:
        """POST to `path` ("/chat/completions") under the base URL, with retries.

        Raises TimeLimitExceeded when the run's time is over before a try.
        """
        outcome = await self._retrier.run(lambda: self._attempt(path, payload))
        if isinstance(outcome, Failure) and isinstance(outcome.error, UnknownModel):
            return replace(outcome, error=await self._suggest(outcome))
        return outcome

    async def model_names(self) -> tuple[str, ...]:
        """The names that GET /models gives, sorted; empty when the server has no such list."""
        seconds = min(CONNECT_SECONDS, self._retrier.time_left())
        if seconds <= 0:
            return ()
        url = f"{self._root}/models"
        outcome = await exchange(self._client, self.endpoint, url, None, seconds=seconds)
        listed = outcome.value if isinstance(outcome, JsonReply) else None
        rows = listed.get("data") if isinstance(listed, dict) else listed
        names = [
            row.get("id") if isinstance(row, dict) else row
            for row in (rows if isinstance(rows, list) else ())
        ]
        return tuple(sorted({one_line(name, 100) for name in names if isinstance(name, str)}))

    async def _attempt(self, path: str, payload: Mapping[str, Any]) -> Outcome:
        outcome = await self._exchange(self._root + path, payload)
        alternative = self._alternative
        if alternative is None or not isinstance(outcome, Failure) or not outcome.wrong_path:
            return outcome
        second = await self._exchange(alternative + path, payload)
        if isinstance(second, Failure) and second.wrong_path:
            return outcome
        if isinstance(second, JsonReply) or second.status is not None:
            self._root, self._alternative = alternative, None
        return second

    async def _exchange(self, url: str, payload: Mapping[str, Any]) -> Outcome:
        seconds = min(self._request_seconds, self._retrier.time_left())
        if seconds <= 0:
            raise TimeLimitExceeded(
                "the time of the run is over before the model was asked: raise PATCHSHOT_TIMEOUT"
            )
        return await exchange(self._client, self.endpoint, url, payload, seconds=seconds)

    async def _suggest(self, failure: Failure) -> UnknownModel:
        names = nearest(self.endpoint.model, await self.model_names())
        said = one_line(f"{failure.status}: {failure.wording.partition(' | ')[0]}")
        return unknown_model(self.endpoint, said, names)


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


def _with_version(base_url: str) -> str | None:
    """The base URL with `/v1`, None where its path already names a version."""
    return None if _VERSION.search(urlsplit(base_url).path) else f"{base_url}/v1"
