"""Vector store in Qdrant (extra `qdrant`): in this process, in a folder, or on a server."""
