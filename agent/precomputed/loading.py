"""From a folder of files to an index: what cannot be used is said once each, and left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from posixpath import normpath
from typing import TYPE_CHECKING

import numpy as np

from agent.errors import SemanticIndexError
from agent.events import Notice, StageProgress
from agent.precomputed.cache import Packed, fingerprint, read_packed, write_packed
from agent.precomputed.files import (
    META,
    Folder,
    Invalid,
    Listed,
    in_one_line,
    listed,
    open_folder,
    why_no_id,
)
from agent.precomputed.index import SkippedVector, VectorIndex, metas_by_row
from agent.precomputed.parsing import MAX_DIMENSION, Meta, parse_meta, parse_vector

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.protocols import Reporter

STAGE = "vectors"
_PROGRESS_EVERY = 2_000  # files

MAX_NAMED = 3
"""Files that the warning names; all are in `VectorIndex.skipped`."""


def load_vectors(
    folder: Path, reporter: Reporter, *, dimension: int | None = None, cache: Path | None = None
) -> VectorIndex:
    """Load a folder (see `files` for what lies in one).

    `dimension`: of the vectors; None: that of most of them. `cache`: a file that all of it is
    packed into, and read from while names, sizes and times of change in the folder stay the same.

    Raises SemanticIndexError for a missing folder, and for one in which nothing can be used.
    """
    if dimension is not None and not 1 <= dimension <= MAX_DIMENSION:
        raise SemanticIndexError(f"dimension {dimension}: give one from 1 to {MAX_DIMENSION:,}")
    with open_folder(folder) as opened:
        files = [file for file in listed(opened) if cache is None or not _is(cache, opened, file)]
        mark = fingerprint(files, dimension)
        packed = read_packed(cache, mark) if cache is not None else None
        if packed is None:
            packed = _Loading(opened, reporter, dimension).run(files)
            if cache is not None:
                _keep(cache, mark, packed, reporter)
        root = opened.root
    _warn(packed.skipped, folder, reporter)
    if not packed.ids:
        raise SemanticIndexError(
            f"{in_one_line(str(folder))}: no usable vector in {len(files):,}"
            f" {'file' if len(files) == 1 else 'files'}; each is a JSON array of numbers"
        )
    metas = metas_by_row(packed.ids, packed.metas)
    return VectorIndex(root, packed.ids, packed.vectors, metas, packed.skipped)


def _is(cache: Path, folder: Folder, file: Listed) -> bool:
    """Whether the cache is kept among the vectors, and this is it."""
    return cache.name == file.name and cache.parent.resolve() == folder.root


def _keep(cache: Path, mark: str, packed: Packed, reporter: Reporter) -> None:
    try:
        write_packed(cache, mark, packed)
    except OSError as error:  # a full disk costs the next start, not this one
        reporter(Notice(f"{cache}: not kept ({error.strerror})", "warning"))


def _warn(skipped: Sequence[SkippedVector], folder: Path, reporter: Reporter) -> None:
    """One line, however many there are: a folder may be searched often."""
    if not skipped:
        return
    named = [f"{in_one_line(one.name)}: {in_one_line(one.reason)}" for one in skipped[:MAX_NAMED]]
    more = len(skipped) - len(named)
    if more:
        named.append(f"{more:,} more (--json has all)")
    files = f"{len(skipped):,} {'file' if len(skipped) == 1 else 'files'}"
    place = in_one_line(str(folder))
    reporter(Notice(f"{place}: {files} skipped: {'; '.join(named)}", "warning"))


@dataclass(slots=True)
class _Loading:
    """One reading of all files."""

    folder: Folder
    reporter: Reporter
    dimension: int | None
    skipped: dict[str, str] = field(default_factory=dict)

    def run(self, files: Sequence[Listed]) -> Packed:
        metas = self._metas([file for file in files if file.name.endswith(META)])
        texts = frozenset(normpath(meta.text_file or "") for meta in metas.values())
        others = (f for f in files if not f.name.endswith(META) and f.name not in texts)
        vectors = self._of_one_dimension(self._vectors(self._distinct(others)))
        for name in sorted(metas.keys() - vectors.keys()):
            self.skipped.setdefault(f"{name}{META}", "the vector that it belongs to is not used")
        ids = tuple(sorted(vectors))
        skipped = tuple(SkippedVector(_shown(n), why) for n, why in sorted(self.skipped.items()))
        kept = {name: metas[name] for name in ids if name in metas}
        return Packed(ids, _stacked([vectors[name] for name in ids]), kept, skipped)

    def _metas(self, files: Sequence[Listed]) -> dict[str, Meta]:
        found: dict[str, Meta] = {}
        for file in files:
            data = self.folder.read(file)
            meta = data if isinstance(data, Invalid) else parse_meta(data)
            if isinstance(meta, Invalid):
                self.skipped[file.name] = meta.reason
            else:
                found[file.name.removesuffix(META)] = meta
        return found

    def _distinct(self, files: Iterable[Listed]) -> list[Listed]:
        """One file an id: `<id>.json` before `<id>`, for it says what it is."""
        found: dict[str, Listed] = {}
        for file in files:
            other = found.setdefault(file.identifier, file)
            if other is not file:  # in order of names, `<id>` came first
                self.skipped[other.name] = f"the id is that of {file.name}, which is used"
                found[file.identifier] = file
        return list(found.values())

    def _vectors(self, files: Sequence[Listed]) -> dict[str, _Vector]:
        found: dict[str, _Vector] = {}
        for done, file in enumerate(files, start=1):
            data = self.folder.read(file)
            vector = data if isinstance(data, Invalid) else parse_vector(data)
            if isinstance(vector, Invalid):
                self.skipped[file.name] = vector.reason
            elif reason := why_no_id(file.identifier):
                self.skipped[file.name] = f"its name is no id: {reason}"
            else:
                found[file.identifier] = _Vector(file.name, vector)
            if done % _PROGRESS_EVERY == 0 or done == len(files):
                self.reporter(StageProgress(STAGE, done, len(files)))
        return found

    def _of_one_dimension(self, found: Mapping[str, _Vector]) -> dict[str, NDArray[np.float32]]:
        """Those of the dimension that was declared, or that most have; the lesser of two equals."""
        sizes = Counter(vector.numbers.size for vector in found.values())
        most = min(sizes, key=lambda size: (-sizes[size], size), default=0)
        wanted = self.dimension or most
        for vector in found.values():
            if vector.numbers.size != wanted:
                ways = "are declared" if self.dimension else "are of most"
                if not self.dimension and sizes[vector.numbers.size] == sizes[wanted]:
                    ways = "are of as many files, and fewer"
                self.skipped[vector.file] = f"{vector.numbers.size} dimensions, {wanted} {ways}"
        return {n: v.numbers for n, v in found.items() if v.numbers.size == wanted}


@dataclass(frozen=True, slots=True, eq=False)
class _Vector:
    """The numbers of a file."""

    file: str
    numbers: NDArray[np.float32]


def _shown(name: str) -> str:
    """A file's name as text, whatever bytes it is of."""
    return name.encode("utf-8", "backslashreplace").decode()


def _stacked(vectors: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    return np.stack(vectors) if vectors else np.empty((0, 0), dtype=np.float32)
