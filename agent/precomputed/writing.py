"""Writing of the format: each file whole or not there, the metadata before its vector."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agent.durable import replace_file
from agent.errors import SemanticIndexError
from agent.precomputed.files import MAX_BYTES, META, VECTOR, Invalid, why_no_id
from agent.precomputed.parsing import parse_meta, parse_vector

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def write_vector(
    folder: Path,
    identifier: str,
    vector: ArrayLike,
    *,
    tags: Iterable[str] = (),
    text: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Path:
    """Write `<id>.json` and, where there is something to say, `<id>.meta.json`.

    `vector` (d,) is kept as float32, each number in its shortest form. Who sees the vector sees its
    metadata too: that is written first; metadata of an earlier vector goes after the new one is
    there. Returns the vector's path. Raises SemanticIndexError for what could not be loaded again,
    and where the folder cannot be written to.
    """
    reason = why_no_id(identifier)
    if reason is not None:
        raise SemanticIndexError(f"id {identifier!r}: {reason}; choose another one")
    numbers = _numbers(vector)
    about = _about(tags, text, metadata)
    path, beside = folder / f"{identifier}{VECTOR}", folder / f"{identifier}{META}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if about is not None:
            replace_file(beside, (about,))
        replace_file(path, (numbers,))
        if about is None:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise SemanticIndexError(
            f"{path}: cannot be written ({error.strerror}); check the folder and the disk"
        ) from None
    return path


def _numbers(vector: ArrayLike) -> bytes:
    try:
        values = np.asarray(vector, dtype=np.float32)
    except (TypeError, ValueError, OverflowError):
        raise SemanticIndexError("the vector is not an array of numbers; embed it first") from None
    if values.ndim != 1:
        raise SemanticIndexError(f"a vector of shape {values.shape}; give one of one dimension")
    data = ("[" + ", ".join(values.astype(str).tolist()) + "]\n").encode()
    checked = parse_vector(data)
    if isinstance(checked, Invalid):
        raise SemanticIndexError(f"the vector holds {checked.reason}; embed it again")
    return data


def _about(
    tags: Iterable[str], text: str | None, metadata: Mapping[str, Any] | None
) -> bytes | None:
    about: dict[str, Any] = dict(metadata or {})
    if tags := list(tags):
        about["tags"] = tags
    if text is not None:
        about["text"] = text
    if not about:
        return None
    try:
        data = json.dumps(about, ensure_ascii=False, allow_nan=False, indent=1).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise SemanticIndexError(f"the metadata is no JSON ({error}); give plain values") from None
    checked = Invalid(f"more than {MAX_BYTES:,} bytes") if len(data) > MAX_BYTES else None
    checked = checked or _invalid(data)
    if checked is not None:
        raise SemanticIndexError(f"the metadata cannot be used: {checked.reason}")
    return data


def _invalid(data: bytes) -> Invalid | None:
    found = parse_meta(data)
    return found if isinstance(found, Invalid) else None
