"""Joins equal requests that are sent at once into one that asks for `n` replies.

Only for OpenAI's protocol: https://platform.openai.com/docs/api-reference/chat/create#n
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.llm.failures import Failure
from agent.llm.http import JsonReply, Outcome

Check = Callable[[Any], Failure | None]
Post = Callable[[str, Mapping[str, Any], Check], Coroutine[Any, Any, Outcome]]

# Requests of one draw are made within milliseconds of each other.
_WAIT_SECONDS = 0.05

# What servers answer that do not know a field or its value.
_REFUSED = (400, 404, 422)

_COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens", "cost")


@dataclass(slots=True)
class _Group:
    """Equal requests that wait to be sent. `full` is set when no more are expected."""

    callers: int = 0
    cancelled: int = 0
    full: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[list[Outcome]] | None = None


class JoinedPosts:
    """Posts requests. Up to `most` equal ones at once become one request, until a server refuses.

    A server that gives fewer replies is asked for the others one by one.
    """

    def __init__(self, post: Post, most: int) -> None:
        self._post = post
        self._most = most
        self._groups: dict[str, _Group] = {}

    async def post(self, path: str, body: Mapping[str, Any], check: Check) -> Outcome:
        """Return the outcome of one request as if it had been sent by itself."""
        if self._most < 2:
            return await self._post(path, body, check)
        key = json.dumps([path, body], sort_keys=True)
        group = self._groups.setdefault(key, _Group())
        place, group.callers = group.callers, group.callers + 1
        if group.callers >= self._most:
            group.full.set()
        if group.task is None:
            group.task = asyncio.create_task(self._send(key, path, body, check))
        try:
            outcomes = await asyncio.shield(group.task)
        except asyncio.CancelledError:
            group.cancelled += 1
            if group.cancelled == group.callers:
                group.task.cancel()
            raise
        if place < len(outcomes):
            return outcomes[place]
        return await self._post(path, body, check)

    async def _send(
        self, key: str, path: str, body: Mapping[str, Any], check: Check
    ) -> list[Outcome]:
        group = self._groups[key]
        try:
            async with asyncio.timeout(_WAIT_SECONDS):
                await group.full.wait()
        except TimeoutError:
            pass
        finally:
            del self._groups[key]  # a later call begins another group
        return await self._outcomes(group.callers, path, body, check)

    async def _outcomes(
        self, count: int, path: str, body: Mapping[str, Any], check: Check
    ) -> list[Outcome]:
        """Return the outcomes of one request; the callers that get none send their own."""
        if count == 1:
            return []
        outcome = await self._post(path, {**body, "n": count}, check)
        if isinstance(outcome, Failure) and outcome.status not in _REFUSED:
            return [outcome] * count
        found = [] if isinstance(outcome, Failure) else _split(outcome)[:count]
        if len(found) < count:
            self._most = 1  # the server does not take `n`
        return found


def _split(reply: JsonReply) -> list[Outcome]:
    """Return a reply for each choice; each has its share of the tokens and of the cost."""
    value = reply.value
    choices = value.get("choices") if isinstance(value, dict) else None
    if not isinstance(choices, list) or len(choices) < 2:
        return [reply]
    usage = value.get("usage")
    return [
        JsonReply({**value, "choices": [choice], "usage": _share(usage, at, len(choices))})
        for at, choice in enumerate(choices)
    ]


def _share(usage: Any, at: int, count: int) -> dict[str, Any]:
    """Return the share of one choice: the first has what cannot be divided."""
    found: dict[str, Any] = {}
    for name in _COUNTS:
        number = usage.get(name) if isinstance(usage, dict) else None
        if isinstance(number, int) and not isinstance(number, bool):
            found[name] = number // count + (number % count if at == 0 else 0)
        elif isinstance(number, float):
            found[name] = number / count
    return found
