"""The model weights that ship with the package; arrays are read without pickled objects."""

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

_DAMAGE = (OSError, ValueError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
"""What reading raises for damaged bytes; RuntimeError: "encrypted", or packed in another way."""


MODELS = Path(__file__).parent
"""The folder of the files that ship with the package."""


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
