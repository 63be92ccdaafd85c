"""Whether the patch applier can be trusted: a scorecard, a fuzz run, a speed table.

`python -m benchmarks.patching --help`. What the figures mean stands in `docs/design/patching.md`.
"""
