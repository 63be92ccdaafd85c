"""Precomputed vectors on their way into a collection that may hold something already."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.commands.indexed import counted
from agent.commands.precomputed_labels import LABEL, UNKNOWN_MODEL
from agent.errors import ConfigurationError
from agent.events import Notice, StageFinished, StageStarted

if TYPE_CHECKING:
    from agent.precomputed.index import VectorIndex
    from agent.protocols import Reporter
    from agent.settings import Settings
    from agent.stores.base import CollectionInfo, Selection, VectorCollection, VectorStore


@dataclass(frozen=True, slots=True)
class Filling:
    """What is put where. `made_by` None: what the collection says."""

    name: str
    made_by: str | None
    fresh: bool
    index: VectorIndex


@dataclass(frozen=True, slots=True)
class Filled:
    """What became of it. `place` is the store's URL, without a password."""

    place: str
    written: int
    removed: int


@dataclass(frozen=True, slots=True)
class Foreseen:
    """Where they would go. `held`: entries there now, None where the store was not looked into."""

    place: str
    held: int | None


def refuse_own(name: str, model: str | None) -> None:
    """Raise ConfigurationError for the collection that our corpora keep a model's vectors in."""
    from agent.corpora.vectors import collection_name

    if model is not None and collection_name(model) == name:
        raise ConfigurationError(
            f"collection {name} is that of the corpora (agent index --corpus); name another one by"
            " --collection"
        )


def fill(filling: Filling, settings: Settings, reporter: Reporter) -> Filled:
    """Put the vectors into the store of the settings. Raises StoreError, ConfigurationError."""
    from agent.precomputed.importing import import_vectors
    from agent.services.corpora import StoreUse, open_vector_store

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
    """What `fill` would meet in the store; nothing is made or changed there.

    Raises what it would for a store that cannot be reached, and for a collection of another model
    or dimension. What only the entries themselves tell is not asked.
    """
    from agent.services.corpora import StoreUse, look_into_store

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
    """The collection, and how many vectors were removed from it on purpose."""
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
    store.drop(info.name)  # all of it is in the folder: only the model's name was missing
    return store.collection(info.name, model, dimension), 0


def _model(filling: Filling, info: CollectionInfo) -> str:
    if filling.made_by is not None:
        return filling.made_by
    other = filling.fresh and info.dimension != filling.index.dimension
    return UNKNOWN_MODEL if other else info.model


def _refuse_other(filling: Filling, info: CollectionInfo, old: VectorCollection) -> None:
    """Raise ConfigurationError, but where only the name of the model was missing."""
    if not _is_unnamed(filling, info):
        raise _mismatch(filling, info)
    others = _others(filling, old)
    if others:
        raise ConfigurationError(
            f"collection {info.name}: {counted(others, 'vector')} of it are not in this folder, and"
            " their model was not said; --fresh removes them, --collection names another one"
        )


def _is_unnamed(filling: Filling, info: CollectionInfo) -> bool:
    """Whether nothing but the model's name may be wrong with it."""
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
    """How many it holds that the folder does not."""
    ids = {f"{LABEL}/{name}" for name in filling.index.ids}
    return collection.count(_every()) - len(collection.contents(ids))


def _say_others(filling: Filling, collection: VectorCollection, reporter: Reporter) -> None:
    others = collection.count(_every()) - len(filling.index)  # all of the folder is in it now
    if others > 0:
        reporter(
            Notice(
                f"{filling.name} also holds {counted(others, 'vector')} that the folder does not"
                " have; --fresh removes them, --collection keeps folders apart",
                "warning",
            )
        )


def _every() -> Selection:
    from agent.stores.base import Selection

    return Selection(project=LABEL, corpora=frozenset({LABEL}))
