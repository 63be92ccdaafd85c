"""The test runners that projects use: one module each, listed in `registry`."""
