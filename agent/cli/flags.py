"""From options to settings (`agent.settings.load`), and from an exit code to the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer

from agent.cli.options.choices import Backend, Embed

# Options of `solve` and `batch` that are settings under the same name, and of a plain type.
_SOLVING = (
    "base_url",
    "model",
    "temperature",
    "max_output_tokens",
    "timeout",
    "max_cost",
    "max_tokens",
    "max_calls",
    "repairs",
    "iterative",
    "max_steps",
    "tests",
    "test_cmd",
    "test_timeout",
    "python",
    "environments",
    "run_cache",
    "accept_unverified",
    "unsafe_no_sandbox",
)


def retrieval_flags(
    preset: str | None,
    without: list[str] | None,
    embed: Embed | None = None,
    context_tokens: int | None = None,
    max_chunks: int | None = None,
) -> dict[str, Any]:
    """Settings of ranking and packing."""
    return {
        "preset": preset,
        "without": ",".join(without) if without else None,
        "embed": embed.value if embed else None,
        "context_tokens": context_tokens,
        "max_chunks": max_chunks,
    }


def solving_flags(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of one solve, from the options of a command by name."""
    retrieval = ("preset", "without", "embed", "context_tokens", "max_chunks")
    return {
        "allow": tuple(given["allow"]) if given["allow"] else None,
        "no_repair": tuple(given["no_repair"]) if given["no_repair"] else None,
        "include_test": given["with_test"] or given["include_test"],
        **{name: given[name] for name in _SOLVING},
        **sandbox_flags(given["sandbox"], given["image"]),
        **retrieval_flags(*(given[name] for name in retrieval)),
    }


def sandbox_flags(sandbox: Backend | None, image: str | None) -> dict[str, Any]:
    """Settings of what isolates the target's code."""
    return {"sandbox": sandbox.value if sandbox else None, "image": image}


def leave(code: int) -> None:
    """End the command with an exit code."""
    raise typer.Exit(code)
