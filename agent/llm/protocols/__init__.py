"""What servers speak: one module a protocol, pure, without any sending.

A module says how a request is written and how a reply is read, and gathers that in one
`ServerProtocol`; `agent.llm.protocols.registry` lists them. Sending, retries and errors are shared
(`agent.llm.server`, `agent.llm.chat`, `agent.llm.embeddings`).
"""
