"""What the files say: a vector, or the metadata of one. Foreign data: nothing in it is believed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json

from agent.precomputed.files import Invalid
from agent.secrets.masking import mask_secrets

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_DIMENSION = 65_536

LARGEST = 1e15
"""Of a component: beyond it squares of float32 overflow, and no embedding is anywhere near."""

_BOM = b"\xef\xbb\xbf"

Frozen = str | int | float | bool | None | tuple["Frozen", ...] | Mapping[str, "Frozen"]
"""What of JSON can be handed out: lists are tuples, objects cannot be written to."""


@dataclass(frozen=True, slots=True)
class Meta:
    """The metadata of a vector; `metadata` is all of it but `tags`, `text` and `text_file`."""

    tags: tuple[str, ...] = ()
    text: str | None = None
    text_file: str | None = None
    metadata: Mapping[str, Frozen] = field(default_factory=lambda: MappingProxyType({}))


NO_META = Meta()


def parse_vector(data: bytes) -> NDArray[np.float32] | Invalid:
    """A vector (d,), or why it is none."""
    value = _json(data)
    if isinstance(value, Invalid):
        return value
    if not isinstance(value, list) or not set(map(type, value)) <= {int, float}:
        return Invalid("not a JSON array of numbers")
    if not 1 <= len(value) <= MAX_DIMENSION:
        return Invalid(f"{len(value)} numbers; 1 to {MAX_DIMENSION:,} are possible")
    try:
        numbers = np.array(value, dtype=np.float64)
    except OverflowError:  # an integer of four hundred digits
        return Invalid("a number that is too large")
    if not (np.abs(numbers) <= LARGEST).all():
        return Invalid("a number that is too large")
    return numbers.astype(np.float32)


def parse_meta(data: bytes) -> Meta | Invalid:
    """Metadata, or why it is none."""
    value = _json(data)
    if isinstance(value, Invalid):
        return value
    if not isinstance(value, dict):
        return Invalid("not a JSON object")
    try:
        known = _Known.model_validate_json(json.dumps({k: value[k] for k in _KEYS & value.keys()}))
        rest = {key: frozen(inner) for key, inner in value.items() if key not in _KEYS}
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return Invalid(f"{'.'.join(map(str, first['loc']))}: {first['msg'].lower()}")
    except ValueError:
        return Invalid("a number that is too large")
    if known.text is not None and known.text_file is not None:
        return Invalid("both text and text_file; one of them is the text")
    tags = tuple(dict.fromkeys(known.tags))
    return Meta(tags, known.text, known.text_file, MappingProxyType(rest))


def frozen(value: Any) -> Frozen:
    """A JSON value that cannot be changed. Raises ValueError for a number that is not finite."""
    if isinstance(value, dict):
        return MappingProxyType({str(key): frozen(inner) for key, inner in value.items()})
    if isinstance(value, list):
        return tuple(frozen(inner) for inner in value)
    assert value is None or isinstance(value, str | int | float)
    if isinstance(value, float) and not math.isfinite(value):  # `1e999`: could not be written again
        raise ValueError
    return value


def thawed(value: Frozen) -> Any:
    """The same as JSON has it: what `json.dumps` takes."""
    if isinstance(value, Mapping):
        return {key: thawed(inner) for key, inner in value.items()}
    if isinstance(value, tuple):
        return [thawed(inner) for inner in value]
    return value


def masked(value: Any, name: str = "") -> Any:
    """A value of JSON without what looks like a secret in its texts.

    `name` is the key that the value stands under: `api_key` makes a random word a secret.
    """
    if isinstance(value, dict):
        return {key: masked(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [masked(inner, name) for inner in value]
    return _masked_text(value, name) if isinstance(value, str) else value


def _masked_text(text: str, name: str) -> str:
    before, after = f'"{name}": "', '"'
    assigned = mask_secrets(f"{before}{text}{after}").text  # as it is written in a file
    if name and assigned.startswith(before) and assigned.endswith(after):
        return mask_secrets(assigned[len(before) : -len(after)]).text
    return mask_secrets(text).text


_KEYS = frozenset({"tags", "text", "text_file"})


class _Known(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    tags: tuple[str, ...] = ()
    text: str | None = None
    text_file: str | None = None


def _json(data: bytes) -> Any:
    """The value, or Invalid. NaN and Infinity are no JSON, whatever Python's own reader takes."""
    try:
        return from_json(data.removeprefix(_BOM), allow_inf_nan=False)
    except ValueError as error:
        return Invalid(f"not JSON ({error})"[:200])
