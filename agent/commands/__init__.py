"""What each command does. `agent.cli` parses arguments and calls `run` here; one module a command."""
