"""Handle `--precomputed` of `agent index` and `agent search`: turn options into requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from agent.cli.commands.common import guarded
from agent.cli.commands.precomputed_import import ImportRequest, import_folder
from agent.cli.commands.precomputed_search import SearchRequest, search
from agent.errors import ConfigurationError

if TYPE_CHECKING:
    from agent.search.precomputed import SemanticSettings

_SHARED = ("repo", "json", "quiet")
_SETTINGS = ("store", "embed")
_WITHOUT = {"store": None, "embed": None, "preset": None}
"""Defaults of settings that were not given on the command line."""
_WRITTEN = {"agent_name": "agent-name", "show": "list", "made_by": "made-by", "dry_run": "dry-run"}


def import_by_options(given: Mapping[str, Any], flags: Mapping[str, Any]) -> int:
    """Import as the options of `agent index` say, and return the exit code.

    `given` holds the options by parameter name.
    """
    given = {**_WITHOUT, **given, **flags}
    alone = ("collection", "made_by", "dry_run")
    if refused := guarded(lambda: _refuse(given, alone, ("collection", "made_by", "store"))):
        return refused
    request = ImportRequest(
        folder=Path(given["precomputed"][0]),
        **{name: given[name] for name in _SHARED},
        **{name: given[name] for name in ("collection", "made_by", "fresh", "dry_run")},
        others=_others(given, ("corpus", "forget", "show", "drop", "commit", "without")),
    )
    return import_folder(request, {name: flags[name] for name in _SETTINGS if name in flags})


def search_by_options(given: Mapping[str, Any], flags: Mapping[str, Any]) -> int:
    """Search as the options of `agent search` say, and return the exit code.

    `given` holds the options by parameter name.
    """
    given = {**_WITHOUT, **given, **flags}
    alone, texts = ("vector", "tag", "agent_name", "agents"), ("vector", "store", "query")
    agent: SemanticSettings | None = None

    def check() -> int:
        nonlocal agent
        _refuse(given, alone, (*texts, "agent_name", "agents"))
        agent = _agent(given["agent_name"], given["agents"])
        return 0

    if refused := guarded(check):
        return refused
    limit, tags, least = given["limit"], tuple(given["tag"] or ()), given["at_least"]
    if agent is not None:  # options of the command line win over the agent's settings
        source = click.get_current_context().get_parameter_source("limit")
        limit = agent.top_k if source is ParameterSource.DEFAULT else limit
        tags = tags or agent.filter_by_tags
        least = (1.0 + agent.similarity_threshold) / 2.0 if least is None else least
    request = SearchRequest(
        place=given["precomputed"][0],
        in_store=given["store"] is not None,
        **{name: given[name] for name in (*_SHARED, "query", "vector")},
        limit=limit,
        tags=tags,
        at_least=least or 0.0,
        others=_others(given, ("corpus", "problem", "commit", "preset", "without", "explain")),
    )
    return search(request, {name: flags[name] for name in _SETTINGS if name in flags})


def corpus_agent(given: Mapping[str, Any]) -> SemanticSettings | None:
    """Return the settings that limit the corpus `vectors`; None if the options name none.

    Raises ConfigurationError, SemanticConfigError.
    """
    from agent.search.precomputed import MAX_TOP_K, make_settings

    if given["vector"] is not None:
        raise ConfigurationError("--corpus takes a query in words; leave out --vector")
    if len(given["precomputed"]) > 1:
        raise ConfigurationError("--corpus vectors takes one --precomputed FOLDER")
    found = _agent(given["agent_name"], given["agents"])
    if not given["tag"]:
        return found
    if found is None:
        found = make_settings(agent_name="any", top_k=MAX_TOP_K, similarity_threshold=-1.0)
    return found.model_copy(update={"filter_by_tags": tuple(given["tag"])})


def _agent(name: str | None, file: str | None) -> SemanticSettings | None:
    """Return the settings of the named agent, or its defaults if there is no file.

    Raises ConfigurationError, SemanticConfigError.
    """
    from agent.errors import SemanticConfigError
    from agent.search.precomputed import make_settings, read_settings

    if name is None:
        if file is not None:
            raise ConfigurationError("--agents needs --agent-name: whose settings are wanted")
        return None
    if file is None:
        return make_settings(agent_name=name)
    found = read_settings(Path(file))
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        raise SemanticConfigError(f"{file}: no settings for the agent {name!r}; known: {known}")
    return found[name]


def _others(given: Mapping[str, Any], names: Sequence[str]) -> tuple[str, ...]:
    """Return the given options that have no effect with `--precomputed`, as they are written."""
    model = ("--intents llm",) if given["intents"] == "llm" else ()
    expand = ("--expand",) if given.get("expand", "off") != "off" else ()
    dirty = ("--dirty",) if given["dirty"] != "include" else ()
    repo = ("--repo",) if given["repo"] != Path() else ()
    second = ("a second --precomputed",) if len(given["precomputed"]) > 1 else ()
    written = tuple(_written(name) for name in names if given[name])
    return (*written, *model, *expand, *dirty, *repo, *second)


def _refuse(given: Mapping[str, Any], alone: Sequence[str], texts: Sequence[str]) -> int:
    """Return 0. Raise ConfigurationError for empty texts or a missing `--precomputed`."""
    for name in texts:
        if given[name] == "":
            raise ConfigurationError(f"{_written(name)} is empty; give a value, or leave it out")
    if "" in (given.get("tag") or ()):
        raise ConfigurationError("--tag is empty; give a value, or leave it out")
    if not given["precomputed"]:
        named = " and ".join(_written(name) for name in alone if given[name])
        raise ConfigurationError(
            f"{named} means something beside --precomputed only; give that too"
        )
    if not given["precomputed"][0]:
        raise ConfigurationError("--precomputed is empty; give the folder of vectors")
    return 0


def _written(name: str) -> str:
    return "the query" if name == "query" else f"--{_WRITTEN.get(name, name)}"
