"""What chooses the wider context after a failure."""

from __future__ import annotations

from agent.errors import ConfigurationError
from agent.protocols import ChatModel, Reporter, Widener
from agent.services.context import make_counter
from agent.services.retrieval import make_index, retrieval_options
from agent.settings import Settings


def make_widener(settings: Settings, chat: ChatModel, reporter: Reporter) -> Widener | None:
    """Plan search where the settings ask for it. Raises ConfigurationError where it is missing."""
    if settings.widening != "plan":
        return None
    try:
        from agent.planning.planner import Planner, PlanOptions, PlanWidener
    except ModuleNotFoundError:  # the bundle of a miner leaves it out
        raise ConfigurationError("plan search is not in this bundle; widening: plain") from None
    planned = PlanOptions(calls=settings.plan_calls, tokens=settings.wider_tokens)
    index, options = make_index(settings, reporter), retrieval_options(settings)
    planner = Planner(index, options, make_counter(chat.model), planned)
    return PlanWidener(planner, chat, reporter)
