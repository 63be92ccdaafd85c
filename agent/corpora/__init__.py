"""Corpora beside the code (history, documents, intents, memory), and one pool of results."""
