"""Plans by a model: one call proposes several; their intents are grounded like all others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from agent.patching.scanning import scan
from agent.planning.intents import Plan, intent_of, plan_of
from agent.planning.mutations import MAX_INTENTS
from agent.prompting import as_data, make_prompt, render
from agent.types import Message

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agent.protocols import ChatModel, TokenCounter
    from agent.types import ContextBundle, Problem, Prompt, Ranking

PLANS = 4
"""Asked for in one call: more of them repeat each other."""

MAX_RANKED = 150
"""Symbols that the model is told of, by name alone: about 1,500 tokens."""

MAX_OUTPUT_TOKENS = 1500
"""Four plans take about 500; a model that thinks aloud takes more."""

_MAX_READ = 4 * PLANS  # plans of a reply that are looked at

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "plans": {
            "type": "array",
            "items": {"type": "array", "items": {"type": "string"}, "maxItems": MAX_INTENTS},
        }
    },
    "required": ["plans"],
    "additionalProperties": False,
}


def plan_prompt(
    problem: Problem, ranking: Ranking, bundle: ContextBundle, counter: TokenCounter
) -> Prompt:
    """Ask for PLANS plans, by the names of what is ranked. `bundle` is what was read already."""
    user = render(
        "plan",
        issue=as_data(problem.text),
        ranked=as_data("\n".join(_ranked(ranking, bundle))),
        most=MAX_INTENTS,
        plans=PLANS,
    )
    return make_prompt([Message("system", render("plan_system")), Message("user", user)], counter)


def _ranked(ranking: Ranking, bundle: ContextBundle) -> Iterator[str]:
    """A line for each file, the best first: its symbols by rank, with a star those in `bundle`."""
    shown = {(piece.path, piece.symbol) for piece in bundle.pieces}
    named = (s.chunk for s in ranking.chunks if s.chunk.symbol)
    places = list(dict.fromkeys((chunk.path, chunk.symbol) for chunk in named))[:MAX_RANKED]
    files: dict[str, list[str]] = {}
    for path, symbol in places:
        star = "*" if (path, symbol) in shown else ""
        files.setdefault(path, []).append(f"{symbol}{star}")
    yield from (f"{path}: {', '.join(symbols)}" for path, symbols in files.items())


async def ask_for_plans(chat: ChatModel, prompt: Prompt) -> tuple[Plan, ...]:
    """The plans that the model proposes; () for a reply that holds none. Raises ProviderError."""
    reply = await chat.complete(prompt, max_output_tokens=MAX_OUTPUT_TOKENS, schema=SCHEMA)
    return read_plans(reply.text)


def read_plans(text: str) -> tuple[Plan, ...]:
    """The plans of a reply, each once; what cannot be read is left out. Never raises."""
    for found in scan(text, {"plans"}, lambda keys: "plans" in keys).found:
        try:
            plans = _Plans.model_validate(found.value).plans
        except ValidationError:
            continue
        distinct = {plan.key: plan for plan in map(_plan, plans[:_MAX_READ]) if plan.intents}
        if distinct:
            return tuple(distinct.values())
    return ()


def _plan(sentences: Sequence[str]) -> Plan:
    intents = (intent_of(text, "model") for text in sentences if text.strip())
    plan = plan_of(intents)
    return Plan(plan.intents[:MAX_INTENTS])


class _Plans(BaseModel):
    """A reply. Intents may come as objects with a sentence in them, a single plan as such."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    plans: list[list[str]]

    @field_validator("plans", mode="before")
    @classmethod
    def _lists_of_sentences(cls, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        if value and all(isinstance(one, str) for one in value):
            value = [value]
        return [_sentences(one) for one in value]


def _sentences(value: Any) -> Any:
    """The sentences of one plan, whatever it is wrapped in."""
    if isinstance(value, dict):
        value = next((inner for inner in value.values() if isinstance(inner, list)), [])
    if not isinstance(value, list):
        return value
    return [_sentence(one) for one in value]


def _sentence(value: Any) -> Any:
    if isinstance(value, dict):
        return next((inner for inner in value.values() if isinstance(inner, str)), "")
    return value
