"""`agent.batch.hatchery` and `.nursery`: forked workers, and the death of their mother."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from agent.batch import folder as files
from agent.batch import worker
from agent.batch.child import Child
from agent.batch.hatchery import Hatchery
from agent.batch.local import LocalEngine
from agent.batch.messages import Ended, Job, line_of
from agent.durable import locked
from tests.support.batch import make_job
from tests.unit.batch.test_local import Listener


def hatching(do: Callable[[Hatchery], Awaitable[None]], seconds: float = 60.0) -> None:
    async def go() -> None:
        hatchery = Hatchery()
        try:
            await do(hatchery)
        finally:
            await hatchery.close()

    asyncio.run(asyncio.wait_for(go(), seconds))


def number_of(child: Child) -> int:
    return int(child._number)  # type: ignore[attr-defined]


def mother_of(number: int) -> int:
    return int(Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[1])


async def answer_of(child: Child, job: Job) -> Ended:
    child.send(line_of(job))
    while line := await child.read():
        if line.startswith(b'{"kind":"ended"'):
            return Ended.model_validate_json(line)
    raise AssertionError("no last word")


def test_workers_are_siblings_of_one_thread_and_one_session_each(tmp_path: Path) -> None:
    async def do(hatchery: Hatchery) -> None:
        one, two = await asyncio.gather(hatchery.start(tmp_path / "1"), hatchery.start(tmp_path))
        numbers = [number_of(one), number_of(two)]
        (mother,) = {mother_of(number) for number in numbers}
        assert len(list(Path(f"/proc/{mother}/task").iterdir())) == 1
        assert [os.getsid(number) for number in numbers] == numbers
        for child in (one, two):
            child.hang_up()  # no job: it ends
        assert [await one.wait(), await two.wait()] == [0, 0]

    hatching(do)


def test_a_forked_worker_does_a_job(tmp_path: Path) -> None:
    async def do(hatchery: Hatchery) -> None:
        child = await hatchery.start(tmp_path / "1")
        ended = await answer_of(child, make_job(1, tmp_path / "1"))
        assert (ended.blame, await child.wait()) == ("row", 0)
        assert (tmp_path / "1" / files.LOG).read_text() == "attempt 1\n"

    hatching(do)


def test_a_killed_worker_costs_itself_alone(tmp_path: Path) -> None:
    async def do(hatchery: Hatchery) -> None:
        one, two = await hatchery.start(tmp_path / "1"), await hatchery.start(tmp_path / "2")
        os.kill(number_of(one), signal.SIGKILL)
        assert (await one.wait(), await one.read()) == (-signal.SIGKILL, b"")
        assert (await answer_of(two, make_job(2, tmp_path / "2"))).blame == "row"

    hatching(do)


def test_a_dead_nursery_leaves_its_workers_and_is_replaced(tmp_path: Path) -> None:
    async def do(hatchery: Hatchery) -> None:
        one = await hatchery.start(tmp_path / "1")
        mother = mother_of(number_of(one))
        os.kill(mother, signal.SIGKILL)
        two = await hatchery.start(tmp_path / "2")
        assert mother_of(number_of(two)) not in (mother, os.getpid())
        ended = await answer_of(one, make_job(1, tmp_path / "1"))
        assert (ended.blame, await one.wait()) == ("row", None)  # nobody can tell its exit code
        assert (await answer_of(two, make_job(2, tmp_path / "2"))).blame == "row"

    hatching(do)


def test_where_no_nursery_starts_workers_are_started_one_by_one(tmp_path: Path) -> None:
    async def go() -> None:
        hatchery = Hatchery(("false",))
        child = await hatchery.start(tmp_path / "1")
        assert (await answer_of(child, make_job(1, tmp_path / "1"))).blame == "row"
        await child.wait()
        await hatchery.close()

    asyncio.run(asyncio.wait_for(go(), 60))


def test_without_a_driver_the_nursery_ends_and_a_worker_sees_it(tmp_path: Path) -> None:
    async def do(hatchery: Hatchery) -> None:
        child = await hatchery.start(tmp_path / "1")
        mother = mother_of(number_of(child))
        (tmp_path / "1").mkdir(exist_ok=True)
        with locked(tmp_path / "1" / files.LOCK):
            child.send(line_of(make_job(1, tmp_path / "1")))  # it waits for the lock
            await hatchery.close()
            assert not Path(f"/proc/{mother}").exists()
            assert Path(f"/proc/{number_of(child)}").exists()
        await child.wait()

    hatching(do)


def test_the_second_job_knows_that_the_sandbox_was_tried(tmp_path: Path) -> None:
    class Mute(Child):
        def __init__(self, lines: list[bytes]) -> None:
            self.lines, self.sent = lines, b""

        async def read(self) -> bytes:
            return self.lines.pop(0) if self.lines else b""

        def send(self, data: bytes) -> None:
            self.sent += data

        def hang_up(self) -> None: ...

        def terminate(self) -> None: ...

        def kill(self) -> None: ...

        async def wait(self) -> int | None:
            return 0

    stage = b'{"kind":"stage","stage":"retrieve","seconds":1,"summary":""}\n'
    last = b'{"kind":"ended","status":"accepted","blame":"none","message":""}\n'
    children = [Mute([stage, last]), Mute([]), Mute([last])]
    waiting = list(children)

    class Spawner:
        async def start(self, folder: Path) -> Child:
            return waiting.pop(0)

        async def close(self) -> None: ...

    async def go() -> None:
        engine = LocalEngine(Listener(), 10.0, Spawner())
        for number in (1, 2, 3):
            await engine.attempt(make_job(number, tmp_path))

    asyncio.run(go())
    told = [Job.model_validate_json(child.sent).sandbox_tried for child in children]
    assert told == [False, True, False]  # the second has died: what it left behind is removed


@pytest.mark.parametrize("name", [name for name in worker._NEEDED if "_" not in name])
def test_what_is_loaded_ahead_is_there(name: str) -> None:
    importlib.import_module(name)


def test_the_last_word_of_a_dead_worker_is_still_read(tmp_path: Path) -> None:
    async def do(hatchery: Hatchery) -> None:
        child = await hatchery.start(tmp_path / "1")
        child.send(line_of(make_job(1, tmp_path / "1")))
        assert await child.wait() == 0
        lines = [line async for line in lines_of(child)]
        assert lines[-1].startswith(b'{"kind":"ended"')

    hatching(do)


async def lines_of(child: Child) -> AsyncIterator[bytes]:
    while line := await child.read():
        yield line
