"""The model weights that ship with the package, and how arrays are read and written, never with
pickled objects. `arrays_to_text` and `restore` carry a model in a bundle, which is one source file.
"""

from __future__ import annotations

import io
import json
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


SUFFIX = ".arrays.json"


def arrays_to_text(data: bytes) -> str:
    """The arrays of a `.npz` file as JSON, exact to the last bit. Raises ValueError."""
    arrays = read_arrays(data)
    if arrays is None:
        raise ValueError("not a file of arrays")
    parts = {
        name: {
            "dtype": array.dtype.str,
            "shape": array.shape,
            # `str` gives as few digits as the array's own type needs.
            "values": [float(str(n)) for n in array.ravel()]
            if array.dtype.kind == "f"
            else array.ravel().tolist(),
        }
        for name, array in sorted(arrays.items())
    }
    return json.dumps(parts, indent=0) + "\n"


def text_to_arrays(text: str) -> bytes:
    """The `.npz` file that `arrays_to_text` was given, up to its compression."""
    return write_arrays(
        {
            name: np.array(part["values"], dtype=part["dtype"]).reshape(part["shape"])
            for name, part in json.loads(text).items()
        }
    )


def restore(folder: Path) -> None:
    """Write each missing model `NAME` for which the folder holds `NAME.arrays.json`."""
    for source in sorted(folder.glob(f"*{SUFFIX}")):
        target = source.with_name(source.name.removesuffix(SUFFIX))
        if not target.exists():
            target.write_bytes(text_to_arrays(source.read_text("utf-8")))
