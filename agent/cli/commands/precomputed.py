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
from click.core import ParameterSource

from agent.cli.commands import common
from agent.cli.commands.common import counted
from agent.cli.commands.search import shown
from agent.errors import ConfigurationError, SemanticConfigError
from agent.shared.secrets import mask_secrets
from agent.shared.terminal import say
from agent.types.events import Notice

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from agent.search.precomputed import SemanticSettings
    from agent.search.stores import EntryFilter, VectorCollection, VectorStore
    from agent.settings import Settings
    from agent.types.protocols import Reporter

    Queried = tuple[NDArray[np.float32], str]  # the vector of a query, and what made it
    _Limits = tuple[int, tuple[str, ...], float]  # most results, tags, least similarity

LABEL = "precomputed"
"""Label of results, and the project and corpus of entries, which keeps them apart from our own."""

UNKNOWN_MODEL = "precomputed"
"""The model of a collection that was imported without --made-by."""

_NAME_LENGTH = 48  # all engines accept this length
_MODEL = re.compile(r"[ -~]{1,200}")


def _every(tags: Sequence[str] = ()) -> EntryFilter:
    from agent.search.stores import EntryFilter

    return EntryFilter(project=LABEL, corpora=frozenset({LABEL}), tags=frozenset(tags))


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
    from agent.search.precomputed import import_vectors, load_vectors
    from agent.search.stores import check_url, checked_name, shown_url
    from agent.wiring.search import open_vector_store

    _refuse(given, "corpus", "forget", "show", "drop", "commit")
    settings = common.load_settings(flags, repository=given["repo"])
    folder, made_by, started = Path(given["precomputed"]), given["made_by"], time.perf_counter()
    if made_by is not None and (not _MODEL.fullmatch(made_by) or made_by == UNKNOWN_MODEL):
        raise ConfigurationError("--made-by: give a model's name of 1 to 200 printable characters")
    name = checked_name(given["collection"] or name_of(folder))
    if settings.store is not None:
        check_url(settings.store)
    with common.reporting(quiet=given["quiet"], warn=True) as reporter:
        with common.stage("vectors", reporter, str(folder)) as summary:
            index = load_vectors(folder, reporter, strict=True)
            vectors = counted(len(index), "vector")
            summary.append(vectors)
        written, removed, place = None, 0, shown_url(settings.store or "the cache folder")
        if not given["dry_run"]:
            with open_vector_store(settings, reporter) as store:
                place, dimension = store.url, index.dimension
                collection, removed = _opened(store, name, made_by, dimension, given["fresh"])
                written = import_vectors(
                    index, collection, project=LABEL, corpus=LABEL, reporter=reporter
                )
                _warn_of_others(collection, index.ids, reporter)
        seconds = time.perf_counter() - started
    known = None if written is None else len(index) - written
    counts = f"{vectors} of {counted(index.dimension, 'dimension')}"
    skipped = f"{counted(len(index.skipped), 'file')} skipped"
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
                "dry_run": given["dry_run"],
                "seconds": round(seconds, 3),
            }
        )
    elif written is None:
        common.write_stdout(
            f"would put {counts} into {name} of {place}; {skipped}; nothing was written\n"
        )
    else:
        common.write_stdout(
            f"{name}: {counts}: {written:,} written, {known:,} were known; {skipped}\n"
            f"in {seconds:.2f} s; vectors in {place}\n"
        )
    return 0


def _warn_of_others(collection: VectorCollection, ids: Sequence[str], reporter: Reporter) -> None:
    own = collection.contents({f"{LABEL}/{identifier}" for identifier in ids})
    others = collection.count(_every()) - len(own)
    if others > 0:
        message = (
            f"{collection.name} also holds {counted(others, 'vector')} that the folder does not"
            " have; --fresh removes them, --collection keeps folders apart"
        )
        reporter(Notice(message, "warning"))


