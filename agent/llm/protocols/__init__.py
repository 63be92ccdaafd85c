"""The protocols that model servers speak, one module each. They only read and write JSON."""

from __future__ import annotations

from collections.abc import Mapping

from agent.llm.protocols.anthropic import ANTHROPIC
from agent.llm.protocols.base import ServerProtocol
from agent.llm.protocols.miner import MINER
from agent.llm.protocols.openai import OPENAI, OPENROUTER

# In the order in which the keys of their providers are taken.
PROTOCOLS: Mapping[str, ServerProtocol] = {
    protocol.name: protocol for protocol in (OPENROUTER, OPENAI, ANTHROPIC, MINER)
}
