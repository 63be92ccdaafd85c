"""Environments of projects: which Python, packages and test command, by a file; built once."""
