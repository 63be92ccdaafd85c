"""Which tests are run for a patch, and in which order."""
