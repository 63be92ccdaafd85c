"""Real bugs with known tests, mined from the histories of public projects (docs/benchmarks.md).

Nothing of those projects is kept here: the rows are made again from clones of them.
"""
