"""The corpora other than code. Each is a `CorpusSource` that reads passages from a snapshot."""
