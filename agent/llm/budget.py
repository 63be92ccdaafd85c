"""Refuses a model call before it is made if its worst case would exceed the budget.

The host of a miner's run keeps an account of its own, which bounds the run too:

    GET {proxy}/api/usage?evaluation_run_id=...   {used_cost_usd, remaining_cost_usd, max_cost_usd}
    GET {proxy}/api/v1/usage                      {total_cost_usd, budget_remaining_usd, ...}
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from agent.errors import BudgetExceeded, ProviderError, ReplayMismatch
from agent.llm.clients import ChatModelWrapper
from agent.llm.endpoint import Endpoint, without_credentials
from agent.llm.http import JsonReply, Outcome, exchange
from agent.llm.prices import Price
from agent.llm.protocols import PROTOCOLS
from agent.llm.replies import mapping
from agent.llm.server import ModelServer
from agent.types import Completion, Prompt, Usage
from agent.types.events import Notice
from agent.types.protocols import ChatModel, Reporter

if TYPE_CHECKING:
    import httpx


@dataclass(frozen=True, slots=True)
class Spent:
    """A host's account of a run's budget, in US dollars; None for what it does not say."""

    used: float | None = None
    remaining: float | None = None
    limit: float | None = None


AskHost = Callable[[], Awaitable["Spent | None"]]
"""Asks the account that the run's host keeps; None when that is unknown. Never raises."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of a run and what is spent, as a value. Costs are in US dollars.

    `max_tokens` counts input and output. `ceiling` is the limit of the run's host, `account` its
    last statement. `caching`: prompts are written to the provider's cache, which costs more.
    """

    max_cost: float | None = None
    max_tokens: int | None = None
    max_calls: int | None = None
    price: Price | None = None
    spent: Usage = field(default_factory=Usage)
    ceiling: float | None = None
    account: Spent | None = None
    caching: bool = False

    def worst_case(self, prompt_tokens: int, max_output_tokens: int) -> Usage:
        """The usage of a call whose reply reaches the limit and that reads nothing from a cache."""
        written = prompt_tokens if self.caching else 0
        usage = Usage(prompt_tokens, max_output_tokens, None, 1, cache_write_tokens=written)
        return self.priced(usage)

    def priced(self, usage: Usage) -> Usage:
        """`usage` with its cost filled in from the price, where both are known."""
        if usage.cost_usd is not None or self.price is None:
            return usage
        return replace(usage, cost_usd=self.price.of(usage))

    def reserve(self, prompt_tokens: int, max_output_tokens: int) -> None:
        """Check that the worst case of a call fits. Changes nothing.

        Raises BudgetExceeded with the figures, or when `max_cost` is set and no price is known.
        """
        worst, spent = self.worst_case(prompt_tokens, max_output_tokens), self.spent
        if self.max_calls is not None and spent.calls + 1 > self.max_calls:
            raise BudgetExceeded(
                f"no model call is left ({spent.calls} of {self.max_calls} made): raise "
                "PATCHSHOT_MAX_CALLS"
            )
        used = spent.input_tokens + spent.output_tokens
        needed = worst.input_tokens + worst.output_tokens
        shown = f"{worst.input_tokens:,} in and up to {worst.output_tokens:,} out"
        if self.max_tokens is not None and used + needed > self.max_tokens:
            raise BudgetExceeded(
                f"the next call may use {needed:,} tokens ({shown}), but "
                f"{max(0, self.max_tokens - used):,} of {self.max_tokens:,} are left: raise "
                "PATCHSHOT_MAX_TOKENS or lower PATCHSHOT_MAX_OUTPUT_TOKENS"
            )
        is_known = worst.cost_usd is not None and spent.cost_usd is not None
        if self.max_cost is not None and not is_known:
            raise BudgetExceeded(
                "PATCHSHOT_MAX_COST is set, but the model's price is not known: set "
                "PATCHSHOT_PRICES to IN,OUT (US dollars per million tokens)"
            )
        for left, of, setting in self._amounts_left():
            if (worst.cost_usd or 0.0) > left:
                raise BudgetExceeded(
                    f"the next call may cost {_dollars(worst.cost_usd)} ({shown}), but "
                    f"{_dollars(max(0.0, left))}{of} is left: raise {setting} or lower "
                    "PATCHSHOT_MAX_OUTPUT_TOKENS"
                )

    def _amounts_left(self) -> Iterator[tuple[float, str, str]]:
        limits = (self.max_cost, "PATCHSHOT_MAX_COST"), (self.ceiling, "RIDGES_MAX_COST_USD")
        for limit, setting in limits:
            if limit is not None and self.spent.cost_usd is not None and self.price is not None:
                yield limit - self.spent.cost_usd, f" of {_dollars(limit)}", setting
        if self.account is not None and self.account.remaining is not None:
            left = self.account.remaining or -math.inf  # a spent one refuses free calls, too
            yield left, " of the run's budget at its host", "the budget there"


def _dollars(amount: float | None) -> str:
    """An amount with four decimals, or two significant digits if it is smaller."""
    if amount is None:
        return "an unknown amount"
    return f"${amount:.4f}" if amount == 0 or amount >= 0.001 else f"${amount:.2g}"


@dataclass(slots=True)
class _Account:
    """The budget of a run, shared by its models. `pending`: worst cases of running calls.

    `asked`: whether the host was asked since the last call.
    """

    budget: Budget
    ask_host: AskHost | None
    asked: bool = False
    pending: list[Usage] = field(default_factory=list)


class BudgetedChatModel(ChatModelWrapper):
    """A `ChatModel` that checks the budget before each call and records the usage after it.

    Running calls count with their worst case. A failed call counts, with unknown tokens and cost.
    """

    def __init__(self, inner: ChatModel, budget: Budget, ask_host: AskHost | None = None) -> None:
        super().__init__(inner)
        self._account = _Account(budget, ask_host)
        self._price = budget.price
        self._kept = Usage()

    def beside(
        self, kept: Usage, inner: ChatModel | None = None, price: Price | None = None
    ) -> BudgetedChatModel:
        """Return a model that spends from the same budget but leaves `kept` of it.

        It is this model, or `inner` with its own price.
        """
        other = BudgetedChatModel(inner or self._inner, self._account.budget)
        other._account, other._kept = self._account, kept
        other._price = self._price if inner is None else price
        return other

    @property
    def budget(self) -> Budget:
        """The limits, and what is spent."""
        return replace(self._account.budget, price=self._price)

    @property
    def usage(self) -> Usage:
        """The usage so far, failed calls included.

        If the host states the cost, that figure is used: it includes embeddings and failed calls.
        """
        budget = self._account.budget
        if budget.account is None or budget.account.used is None:
            return budget.spent
        return replace(budget.spent, cost_usd=budget.account.used)

    async def complete(
        self, prompt: Prompt, *, max_output_tokens: int, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        """Send the prompt if its worst case fits. The completion's usage carries its cost.

        Raises BudgetExceeded before anything is sent, and what the model raises.
        """
        account = self._account
        await self._ask()
        held = sum((*account.pending, self._kept), start=account.budget.spent)
        replace(self.budget, spent=held).reserve(prompt.tokens, max_output_tokens)
        worst = self.budget.worst_case(prompt.tokens, max_output_tokens)
        account.pending.append(worst)
        account.asked = False
        # The cost of a failed or interrupted call is unknown; a known price keeps the sum known.
        used = Usage(calls=1, cost_usd=None if self._price is None else 0.0)
        try:
            completion = await self._inner.complete(
                prompt, max_output_tokens=max_output_tokens, schema=schema
            )
            used = self.budget.priced(completion.usage)
        except ReplayMismatch:
            used = Usage()  # no model was asked
            raise
        except ProviderError:
            await self._ask()  # only the host knows what it cost
            raise
        finally:
            account.pending.remove(worst)
            account.budget = replace(account.budget, spent=account.budget.spent + used)
        await self._ask()
        return replace(completion, usage=used)

    async def _ask(self) -> None:
        account = self._account
        if account.ask_host is None or account.asked:
            return
        account.asked = True
        stated = await account.ask_host()
        if stated is not None:  # otherwise the last statement still holds: a budget does not grow
            account.budget = replace(account.budget, account=stated)


# ------------------------------------------------------------------- the account of the run's host

_ASK_SECONDS = 5.0  # for a figure from next door; a call must not wait long for it
_ASK_FAILURES = 3  # in a row; then it is not asked again


class RemoteBudget:
    """Asks one usage endpoint when called. Its failures bound nothing and are reported once."""

    def __init__(self, endpoint: Endpoint, client: httpx.AsyncClient, report: Reporter) -> None:
        self._endpoint = endpoint
        self._client = client
        self._report = report
        self._server = ModelServer(endpoint, client)
        self._failures = 0

    async def __call__(self) -> Spent | None:
        """What has been spent; None when that is unknown."""
        if self._failures >= _ASK_FAILURES:
            return None
        outcome = await self._get()
        spent = read_spent(outcome.value if isinstance(outcome, JsonReply) else None)
        before, self._failures = self._failures, 0 if spent else self._failures + 1
        if self._failures and not before:
            place = self._endpoint.usage_url or self._endpoint.base_url
            self._report(
                Notice(f"{without_credentials(place)} does not say what the run has spent")
            )
        return spent

    async def _get(self) -> Outcome | None:
        page = self._endpoint.usage_url
        if page is None or self._server.protocol.serves_runs:
            path = f"/usage?evaluation_run_id={quote(self._endpoint.run_id, safe='')}"
            return await self._server.look_up(path, seconds=_ASK_SECONDS)
        # The page belongs to the proxy, not to the model's server, so it gets no key.
        proxy = replace(self._endpoint, base_url=page, api_key=None)
        return await exchange(self._client, proxy, page, None, seconds=_ASK_SECONDS, headers={})


def ask_remote_budget(
    endpoint: Endpoint, client: httpx.AsyncClient, report: Reporter
) -> RemoteBudget | None:
    """The account at the run's host; None if there is none."""
    has_account = PROTOCOLS[endpoint.kind].serves_runs or endpoint.usage_url is not None
    return RemoteBudget(endpoint, client, report) if has_account else None


def ceiling(environment: Mapping[str, str]) -> float | None:
    """RIDGES_MAX_COST_USD in US dollars; None when it is unset or not an amount."""
    return _amount(environment, "RIDGES_MAX_COST_USD")


def read_spent(value: Any) -> Spent | None:
    """The figures of a usage reply; None when it has none."""
    value = mapping(value)
    used = _amount(value, "used_cost_usd", "total_cost_usd")
    remaining = _amount(value, "remaining_cost_usd", "budget_remaining_usd")
    if used is None and remaining is None:
        return None
    return Spent(used, remaining, _amount(value, "max_cost_usd"))


def _amount(value: Mapping[str, Any], *names: str) -> float | None:
    """The first of these that is an amount, at least zero: an overspent budget has nothing left."""
    for name in names:
        given = value.get(name)
        try:
            amount = float(given)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            continue
        if math.isfinite(amount) and not isinstance(given, bool):
            return max(0.0, amount)
    return None
