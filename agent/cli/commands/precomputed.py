"""`agent search --precomputed`: the vectors of another program, in a folder."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from agent.cli.commands import common
from agent.cli.commands.search import result_lines
from agent.errors import ConfigurationError
from agent.shared.secrets import mask_secrets
from agent.shared.terminal import say
from agent.types.events import Notice

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from agent.settings import Settings
    from agent.types.protocols import Reporter

_CORPUS = "precomputed"


def search_vectors(given: Mapping[str, Any], flags: Mapping[str, Any]) -> int:
    """Print the best vectors of a folder as a table or JSON."""
    from agent.search.precomputed import load_vectors, masked

    folder = given["precomputed"]
    if folder is None:
        raise ConfigurationError("give --precomputed FOLDER too; the other options need it")
    others = ("corpus", "problem", "commit", "expand", "explain")
    if refused := [f"--{one}" for one in others if given[one] not in ((), False, None, "off")]:
        raise ConfigurationError(f"--precomputed and {refused[0]} do not go together; give one")
    if (given["query"] is None) == (given["vector"] is None):
        raise ConfigurationError("give either a query in words or its vector by --vector FILE")
    settings = common.load_settings(flags, repository=given["repo"])
    with common.reporting(quiet=given["quiet"], warn=True) as reporter:
        index = load_vectors(folder.expanduser(), reporter, strict=True)
        vector, made_by = _query(given, settings, reporter)
        if given["vector"] is None:
            reporter(Notice(f"the query was embedded by {made_by}: the folder names no model"))
    if vector.size != index.dimension:
        raise ConfigurationError(
            f"the query has {vector.size} dimensions (by {made_by}), the vectors of {folder} have "
            f"{index.dimension}; embed it with the model that made them"
        )
    least = -1.0 if given["at_least"] is None else given["at_least"]
    (matches,) = index.search(vector[None, :], given["limit"], at_least=least, tags=given["tag"])
    results, rows = [], []
    for match in matches:
        similarity, text = round(match.score, 6), mask_secrets(match.text).text
        facts = {"corpus": _CORPUS, "id": match.id, "similarity": similarity}
        facts |= {"score": similarity, "score_name": "cosine"}
        more = {"tags": match.tags, "text": text, "metadata": masked(dict(match.metadata))}
        results.append({**facts, **more})
        line = f"[{_CORPUS}]  {match.id}  {' '.join(text[:200].split())}"
        rows.append((f"cosine {similarity:.2f}", line.rstrip(), ()))
    answer = {
        "place": str(folder),
        "searched": len(index),
        "query_by": made_by,
        "skipped": [{"name": n, "reason": why} for n, why in index.skipped.items()],
        "results": results,
    }
    common.print_result(answer, result_lines(rows), json=given["json"])
    if not results:
        say("agent: nothing matches; try another query, fewer --tag, or a lower --at-least")
    return 0


def _query(
    given: Mapping[str, Any], settings: Settings, reporter: Reporter
) -> tuple[NDArray[np.float32], str]:
    """Return the query as a vector, and what made it. Raises ConfigurationError."""
    from agent.search.precomputed import MAX_BYTES, parse_vector
    from agent.wiring.search import embed_query

    if given["vector"] is None:
        return asyncio.run(embed_query(settings, given["query"], reporter))
    made_by = f"--vector {given['vector']}"
    try:
        with click.open_file(given["vector"], "rb") as file:
            vector = parse_vector(file.read(MAX_BYTES))
    except OSError as error:
        vector = f"cannot be read ({error.strerror})"
    if isinstance(vector, str):
        raise ConfigurationError(f"{made_by}: {vector}; give a file with a JSON array, or -")
    return vector, made_by
