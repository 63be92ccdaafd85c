"""Private copies of a repository, and private directories on the host."""
