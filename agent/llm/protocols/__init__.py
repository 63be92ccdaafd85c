"""The protocols that model servers speak, one module each. They only read and write JSON.

To add one, write a module that builds a `ServerProtocol` (see `base`) and add its line to
`PROTOCOLS`. Sending, retries and errors are shared: `agent.llm.server`, `.clients`.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent.llm.protocols.anthropic import ANTHROPIC
from agent.llm.protocols.base import ServerProtocol
from agent.llm.protocols.miner import MINER
from agent.llm.protocols.openai import OPENAI, OPENROUTER

PROTOCOLS: Mapping[str, ServerProtocol] = {
    protocol.name: protocol
    for protocol in (
        # The order in which the keys of their providers are taken.
        OPENROUTER,
        OPENAI,
        ANTHROPIC,
        MINER,
    )
}
