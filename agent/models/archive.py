"""Named arrays in a file: numpy's `.npz`, never with pickled objects, the same bytes each time."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_EPOCH = (1980, 1, 1, 0, 0, 0)  # zip files carry a time otherwise
_DAMAGE = (OSError, ValueError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
"""What reading raises for damaged bytes; RuntimeError: "encrypted", or packed in another way."""


MODELS = Path(__file__).parent
"""The folder of the files that ship with the package."""


def model_path(name: str) -> Path:
    """Where a file of this package is, or would be."""
    return MODELS / name


def read_arrays(data: bytes) -> Mapping[str, NDArray[np.generic]] | None:
    """The arrays by name; None for bytes that are no such file."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return {name.removesuffix(".npy"): _array(archive, name) for name in archive.namelist()}
    except _DAMAGE:
        return None


def _array(archive: zipfile.ZipFile, name: str) -> NDArray[np.generic]:
    """One member, its check sum compared before anything in it is believed."""
    member = io.BytesIO(archive.read(name))
    array: NDArray[np.generic] = np.lib.format.read_array(member, allow_pickle=False)
    return array


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
