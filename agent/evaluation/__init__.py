"""Evaluations against SWE-bench rows.

`retrieval` measures where the ranking puts the code that had to change; `patches` runs the tests
that decide whether predictions resolve their issues.
"""
