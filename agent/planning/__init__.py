"""Plan search: which code an issue needs, asked for by several intents instead of one query."""
