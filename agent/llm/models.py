"""Chooses a model from the server's own list when the user has named none.

The list says what may be used, behind a miner's proxy and on somebody's own server. Of the models
whose calls fit the budget the most expensive one is chosen, because within one list the price is
the best sign of ability. Without prices it is the first one of the list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agent.errors import ConfigurationError
from agent.llm.endpoint import Endpoint, without_credentials
from agent.llm.prices import Price, find_price
from agent.llm.protocols import PROTOCOLS
from agent.llm.protocols.base import ModelInfo
from agent.llm.server import ModelServer

# Calls of a long run: the first, a repair, and a few steps of the iterative mode.
_CALLS = 5
_SHOWN = 5  # names that an error lists
_OTHERS = 24  # models to try after a refusal; each refusal takes about a second
_LARGEST_FREE_CHOICE = 1  # from a longer list only some protocols may choose (`list_chooses`)


@dataclass(frozen=True, slots=True)
class Demand:
    """The needs of a run: tokens of one call, and US dollars for all calls (None: no limit)."""

    input_tokens: int
    output_tokens: int
    max_cost: float | None = None

    def fits(self, info: ModelInfo) -> bool:
        """Whether the window holds a call and the budget a run. Unknown figures fit."""
        window = info.context_tokens
        if window is not None and window < self.input_tokens + self.output_tokens:
            return False
        if info.price is None or self.max_cost is None:
            return True
        return _cost(info.price, self) * _CALLS <= self.max_cost


@dataclass(frozen=True, slots=True)
class Resolved:
    """An endpoint with its model, its price, and models to try if it is refused."""

    endpoint: Endpoint
    others: tuple[str, ...] = ()
    price: Price | None = None


async def resolve_model(server: ModelServer, demand: Demand) -> Resolved:
    """The server's endpoint with a model: its own, or one of the server's list.

    Asks the server only when the endpoint has no model or only the server knows its price: a
    miner's proxy has its own prices, and a limit on the cost may need one that the table lacks. A
    miner's proxy without a list chooses itself: `model` stays "". Raises ConfigurationError, which
    names some models, when the user has to choose.
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
    if not server.protocol.list_chooses and len(listed) > _LARGEST_FREE_CHOICE:
        chosen = ()
    if not chosen:
        if server.protocol.serves_runs and not listed:
            return Resolved(endpoint)
        raise ConfigurationError(_please_choose(endpoint, listed))
    first, *rest = chosen
    return Resolved(
        replace(endpoint, model=first.name, why=f"{endpoint.why}; the model is from its list"),
        tuple(info.name for info in rest[:_OTHERS]),
        first.price,
    )


def rank_models(listed: Sequence[ModelInfo], demand: Demand) -> tuple[ModelInfo, ...]:
    """The models that fit, the most expensive first, then in the order of the list."""
    fitting = [info for info in listed if demand.fits(info)]
    order = {info.name: position for position, info in enumerate(listed)}
    return tuple(
        sorted(
            fitting,
            key=lambda info: (-(_cost(info.price, demand) if info.price else 0), order[info.name]),
        )
    )


def _needs_price(endpoint: Endpoint, demand: Demand) -> bool:
    if PROTOCOLS[endpoint.kind].serves_runs:
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
