"""Measurements. `python -m benchmarks` runs them all; nothing here fails on time."""
