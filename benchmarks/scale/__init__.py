"""What 10,000 instances on 100 machines would do: a simulation of events (docs/design/batch.md)."""
