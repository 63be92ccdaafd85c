"""Cached state on disk: the one place that decides how cache files are opened and replaced.

`SqliteFile` runs transactions on a SQLite file of a known format. `RecordStore` keeps byte records
by key in such a file, within a limit. `sqlite_file` states what happens to damaged files.
"""

from agent.shared.cache.records import DEFAULT_LIMIT, RecordStore, compress, expand, record_format
from agent.shared.cache.sqlite_file import DamagedFile, ForeignFile, SqliteFile, SqliteFormat

__all__ = [
    "DEFAULT_LIMIT",
    "DamagedFile",
    "ForeignFile",
    "RecordStore",
    "SqliteFile",
    "SqliteFormat",
    "compress",
    "expand",
    "record_format",
]
