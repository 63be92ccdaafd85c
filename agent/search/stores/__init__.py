"""Vector stores behind one protocol: SQLite (embedded), LanceDB, Qdrant and PostgreSQL (extras).

    with open_store("sqlite:///vectors.db", reporter) as store:
        collection = store.collection("docs", model, dimension)
        collection.upsert(entries)
        (matches,) = collection.search(queries, 10, EntryFilter(project="host/owner/name"))

`base` defines the protocols and values. `registry` explains how to add an engine.
"""

from agent.search.stores.base import (
    CollectionInfo,
    Entry,
    EntryFilter,
    Fields,
    VectorCollection,
    VectorMatch,
    VectorStore,
    score_of,
)
from agent.search.stores.engine import checked_name
from agent.search.stores.registry import (
    check_url,
    collections_at,
    open_records,
    open_store,
    open_temporary,
)
from agent.search.stores.urls import shown_url

__all__ = [
    "CollectionInfo",
    "Entry",
    "EntryFilter",
    "Fields",
    "VectorCollection",
    "VectorMatch",
    "VectorStore",
    "check_url",
    "checked_name",
    "collections_at",
    "open_records",
    "open_store",
    "open_temporary",
    "score_of",
    "shown_url",
]
