"""Reaches a verdict from the outcomes of runs. Pure."""
