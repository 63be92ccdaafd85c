"""`agent index` and `agent search` with --precomputed: from their options to what they ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent.commands.common import guarded
from agent.commands.precomputed_import import ImportRequest, import_folder
from agent.commands.precomputed_search import SearchRequest, search
from agent.errors import ConfigurationError

_SHARED = ("repo", "json", "quiet")
_WRITTEN = {"show": "list", "made_by": "made-by", "dry_run": "dry-run"}


def import_by_options(given: Mapping[str, Any]) -> int:
    """Import as the options of `agent index` say, by their parameters' names; the exit code."""
    if given["precomputed"] is None:
        return guarded(lambda: _refuse_alone(given, ("collection", "made_by", "dry_run")))
    request = ImportRequest(
        folder=given["precomputed"],
        **{name: given[name] for name in _SHARED},
        **{name: given[name] for name in ("collection", "made_by", "fresh", "dry_run")},
        others=_others(given, ("corpus", "forget", "show", "drop", "commit")),
    )
    return import_folder(request, _flags(given))


def search_by_options(given: Mapping[str, Any]) -> int:
    """Search as the options of `agent search` say, by their parameters' names; the exit code."""
    if given["precomputed"] is None:
        return guarded(lambda: _refuse_alone(given, ("vector", "tag")))
    request = SearchRequest(
        place=given["precomputed"],
        **{name: given[name] for name in (*_SHARED, "query", "vector", "limit")},
        tags=tuple(given["tag"] or ()),
        at_least=given["at_least"] or 0.0,
        others=_others(given, ("corpus", "problem", "commit")),
    )
    return search(request, _flags(given))


def _flags(given: Mapping[str, Any]) -> dict[str, Any]:
    fallback, embed = given["store_fallback"], given["embed"]
    return {
        "store": given["store"],
        "store_fallback": fallback and fallback.value,
        "embed": embed and embed.value,
    }


def _others(given: Mapping[str, Any], names: Sequence[str]) -> tuple[str, ...]:
    """Options that were given although they mean nothing here, as they are written."""
    model = ("--intents llm",) if given["intents"] == "llm" else ()
    expand = ("--expand",) if given.get("expand", "off") != "off" else ()
    written = tuple(f"--{_WRITTEN.get(name, name)}" for name in names if given[name])
    return (*written, *model, *expand)


def _refuse_alone(given: Mapping[str, Any], names: Sequence[str]) -> int:
    named = " and ".join(f"--{_WRITTEN.get(name, name)}" for name in names if given[name])
    raise ConfigurationError(f"{named} means something beside --precomputed only; give that too")
