"""Starting a process that Ctrl-C can end, whatever started the tests.

A shell without job control starts background jobs with SIGINT ignored, and children inherit that;
Python then rightly leaves it ignored. Tests of Ctrl-C must not depend on how they are run.
"""

INTERRUPTIBLE = ("env", "--default-signal=INT")
"""Prefix of an argument vector (GNU coreutils 8.31 or later)."""
