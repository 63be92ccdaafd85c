"""Trees, tools and runs."""
