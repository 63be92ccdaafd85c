"""Refuses a model call before it is made if its worst case would exceed the budget."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agent.errors import BudgetExceeded, ReplayMismatch
from agent.llm.clients import ChatModelWrapper
from agent.llm.prices import Price
from agent.types import Completion, Prompt, Usage
from agent.types.protocols import ChatModel


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of a run and what is spent, as a value. Costs are in US dollars.

    `max_tokens` counts input and output. `ceiling` is the limit of the run's host. `caching`:
    prompts are written to the provider's cache, which costs more.
    """

    max_cost: float | None = None
    max_tokens: int | None = None
    max_calls: int | None = None
    price: Price | None = None
    spent: Usage = field(default_factory=Usage)
    ceiling: float | None = None
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
        for limit, setting in (
            (self.max_cost, "PATCHSHOT_MAX_COST"),
            (self.ceiling, "RIDGES_MAX_COST_USD"),
        ):
            if limit is None or worst.cost_usd is None or spent.cost_usd is None:
                continue
            left = limit - spent.cost_usd
            if worst.cost_usd > left:
                raise BudgetExceeded(
                    f"the next call may cost {_dollars(worst.cost_usd)} ({shown}), but "
                    f"{_dollars(max(0.0, left))} of {_dollars(limit)} is left: raise {setting} or "
                    "lower PATCHSHOT_MAX_OUTPUT_TOKENS"
                )


def _dollars(amount: float) -> str:
    """An amount with four decimals, or two significant digits if it is smaller."""
    return f"${amount:.4f}" if amount == 0 or amount >= 0.001 else f"${amount:.2g}"


@dataclass(slots=True)
class _Account:
    """The budget of a run, shared by its models. `pending`: worst cases of running calls."""

    budget: Budget
    pending: list[Usage] = field(default_factory=list)


class BudgetedChatModel(ChatModelWrapper):
    """A `ChatModel` that checks the budget before each call and records the usage after it.

    Running calls count with their worst case. A failed call counts, with unknown tokens and cost.
    """

    def __init__(self, inner: ChatModel, budget: Budget) -> None:
        super().__init__(inner)
        self._account = _Account(budget)
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
        """The usage so far, failed calls included."""
        return self._account.budget.spent

    async def complete(
        self, prompt: Prompt, *, max_output_tokens: int, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        """Send the prompt if its worst case fits. The completion's usage carries its cost.

        Raises BudgetExceeded before anything is sent, and what the model raises.
        """
        account = self._account
        held = sum((*account.pending, self._kept), start=account.budget.spent)
        replace(self.budget, spent=held).reserve(prompt.tokens, max_output_tokens)
        worst = self.budget.worst_case(prompt.tokens, max_output_tokens)
        account.pending.append(worst)
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
        finally:
            account.pending.remove(worst)
            account.budget = replace(account.budget, spent=account.budget.spent + used)
        return replace(completion, usage=used)


def ceiling(environment: Mapping[str, str]) -> float | None:
    """RIDGES_MAX_COST_USD in US dollars; None when it is unset or not an amount."""
    try:
        amount = float(environment.get("RIDGES_MAX_COST_USD", ""))
    except ValueError:
        return None
    return max(0.0, amount) if math.isfinite(amount) else None
