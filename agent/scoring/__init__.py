"""Whether predictions solve their instances: known tests, run in the sandbox, counted honestly."""
