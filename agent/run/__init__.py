"""One run: from an issue to a validated patch. Start with `agent.run.pipeline`."""
