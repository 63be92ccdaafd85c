"""Every protocol by the kind of endpoint that speaks it: a new one joins here."""

from __future__ import annotations

from collections.abc import Mapping

from agent.llm.endpoint import EndpointKind
from agent.llm.protocols.anthropic import ANTHROPIC
from agent.llm.protocols.base import ServerProtocol
from agent.llm.protocols.miner import MINER
from agent.llm.protocols.openai import OPENAI
from agent.llm.protocols.openrouter import OPENROUTER

PROTOCOLS: Mapping[EndpointKind, ServerProtocol] = {
    "openai": OPENAI,
    "openrouter": OPENROUTER,
    "anthropic": ANTHROPIC,
    "miner": MINER,
}
