"""What importing and searching precomputed vectors share: labels, names, and refusals."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from agent.errors import ConfigurationError

LABEL = "precomputed"
"""How results are labelled; also project and corpus of the entries, apart from what we embedded."""

UNKNOWN_MODEL = "precomputed"
"""The model of a collection for which --made-by was not given."""

_NAME_LENGTH = 48  # what all engines take
_DIGEST = 8  # hex digits: of some hundred folders no two are the same
_MODEL_LENGTH = 200


def refuse_together(others: Sequence[str]) -> None:
    """Raise ConfigurationError for options that do not go with --precomputed."""
    if others:
        raise ConfigurationError(
            f"--precomputed and {' and '.join(others)} do not go together; give one of them"
        )


def name_of(folder: Path) -> str:
    """A collection's name from the folder's; a digest keeps apart those that had to be changed."""
    own = folder.resolve().name
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", own).strip("-._")
    if readable == own and len(own) <= _NAME_LENGTH:
        return own
    digest = sha256(own.encode("utf-8", "surrogateescape")).hexdigest()[:_DIGEST]
    return f"{readable[: _NAME_LENGTH - _DIGEST - 1] or LABEL}-{digest}"


def checked_model(model: str | None) -> str | None:
    """What --made-by says. Raises ConfigurationError for what is no name."""
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

    Compared are the last parts of their paths: `sentence-transformers/all-MiniLM-L6-v2` is what
    `local/all-MiniLM-L6-v2-int8-<digest>@256` runs.
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
