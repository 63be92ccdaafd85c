"""Labels, names and checks that importing and searching precomputed vectors share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from agent.errors import ConfigurationError

LABEL = "precomputed"
"""Label of results. It is also the project and the corpus of the entries, which keeps them apart
from our own.
"""

UNKNOWN_MODEL = "precomputed"
"""The model of a collection that was imported without --made-by."""

_NAME_LENGTH = 48  # all engines accept this length
_DIGEST = 8  # hex digits, enough to tell some hundred folders apart
_MODEL_LENGTH = 200


def refuse_together(others: Sequence[str]) -> None:
    """Raise ConfigurationError for options that do not work with --precomputed."""
    if others:
        raise ConfigurationError(
            f"--precomputed and {' and '.join(others)} do not go together; give one of them"
        )


def name_of(folder: Path) -> str:
    """Return a collection's name for a folder. Changed names end in a digest to keep them apart."""
    own = folder.resolve().name
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", own).strip("-._")
    if readable == own and len(own) <= _NAME_LENGTH:
        return own
    digest = sha256(own.encode("utf-8", "surrogateescape")).hexdigest()[:_DIGEST]
    return f"{readable[: _NAME_LENGTH - _DIGEST - 1] or LABEL}-{digest}"


def checked_model(model: str | None) -> str | None:
    """Return the value of --made-by. Raises ConfigurationError if it is not a name."""
    if model is None:
        return None
    if not model.isprintable() or not 0 < len(model) <= _MODEL_LENGTH:
        raise ConfigurationError(
            f"--made-by: a model's name has 1 to {_MODEL_LENGTH} characters, all printable"
        )
    if model == UNKNOWN_MODEL:
        raise ConfigurationError(f"--made-by {model}: no model is called so; leave it out")
    return model


def is_model(said: str, embedder: str) -> bool:
    """Whether an `Embedder.name` is of the model that --made-by named.

    Only the last parts of the paths are compared: `sentence-transformers/all-MiniLM-L6-v2` matches
    `local/all-MiniLM-L6-v2-int8-<digest>@256`.
    """
    if said == embedder:
        return True
    core = embedder.rpartition("@")[0] or embedder
    if is_local(embedder):
        core = re.sub(r"(-int8)?-[0-9a-f]{12}$", "", core)
    else:
        core = core.partition(":")[2] or core
    return _last(said) in (_last(core), _last(embedder), _last(f"{core}-int8"))


def is_local(embedder: str) -> bool:
    """Whether an `Embedder.name` is of a model on this machine."""
    return embedder.startswith("local/")


def _last(name: str) -> str:
    return name.rsplit("/", 1)[-1].casefold().removesuffix(":latest")
