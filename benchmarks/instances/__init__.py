"""Real bugs with known tests, mined from the histories of public projects.

`docs/design/benchmarks.md` has the results. Nothing of those projects is kept here: the rows are
made again from clones of them.
"""
