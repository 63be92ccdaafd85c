"""The model weights that ship with the package, and how arrays are read from and written to files.

`ranker.npz` is the learned ranker, `static.npz` the static encoder. `arrays_to_text` and `restore`
carry a small model in a bundle, which is one source file.
"""

from agent.retrieval.weights.archive import (
    MODELS,
    SUFFIX,
    arrays_to_text,
    model_path,
    read_arrays,
    restore,
    write_arrays,
)

__all__ = [
    "MODELS",
    "SUFFIX",
    "arrays_to_text",
    "model_path",
    "read_arrays",
    "restore",
    "write_arrays",
]
