"""Vectors of other programs: `agent index --precomputed` and `agent search --precomputed`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agent.cli.commands import common
from agent.cli.commands.common import counted
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

_MODEL_LENGTH = 200


def _refuse(given: Mapping[str, Any], *names: str) -> None:
    """Raise ConfigurationError for a missing folder, and for options without an effect on it."""
    if not given["precomputed"]:
        raise ConfigurationError("give --precomputed FOLDER too; the other options need it")
    others = [f"--{name}" for name in names if given[name] not in ((), False, None, "off")]
    if others:
        raise ConfigurationError(
            f"--precomputed and {' and '.join(others)} do not go together; give one of them"
        )


def import_folder(given: Mapping[str, Any], flags: Mapping[str, Any]) -> int:
    """Import the vectors of a folder into a collection, and print the counts."""
    from agent.search import collection_name
    from agent.search.precomputed import IMPORTED, import_vectors, imported_filter, load_vectors
    from agent.search.stores import checked_name
    from agent.wiring.search import open_vector_store

    _refuse(given, "corpus", "forget", "show", "drop", "commit")
    settings = common.load_settings(flags, repository=given["repo"])
    folder, model, started = Path(given["precomputed"]), given["made_by"], time.perf_counter()
    name = checked_name(given["collection"] or folder.resolve().name)
    if model is not None and not (model.isprintable() and 0 < len(model) <= _MODEL_LENGTH):
        raise ConfigurationError("--made-by: give a model's name of 1 to 200 printable characters")
    with (
        common.reporting(quiet=given["quiet"], warn=True) as reporter,
        open_vector_store(settings, reporter) as store,
    ):
        index = load_vectors(folder, reporter, strict=True)
        models = {info.name: info.model for info in store.collections()}
        model = model or models.get(name, IMPORTED)
        if collection_name(model) == name:
            raise ConfigurationError(
                f"collection {name} is that of the corpora (agent index --corpus); name another "
                "one by --collection"
            )
        collection = store.collection(name, model, index.dimension)
        removed = collection.delete(imported_filter()) if given["fresh"] else 0
        written, place = import_vectors(index, collection, reporter), store.url
    seconds, known = time.perf_counter() - started, len(index) - written
    if given["json"]:
        facts = {"collection": name, "store": place, "dimension": index.dimension}
        counts = {"vectors": len(index), "written": written, "removed": removed, "known": known}
        skipped = [asdict(one) for one in index.skipped]
        common.print_value({**facts, **counts, "skipped": skipped, "seconds": round(seconds, 3)})
    else:
        common.write_stdout(
            f"{name}: {counted(len(index), 'vector')} of {counted(index.dimension, 'dimension')}: "
            f"{written:,} written, {known:,} were known; "
            f"{counted(len(index.skipped), 'file')} skipped\n"
            f"in {seconds:.2f} s; vectors in {place}\n"
        )
    return 0


def search_vectors(given: Mapping[str, Any], flags: Mapping[str, Any]) -> int:
    """Print the best vectors of a folder or a collection as a table or JSON."""
    _refuse(given, "corpus", "problem", "commit", "expand", "explain")
    if (given["query"] is None) == (given["vector"] is None):
        raise ConfigurationError("give either a query in words or its vector by --vector FILE")
    settings = common.load_settings(flags, repository=given["repo"])
    with common.reporting(quiet=given["quiet"], warn=True) as reporter:
        if Path(given["precomputed"]).expanduser().is_dir() and "store" not in flags:
            answer = _search_folder(given, settings, reporter)
        else:
            answer = _search_collection(given, settings, reporter)
    results = answer["results"]
    if given["json"]:
        common.print_value({"place": given["precomputed"], **answer})
    else:
        rows = []
        for one in results:
            line = f"[{one['corpus']}]  {one['id']}  {' '.join(one['text'][:200].split())}"
            rows.append((one["similarity"], line.rstrip(), ()))
        common.write_stdout(result_lines(rows))
    if not results:
        say("agent: nothing matches; try another query, fewer --tag, or a lower --at-least")
    return 0


def _search_folder(
    given: Mapping[str, Any], settings: Settings, reporter: Reporter
) -> dict[str, Any]:
    from agent.search.precomputed import load_vectors
    from agent.search.stores import score_of

    place = Path(given["precomputed"]).expanduser()
    index = load_vectors(place, reporter, strict=True)
    vector, made_by = _query(given, settings, reporter, index.dimension, str(place))
    if given["vector"] is None:
        reporter(Notice(f"the query was embedded by {made_by}: the folder does not say by what"))
    least = 2.0 * (given["at_least"] or 0.0) - 1.0
    (results,) = index.search(vector[None, :], given["limit"], at_least=least, tags=given["tag"])
    rows = [_row(one.id, score_of(one.score), one.tags, one.text, one.metadata) for one in results]
    skipped = [asdict(one) for one in index.skipped]
    return {"searched": len(index), "query_by": made_by, "skipped": skipped, "results": rows}


def _search_collection(
    given: Mapping[str, Any], settings: Settings, reporter: Reporter
) -> dict[str, Any]:
    from agent.search.precomputed import IMPORTED, imported_filter, read_payload
    from agent.wiring.search import open_vector_store

    name = given["precomputed"]
    with open_vector_store(settings, reporter) as store:
        infos = {info.name: info for info in store.collections()}
        info = infos.get(name) or infos.get(Path(name).name)
        if info is None:
            raise ConfigurationError(
                f"--precomputed {name}: neither a folder nor a collection of {store.url} "
                "(see agent index --list)"
            )
        place = f"{info.name} in {store.url}"
        vector, made_by = _query(given, settings, reporter, info.dimension, place)
        model = info.model.rpartition("/")[2].casefold()
        if given["vector"] is None and info.model != IMPORTED and model not in made_by.casefold():
            raise ConfigurationError(
                f"the vectors of {place} were made by {info.model}, the query by {made_by}; set "
                "PATCHSHOT_EMBED_MODEL to that model, or give --vector FILE"
            )
        collection = store.collection(info.name, info.model, info.dimension)
        least, selection = given["at_least"] or 0.0, imported_filter(given["tag"])
        (matches,) = collection.search(vector[None, :], given["limit"], selection, at_least=least)
        searched = collection.count(imported_filter())
    rows = []
    for match in matches:
        identifier, text, metadata = read_payload(match)
        rows.append(_row(identifier, match.score, match.fields.tags, text, metadata))
    return {"searched": searched, "query_by": made_by, "skipped": [], "results": rows}


def _row(
    name: str, similarity: float, tags: Sequence[str], text: str, metadata: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a result as JSON values, with secrets masked."""
    from agent.search.precomputed import IMPORTED, masked

    return {
        "corpus": IMPORTED,
        "id": name,
        "similarity": round(similarity, 6),
        "tags": list(tags),
        "text": mask_secrets(text).text,
        "metadata": masked(dict(metadata)),
    }


def _query(
    given: Mapping[str, Any], settings: Settings, reporter: Reporter, dimension: int, place: str
) -> tuple[NDArray[np.float32], str]:
    """Return the query as a vector of `dimension`, and what made it. Raises ConfigurationError."""
    from agent.search.precomputed import MAX_BYTES, parse_vector
    from agent.wiring.search import embed_query

    if given["vector"] is None:
        vector, made_by = asyncio.run(embed_query(settings, given["query"], reporter))
    else:
        made_by = f"--vector {given['vector']}"
        try:
            with click.open_file(given["vector"], "rb") as file:
                parsed = parse_vector(file.read(MAX_BYTES))
        except OSError as error:
            parsed = f"cannot be read ({error.strerror})"
        if isinstance(parsed, str):
            raise ConfigurationError(f"{made_by}: {parsed}; give a file with a JSON array, or -")
        vector = parsed
    if vector.size != dimension:
        raise ConfigurationError(
            f"the query has {vector.size} dimensions (by {made_by}), the vectors of {place} have "
            f"{dimension}; embed it with the model that made them"
        )
    return vector, made_by
