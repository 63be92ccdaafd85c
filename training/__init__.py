"""Trains the ranker and the static encoder on the histories of public projects."""
