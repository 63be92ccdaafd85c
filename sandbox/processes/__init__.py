"""Watches the processes of a run: limits, control groups, meters, output, and their end."""
