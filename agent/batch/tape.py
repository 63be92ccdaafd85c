"""The replies of one instance, kept as they arrive: what was paid once is served from then on.

The file is a recording (`agent.llm.exchange`): `agent solve --replay` reads it too. Unlike one, it
is appended to by every attempt, and each line is on the disk before its reply is used.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from agent.durable import AppendFile
from agent.errors import ConfigurationError
from agent.llm.exchange import (
    ChatExchange,
    RecordedMessage,
    format_exchange,
    parse_exchange,
    recorded_messages,
)
from agent.types import Prompt

# "0.12s", "1.5 seconds", "3 ms", "0x7f3a91c0d2e0".
_VARYING = re.compile(r"\b0x[0-9a-fA-F]{4,16}\b|\b\d+(?:\.\d+)?(?= ?(?:ms|s|sec|seconds?)\b)")


class Tape:
    """Exchanges of a file, each served once in an attempt; new ones are added at its end.

    Raises ConfigurationError when the file holds something else. Close it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = AppendFile(path)
        self.exchanges: list[ChatExchange] = list(_read(path))
        self._unused = list(self.exchanges)

    def take(self, prompt: Prompt, model: str, max_output_tokens: int) -> ChatExchange | None:
        """The next unused reply to this question, None where there is none.

        The prompt has the same hash, or differs by measured times and addresses alone: a repair
        prompt quotes what tests have printed, and they print those.
        """
        fitting = [
            exchange
            for exchange in self._unused
            if exchange.request.model == model
            and exchange.request.max_output_tokens == max_output_tokens
        ]
        same = [exchange for exchange in fitting if exchange.sha256 == prompt.sha256]
        found = next(iter(same), None) or _alike(recorded_messages(prompt), fitting)
        if found is not None:
            self._unused = [exchange for exchange in self._unused if exchange is not found]
        return found

    def add(self, exchange: ChatExchange) -> None:
        """Keep a reply. Raises OSError, with nothing kept, when the disk is full."""
        self._file.append(format_exchange(exchange))
        self.exchanges.append(exchange)

    def costs(self) -> Sequence[tuple[str, float | None, int, int]]:
        """All replies in order: hash of the prompt, cost, tokens in, tokens out."""
        used = ((e.sha256, e.reply.usage) for e in self.exchanges)
        return [(name, u.cost_usd, u.input_tokens, u.output_tokens) for name, u in used]

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _alike(
    messages: Sequence[RecordedMessage], exchanges: Sequence[ChatExchange]
) -> ChatExchange | None:
    """The first of `exchanges` that asked the same but for what varies from run to run."""
    wanted = _lasting(messages)
    return next((e for e in exchanges if _lasting(e.request.messages) == wanted), None)


def _lasting(messages: Sequence[RecordedMessage]) -> list[tuple[str, str]]:
    return [(message.role, _VARYING.sub("0", message.content)) for message in messages]


def _read(path: Path) -> list[ChatExchange]:
    exchanges = []
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not line:
            continue
        exchange = parse_exchange(line)
        if not isinstance(exchange, ChatExchange):
            reason = exchange if isinstance(exchange, str) else "an embedding"
            raise ConfigurationError(
                f"{path}:{number}: no recorded reply ({reason}): take the line out"
            )
        exchanges.append(exchange)
    return exchanges
