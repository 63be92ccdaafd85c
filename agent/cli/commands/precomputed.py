"""Vectors of other programs: `agent index --precomputed` and `agent search --precomputed`."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
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

    from agent.search.stores import VectorCollection, VectorStore
    from agent.settings import Settings
    from agent.types.protocols import Reporter

    Queried = tuple[NDArray[np.float32], str]  # the vector of a query, and what made it

_NAME_LENGTH = 48  # all engines accept this length
_MODEL = re.compile(r"[ -~]{1,200}")


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
    from agent.search.precomputed import IMPORTED, import_vectors, load_vectors
    from agent.search.stores import checked_name
    from agent.wiring.search import open_vector_store

    _refuse(given, "corpus", "forget", "show", "drop", "commit")
    settings = common.load_settings(flags, repository=given["repo"])
    folder, made_by, started = Path(given["precomputed"]), given["made_by"], time.perf_counter()
    if made_by is not None and (not _MODEL.fullmatch(made_by) or made_by == IMPORTED):
        raise ConfigurationError("--made-by: give a model's name of 1 to 200 printable characters")
    name = checked_name(given["collection"] or name_of(folder))
    with (
        common.reporting(quiet=given["quiet"], warn=True) as reporter,
        open_vector_store(settings, reporter) as store,
    ):
        with common.stage("vectors", reporter, str(folder)) as summary:
            index = load_vectors(folder, reporter, strict=True)
            vectors = counted(len(index), "vector")
            summary.append(vectors)
        place = store.url
        collection, removed = _opened(store, name, made_by, index.dimension, given["fresh"])
        written = import_vectors(index, collection, reporter)
    seconds, known = time.perf_counter() - started, len(index) - written
    if given["json"]:
        common.print_value(
            {
                "collection": name,
                "store": place,
                "dimension": index.dimension,
                "vectors": len(index),
                "written": written,
                "removed": removed,
                "known": known,
                "skipped": [asdict(one) for one in index.skipped],
                "seconds": round(seconds, 3),
            }
        )
    else:
        counts = f"{vectors} of {counted(index.dimension, 'dimension')}"
        skipped = f"{counted(len(index.skipped), 'file')} skipped"
        common.write_stdout(
            f"{name}: {counts}: {written:,} written, {known:,} were known; {skipped}\n"
            f"in {seconds:.2f} s; vectors in {place}\n"
        )
    return 0


def _opened(
    store: VectorStore, name: str, made_by: str | None, dimension: int, fresh: bool
) -> tuple[VectorCollection, int]:
    """Return the collection, and how many vectors `--fresh` removed from it."""
    from agent.search import collection_name
    from agent.search.precomputed import IMPORTED, imported_filter

    models = {info.name: info.model for info in store.collections()}
    model = made_by or models.get(name, IMPORTED)
    if collection_name(model) == name:
        raise ConfigurationError(
            f"collection {name} is that of the corpora (agent index --corpus); name another one by"
            " --collection"
        )
    collection = store.collection(name, model, dimension)
    return collection, collection.delete(imported_filter()) if fresh else 0


def name_of(folder: Path) -> str:
    """Return a collection's name for a folder. Changed names end in a digest to keep them apart."""
    own = folder.resolve().name
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", own).strip("-._")
    if readable == own and len(own) <= _NAME_LENGTH:
        return own
    digest = sha256(own.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return f"{readable[: _NAME_LENGTH - 9] or 'vectors'}-{digest}"


def search_vectors(given: Mapping[str, Any], flags: Mapping[str, Any]) -> int:
    """Print the best vectors of a folder or a collection as a table or JSON."""
    from agent.search.precomputed import in_one_line

    _refuse(given, "corpus", "problem", "commit", "expand", "explain")
    if (given["query"] is None) == (given["vector"] is None):
        raise ConfigurationError("give either a query in words or its vector by --vector FILE")
    settings = common.load_settings(flags, repository=given["repo"])
    folder = Path(given["precomputed"]).expanduser()
    try:
        is_folder = folder.is_dir() and "store" not in flags
    except (OSError, ValueError) as error:  # a NUL in the path, or a folder that is not entered
        raise ConfigurationError(
            f"--precomputed {in_one_line(str(folder))}: cannot be read ({error})"
        ) from None
    with common.reporting(quiet=given["quiet"], warn=True) as reporter:
        query = None if given["vector"] is None else _read_vector(given["vector"])
        search = _in_folder if is_folder else _in_store
        answer = search(given, query, settings, reporter)
    results = answer["results"]
    if given["json"]:
        common.print_value({"place": given["precomputed"], **answer})
    else:
        rows = []
        for one in results:
            title = " ".join(one["text"][:200].split())
            rows.append(
                (one["similarity"], f"[{one['corpus']}]  {one['id']}  {title}".rstrip(), ())
            )
        common.write_stdout(result_lines(rows))
    if not results:
        say("agent: nothing matches; try another query, fewer --tag, or a lower --at-least")
    return 0


def _in_folder(
    given: Mapping[str, Any], query: Queried | None, settings: Settings, reporter: Reporter
) -> dict[str, Any]:
    from agent.search.precomputed import in_one_line, load_vectors
    from agent.search.stores import score_of

    folder = Path(given["precomputed"]).expanduser()
    index = load_vectors(folder, reporter, strict=True)
    vector, made_by = _embedded(given, query, settings, reporter)
    _check(vector, made_by, index.dimension, in_one_line(str(folder)))
    if query is None:
        reporter(Notice(f"the query was embedded by {made_by}: the folder does not say by what"))
    least = 2.0 * (given["at_least"] or 0.0) - 1.0
    (results,) = index.search(vector[None, :], given["limit"], at_least=least, tags=given["tag"])
    rows = [_row(one.id, score_of(one.score), one.tags, one.text, one.metadata) for one in results]
    skipped = [asdict(one) for one in index.skipped]
    return {"searched": len(index), "query_by": made_by, "skipped": skipped, "results": rows}


def _in_store(
    given: Mapping[str, Any], query: Queried | None, settings: Settings, reporter: Reporter
) -> dict[str, Any]:
    from agent.search.precomputed import IMPORTED, imported_filter, in_one_line, read_payload
    from agent.wiring.search import open_vector_store

    place = given["precomputed"]
    with open_vector_store(settings, reporter) as store:
        infos = {info.name: info for info in store.collections()}
        info = infos.get(place) or infos.get(name_of(Path(place)))
        if info is None:
            raise ConfigurationError(
                f"--precomputed {in_one_line(place)}: neither a folder nor a collection of"
                f" {store.url} (see agent index --list)"
            )
        vector, made_by = _embedded(given, query, settings, reporter)
        model = None if query is not None or info.model == IMPORTED else info.model
        _check(vector, made_by, info.dimension, f"{info.name} in {store.url}", model)
        collection = store.collection(info.name, info.model, info.dimension)
        least, selection = given["at_least"] or 0.0, imported_filter(given["tag"])
        (matches,) = collection.search(vector[None, :], given["limit"], selection, at_least=least)
        rows = []
        for match in matches:
            name, text, metadata = read_payload(match)
            rows.append(_row(name, match.score, match.fields.tags, text, metadata))
        searched = collection.count(imported_filter())
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


def _embedded(
    given: Mapping[str, Any], query: Queried | None, settings: Settings, reporter: Reporter
) -> Queried:
    from agent.wiring.search import embed_query

    return query or asyncio.run(embed_query(settings, given["query"], reporter))


def _check(
    vector: NDArray[np.float32], made_by: str, dimension: int, place: str, model: str | None = None
) -> None:
    """Raise ConfigurationError if another model than that of the vectors embedded the query."""
    if vector.size != dimension:
        raise ConfigurationError(
            f"the query has {vector.size} dimensions (by {made_by}), the vectors of {place} have"
            f" {dimension}; embed it with the model that made them"
        )
    if model is not None and not is_model(model, made_by):
        raise ConfigurationError(
            f"the vectors of {place} were made by {model}, the query by {made_by}; set"
            " PATCHSHOT_EMBED_MODEL to that model, or give --vector FILE"
        )


def is_model(name: str, embedder: str) -> bool:
    """Whether an `Embedder.name` is of the model that --made-by named: the last parts are equal."""
    core = embedder.rpartition("@")[0] or embedder
    core = core.partition(":")[2] or core
    return _last(name) in (_last(core), _last(embedder))


def _last(name: str) -> str:
    return name.rsplit("/", 1)[-1].casefold().removesuffix(":latest")


def _read_vector(source: str) -> Queried:
    from agent.search.precomputed import MAX_BYTES, in_one_line, parse_vector

    place = f"--vector {in_one_line(source)}"
    try:
        with click.open_file(source, "rb") as file:
            vector = parse_vector(file.read(MAX_BYTES))
    except OSError as error:
        raise ConfigurationError(
            f"{place}: cannot be read ({error.strerror}); give a JSON file, or -"
        ) from None
    if isinstance(vector, str):
        raise ConfigurationError(f"{place}: {vector}; give a JSON array")
    return vector, f"--vector {source}"
