"""Vector store in PostgreSQL with pgvector (extra `pgvector`), and shared index records."""
