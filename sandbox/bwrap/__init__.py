"""The default backend: bubblewrap."""
