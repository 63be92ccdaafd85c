"""Whether what `agent index` makes can be kept at all: it exists for nothing else."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

from agent.errors import ConfigurationError

if TYPE_CHECKING:
    from agent.settings import Settings


def refuse_unkept(settings: Settings) -> None:
    """Raises ConfigurationError where the cache folder, or a cache in it, cannot be written.

    A search goes on without a cache; an index that is not kept would be work for nothing.
    """
    from agent.retrieval.history_store import history_path
    from agent.services.retrieval import index_path

    index = index_path(settings)
    try:
        index.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=index.parent):
            pass
    except OSError as error:
        raise ConfigurationError(
            f"cache folder {index.parent} cannot be written ({error.strerror or error}): "
            "set PATCHSHOT_CACHE_DIR to one that can"
        ) from None
    for path in (index, history_path(index)):
        if path is not None and path.exists() and not os.access(path, os.W_OK):
            raise ConfigurationError(
                f"cache {path} cannot be written: make it writable, or set PATCHSHOT_CACHE_DIR "
                "to another folder"
            )
