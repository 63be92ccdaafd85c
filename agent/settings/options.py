"""How a setting is declared: its option, its panel of `--help`, and the types of its value."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

MIN_CONTEXT_TOKENS = 200
"""A smaller context budget holds no code."""

# Panels of `--help`.
MODEL = "Model"
EMBEDDINGS = "Embeddings"
CONTEXT = "Retrieval and context"
CORPORA = "Corpora"
LIMITS = "Limits"
PATCH = "Patch"
CHECK = "Validation"
OUTPUT = "Output"

PRESETS = ("default", "lexical", "original")
"""The retrieval presets. A setting that acts in a part of them says so by `presets`."""
RANKED = ("default", "lexical")
EMBEDDED = ("default", "original")


OutdatedMode = Literal["refuse", "show", "edit"]
Tightens = Literal["lower", "off", "refuse"]


@dataclass(frozen=True, slots=True)
class Option:
    """How a setting appears on the command line, and what a repository's file may do with it.

    `common`: listed by `--help`, not by `--help-all` alone. `solve_only`: not an option of `batch`.
    `tightens`: "lower" lets a repository's file lower a number, "off" lets it switch a flag off,
    "refuse" lets it choose this word. `presets`: those of PRESETS in which the setting changes
    something.
    """

    panel: str
    flags: tuple[str, ...] = ()
    metavar: str | None = None
    common: bool = False
    solve_only: bool = False
    tightens: Tightens | None = None
    presets: tuple[str, ...] = PRESETS


def setting(
    default: Any,
    help: str,
    panel: str,
    *flags: str,
    metavar: str | None = None,
    common: bool = False,
    solve_only: bool = False,
    tightens: Tightens | None = None,
    presets: tuple[str, ...] = PRESETS,
    **constraints: Any,
) -> Any:
    """A field with a command-line option. `flags` are its names where `--field-name` is not it."""
    option = Option(panel, flags, metavar, common, solve_only, tightens, presets)
    return Field(
        default,
        description=help,
        json_schema_extra={"option": option},  # type: ignore[dict-item]
        **constraints,
    )


def _names(value: object) -> object:
    """Split `history, static` at its commas, and decode `["history", "static"]`."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except ValueError:
            raise ValueError("is no list of texts in JSON") from None
    if isinstance(value, str):
        return tuple(name.strip() for name in value.split(",") if name.strip())
    return value


Names = Annotated[tuple[str, ...], BeforeValidator(_names)]
"""Texts: a list, or (in the environment) with commas between them or as JSON."""


def _auto(value: object) -> object:
    """Check a number of tokens here, so that a wrong one is explained once."""
    if isinstance(value, str) and value.strip().lower() == "auto":
        return "auto"
    try:
        number = int(str(value))
    except ValueError:
        raise ValueError("is neither a number of tokens nor `auto`") from None
    if number < MIN_CONTEXT_TOKENS:
        raise ValueError(f"input should be greater than or equal to {MIN_CONTEXT_TOKENS}")
    return number


Tokens = Annotated[int | Literal["auto"], BeforeValidator(_auto)]
"""A number of tokens, or "auto"."""
