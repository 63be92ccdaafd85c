"""Arrays as text: how a bundle, which is one source file, carries a small model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agent.models.archive import read_arrays, write_arrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
    """Write the models that came as text (`NAME.arrays.json`) as `NAME`, where they are missing."""
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
