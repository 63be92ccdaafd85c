"""`agent index --precomputed`: vectors of other programs put into a store."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.commands.common import guarded, print_value, write_stdout
from agent.commands.indexed import counted
from agent.commands.precomputed_labels import LABEL, UNKNOWN_MODEL, refuse_together
from agent.commands.warning import warning
from agent.events import StageFinished, StageStarted

if TYPE_CHECKING:
    from agent.precomputed.index import VectorIndex
    from agent.protocols import Reporter
    from agent.settings import Settings

_NAME_LENGTH = 48  # what all engines take


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """What is asked of `agent index --precomputed`. `others`: options that do not go with it."""

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
    """Put a folder's vectors into a collection of the store; print what became of them."""
    return guarded(lambda: _import(request, flags))


def _import(request: ImportRequest, flags: Mapping[str, Any]) -> int:
    from agent.precomputed.loading import load_vectors
    from agent.settings import load

    refuse_together(request.others)
    settings = load(flags, repository=request.repo)
    name = request.collection or _name_of(request.folder)
    with warning(quiet=request.quiet) as reporter:
        started = time.perf_counter()
        reporter(StageStarted("vectors", str(request.folder)))
        index = load_vectors(request.folder, reporter)
        seconds = time.perf_counter() - started
        reporter(StageFinished("vectors", seconds, f"{counted(len(index), 'vector')}"))
        if request.dry_run:
            place, written = settings.store or "the store in the cache folder", None
        else:
            place, written = _store(request, name, index, settings, reporter)
        seconds = time.perf_counter() - started
    if request.json:
        print_value(
            {
                "collection": name,
                "store": place,
                "dimension": index.dimension,
                "vectors": len(index),
                "written": written,
                "known": None if written is None else len(index) - written,
                "skipped": [asdict(one) for one in index.skipped],
                "dry_run": request.dry_run,
                "seconds": round(seconds, 3),
            }
        )
    else:
        write_stdout(_in_words(name, place, index, written, seconds).encode("utf-8", "replace"))
    return 0


def _store(
    request: ImportRequest, name: str, index: VectorIndex, settings: Settings, reporter: Reporter
) -> tuple[str, int]:
    """Where they went, and how many were written."""
    from agent.precomputed.importing import import_vectors
    from agent.services.corpora import StoreUse, open_vector_store
    from agent.stores.base import Selection

    use = StoreUse.MANAGE if request.fresh else StoreUse.FILL
    with open_vector_store(settings, reporter, use) as store:
        known = {info.name: info.model for info in store.collections()}
        model = request.made_by or known.get(name, UNKNOWN_MODEL)
        collection = store.collection(name, model, index.dimension)
        if request.fresh:
            collection.delete(Selection(project=LABEL, corpora=frozenset({LABEL})))
        started = time.perf_counter()
        reporter(StageStarted("import", name))
        written = import_vectors(index, collection, project=LABEL, corpus=LABEL, reporter=reporter)
        seconds = time.perf_counter() - started
        reporter(StageFinished("import", seconds, f"{written:,} written"))
        return store.url, written


def _name_of(folder: Path) -> str:
    """A collection's name from the folder's."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", folder.resolve().name)
    return name.lstrip("-._")[:_NAME_LENGTH] or LABEL


def _in_words(
    name: str, place: str, index: VectorIndex, written: int | None, seconds: float
) -> str:
    vectors = f"{counted(len(index), 'vector')} of {counted(index.dimension, 'dimension')}"
    skipped = f"{counted(len(index.skipped), 'file')} skipped"
    if written is None:
        return f"would put {vectors} into {name} of {place}; {skipped}; nothing was written\n"
    known = len(index) - written
    return (
        f"{name}: {vectors}: {written:,} written, {known:,} were known; {skipped}\n"
        f"in {seconds:.2f} s; vectors in {place}\n"
    )
