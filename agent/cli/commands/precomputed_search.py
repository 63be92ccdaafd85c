"""`agent search --precomputed`: search vectors of other programs, in their folder or in a store."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.cli.commands.common import guarded, load_settings, print_value, write_stdout
from agent.cli.commands.hits import shown, terminal_width
from agent.cli.commands.precomputed_labels import (
    LABEL,
    UNKNOWN_MODEL,
    is_local,
    is_model,
    name_of,
    refuse_together,
)
from agent.cli.commands.retrieval import warning
from agent.errors import ConfigurationError
from agent.search.precomputed import MANY, in_one_line
from agent.shared.secrets import mask_secrets
from agent.shared.terminal import say
from agent.types.events import Notice

if TYPE_CHECKING:
    from agent.search.precomputed import PrecomputedResult, SkippedVector, VectorIndex
    from agent.settings import Settings
    from agent.types.protocols import Reporter
    from agent.wiring.search import EmbeddedQuery


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """Arguments of `agent search --precomputed`.

    `place` is a folder or a collection. With `in_store` it is a collection even if such a folder
    exists. A folder of more than `many` vectors is searched by an index or as int8.
    """

    place: str
    repo: Path
    query: str | None
    vector: str | None
    tags: tuple[str, ...]
    limit: int
    at_least: float
    json: bool
    quiet: bool
    in_store: bool = False
    many: int = MANY
    others: tuple[str, ...] = ()


def search(request: SearchRequest, flags: Mapping[str, Any]) -> int:
    """Print the best vectors of a folder or a collection as a table or JSON."""
    return guarded(lambda: _search(request, flags))


def _search(request: SearchRequest, flags: Mapping[str, Any]) -> int:

    refuse_together(request.others)
    if (request.query is None) == (request.vector is None):
        raise ConfigurationError("give either a query in words or its vector by --vector FILE")
    settings = load_settings(flags, repository=request.repo)
    with warning(quiet=request.quiet) as reporter:
        given = _read_vector(request.vector) if request.vector is not None else None
        folder = Path(request.place).expanduser()
        skipped: Sequence[SkippedVector] = ()
        if _is_folder(folder) and not request.in_store:
            found, query, index = _in_folder(request, folder, given, settings, reporter)
            searched, skipped = len(index), index.skipped
        else:
            found, query, searched = _in_store(request, folder, given, settings, reporter)
    if request.json:
        print_value(
            {
                "place": request.place,
                "searched": searched,
                "query_by": query.made_by,
                "skipped": [asdict(one) for one in skipped],
                "results": [_as_json(one) for one in found],
            }
        )
    else:
        write_stdout(_table(found))
    if not found:
        say("agent: nothing matches; try another query, fewer --tag, or a lower --at-least")
    return 0


def _is_folder(path: Path) -> bool:
    """Whether the path is a folder. Raises ConfigurationError if it cannot be accessed."""
    try:
        return path.is_dir()
    except OSError as error:
        raise ConfigurationError(
            f"--precomputed {in_one_line(str(path))}: cannot be read ({error.strerror}); let"
            " yourself read and enter it: chmod u+rx"
        ) from None
    except ValueError:  # the path contains a NUL
        return False


def _in_folder(
    request: SearchRequest,
    folder: Path,
    given: EmbeddedQuery | None,
    settings: Settings,
    reporter: Reporter,
) -> tuple[Sequence[PrecomputedResult], EmbeddedQuery, VectorIndex]:
    from agent.search import SearchPaths
    from agent.search.precomputed import found_in_folder, load_vectors
    from agent.settings import data_folder

    packed = SearchPaths(settings.cache_dir, data_folder()).packed(folder)
    index = load_vectors(folder, reporter, cache=packed, strict=True, many=request.many)
    query = given or _embedded(request, settings, reporter)
    _check(query, index.dimension, in_one_line(str(folder)), None)
    if given is None:
        reporter(
            Notice(f"the query was embedded by {query.made_by}: the folder does not say by what")
        )
    found = found_in_folder(
        index, query.vector, request.limit, request.tags, request.at_least, reporter
    )
    return found, query, index


def _in_store(
    request: SearchRequest,
    folder: Path,
    given: EmbeddedQuery | None,
    settings: Settings,
    reporter: Reporter,
) -> tuple[Sequence[PrecomputedResult], EmbeddedQuery, int]:
    from agent.search.precomputed import found_in_store
    from agent.search.stores import EntryFilter
    from agent.wiring.search import StoreUse, open_vector_store

    # The import uses the same mode, so both fall back to the embedded store in the same cases.
    with open_vector_store(settings, reporter, StoreUse.FILL) as store:
        known = {info.name: info for info in store.collections()}
        info = known.get(request.place) or known.get(name_of(folder))
        if info is None:
            what = "not" if request.in_store else "neither a folder nor"
            raise ConfigurationError(
                f"--precomputed {in_one_line(request.place)}: {what} a collection of {store.url}"
                " (see agent index --list)"
            )
        query = given or _embedded(request, settings, reporter)
        model = None if given is not None or info.model == UNKNOWN_MODEL else info.model
        _check(query, info.dimension, f"{info.name} in {store.url}", model)
        collection = store.collection(info.name, info.model, info.dimension)
        every = EntryFilter(project=LABEL, corpora=frozenset({LABEL}))
        chosen = replace(every, tags=frozenset(request.tags))
        found = found_in_store(collection, query.vector, request.limit, chosen, request.at_least)
        return found, query, collection.count(every)


def _embedded(request: SearchRequest, settings: Settings, reporter: Reporter) -> EmbeddedQuery:
    from agent.wiring.search import embed_query

    assert request.query is not None
    return asyncio.run(embed_query(settings, request.query, reporter))


def _check(query: EmbeddedQuery, dimension: int, place: str, model: str | None) -> None:
    """Raise ConfigurationError if another model than that of the vectors embedded the query."""
    if query.vector.size != dimension:
        raise ConfigurationError(
            f"the query has {query.vector.size} dimensions (by {query.made_by}), the vectors of"
            f" {place} have {dimension}; embed it with the model that made them"
        )
    if model is not None and not is_model(model, query.made_by):
        change = "set PATCHSHOT_EMBED_MODEL to that model"
        if is_local(query.made_by):
            change = f"leave out --embed local and {change}"
        raise ConfigurationError(
            f"the vectors of {place} were made by {in_one_line(model)}, the query by"
            f" {query.made_by}; {change}, or give --vector FILE"
        )


def _read_vector(source: str) -> EmbeddedQuery:
    from agent.search.precomputed import MAX_BYTES, Invalid, parse_vector
    from agent.wiring.search import EmbeddedQuery

    if source == "-":
        data = sys.stdin.buffer.read(MAX_BYTES + 1)
    else:
        try:
            with Path(source).open("rb") as file:
                data = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise ConfigurationError(
                f"--vector {in_one_line(source)}: cannot be read ({error.strerror}); give a JSON"
                " file, or -"
            ) from None
    vector = parse_vector(data)
    if isinstance(vector, Invalid):
        raise ConfigurationError(
            f"--vector {in_one_line(source)}: {in_one_line(vector.reason)}; give a JSON array"
        )
    return EmbeddedQuery(vector, f"--vector {source}")


def _as_json(found: PrecomputedResult) -> dict[str, Any]:
    from agent.search.precomputed import masked

    return {
        "corpus": LABEL,
        "id": found.id,
        "similarity": round(found.similarity, 6),
        "tags": list(found.tags),
        "text": mask_secrets(found.text).text,
        "metadata": masked(dict(found.metadata)),
    }


def _table(found: Sequence[PrecomputedResult]) -> str:
    lines = []
    for position, one in enumerate(found, start=1):
        # Mask before cutting, because a part of a secret is not recognised.
        title = " ".join(mask_secrets(one.text).text[:200].split())
        line = f"{position:3}  {one.similarity:.3f}  [{LABEL}]  {one.id}  {title}"
        lines.append(line.rstrip())
    return shown(lines, terminal_width())
