"""Groups of files: what is kept together in one block, under which key, and in parts from where.

A file is known by 16 bytes for its content and what cuts it, a group by those of its files. A cache
holds for each file its `Place`, from where a group some of whose files are new takes the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from importlib import metadata
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from agent.retrieval.grammars import GRAMMARS
from agent.retrieval.joining import merge, select
from agent.retrieval.records import FORMAT, PieceEncoder

if TYPE_CHECKING:
    from agent.retrieval.blocks import Block
    from agent.types import SourceFile

GROUP_FILES = 64
"""Files of a group, on average. Smaller groups make a change cheaper and a query dearer."""

_SMALLEST_GROUP, _LARGEST_GROUP = GROUP_FILES // 4, GROUP_FILES * 2


@dataclass(slots=True)
class Group:
    """Files number `first` and following, by the keys of their records.

    `parts` are blocks that hold some of its files, `places` says which: part, number therein.
    `missing` are the files, by number, that are cut anew, and `waiting` the jobs that do it.
    """

    first: int
    keys: tuple[bytes, ...]
    key: bytes
    parts: list[Block] = field(default_factory=list)
    places: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    missing: list[int] = field(default_factory=list)
    waiting: int = 0

    def add(self, block: Block, keys: Sequence[bytes | None]) -> None:
        """Take a block of files with these keys, None for those of others."""
        places = ((key, (len(self.parts), at)) for at, key in enumerate(keys))
        self.places.update((key, place) for key, place in places if key)
        self.parts.append(block)

    def block(self) -> Block:
        """Its files, which must all be in some part."""
        firsts = list(accumulate((part.file_sizes.size for part in self.parts), initial=0))
        places = (self.places[key] for key in self.keys)
        files = np.array([firsts[part] + at for part, at in places], dtype=np.int64)
        return select(merge(self.parts), files)


@dataclass(frozen=True, slots=True)
class Place:
    """In which block, by its key, and as which of its files a file is kept."""

    block: bytes
    number: int

    def written(self) -> bytes:
        """18 bytes."""
        return self.block + self.number.to_bytes(2, "little")

    @classmethod
    def read(cls, data: bytes) -> Place | None:
        """What `written` gave; None for anything else."""
        return cls(data[:16], int.from_bytes(data[16:], "little")) if len(data) == 18 else None


def groups_of(files: Sequence[SourceFile], keys: Sequence[bytes]) -> list[Group]:
    """Runs of files whose ends depend on few paths, so that a new file changes one group only."""
    bounds = [0]
    for number in range(1, len(files)):
        size = number - bounds[-1]
        ends = crc32(files[number].path.encode("utf-8", "replace")) % GROUP_FILES == 0
        if size >= _LARGEST_GROUP or (ends and size >= _SMALLEST_GROUP):
            bounds.append(number)
    if files:
        bounds.append(len(files))
    return [_group(start, tuple(keys[start:end])) for start, end in pairwise(bounds)]


def _group(first: int, keys: tuple[bytes, ...]) -> Group:
    return Group(first, keys, blake2b(b"".join(keys), digest_size=16, person=b"block").digest())


def record_keys(files: Sequence[SourceFile], encoder: PieceEncoder | None = None) -> list[bytes]:
    """For each file 16 bytes that name its record: format, parser, language, encoder, content."""
    model = "" if encoder is None else encoder.fingerprint
    prefixes = {
        language: f"{_fingerprint(language)}|{model}" for language in {f.language for f in files}
    }
    return [
        blake2b(f"{prefixes[file.language]}|{file.blob}".encode(), digest_size=16).digest()
        for file in files
    ]


def _fingerprint(language: str) -> str:
    """What besides the content decides about a record."""
    grammar = GRAMMARS.get(language)
    packages = ["snowballstemmer", "pystemmer"]
    if grammar is not None:
        packages += ["tree-sitter", grammar.module.replace("_", "-")]
    versions = ",".join(_version(package) for package in packages)
    return f"{FORMAT}|{language}|{versions}"


@cache
def _version(package: str) -> str:
    """Remembered: it is looked up in files, for every query and several languages the same."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "?"  # not installed, or vendored without metadata
