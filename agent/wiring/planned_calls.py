"""The calls that a run makes at most, from its settings: whether each is made, and in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.settings import AUTO_CONTEXT, CODE_ROUNDS, HISTORY_TOKENS, Settings

if TYPE_CHECKING:
    from agent.llm import Budget
    from agent.types import Problem

# Estimated tokens of a prompt beside the context: instructions, the issue, and the text that a
# repair call adds. It is only used to choose a model with a large enough window.
_PROMPT_TOKENS = 10_000


def plan_in_words(settings: Settings, problem: Problem) -> str:
    """Return what a run does, in its order. `agent.run.policy` says why it is always this one.

    `plan: at most 1 locating call first, then 1 call; if that fails, 1 repair (5 of 8 measured
    runs), then up to 40 steps (4 of 6); if no test shows the fix, 1 call for a test` is that of the
    defaults. The counts are of runs that the step ended with an accepted patch.
    """
    from agent.run.policy import MEASURED, NextStep

    locating = "at most 1 locating call first, then " if may_locate(settings) else ""
    first = f"{settings.samples} calls at once" if settings.samples > 1 else "1 call"
    steps = {NextStep.REPAIR: _counted(settings.repairs, "repair")} if settings.repairs else {}
    if settings.max_steps:
        steps[NextStep.ITERATE] = f"up to {settings.max_steps} steps"
    ordered = sorted(steps, key=lambda step: -MEASURED[step].gain)
    rates = [f"{MEASURED[step].solved} of {MEASURED[step].tries}" for step in ordered]
    rates[:1] = [f"{rate} measured runs" for rate in rates[:1]]
    then = [f"{steps[step]} ({rate})" for step, rate in zip(ordered, rates, strict=True)]
    stages = [f"{locating}{first}"]
    if then:
        stages.append(f"if that fails, {', then '.join(then)}")
    if may_ask_for_test(settings, problem):
        stages.append("if no test shows the fix, 1 call for a test")
    return f"plan: {'; '.join(stages)}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def most_in_words(settings: Settings, problem: Problem, budget: Budget) -> str:
    """Return the most that a run may use: `at most 1 + 1 + 2 + 1 + 40 + 1 calls, 400,000 tokens`.

    The calls are the locating one, the first ones (`--samples`), those with code
    that a reply asks for, repairs, steps, and the one for another test. A run may not reach it:
    every reply would have to be as long as it may be.
    """
    stages = [int(may_locate(settings)), settings.samples, CODE_ROUNDS, settings.repairs]
    stages += [settings.max_steps, int(may_ask_for_test(settings, problem))]
    planned = sum(stages)
    calls = planned if budget.max_calls is None else min(planned, budget.max_calls)
    each = " + ".join(str(stage) for stage in stages if stage)
    parts = [f"{each} calls" if calls == planned > 1 else _counted(calls, "call")]
    written = calls * settings.max_output_tokens
    read = calls * max(prompt_tokens(settings, AUTO_CONTEXT[1]), HISTORY_TOKENS)
    tokens = written + read if budget.max_tokens is None else min(written + read, budget.max_tokens)
    parts.append(f"{tokens:,} tokens")
    worst = budget.worst_case(max(0, tokens - written), min(written, tokens)).cost_usd
    bounds = [bound for bound in (worst, budget.max_cost, budget.ceiling) if bound is not None]
    if bounds:
        parts.append(f"${min(bounds):.2f}")
    return f"at most {', '.join(parts)}"


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
