from __future__ import annotations

import asyncio
import threading
import time

import pytest

from agent.shared.workers import in_thread


def test_the_result_or_the_error_of_the_work_comes_back() -> None:
    assert asyncio.run(in_thread(lambda cancel: cancel.is_set())) is False
    with pytest.raises(ZeroDivisionError):
        asyncio.run(in_thread(lambda _: 1 // 0))


@pytest.mark.parametrize("wait", [True, False])
def test_cancelling_sets_the_event_and_waits_if_asked(wait: bool) -> None:
    begun, ended = threading.Event(), threading.Event()

    def work(cancel: threading.Event) -> None:
        begun.set()
        assert cancel.wait(30)
        time.sleep(0.2)
        ended.set()
        raise ValueError("stopped half way")

    async def run() -> bool:
        task = asyncio.create_task(in_thread(work, wait=wait))
        await asyncio.to_thread(begun.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return ended.is_set()

    assert asyncio.run(run()) is wait
    assert ended.is_set()
