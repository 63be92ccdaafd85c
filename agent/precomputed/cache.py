"""A loaded folder in one file: the next start reads numbers, not a hundred thousand texts.

One line of JSON (format, mark, sizes, check sum), then the vectors as little-endian float32, then
JSON of ids, metadata and what was skipped. Nothing in it is executed, and nothing is believed
before its length and check sum are right.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from agent.durable import replace_file
from agent.precomputed.files import Invalid, Listed
from agent.precomputed.index import SkippedVector
from agent.precomputed.parsing import Meta, parse_meta, thawed

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORMAT = 1
_MAX_HEADER = 1_000


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """What a folder holds: ids ascending, vectors float32 (n, d) by id, metadata by id."""

    ids: tuple[str, ...]
    vectors: NDArray[np.float32]
    metas: Mapping[str, Meta]
    skipped: tuple[SkippedVector, ...]


def fingerprint(files: Sequence[Listed], dimension: int | None) -> str:
    """SHA-256 (hex) of names, sizes and times of change; another one means: read all again."""
    digest = hashlib.sha256(f"{FORMAT} {dimension}\n".encode())
    for file in files:
        line = f"{file.size} {file.changed} {int(file.linked)} {file.name}\0"
        digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


class _Header(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    format: int
    mark: str
    count: int
    dimension: int
    rest: int  # bytes of JSON
    crc: int  # of all that follows the line


class _Rest(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    ids: list[str]
    metas: dict[str, Any]
    skipped: list[tuple[str, str]]


def write_packed(path: Path, mark: str, packed: Packed) -> None:
    """Keep it. Raises OSError."""
    metas = {name: _as_file(meta) for name, meta in packed.metas.items()}
    skipped = [(one.name, one.reason) for one in packed.skipped]
    rest = json.dumps({"ids": packed.ids, "metas": metas, "skipped": skipped}).encode()
    numbers = np.ascontiguousarray(packed.vectors, dtype="<f4").tobytes()
    header = _Header(
        format=FORMAT,
        mark=mark,
        count=len(packed.ids),
        dimension=packed.vectors.shape[1],
        rest=len(rest),
        crc=zlib.crc32(rest, zlib.crc32(numbers)),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, (header.model_dump_json().encode() + b"\n", numbers, rest))


def read_packed(path: Path, mark: str) -> Packed | None:
    """What was kept under this mark; None for nothing, something else, or a damaged file."""
    try:
        with path.open("rb") as file:
            header = _Header.model_validate_json(file.readline(_MAX_HEADER))
            numbers = 4 * header.count * header.dimension
            left = os.fstat(file.fileno()).st_size - file.tell()
            if (header.format, header.mark) != (FORMAT, mark) or left != numbers + header.rest:
                return None
            data = file.read()
    except (OSError, ValidationError):
        return None
    if zlib.crc32(data) != header.crc:
        return None
    return _unpacked(data, header, numbers)


def _unpacked(data: bytes, header: _Header, numbers: int) -> Packed | None:
    vectors = np.frombuffer(data, dtype="<f4", count=numbers // 4)
    try:
        rest = _Rest.model_validate_json(json.dumps(json.loads(data[numbers:])))
    except (ValueError, RecursionError):
        return None
    metas: dict[str, Meta] = {}
    for name, value in rest.metas.items():
        meta = parse_meta(json.dumps(value).encode())
        if isinstance(meta, Invalid):
            return None
        metas[name] = meta
    if len(rest.ids) != header.count or rest.ids != sorted(set(rest.ids)):
        return None
    return Packed(
        tuple(rest.ids),
        vectors.astype(np.float32, copy=False).reshape(header.count, header.dimension),
        metas,
        tuple(SkippedVector(name, reason) for name, reason in rest.skipped),
    )


def _as_file(meta: Meta) -> dict[str, Any]:
    """The metadata as its file would say it."""
    known = {"tags": list(meta.tags), "text": meta.text, "text_file": meta.text_file}
    return {**thawed(meta.metadata), **{k: v for k, v in known.items() if v is not None}}
