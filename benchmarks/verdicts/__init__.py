"""How often VERIFIED is right: patches that fix nothing, and real fixes, each validated for real.

The patches that fix nothing are those of `tests.attack.noop`. The real fixes are commits of public
projects, read from clones of them; `fixes.csv` names repository and commit, nothing else is kept.
"""
