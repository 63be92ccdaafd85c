"""Arrays as text, as a miner's bundle carries them: they come back exactly."""

from __future__ import annotations

import numpy as np
import pytest

from agent.retrieval.weights import (
    MODELS,
    SUFFIX,
    arrays_to_text,
    read_arrays,
    restore,
    text_to_arrays,
    write_arrays,
)


def test_the_shipped_ranker_survives_as_text() -> None:
    data = (MODELS / "ranker.npz").read_bytes()
    before, after = read_arrays(data), read_arrays(text_to_arrays(arrays_to_text(data)))
    assert before is not None
    assert after is not None
    assert before.keys() == after.keys()
    for name, array in before.items():
        assert (array.dtype, array.shape) == (after[name].dtype, after[name].shape)
        assert array.tobytes() == after[name].tobytes()


def test_bytes_that_are_no_arrays_are_refused() -> None:
    with pytest.raises(ValueError, match="arrays"):
        arrays_to_text(b"no archive")


def test_restored_once_and_never_over_a_model(tmp_path: object) -> None:
    from pathlib import Path

    folder = Path(str(tmp_path))
    data = write_arrays({"a": np.arange(3)})
    (folder / f"m.npz{SUFFIX}").write_text(arrays_to_text(data))
    restore(folder)
    assert (folder / "m.npz").read_bytes() == data
    (folder / "m.npz").write_bytes(b"own")
    restore(folder)
    assert (folder / "m.npz").read_bytes() == b"own"
