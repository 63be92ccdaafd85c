"""Writes the models that `agent.retrieval` reads."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from agent.retrieval.embedding import static
from agent.retrieval.ranking.ranker import ARRAYS, Ranker, header

_EPOCH = (1980, 1, 1, 0, 0, 0)  # zip files carry a time otherwise


def write_arrays(arrays: Mapping[str, NDArray[np.generic]], *, packed: bool = True) -> bytes:
    """The file of these arrays. Not `packed`: larger, and read in a tenth of the time."""
    kind = zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", kind) as archive:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
            info = zipfile.ZipInfo(f"{name}.npy", date_time=_EPOCH)
            info.compress_type = kind
            archive.writestr(info, member.getvalue())
    return stream.getvalue()


def write_static(
    hashes: NDArray[np.uint64],
    vectors: NDArray[np.float32],
    query_weights: NDArray[np.float32],
    document_weights: NDArray[np.float32],
) -> bytes:
    """Return the encoder's file: vectors float32 (v, d) by ascending hash, quantised to int8."""
    scales = np.abs(vectors).max(axis=1, initial=0.0).astype(np.float32) / 127.0
    columns = (hashes, static.quantised(vectors), scales, query_weights, document_weights)
    named = {"header": np.array(static.HEADER), **dict(zip(static.ARRAYS, columns, strict=True))}
    return write_arrays(named, packed=False)


def write_ranker(ranker: Ranker) -> str:
    """Return the ranker as JSON, exact to the last bit. Equal rankers give equal texts."""
    model: dict[str, object] = {"header": header()}
    for part, ensemble in (("files", ranker.files), ("pieces", ranker.pieces)):
        model[part] = {name: getattr(ensemble, name).tolist() for name, _ in ARRAYS}
    return json.dumps(model, separators=(",", ":")).replace("],", "],\n") + "\n"
