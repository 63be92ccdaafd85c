"""What each agent wants of the vectors: how many, how alike, and of which tags."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from agent.errors import SemanticConfigError

MAX_TOP_K = 10_000
"""More results than that are a copy of the index, and are wanted by mistake."""


class SemanticSettings(BaseModel):
    """One agent's settings. `filter_by_tags`: a result must have all of them."""

    # Strict: "5" for a number, or a string where a list of tags is meant, is a mistake.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    agent_name: str = Field(min_length=1, max_length=200)
    top_k: int = Field(5, ge=1, le=MAX_TOP_K)
    similarity_threshold: float = Field(0.0, ge=-1.0, le=1.0, allow_inf_nan=False)
    filter_by_tags: tuple[str, ...] = ()


_SEVERAL: TypeAdapter[list[SemanticSettings]] = TypeAdapter(list[SemanticSettings])


def make_settings(**values: Any) -> SemanticSettings:
    """One agent's settings from plain values. Raises SemanticConfigError."""
    return _checked([values], "settings")[0]


def by_agent(settings: Iterable[SemanticSettings]) -> Mapping[str, SemanticSettings]:
    """The settings by the agent's name. Raises SemanticConfigError for a name given twice."""
    found: dict[str, SemanticSettings] = {}
    for one in settings:
        if found.setdefault(one.agent_name, one) != one:
            raise SemanticConfigError(f"agent {one.agent_name!r} has two settings; keep one")
    return MappingProxyType(found)


def read_settings(path: Path) -> Mapping[str, SemanticSettings]:
    """Settings from a file: a JSON list of objects, or TOML with `[[agents]]` tables.

    Raises SemanticConfigError, naming the file and what is wrong.
    """
    try:
        text = path.read_text("utf-8")
        value = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except OSError as error:
        raise SemanticConfigError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise SemanticConfigError(f"{path}: neither JSON nor TOML ({error}); correct it") from None
    return by_agent(_checked(value.get("agents") if isinstance(value, dict) else value, str(path)))


def _checked(value: Any, place: str) -> list[SemanticSettings]:
    try:
        # Back to JSON: in strict mode only JSON's arrays may stand for tuples.
        return _SEVERAL.validate_json(json.dumps(value))
    except (TypeError, ValueError) as error:
        raise SemanticConfigError(f"{place}: {_what(error)}") from None


def _what(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return f"{error}; give plain values"
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "agents"
    return f"{where}: {first['msg'].lower()}"
