"""Refuses a model call before it is made when its worst case would exceed what is left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from agent.errors import BudgetExceeded, ProviderError, ReplayMismatch
from agent.llm.prices import Price
from agent.llm.protocols.base import Spent
from agent.protocols import ChatModel
from agent.types import Completion, Prompt, Usage


class Host(Protocol):
    """Where the run takes place, as far as it keeps an account (`agent.llm.remote_budget`)."""

    async def ask(self) -> Spent | None:
        """What is spent now; None when that cannot be told. Never raises."""
        ...


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of a run (None: none) and what of them is spent. A value: spending gives a new one.

    `max_cost` in US dollars, `max_tokens` input and output together, `price` of the model where
    it is known. `ceiling`, of the run's host, is a `max_cost` that holds as far as prices are
    known; `there` is what the host's own account said last. `caching`: prompts are written to the
    provider's cache, which costs more than plain input.
    """

    max_cost: float | None = None
    max_tokens: int | None = None
    max_calls: int | None = None
    price: Price | None = None
    spent: Usage = field(default_factory=Usage)
    ceiling: float | None = None
    there: Spent | None = None
    caching: bool = False

    def worst_case(self, prompt_tokens: int, max_output_tokens: int) -> Usage:
        """What a call uses if its reply runs to the limit and nothing comes from a cache."""
        written = prompt_tokens if self.caching else 0
        usage = Usage(prompt_tokens, max_output_tokens, None, 1, cache_write_tokens=written)
        return self.priced(usage)

    def priced(self, usage: Usage) -> Usage:
        """`usage` with its cost filled in from the price, where both are known."""
        if usage.cost_usd is not None or self.price is None:
            return usage
        return replace(usage, cost_usd=self.price.of(usage))

    def after(self, usage: Usage) -> Budget:
        """The budget once `usage` is spent."""
        return replace(self, spent=self.spent + self.priced(usage))

    def reserve(self, prompt_tokens: int, max_output_tokens: int) -> None:
        """Check that a call fits, its worst case included; changes nothing.

        Raises BudgetExceeded with the figures, or when `max_cost` is set and no price is known.
        """
        worst = self.worst_case(prompt_tokens, max_output_tokens)
        self._check_calls()
        self._check_tokens(worst)
        self._check_cost(worst)
        self._check_ceiling(worst)
        self._check_there(worst)

    def _check_calls(self) -> None:
        if self.max_calls is not None and self.spent.calls + 1 > self.max_calls:
            raise BudgetExceeded(
                f"no model call is left ({self.spent.calls} of {self.max_calls} made): raise "
                "PATCHSHOT_MAX_CALLS"
            )

    def _check_tokens(self, worst: Usage) -> None:
        if self.max_tokens is None:
            return
        used = self.spent.input_tokens + self.spent.output_tokens
        needed = worst.input_tokens + worst.output_tokens
        if used + needed > self.max_tokens:
            raise BudgetExceeded(
                f"the next call may use {needed:,} tokens ({_tokens(worst)}), but "
                f"{max(0, self.max_tokens - used):,} of {self.max_tokens:,} are left: raise "
                "PATCHSHOT_MAX_TOKENS or lower PATCHSHOT_MAX_OUTPUT_TOKENS"
            )

    def _check_cost(self, worst: Usage) -> None:
        if self.max_cost is None:
            return
        if worst.cost_usd is None or self.spent.cost_usd is None:
            raise BudgetExceeded(
                "PATCHSHOT_MAX_COST is set, but the model's price is not known: set "
                "PATCHSHOT_PRICE_INPUT and PATCHSHOT_PRICE_OUTPUT (US dollars per million tokens)"
            )
        left = self.max_cost - self.spent.cost_usd
        if worst.cost_usd > left:
            raise _too_dear(worst, left, f" of {_dollars(self.max_cost)}", "PATCHSHOT_MAX_COST")

    def _check_ceiling(self, worst: Usage) -> None:
        if self.ceiling is None or worst.cost_usd is None or self.spent.cost_usd is None:
            return
        left = self.ceiling - self.spent.cost_usd
        if worst.cost_usd > left:
            raise _too_dear(worst, left, f" of {_dollars(self.ceiling)}", "RIDGES_MAX_COST_USD")

    def _check_there(self, worst: Usage) -> None:
        left = None if self.there is None else self.there.remaining
        if left is not None and (left <= 0 or (worst.cost_usd or 0.0) > left):
            raise _too_dear(worst, left, " of the run's budget at its host", "the budget there")


