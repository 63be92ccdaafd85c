"""`agent index --precomputed`: import vectors of other programs into a store."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.cli.commands.common import counted, guarded, load_settings, print_value, write_stdout
from agent.cli.commands.precomputed_labels import (
    LABEL,
    UNKNOWN_MODEL,
    checked_model,
    name_of,
    refuse_together,
)
from agent.cli.commands.retrieval import warning
from agent.errors import ConfigurationError
from agent.types.events import Notice, StageFinished, StageStarted

if TYPE_CHECKING:
    from agent.search.precomputed import VectorIndex
    from agent.search.stores import CollectionInfo, EntryFilter, VectorCollection, VectorStore
    from agent.settings import Settings
    from agent.types.protocols import Reporter


@dataclass(frozen=True, slots=True)
class Filling:
    """An import: vectors and the target collection. `made_by` None keeps the collection's model."""

    name: str
    made_by: str | None
    fresh: bool
    index: VectorIndex


@dataclass(frozen=True, slots=True)
class Filled:
    """The result of an import. `place` is the store's URL without a password."""

    place: str
    written: int
    removed: int


@dataclass(frozen=True, slots=True)
class Foreseen:
    """The result of a dry run. `held` is the present number of entries, None if it was not read."""

    place: str
    held: int | None


def refuse_own(name: str, model: str | None) -> None:
    """Raise ConfigurationError if our corpora use this collection for the vectors of `model`."""
    from agent.search import collection_name

    if model is not None and collection_name(model) == name:
        raise ConfigurationError(
            f"collection {name} is that of the corpora (agent index --corpus); name another one by"
            " --collection"
        )


def fill(filling: Filling, settings: Settings, reporter: Reporter) -> Filled:
    """Import the vectors into the store of the settings. Raises StoreError, ConfigurationError."""
    from agent.search.precomputed import import_vectors
    from agent.wiring.search import StoreUse, open_vector_store

    use = StoreUse.MANAGE if filling.fresh else StoreUse.FILL
    with open_vector_store(settings, reporter, use) as store:
        started = time.perf_counter()
        collection, removed = _opened(filling, store)
        if removed:
            vectors = counted(removed, "vector")
            reporter(Notice(f"{filling.name}: {vectors} of before removed", "warning"))
        reporter(StageStarted("import", filling.name))
        written = import_vectors(
            filling.index, collection, project=LABEL, corpus=LABEL, reporter=reporter
        )
        _say_others(filling, collection, reporter)
        seconds = time.perf_counter() - started
        reporter(StageFinished("import", seconds, f"{written:,} written"))
        return Filled(store.url, written, removed)


def foresee(filling: Filling, settings: Settings, reporter: Reporter) -> Foreseen:
    """Return what `fill` would find in the store, without changing it.

    Raises the errors of `fill` for a store that cannot be reached and for a collection of another
    model or dimension. It does not check the entries.
    """
    from agent.wiring.search import StoreUse, look_into_store

    use = StoreUse.MANAGE if filling.fresh else StoreUse.FILL
    place, known = look_into_store(settings, reporter, use)
    if known is None:
        return Foreseen(place, None)
    info = next((one for one in known if one.name == filling.name), None)
    if info is None:
        return Foreseen(place, 0)
    refuse_own(info.name, info.model)
    same = (_model(filling, info), filling.index.dimension) == (info.model, info.dimension)
    if not (same or filling.fresh or _is_unnamed(filling, info)):
        raise _mismatch(filling, info)
    return Foreseen(place, info.entries)


def _opened(filling: Filling, store: VectorStore) -> tuple[VectorCollection, int]:
    """Return the collection, and the number of vectors that were removed from it on purpose."""
    info = {info.name: info for info in store.collections()}.get(filling.name)
    dimension = filling.index.dimension
    if info is None:
        model = filling.made_by or UNKNOWN_MODEL
        return store.collection(filling.name, model, dimension), 0
    refuse_own(info.name, info.model)
    model = _model(filling, info)
    old = store.collection(info.name, info.model, info.dimension)
    if (model, dimension) == (info.model, info.dimension):
        return old, old.delete(_every()) if filling.fresh else 0
    held = old.count()
    if old.count(_every()) != held:
        raise ConfigurationError(
            f"collection {info.name} holds other vectors too; name another one by --collection"
        )
    if filling.fresh:
        store.drop(info.name)
        return store.collection(info.name, model, dimension), held
    _refuse_other(filling, info, old)
    store.drop(info.name)  # the folder has all of it: only the model's name was missing
    return store.collection(info.name, model, dimension), 0


def _model(filling: Filling, info: CollectionInfo) -> str:
    if filling.made_by is not None:
        return filling.made_by
    other = filling.fresh and info.dimension != filling.index.dimension
    return UNKNOWN_MODEL if other else info.model


def _refuse_other(filling: Filling, info: CollectionInfo, old: VectorCollection) -> None:
    """Raise ConfigurationError unless only the name of the model was missing."""
    if not _is_unnamed(filling, info):
        raise _mismatch(filling, info)
    others = _others(filling, old)
    if others:
        raise ConfigurationError(
            f"collection {info.name}: {counted(others, 'vector')} of it are not in this folder, and"
            " their model was not named; --fresh removes them, --collection names another one"
        )


