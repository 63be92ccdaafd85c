"""Folders of vectors, as other programs write them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike


def write_vector(
    folder: Path,
    identifier: str,
    vector: ArrayLike,
    *,
    tags: Iterable[str] = (),
    text: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Write `<id>.json` and, if there is metadata, `<id>.meta.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{identifier}.json").write_text(json.dumps(np.asarray(vector, float).tolist()))
    about = {**(metadata or {}), **({"tags": list(tags)} if tags else {})}
    about |= {} if text is None else {"text": text}
    if about:
        (folder / f"{identifier}.meta.json").write_text(json.dumps(about))
