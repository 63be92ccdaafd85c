"""What is made sure of before anything is done: settings, the model, its price, the data set."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.batch.treasury import NO_PRICE
from agent.errors import ConfigurationError, ProviderError
from agent.settings import Settings, load

if TYPE_CHECKING:
    from agent.llm.prices import Price

# For the list of models of a server, where it alone knows the price.
_LIST_SECONDS = 10.0


def check_settings(flags: Mapping[str, Any]) -> tuple[Settings, str]:
    """The settings of every worker, and where the model is; what cannot work is said at once.

    Raises ConfigurationError.
    """
    from agent.environments.spec import read_spec
    from agent.services import solve_options
    from agent.services.model import endpoint, is_local, model_in_words

    settings = load(flags)
    if settings.fail_to_pass or settings.pass_to_pass or settings.tests_from:
        raise ConfigurationError(
            "tests that decide cannot be given to a batch: unset PATCHSHOT_FAIL_TO_PASS, "
            "PATCHSHOT_PASS_TO_PASS and PATCHSHOT_TESTS_FROM"
        )
    if settings.environments is not None:
        read_spec(settings.environments)
    solve_options(settings)
    if is_local(settings):
        return settings, model_in_words(settings)
    from agent.llm.endpoint import without_credentials

    chosen = endpoint(settings)
    return settings, f"{chosen.model} at {without_credentials(chosen.base_url)}"


async def check_price(settings: Settings) -> None:
    """Whether costs can be held within a total: what a call may cost has to be known.

    A server that does not answer is not taken for one that knows no price. Raises
    ConfigurationError.
    """
    try:
        price = await _price(settings)
    except ProviderError:
        return
    if price is None:
        raise ConfigurationError(NO_PRICE)


async def _price(settings: Settings) -> Price | None:
    """As `agent solve` finds it. Raises ProviderError, ConfigurationError."""
    from agent.llm.prices import Price, find_price
    from agent.services.model import Client, Tapes, is_local, make_chat_model, make_clock

    if is_local(settings):
        return Price(0.0, 0.0)
    if settings.price_input is not None and settings.price_output is not None:
        return Price(settings.price_input, settings.price_output)
    async with AsyncExitStack() as stack:
        chosen = await make_chat_model(
            stack,
            settings,
            Client(stack),
            lambda _: None,
            make_clock(_LIST_SECONDS),
            Tapes(stack),
        )
        return chosen.price or find_price(chosen.chat.model)


def hash_of(dataset: Path) -> str:
    """SHA-256 of the file, hex. Raises ConfigurationError."""
    try:
        with dataset.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ConfigurationError(
            f"--dataset {dataset}: {error.strerror}; give a file of SWE-bench rows"
        ) from None
