"""The miners' inference proxy, in every generation, with one body that fits all of them.

| | path | run | model, temperature | answers |
|---|---|---|---|---|
| P1 | /agents, then /api | `run_id`, any text | may be left out | a bare string, errors in 200 |
| P2 | /api | `run_id`, a UUID | wanted | a bare string; embeddings 501 |
| P3 | /api | `evaluation_run_id`, a UUID | wanted | `{content, tool_calls}`, `{embedding}` |

Fields that a generation does not know are ignored by it, so both names of the run are sent. Nothing
says how long a reply may be, or in which format: P1 cuts replies at 2,048 tokens.
Facts: the public repository of the miners' network, and its code run against a stub provider.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from agent.llm.endpoint import Endpoint
from agent.llm.failures import is_markup
from agent.llm.prices import Price
from agent.llm.protocols.base import ChatCall, Embeddings, ServerProtocol
from agent.llm.protocols.openai import bearer, read_models
from agent.llm.replies import ReadReply, read_chat_reply

if TYPE_CHECKING:
    from agent.llm.failures import Failure

# What P1 answers, with 200, when the model wrote nothing.
_EMPTY = re.compile(r"\s*\w+ API returned empty response for model ")
# What P2 answers, with 200, when the provider behind it failed: a text of its own, or the
# provider's error as it came.
_FAILED = re.compile(r"\s*Error in \w+Provider\._\w+\(\): ")
_ERROR_KEYS = frozenset({"error", "detail", "message", "object", "type", "code", "status", "param"})


@dataclass(frozen=True, slots=True)
class MinerChat:
    """POST inference."""

    run: str
    path: str = "/inference"

    def body(self, call: ChatCall) -> dict[str, Any]:
        """Contents are plain texts: lists and null are refused. Tools are never offered."""
        model = {"model": call.model} if call.model else {}
        messages = [{"role": m.role, "content": m.content} for m in call.messages]
        return {
            **_run_fields(self.run),
            **model,
            "temperature": call.temperature,
            "messages": messages,
            "tool_mode": "none",
        }

    @property
    def streaming(self) -> None:
        return None

    def read(self, value: Any) -> ReadReply | str | None:
        """A bare string or `{content, tool_calls}`; failures that come as strings are told apart.

        Whether a reply was cut off is never said: `finish_reason` is "length" where JSON or a
        fenced block begins and does not end, else "unknown".
        """
        if isinstance(value, str):
            if _EMPTY.match(value):
                return ReadReply("", "unknown")
            if _FAILED.match(value) or _is_error_text(value):
                return value
        reply = read_chat_reply(value)
        if reply is None:
            return None
        return replace(reply, finish_reason="length" if _is_cut_off(reply.text) else "unknown")

    def adapted(self, failure: Failure, sent: Mapping[str, Any]) -> None:
        return None


def _run_fields(run: str) -> dict[str, Any]:
    return {"run_id": run, "evaluation_run_id": run}


def _embedding_body(endpoint: Endpoint, texts: Sequence[str]) -> dict[str, Any]:
    (text,) = texts
    model = {"model": endpoint.model} if endpoint.model else {}
    return {**_run_fields(endpoint.run_id), **model, "input": text}


def _is_cut_off(text: str) -> bool:
    text = text.strip()
    return text.startswith(("{", "[", "```")) and not text.endswith(("}", "]", "```"))


def _is_error_text(text: str) -> bool:
    """Whether a reply is a web page, or the JSON of a provider's error and nothing else."""
    if is_markup(text[:200].encode()):
        return True
    if not text.lstrip().startswith("{"):
        return False
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    if not isinstance(value, dict) or not value.keys() <= _ERROR_KEYS:
        return False
    return any(value.get(name) for name in ("error", "detail")) or value.get("object") == "error"


def _price_a_million(row: Mapping[str, Any]) -> Price | None:
    """The price in P3's list: `[{name, max_input_tokens, cost_usd_per_million_..._tokens}]`."""
    costs = [row.get(f"cost_usd_per_million_{side}_tokens") for side in ("input", "output")]
    numbers = [c for c in costs if isinstance(c, int | float) and 0 <= c < float("inf")]
    return Price(float(numbers[0]), float(numbers[1])) if len(numbers) == len(costs) else None


def _roots(base_url: str) -> tuple[str, ...]:
    """`/api` as since August 2025, `/agents` as before; a URL that ends with either is taken."""
    for suffix in ("/api", "/agents"):
        base_url = base_url.removesuffix(suffix)
    return (f"{base_url}/api", f"{base_url}/agents")


MINER = ServerProtocol(
    name="miner",
    roots=_roots,
    headers=bearer,  # it needs no key; a key that is set is for a proxy before it
    chat=lambda endpoint: MinerChat(endpoint.run_id),
    embeddings=Embeddings("/embedding", 1, _embedding_body),
    read_models=lambda value: read_models(value, _price_a_million),
    models_path="/inference-models",
    embedding_models_path="/embedding-models",
    recognises=lambda path: path.endswith(("/inference", "/embedding")),
    list_chooses=True,
    serves_runs=True,
)
