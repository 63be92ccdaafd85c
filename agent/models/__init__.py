"""Weights that ship with the package: data, no code."""
