"""Checks before a run starts: settings, price, and the fingerprint of its folder.

The fingerprint (`run.json`) contains the inputs of a run. A run can only continue with the same
inputs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from agent.batch.shared_budget import NO_PRICE
from agent.errors import ConfigurationError, ProviderError
from agent.settings import Settings, load
from agent.shared.files import replace_file

if TYPE_CHECKING:
    from agent.llm import Price

# Time limit for fetching the list of models, if only the server knows the price.
_LIST_SECONDS = 10.0


def check_settings(flags: Mapping[str, Any]) -> tuple[Settings, str]:
    """Return the settings of every worker, and a text that names the model and its address.

    Raises ConfigurationError for settings with which no worker could start.
    """
    from agent.verify.environments import read_spec
    from agent.wiring import endpoint, solve_options

    settings = load(flags)
    if settings.environments is not None:
        read_spec(settings.environments)
    solve_options(settings)
    from agent.llm import without_credentials

    chosen = endpoint(settings)
    return settings, f"{chosen.model} at {without_credentials(chosen.base_url)}"


async def check_price(settings: Settings) -> None:
    """Check that the price of a call is known, which a limit of the total cost needs.

    A server that does not answer passes. Raises ConfigurationError.
    """
    try:
        price = await _price(settings)
    except ProviderError:
        return
    if price is None:
        raise ConfigurationError(NO_PRICE)


async def _price(settings: Settings) -> Price | None:
    """Find the price as `agent solve` does. Raises ProviderError, ConfigurationError."""
    from agent.llm import find_price, read_price
    from agent.wiring import Recordings, SharedClient, make_chat_model, make_clock

    if settings.prices is not None:
        return read_price(settings.prices)
    async with AsyncExitStack() as stack:
        chosen = await make_chat_model(
            stack,
            settings,
            SharedClient(stack),
            lambda _: None,
            make_clock(_LIST_SECONDS),
            Recordings(stack),
        )
        return chosen.price or find_price(chosen.chat.model)


def hash_dataset(dataset: Path) -> str:
    """Return the SHA-256 of the file, hex. Raises ConfigurationError."""
    try:
        with dataset.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ConfigurationError(
            f"--dataset {dataset}: {error.strerror}; give a file of SWE-bench rows"
        ) from None


# Settings that are left out: keys must not be in a file, and paths, addresses and logs do not
# change a result.
_LEFT_OUT = frozenset(
    {
        "api_key",
        "embed_api_key",
        "base_url",
        "cache_dir",
        "log_file",
    }
)


class Fingerprint(BaseModel):
    """The settings by name, the model and its address, and the SHA-256 of the data set."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int = 1
    dataset: str
    model: str
    settings: dict[str, Any]


def make_fingerprint(settings: Settings, dataset: str, model: str) -> Fingerprint:
    """Make the fingerprint of a run. `dataset` is a SHA-256 in hex, `model` names the address too.

    Raises OSError if the file of environments cannot be read.
    """
    values = settings.model_dump(mode="json", exclude=set(_LEFT_OUT))
    if settings.environments is not None:  # its content counts, not its path
        content = settings.environments.read_bytes()
        values["environments"] = hashlib.sha256(content).hexdigest()
    return Fingerprint(dataset=dataset, model=model, settings=values)


def check_fingerprint(path: Path, now: Fingerprint, *, force: bool) -> tuple[str, ...]:
    """Describe how `now` differs from the fingerprint in `path`, if there is one.

    Raises ConfigurationError if something differs and `force` is not set.
    """
    before = _read(path)
    differences = () if before is None else tuple(_differences(before, now))
    if differences and not force:
        raise ConfigurationError(
            f"{path.parent} was begun with other inputs ({'; '.join(differences)}): give the same, "
            "--force to go on all the same, or another folder with --run"
        )
    return differences


def save_fingerprint(path: Path, now: Fingerprint) -> None:
    """Write the fingerprint to `path`. Raises OSError."""
    text = json.dumps(now.model_dump(mode="json"), indent=2, sort_keys=True)
    replace_file(path, [text.encode(), b"\n"])


def _read(path: Path) -> Fingerprint | None:
    try:
        return Fingerprint.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError:
        raise ConfigurationError(
            f"{path}: not written by this command; choose another folder with --run"
        ) from None


def _differences(before: Fingerprint, now: Fingerprint) -> list[str]:
    found = []
    if before.dataset != now.dataset:
        found.append("the data set has changed")
    if before.model != now.model:
        found.append(f"model {before.model}, now {now.model}")
    return found + _changed(before.settings, now.settings)


def _changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    return [
        f"{name} {json.dumps(before.get(name))}, now {json.dumps(now.get(name))}"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    ]
