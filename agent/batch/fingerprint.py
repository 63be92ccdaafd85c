"""What a run folder was made with: a run goes on with the same, or says what differs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from agent.durable import replace_file
from agent.errors import ConfigurationError

if TYPE_CHECKING:
    from agent.settings import Settings

# Keys are in no file of ours; places and logs change nothing of a result.
_LEFT_OUT = frozenset(
    {"api_key", "embed_api_key", "base_url", "run_id", "cache_dir", "log_file", "log_bodies"}
)


class Fingerprint(BaseModel):
    """Settings by name, where the model is, and the data set by the hash of its bytes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int = 1
    dataset: str
    model: str
    settings: dict[str, Any]


def fingerprint(settings: Settings, dataset: str, model: str) -> Fingerprint:
    """`dataset`: SHA-256 of the file, hex; `model`: which one, and where.

    Raises OSError for a file of environments that cannot be read.
    """
    values = settings.model_dump(mode="json", exclude=set(_LEFT_OUT))
    if settings.environments is not None:  # by what it says, wherever it lies
        content = settings.environments.read_bytes()
        values["environments"] = hashlib.sha256(content).hexdigest()
    return Fingerprint(dataset=dataset, model=model, settings=values)


def check(path: Path, now: Fingerprint, *, force: bool) -> tuple[str, ...]:
    """Compare with the fingerprint in `path`, if there is one; what differs, in words.

    Raises ConfigurationError where something differs and `force` is not set.
    """
    before = _read(path)
    differences = () if before is None else tuple(_differences(before, now))
    if differences and not force:
        raise ConfigurationError(
            f"{path.parent} was begun with something else ({'; '.join(differences)}): give what it "
            "was begun with, --force to go on all the same, or another folder with --run"
        )
    return differences


def keep(path: Path, now: Fingerprint) -> None:
    """The run goes on with this one. Raises OSError."""
    text = json.dumps(now.model_dump(mode="json"), indent=2, sort_keys=True)
    replace_file(path, [text.encode(), b"\n"])


def _read(path: Path) -> Fingerprint | None:
    try:
        return Fingerprint.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError:
        raise ConfigurationError(
            f"{path}: not written by this command: choose another folder with --run"
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
