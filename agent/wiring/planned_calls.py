"""The calls that a run may make, from its settings: whether each is made, and all in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.settings import AUTO_CONTEXT, CODE_ROUNDS, HISTORY_TOKENS, Settings

if TYPE_CHECKING:
    from agent.llm import Budget
    from agent.types import Problem

# Estimated tokens of a prompt beside the context: instructions, the issue, and the text that a
# repair call adds. It is only used to choose a model with a large enough window.
_PROMPT_TOKENS = 10_000


def plan_in_words(settings: Settings, problem: Problem, budget: Budget) -> str:
    """Return what a run may use: `usually 1 or 2 calls, never more than 46 calls, 400,000 tokens,
    $3.06`.

    The calls are the locating one, the first ones (`--samples`), those with code that a reply asks
    for, repairs, steps, and the one for another test. Their replies are seldom as long as they may
    be.
    """
    stages = [int(may_locate(settings)), settings.samples, CODE_ROUNDS, settings.repairs]
    planned = sum(stages) + settings.max_steps + int(may_ask_for_test(settings, problem))
    calls = planned if budget.max_calls is None else min(planned, budget.max_calls)
    written = calls * settings.max_output_tokens
    read = calls * max(prompt_tokens(settings, AUTO_CONTEXT[1]), HISTORY_TOKENS)
    tokens = written + read if budget.max_tokens is None else min(written + read, budget.max_tokens)
    worst = budget.worst_case(max(0, tokens - written), min(written, tokens)).cost_usd
    bounds = [bound for bound in (worst, budget.max_cost, budget.ceiling) if bound is not None]
    dollars = f", ${min(bounds):.2f}" if bounds else ""
    most = f"never more than {calls} call{'' if calls == 1 else 's'}, {tokens:,} tokens{dollars}"
    first = settings.samples if settings.samples > 1 else 1
    return f"usually {first} or {first + 1} calls, {most}" if calls > first else most


def may_ask_for_test(settings: Settings, problem: Problem | None = None) -> bool:
    """Whether a call for another test may follow: not where given tests, or none, decide."""
    enough = settings.max_calls is None or settings.max_calls > 1
    return settings.tests and enough and (problem is None or problem.known is None)


def may_locate(settings: Settings) -> bool:
    """Whether a locating call may come before the first call."""
    enough = settings.max_calls is None or settings.max_calls > 1
    return settings.locate == "always" or (settings.locate == "auto" and enough)


def prompt_tokens(settings: Settings, automatic: int) -> int:
    """Return the tokens of a prompt; `automatic`: those of a context whose budget is not fixed."""
    context = settings.context_tokens
    return (automatic if context == "auto" else context) + _PROMPT_TOKENS
