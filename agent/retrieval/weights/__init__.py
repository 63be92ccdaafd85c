"""The model weights that ship with the package, and how arrays are read from and written to files.

`ranker.npz` is the learned ranker, `static.npz` the static encoder. Files are numpy's `.npz`, never
with pickled objects, the same bytes each time. `arrays_to_text` and `restore` carry a small model
in a bundle, which is one source file.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_EPOCH = (1980, 1, 1, 0, 0, 0)  # zip files carry a time otherwise
_DAMAGE = (OSError, ValueError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
"""What reading raises for damaged bytes; RuntimeError: "encrypted", or packed in another way."""


MODELS = Path(__file__).parent
"""The folder of the files that ship with the package."""


def model_path(name: str) -> Path:
    """The path of a file of this package, which may be missing."""
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


# ----------------------------------------------------------------------------------- arrays as text

SUFFIX = ".arrays.json"
_A_LINE = 12  # numbers: no line becomes long


def arrays_to_text(data: bytes) -> str:
    """The arrays of a `.npz` file as JSON in short lines, exact to the last bit.

    Raises ValueError for bytes that are no such file.
    """
    arrays = read_arrays(data)
    if arrays is None:
        raise ValueError("not a file of arrays")
    parts = (f"{json.dumps(name)}: {_part(array)}" for name, array in sorted(arrays.items()))
    return "{\n" + ",\n".join(parts) + "\n}\n"


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


def _part(array: NDArray[np.generic]) -> str:
    """One array; numbers in short lines, floats with as few digits as their own type needs."""
    described = f'{{"dtype": {json.dumps(array.dtype.str)}, "shape": {json.dumps(array.shape)}'
    if array.dtype.kind == "U":
        return f'{described}, "values": {json.dumps(array.ravel().tolist())}}}'
    kind, numbers = array.dtype.kind, array.ravel()
    lines = (
        ",".join(_number(kind, value) for value in numbers[start : start + _A_LINE])
        for start in range(0, numbers.size, _A_LINE)
    )
    return described + ', "values": [\n' + ",\n".join(lines) + "]}"


def _number(kind: str, value: Any) -> str:
    return json.dumps(float(str(value)) if kind == "f" else int(value))
