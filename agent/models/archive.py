"""Named arrays in one file: numpy's `.npz`, never with pickled objects, the same bytes each time."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_EPOCH = (1980, 1, 1, 0, 0, 0)  # zip files carry a time otherwise


def model_path(name: str) -> Path:
    """Where a file of this package is, or would be."""
    return Path(__file__).with_name(name)


def read_arrays(data: bytes) -> Mapping[str, NDArray[np.generic]] | None:
    """The arrays by name; None for bytes that are no such file."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, KeyError, EOFError, AttributeError, zipfile.BadZipFile):
        return None  # AttributeError: bytes of a bare array have no names


def write_arrays(arrays: Mapping[str, NDArray[np.generic]]) -> bytes:
    """The file of these arrays."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
            info = zipfile.ZipInfo(f"{name}.npy", date_time=_EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, member.getvalue())
    return stream.getvalue()
