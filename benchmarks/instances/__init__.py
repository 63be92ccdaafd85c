"""`python -m benchmarks.instances`: real bugs of public projects, answered and judged."""
