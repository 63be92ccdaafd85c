"""Vectors that others have computed: read from files, searched, written."""
