"""What engines without a place of their own for it keep beside a collection, and who reads it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, ValidationError

from agent.errors import StoreMismatch
from agent.stores.base import SCHEMA_VERSION, CollectionInfo

KEY = "patchshot"
"""Under it an engine keeps what we say of a collection: without it, it is not ours."""


class Meta(BaseModel):
    """What a collection was made for, as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    dimension: int
    version: int = SCHEMA_VERSION

    def info(self, name: str, entries: int) -> CollectionInfo:
        """The same with a name and a count."""
        return CollectionInfo(name, self.model, self.dimension, entries, self.version)


def read_meta(text: str | bytes | None, place: str) -> Meta:
    """What was written. Raises StoreMismatch where it is not ours, or is of a newer version."""
    try:
        if text is None:
            raise StoreMismatch(_foreign(place))
        meta = Meta.model_validate_json(text)
    except ValidationError:
        raise StoreMismatch(_foreign(place)) from None
    if meta.version > SCHEMA_VERSION:
        raise StoreMismatch(
            f"{place} is of version {meta.version}, this program knows {SCHEMA_VERSION};"
            " upgrade patchshot, or name another collection"
        )
    return meta


def is_ours(text: str | bytes | None) -> bool:
    """Whether it can be read, whatever its version."""
    try:
        return text is not None and Meta.model_validate_json(text) is not None
    except ValidationError:
        return False


def _foreign(place: str) -> str:
    return f"{place} is not ours; name another collection, or another store"
