"""Which model to ask where nobody has named one: a pure choice from the server's own list.

Behind a miner's proxy, and on somebody's own server, the list is what may be used at all. The
choice needs no names: of the models whose calls fit the budget it takes the dearest, because within
one list the price is what tells of ability; without prices the server's first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agent.errors import ConfigurationError
from agent.llm.endpoint import Endpoint, without_credentials
from agent.llm.prices import Price, find_price
from agent.llm.protocols.base import ModelInfo
from agent.llm.server import ModelServer

# A run that needs them all: the one call, a repair, and a few steps of the iterative mode.
_CALLS = 5
_SHOWN = 5  # names that an error lists
_OTHERS = 24  # models to go on with: a refusal takes a second, and there must be time to work
_LARGEST_FREE_CHOICE = 1  # models that a list may have for its first to be taken without a price


@dataclass(frozen=True, slots=True)
class Demand:
    """What a run needs of a model: tokens of a call, and dollars for all calls (None: no bound)."""

    input_tokens: int
    output_tokens: int
    max_cost: float | None = None

    def fits(self, info: ModelInfo) -> bool:
        """Whether the window holds a call and the budget a whole run; what is not told fits."""
        window = info.context_tokens
        if window is not None and window < self.input_tokens + self.output_tokens:
            return False
        if info.price is None or self.max_cost is None:
            return True
        return _cost(info.price, self) * _CALLS <= self.max_cost


@dataclass(frozen=True, slots=True)
class Resolved:
    """An endpoint with its model, models to go on with if it is refused, and their prices."""

    endpoint: Endpoint
    others: tuple[str, ...] = ()
    price: Price | None = None


async def resolve_model(server: ModelServer, demand: Demand) -> Resolved:
    """The server's endpoint with a model: its own, or one of the server's list.

    Asks the server only where the endpoint has no model, or where the price is known there alone: a
    miner's proxy has its own, and a bound on the cost needs one that the table lacks. A miner's
    proxy without a list chooses itself: `model` stays "". Raises ConfigurationError, naming models
    that there are, where a person has to choose.
    """
    endpoint = server.endpoint
    if endpoint.model and (server.embeddings or not _needs_price(endpoint, demand)):
        return Resolved(endpoint)
    listed = await server.models()
    if endpoint.model:
        return Resolved(endpoint, price=_price_of(endpoint.model, listed))
    if server.embeddings:
        return Resolved(replace(endpoint, model=listed[0].name if listed else ""))
    chosen = rank_models(listed, demand)
    if endpoint.kind not in ("miner", "openrouter") and len(listed) > _LARGEST_FREE_CHOICE:
        chosen = ()
    if not chosen:
        if endpoint.kind == "miner" and not listed:
            return Resolved(endpoint)
        raise ConfigurationError(_please_choose(endpoint, listed))
    first, *rest = chosen
    return Resolved(
        replace(endpoint, model=first.name, why=f"{endpoint.why}; the model is from its list"),
        tuple(info.name for info in rest[:_OTHERS]),
        first.price,
    )


def rank_models(listed: Sequence[ModelInfo], demand: Demand) -> tuple[ModelInfo, ...]:
    """The models that fit, best first: the dearest for such a call, then in the list's order."""
    fitting = [info for info in listed if demand.fits(info)]
    order = {info.name: position for position, info in enumerate(listed)}
    return tuple(
        sorted(
            fitting,
            key=lambda info: (-(_cost(info.price, demand) if info.price else 0), order[info.name]),
        )
    )


def _needs_price(endpoint: Endpoint, demand: Demand) -> bool:
    if endpoint.kind == "miner":
        return True
    return demand.max_cost is not None and find_price(endpoint.model) is None


def _cost(price: Price, demand: Demand) -> float:
    return (demand.input_tokens * price.input + demand.output_tokens * price.output) / 1_000_000


def _price_of(model: str, listed: Sequence[ModelInfo]) -> Price | None:
    return next((info.price for info in listed if info.name == model), None)


def _please_choose(endpoint: Endpoint, listed: Sequence[ModelInfo]) -> str:
    place = without_credentials(endpoint.base_url)
    if not listed:
        return f"{place} does not say which models it has: set {endpoint.model_setting}"
    names = [info.name for info in listed[:_SHOWN]]
    more = f" and {len(listed) - len(names)} more" if len(listed) > len(names) else ""
    return (
        f"no model is chosen for {place}: set {endpoint.model_setting} to one that it has "
        f"({', '.join(names)}{more})"
    )
