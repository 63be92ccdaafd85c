"""Equal requests at once become one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent.errors import ProviderError
from agent.llm.failures import Failure
from agent.llm.http import JsonReply, Outcome
from agent.llm.joining import JoinedPosts


class Server:
    """Answers with `gives` choices of what is asked, or with a status."""

    def __init__(self, gives: int = 9, refuses: int | None = None, error: Exception | None = None):
        self.gives, self.refuses, self.error = gives, refuses, error
        self.asked: list[int] = []

    async def post(self, path: str, body: Any, check: Any) -> Outcome:
        count = body.get("n", 1)
        self.asked.append(count)
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        if self.refuses is not None and count > 1:
            return Failure(ProviderError("no"), status=self.refuses)
        choices = [{"index": at} for at in range(min(count, self.gives))]
        return JsonReply({"choices": choices, "usage": {"prompt_tokens": 100, "cost": 0.5}})


def draw(server: Server, *bodies: dict[str, Any], most: int = 3, again: int = 0) -> list[Any]:
    async def run() -> list[Any]:
        posts = JoinedPosts(server.post, most)
        for _ in range(again + 1):
            calls = (posts.post("/chat", body, lambda _: None) for body in bodies)
            found = await asyncio.gather(*calls, return_exceptions=True)
        return found

    return asyncio.run(run())


def choices(found: list[Any]) -> list[int]:
    return [one.value["choices"][0]["index"] for one in found]


def test_equal_requests_are_one_and_share_its_tokens_and_cost() -> None:
    server = Server()
    found = draw(server, {"a": 1}, {"a": 1}, {"a": 1})
    assert (server.asked, choices(found)) == ([3], [0, 1, 2])
    assert [one.value["usage"]["prompt_tokens"] for one in found] == [34, 33, 33]
    assert sum(one.value["usage"]["cost"] for one in found) == pytest.approx(0.5)


def test_different_requests_and_single_ones_go_by_themselves() -> None:
    server = Server()
    draw(server, {"a": 1}, {"a": 2})
    assert server.asked == [1, 1]


@pytest.mark.parametrize("server", [Server(gives=1), Server(refuses=400)])
def test_a_server_without_n_is_asked_one_by_one_from_then_on(server: Server) -> None:
    found = draw(server, {"a": 1}, {"a": 1}, {"a": 1}, again=1)
    assert all(isinstance(one, JsonReply) for one in found)
    assert server.asked.count(3) == 1
    assert server.asked[-3:] == [1, 1, 1]


def test_other_failures_and_errors_reach_every_caller() -> None:
    found = draw(Server(refuses=503), {"a": 1}, {"a": 1})
    assert [one.status for one in found] == [503, 503]
    found = draw(Server(error=ProviderError("gone")), {"a": 1}, {"a": 1})
    assert [str(one) for one in found] == ["gone", "gone"]


def test_cancelled_callers_leave_no_task() -> None:
    async def run() -> int:
        posts = JoinedPosts(Server().post, 3)
        calls = asyncio.gather(*(posts.post("/c", {"a": 1}, lambda _: None) for _ in range(2)))
        await asyncio.sleep(0)
        calls.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calls
        await asyncio.sleep(0)
        return len(asyncio.all_tasks())

    assert asyncio.run(run()) == 1
