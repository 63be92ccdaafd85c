from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path

import pytest

from agent.shared.workers import WorkerFailed, WorkerPool, WorkerProcess, in_thread

ECHO = """
import sys, time
from agent.shared.workers import read_frame, write_frame
while True:
    try:
        frame = read_frame(sys.stdin.buffer)
    except EOFError:
        break
    if frame == b"hang":
        time.sleep(60)
    if frame == b"exit":
        sys.exit(3)
    write_frame(sys.stdout.buffer, frame.upper())
    sys.stdout.buffer.flush()
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "echo_worker.py").write_text(ECHO)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "echo_worker"


def start(module: str, **options: float) -> WorkerProcess:
    return WorkerProcess(module, environment=os.environ, **options)


def test_a_worker_answers_one_request_after_another(module: str) -> None:
    worker = start(module)
    assert [worker.ask([b"one"], 30), worker.ask([b"two"], 30)] == [b"ONE", b"TWO"]
    worker.stop()


@pytest.mark.parametrize("grace", [0.0, 5.0])
def test_a_worker_that_hangs_is_killed(module: str, grace: float) -> None:
    worker = start(module, grace=grace)
    worker.ask([b"ready"], 30)
    with pytest.raises(WorkerFailed) as raised:
        worker.ask([b"hang"], 0.1)
    assert raised.value.late


def test_a_worker_that_exits_is_reported_with_its_code(module: str) -> None:
    with pytest.raises(WorkerFailed, match="exit code 3") as raised:
        start(module).ask([b"exit"], 30)
    assert not raised.value.late


def test_a_pool_uses_all_workers_and_stops_them(module: str) -> None:
    workers = [start(module) for _ in range(2)]
    with WorkerPool(workers, "echo") as pool:
        asked = [pool.submit(lambda w, n=n: w.ask([b"n%d" % n], 30)) for n in range(9)]
        assert [future.result() for future in asked] == [b"N%d" % n for n in range(9)]
        threads = [t for t in threading.enumerate() if t.name.startswith("echo")]
        assert len(threads) == 2
    for worker in workers:
        with pytest.raises(WorkerFailed):
            worker.ask([b"late"], 30)


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