def _opened(
    store: VectorStore, name: str, made_by: str | None, dimension: int, fresh: bool
) -> tuple[VectorCollection, int]:
    """Return the collection, and the number of vectors that `--fresh` removed from it."""
    from agent.search import collection_name

    info = {info.name: info for info in store.collections()}.get(name)
    model = made_by or (UNKNOWN_MODEL if info is None else info.model)
    if collection_name(model) == name:
        raise ConfigurationError(
            f"collection {name} is that of the corpora (agent index --corpus); name another one by"
            " --collection"
        )
    if info is None:
        return store.collection(name, model, dimension), 0
    old = store.collection(name, info.model, info.dimension)
    if (model, dimension) == (info.model, info.dimension):
        return old, old.delete(_every()) if fresh else 0
    removed = old.count(_every())
    if not fresh or removed != old.count():
        raise ConfigurationError(
            f"collection {name} holds vectors of {info.model} ({info.dimension} numbers each), not"
            f" of {model} ({dimension}); --collection names another one, and --fresh makes a"
            " collection that holds imported vectors only anew"
        )
    store.drop(name)
    return store.collection(name, made_by or UNKNOWN_MODEL, dimension), removed


def name_of(folder: Path) -> str:
    """Return a collection's name for a folder. Changed names end in a digest to keep them apart."""
    own = folder.resolve().name
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", own).strip("-._")
    if readable == own and len(own) <= _NAME_LENGTH:
        return own
    digest = sha256(own.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return f"{readable[: _NAME_LENGTH - 9] or LABEL}-{digest}"


def search_vectors(given: Mapping[str, Any], flags: Mapping[str, Any]) -> int:
    """Print the best vectors of a folder or a collection as a table or JSON."""
    from agent.search.precomputed import in_one_line

    _refuse(given, "corpus", "problem", "commit", "expand", "explain")
    if (given["query"] is None) == (given["vector"] is None):
        raise ConfigurationError("give either a query in words or its vector by --vector FILE")
    agent = _agent(given["agent_name"], given["agents"])
    limit, tags, at_least = given["limit"], given["tag"], given["at_least"]
    if agent is not None:  # options of the command line win over the agent's settings
        source = click.get_current_context().get_parameter_source("limit")
        limit = agent.top_k if source is ParameterSource.DEFAULT else limit
        tags = tags or agent.filter_by_tags
        if at_least is None:
            at_least = (1.0 + agent.similarity_threshold) / 2.0
    limits = (limit, tuple(tags), at_least or 0.0)
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
        answer = search(given, query, settings, limits, reporter)
    if given["json"]:
        common.print_value({"place": given["precomputed"], **answer})
    else:
        common.write_stdout(_table(answer["results"]))
    if not answer["results"]:
        say("agent: nothing matches; try another query, fewer --tag, or a lower --at-least")
    return 0


def _in_folder(
    given: Mapping[str, Any],
    query: Queried | None,
    settings: Settings,
    limits: _Limits,
    reporter: Reporter,
) -> dict[str, Any]:
    from agent.search import SearchPaths
    from agent.search.precomputed import in_one_line, load_vectors
    from agent.search.stores import score_of
    from agent.settings import data_folder
    from agent.wiring.search import embed_query

    limit, tags, at_least = limits
    folder = Path(given["precomputed"]).expanduser()
    cache = SearchPaths(settings.cache_dir, data_folder()).folder_cache(folder)
    index = load_vectors(folder, reporter, cache=cache, strict=True)
    vector, made_by = query or asyncio.run(embed_query(settings, given["query"], reporter))
    _check(vector, made_by, index.dimension, in_one_line(str(folder)))
    if query is None:
        reporter(Notice(f"the query was embedded by {made_by}: the folder does not say by what"))
    (results,) = index.search(vector[None, :], limit, at_least=2.0 * at_least - 1.0, tags=tags)
    rows = [
        _row(one.id, score_of(one.score), one.tags, index.text(one.id, reporter), one.metadata)
        for one in results
    ]
    skipped = [asdict(one) for one in index.skipped]
    return {"searched": len(index), "query_by": made_by, "skipped": skipped, "results": rows}


def _in_store(
    given: Mapping[str, Any],
    query: Queried | None,
    settings: Settings,
    limits: _Limits,
    reporter: Reporter,
) -> dict[str, Any]:
    from agent.search.precomputed import in_one_line, read_payload
    from agent.wiring.search import embed_query, open_vector_store

    place, (limit, tags, at_least) = given["precomputed"], limits
    with open_vector_store(settings, reporter) as store:
        infos = {info.name: info for info in store.collections()}
        info = infos.get(place) or infos.get(name_of(Path(place)))
        if info is None:
            raise ConfigurationError(
                f"--precomputed {in_one_line(place)}: neither a folder nor a collection of"
                f" {store.url} (see agent index --list)"
            )
        vector, made_by = query or asyncio.run(embed_query(settings, given["query"], reporter))
        model = None if query is not None or info.model == UNKNOWN_MODEL else info.model
        _check(vector, made_by, info.dimension, f"{info.name} in {store.url}", model)
        collection = store.collection(info.name, info.model, info.dimension)
        (matches,) = collection.search(vector[None, :], limit, _every(tags), at_least=at_least)
        rows = []
        for match in matches:
            name, text, metadata = read_payload(match)
            rows.append(_row(name, match.score, match.fields.tags, text, metadata))
        searched = collection.count(_every())
    return {"searched": searched, "query_by": made_by, "skipped": [], "results": rows}


def _row(
    name: str, similarity: float, tags: Sequence[str], text: str, metadata: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a result as JSON values, with secrets masked."""
    from agent.search.precomputed import masked

    return {
        "corpus": LABEL,
        "id": name,
        "similarity": round(similarity, 6),
        "tags": list(tags),
        "text": mask_secrets(text).text,
        "metadata": masked(dict(metadata)),
    }


def _check(
    vector: NDArray[np.float32],
    made_by: str,
    dimension: int,
    place: str,
    model: str | None = None,
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
            " PATCHSHOT_EMBED_MODEL to that model (without --embed local), or give --vector FILE"
        )


def is_model(name: str, embedder: str) -> bool:
    """Whether an `Embedder.name` is of the model that --made-by named.

    Only the last parts of the paths are compared: `sentence-transformers/all-MiniLM-L6-v2` matches
    `local/all-MiniLM-L6-v2-int8-<digest>@256`.
    """
    core = embedder.rpartition("@")[0] or embedder
    if embedder.startswith("local/"):
        core = re.sub(r"(-int8)?-[0-9a-f]{12}$", "", core)
    else:
        core = core.partition(":")[2] or core
    return _last(name) in (_last(core), _last(embedder), _last(f"{core}-int8"))


def _last(name: str) -> str:
    return name.rsplit("/", 1)[-1].casefold().removesuffix(":latest")


def _read_vector(source: str) -> Queried:
    from agent.search.precomputed import MAX_BYTES, Invalid, in_one_line, parse_vector

    place = f"--vector {in_one_line(source)}"
    try:
        with click.open_file(source, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(
            f"{place}: cannot be read ({error.strerror}); give a JSON file, or -"
        ) from None
    vector = parse_vector(data)
    if isinstance(vector, Invalid):
        raise ConfigurationError(f"{place}: {in_one_line(vector.reason)}; give a JSON array")
    return vector, f"--vector {source}"


def _table(results: Sequence[Mapping[str, Any]]) -> str:
    lines = []
    for position, one in enumerate(results, start=1):
        title = " ".join(one["text"][:200].split())
        line = f"{position:3}  {one['similarity']:.3f}  [{LABEL}]  {one['id']}  {title}"
        lines.append(line.rstrip())
    return shown(lines)


def corpus_agent(given: Mapping[str, Any]) -> SemanticSettings | None:
    """Return the settings that limit the corpus `vectors`; None if the options name none."""
    from agent.search.precomputed import ANY_AGENT

    if given["vector"] is not None:
        raise ConfigurationError("--corpus takes a query in words; leave out --vector")
    agent = _agent(given["agent_name"], given["agents"])
    if given["tag"]:
        if agent is None:
            agent = ANY_AGENT
        agent = agent.model_copy(update={"filter_by_tags": tuple(given["tag"])})
    return agent


def _agent(name: str | None, file: str | None) -> SemanticSettings | None:
    """Return the settings of the named agent, or its defaults if there is no file."""
    from agent.search.precomputed import make_settings, read_settings

    if name is None:
        if file is not None:
            raise ConfigurationError("--agents needs --agent-name: whose settings are wanted")
        return None
    if file is None:
        return make_settings(agent_name=name)
    agents = read_settings(Path(file))
    if name not in agents:
        known = ", ".join(sorted(agents)) or "none"
        raise SemanticConfigError(f"{file}: no settings for the agent {name!r}; known: {known}")
    return agents[name]
