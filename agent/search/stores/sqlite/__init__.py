"""The embedded vector store: one SQLite file, searched exactly or by an approximate index."""