class BudgetedChatModel:
    """A `ChatModel` that checks the budget before each call and records what it used after it.

    Calls that run at the same time are held against the budget at their worst case. A call that
    fails counts as a call; its tokens and cost are not known and count as nothing, or, where no
    price is known, make the sum unknown. `host` is asked before the first call and after each.
    """

    def __init__(self, inner: ChatModel, budget: Budget, host: Host | None = None) -> None:
        self._inner = inner
        self._budget = budget
        self._host = host
        self._asked = False  # since the last call
        self._pending: list[Usage] = []

    @property
    def model(self) -> str:
        """The model's name."""
        return self._inner.model

    @property
    def usage(self) -> Usage:
        """What has been used so far, failed calls included.

        The cost is the host's own figure where it tells one: it knows embeddings and failed calls.
        """
        there = self._budget.there
        if there is None or there.used is None:
            return self._budget.spent
        return replace(self._budget.spent, cost_usd=there.used)

    async def complete(
        self, prompt: Prompt, *, max_output_tokens: int, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        """Send the prompt if its worst case fits. The completion's usage carries its cost.

        Raises BudgetExceeded before anything is sent, and what the model raises.
        """
        await self._ask()
        held = sum(self._pending, start=self._budget.spent)
        replace(self._budget, spent=held).reserve(prompt.tokens, max_output_tokens)
        worst = self._budget.worst_case(prompt.tokens, max_output_tokens)
        self._pending.append(worst)
        self._asked = False
        # What a call costs that fails or is interrupted is not known; with a price its limits hold.
        used = Usage(calls=1, cost_usd=None if self._budget.price is None else 0.0)
        try:
            completion = await self._inner.complete(
                prompt, max_output_tokens=max_output_tokens, schema=schema
            )
            used = self._budget.priced(completion.usage)
        except ReplayMismatch:
            used = Usage()  # nothing was asked, and nobody
            raise
        except ProviderError:
            await self._ask()  # what it cost is known to the host alone
            raise
        finally:
            self._pending.remove(worst)
            self._budget = self._budget.after(used)
        await self._ask()
        return replace(completion, usage=used)

    async def _ask(self) -> None:
        """Learn what the host's account says, if that may have changed."""
        if self._host is None or self._asked:
            return
        self._asked = True
        there = await self._host.ask()
        if there is not None:  # else what it said last still bounds: a budget does not grow
            self._budget = replace(self._budget, there=there)


def _too_dear(worst: Usage, left: float, of: str, bound: str) -> BudgetExceeded:
    cost = "of unknown price" if worst.cost_usd is None else f"cost {_dollars(worst.cost_usd)}"
    verb = "is" if worst.cost_usd is None else "may"
    return BudgetExceeded(
        f"the next call {verb} {cost} ({_tokens(worst)}), but {_dollars(max(0.0, left))}{of} is "
        f"left: raise {bound} or lower PATCHSHOT_MAX_OUTPUT_TOKENS"
    )


def _tokens(usage: Usage) -> str:
    return f"{usage.input_tokens:,} in and up to {usage.output_tokens:,} out"


def _dollars(amount: float) -> str:
    """Four decimals, more for what would otherwise read as nothing."""
    return f"${amount:.4f}" if amount == 0 or amount >= 0.001 else f"${amount:.2g}"
