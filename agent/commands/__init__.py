"""What each command does, one module a command. `agent.cli` parses arguments and calls `run`."""
