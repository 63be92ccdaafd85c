"""What the host of a run says of its budget: the usage endpoints of the miners' proxies.

    GET {proxy}/api/usage?evaluation_run_id=...   {used_cost_usd, remaining_cost_usd, max_cost_usd}
    GET {proxy}/api/v1/usage                      {total_cost_usd, budget_remaining_usd, ...}

An upper bound beside the run's own: whatever cannot be asked bounds nothing, said once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from agent.events import Notice
from agent.llm.endpoint import Endpoint, without_credentials
from agent.llm.failures import Failure
from agent.llm.http import JsonReply, Outcome, exchange
from agent.llm.protocols.base import Spent
from agent.llm.server import ModelServer
from agent.protocols import Reporter

if TYPE_CHECKING:
    import httpx

_SECONDS = 5.0  # for a figure from next door; a call must not wait long for it
_FAILURES = 3  # in a row; then it is not asked again


class RemoteBudget:
    """Asks one usage endpoint. Never raises for what the server does."""

    def __init__(self, endpoint: Endpoint, client: httpx.AsyncClient, report: Reporter) -> None:
        self._endpoint = endpoint
        self._client = client
        self._report = report
        self._server = ModelServer(endpoint, client) if endpoint.kind == "miner" else None
        self._failures = 0

    async def ask(self) -> Spent | None:
        """What is spent now; None when it cannot be told."""
        if self._failures >= _FAILURES:
            return None
        outcome = await self._get()
        spent = read_spent(outcome.value if isinstance(outcome, JsonReply) else None)
        before, self._failures = self._failures, 0 if spent else self._failures + 1
        if isinstance(outcome, Failure) and outcome.wrong_path:
            self._failures = _FAILURES  # a proxy without an account will not grow one
        if self._failures and not before:
            place = self._endpoint.usage_url or self._endpoint.base_url
            self._report(
                Notice(f"{without_credentials(place)} does not say what the run has spent")
            )
        return spent

    async def _get(self) -> Outcome | None:
        if self._server is not None:
            name = quote(self._endpoint.run_id, safe="")
            return await self._server.look_up(f"/usage?evaluation_run_id={name}", seconds=_SECONDS)
        if self._endpoint.usage_url is None:
            return None
        # It belongs to the proxy, not to the model's server: it gets no key.
        there = replace(self._endpoint, base_url=self._endpoint.usage_url, api_key=None)
        return await exchange(
            self._client, there, there.base_url, None, seconds=_SECONDS, headers={}
        )


def remote_budget(
    endpoint: Endpoint, client: httpx.AsyncClient, report: Reporter
) -> RemoteBudget | None:
    """The budget's own account at the run's host; None where there is none to ask."""
    if endpoint.kind != "miner" and endpoint.usage_url is None:
        return None
    return RemoteBudget(endpoint, client, report)


def ceiling(environment: Mapping[str, str]) -> float | None:
    """RIDGES_MAX_COST_USD in US dollars; None when it is not set or no amount."""
    return _dollars(environment.get("RIDGES_MAX_COST_USD"))


def read_spent(value: Any) -> Spent | None:
    """The figures of a usage reply; None when it has none of them."""
    if not isinstance(value, dict):
        return None
    used = _first(value, "used_cost_usd", "total_cost_usd")
    remaining = _first(value, "remaining_cost_usd", "budget_remaining_usd")
    if used is None and remaining is None:
        return None
    return Spent(used, remaining, _first(value, "max_cost_usd"))


def _first(value: Mapping[str, Any], *names: str) -> float | None:
    amounts = (_dollars(value.get(name)) for name in names)
    return next((amount for amount in amounts if amount is not None), None)


def _dollars(value: Any) -> float | None:
    """An amount; overspent budgets, below zero, have nothing left."""
    if isinstance(value, bool):
        return None
    try:
        amount = float(value)
    except (TypeError, ValueError):
        return None
    return max(0.0, amount) if abs(amount) < float("inf") else None
