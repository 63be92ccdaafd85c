"""Learning to rank from the histories of public projects: data, features, models."""
