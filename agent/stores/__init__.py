"""Vector stores behind one protocol: SQLite here, LanceDB, Qdrant and PostgreSQL as extras."""
