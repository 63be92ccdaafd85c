"""Retrieval: the index of a repository, its ranking, and the packed context."""
