"""Vectors that others have computed: loaded from a folder of JSON files, searched, written."""
