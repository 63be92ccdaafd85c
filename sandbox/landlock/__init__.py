"""The reduced backend for machines that forbid namespaces: Landlock."""