def _is_unnamed(filling: Filling, info: CollectionInfo) -> bool:
    """Whether the model's name is the only possible mismatch."""
    return info.model == UNKNOWN_MODEL and info.dimension == filling.index.dimension


def _mismatch(filling: Filling, info: CollectionInfo) -> ConfigurationError:
    known = info.model != UNKNOWN_MODEL
    numbers = f"{info.dimension} numbers each"
    wanted = f"of {filling.made_by} " if filling.made_by else ""
    return ConfigurationError(
        f"collection {info.name} holds vectors {f'of {info.model} ' if known else ''}({numbers}),"
        f" not {wanted}({filling.index.dimension}); --fresh makes it anew, --collection names"
        " another one"
    )


def _others(filling: Filling, collection: VectorCollection) -> int:
    """Return the number of entries of the collection that are not in the folder."""
    ids = {f"{LABEL}/{name}" for name in filling.index.ids}
    return collection.count(_every()) - len(collection.contents(ids))


def _say_others(filling: Filling, collection: VectorCollection, reporter: Reporter) -> None:
    others = collection.count(_every()) - len(filling.index)  # it now has all of the folder
    if others > 0:
        reporter(
            Notice(
                f"{filling.name} also holds {counted(others, 'vector')} that the folder does not"
                " have; --fresh removes them, --collection keeps folders apart",
                "warning",
            )
        )


def _every() -> EntryFilter:
    from agent.search.stores import EntryFilter

    return EntryFilter(project=LABEL, corpora=frozenset({LABEL}))


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """Arguments of `agent index --precomputed`. `others` are given options that it does not
    support.
    """

    folder: Path
    repo: Path
    collection: str | None
    made_by: str | None
    fresh: bool
    dry_run: bool
    json: bool
    quiet: bool
    others: tuple[str, ...] = ()


def import_folder(request: ImportRequest, flags: Mapping[str, Any]) -> int:
    """Import the vectors of a folder into a collection, print the counts, return the exit code."""
    return guarded(lambda: _import(request, flags))


def _import(request: ImportRequest, flags: Mapping[str, Any]) -> int:
    from agent.search.precomputed import load_vectors, say_texts

    refuse_together(request.others)
    settings = load_settings(flags, repository=request.repo)
    name = request.collection or name_of(request.folder)
    made_by = checked_model(request.made_by)
    _refuse_early(name, made_by, settings)
    with warning(quiet=request.quiet) as reporter:
        started = time.perf_counter()
        reporter(StageStarted("vectors", str(request.folder)))
        index = load_vectors(request.folder, reporter, strict=True)
        seconds = time.perf_counter() - started
        reporter(StageFinished("vectors", seconds, f"{counted(len(index), 'vector')}"))
        filling = Filling(name, made_by, request.fresh, index)
        done: Filled | Foreseen
        if request.dry_run:
            say_texts(index, reporter)  # an import prints the same notes
            done = foresee(filling, settings, reporter)
        else:
            done = fill(filling, settings, reporter)
        seconds = time.perf_counter() - started
    if request.json:
        print_value(_as_json(name, done, index, seconds))
    else:
        write_stdout(_in_words(name, done, index, seconds))
    return 0


def _refuse_early(name: str, made_by: str | None, settings: Settings) -> None:
    """Raise ConfigurationError or StoreError for invalid arguments before files are read."""
    from agent.search.stores import check_url, checked_name

    checked_name(name)
    refuse_own(name, made_by)
    if settings.store is not None:
        check_url(settings.store)


def _as_json(
    name: str, done: Filled | Foreseen, index: VectorIndex, seconds: float
) -> dict[str, Any]:
    return {
        "collection": name,
        "store": done.place,
        "dimension": index.dimension,
        "vectors": len(index),
        "held": done.held if isinstance(done, Foreseen) else None,
        "written": done.written if isinstance(done, Filled) else None,
        "removed": done.removed if isinstance(done, Filled) else 0,
        "known": len(index) - done.written if isinstance(done, Filled) else None,
        "skipped": [asdict(one) for one in index.skipped],
        "dry_run": isinstance(done, Foreseen),
        "seconds": round(seconds, 3),
    }


def _in_words(name: str, done: Filled | Foreseen, index: VectorIndex, seconds: float) -> str:
    vectors = f"{counted(len(index), 'vector')} of {counted(index.dimension, 'dimension')}"
    skipped = f"{counted(len(index.skipped), 'file')} skipped"
    if isinstance(done, Filled):
        known = len(index) - done.written
        return (
            f"{name}: {vectors}: {done.written:,} written, {known:,} were known; {skipped}\n"
            f"in {seconds:.2f} s; vectors in {done.place}\n"
        )
    there = (
        "the store was not opened"
        if done.held is None
        else f"{counted(done.held, 'vector')} there now"
    )
    return (
        f"would put {vectors} into {name} of {done.place} ({there}); {skipped};"
        " nothing was written\n"
    )
