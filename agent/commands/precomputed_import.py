"""`agent index --precomputed`: vectors of other programs put into a store."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.commands.common import guarded, print_value, write_stdout
from agent.commands.indexed import counted
from agent.commands.precomputed_filling import (
    Filled,
    Filling,
    Foreseen,
    fill,
    foresee,
    refuse_own,
)
from agent.commands.precomputed_labels import checked_model, name_of, refuse_together
from agent.commands.warning import warning
from agent.events import StageFinished, StageStarted

if TYPE_CHECKING:
    from agent.precomputed.index import VectorIndex
    from agent.settings import Settings


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
    from agent.precomputed.importing import say_texts
    from agent.precomputed.loading import load_vectors
    from agent.settings import load

    refuse_together(request.others)
    settings = load(flags, repository=request.repo)
    name = request.collection or name_of(request.folder)
    made_by = checked_model(request.made_by)
    _refuse_early(name, made_by, settings)
    with warning(quiet=request.quiet) as reporter:
        started = time.perf_counter()
        reporter(StageStarted("vectors", str(request.folder)))
        index = load_vectors(request.folder, reporter)
        seconds = time.perf_counter() - started
        reporter(StageFinished("vectors", seconds, f"{counted(len(index), 'vector')}"))
        filling = Filling(name, made_by, request.fresh, index)
        done: Filled | Foreseen
        if request.dry_run:
            say_texts(index, reporter)  # as an import would
            done = foresee(filling, settings, reporter)
        else:
            done = fill(filling, settings, reporter)
        seconds = time.perf_counter() - started
    if request.json:
        print_value(_as_json(name, done, index, seconds))
    else:
        write_stdout(_in_words(name, done, index, seconds).encode("utf-8", "replace"))
    return 0


def _refuse_early(name: str, made_by: str | None, settings: Settings) -> None:
    """Raise ConfigurationError or StoreError for what no store takes, before files are read."""
    from agent.stores.border import checked_name
    from agent.stores.opening import check_url

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
