"""Chooses the test files that are run for a patch. `selection` has the rules."""
