"""The vectors of an embedding reply, in all the shapes that servers send."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def read_vectors(value: Any, count: int) -> NDArray[np.float32] | None:
    """`count` vectors from the JSON of a reply, float32 of shape (count, d); None if there are not.

    Known shapes: `data[i].embedding` (put in the order of `index` where all have one),
    `embeddings[i]`, `embedding` (flat or nested), a bare list (flat or nested).
    """
    import numpy as np

    rows = _rows(value)
    if len(rows) != count or not count:
        return None
    try:
        with np.errstate(over="ignore"):  # becomes infinite, which is refused below
            vectors = np.asarray(rows, dtype=np.float32)
    except (ValueError, TypeError, OverflowError):  # ragged rows, or no numbers
        return None
    if vectors.ndim != 2 or not vectors.shape[1] or not np.isfinite(vectors).all():
        return None
    return vectors


def _rows(value: Any) -> list[Any]:
    if isinstance(value, dict):
        found = (value.get(name) for name in ("data", "embeddings", "embedding"))
        value = next((item for item in found if item), [])
    if not isinstance(value, list) or not value:
        return []
    if not isinstance(value[0], list | dict):
        return [value]
    if all(isinstance(item, dict) for item in value):
        return [_vector(item) for item in _in_order(value)]
    return [_unwrapped(item) for item in value]


def _in_order(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    indexes = [item.get("index") for item in items]
    whole = [i for i in indexes if isinstance(i, int)]
    if sorted(whole) != list(range(len(items))):
        return items
    return [item for _, item in sorted(zip(whole, items, strict=True), key=lambda pair: pair[0])]


def _vector(item: dict[str, Any]) -> Any:
    return _unwrapped(item.get("embedding"))


def _unwrapped(vector: Any) -> Any:
    """llama.cpp wraps each vector in a list of one."""
    nested = isinstance(vector, list) and len(vector) == 1 and isinstance(vector[0], list)
    return vector[0] if nested else vector
