"""`agent.batch.local.fork_server`: forked workers, and the death of the fork server."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from agent.batch import worker
from agent.batch.local.local_engine import LocalEngine
from agent.batch.local.worker_processes import ForkServerSpawner, SolverProcess
from agent.batch.messages import AttemptEnded, SolveJob, encode_line
from agent.results import kept as files
from agent.shared.files import locked
from tests.support.batch import make_job
from tests.unit.batch.local.test_local_engine import Listener

pytestmark = pytest.mark.slow


def with_spawner(do: Callable[[ForkServerSpawner], Awaitable[None]], seconds: float = 60.0) -> None:
    async def go() -> None:
        spawner = ForkServerSpawner()
        try:
            await do(spawner)
        finally:
            await spawner.close()

    asyncio.run(asyncio.wait_for(go(), seconds))


def number_of(child: SolverProcess) -> int:
    return int(child._number)  # type: ignore[attr-defined]


def mother_of(number: int) -> int:
    return int(Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[1])


async def answer_of(child: SolverProcess, job: SolveJob) -> AttemptEnded:
    child.send(encode_line(job))
    while line := await child.read():
        if line.startswith(b'{"kind":"ended"'):
            return AttemptEnded.model_validate_json(line)
    raise AssertionError("no last word")


def test_workers_are_siblings_of_one_thread_and_one_session_each(tmp_path: Path) -> None:
    async def do(spawner: ForkServerSpawner) -> None:
        one, two = await asyncio.gather(spawner.start(tmp_path / "1"), spawner.start(tmp_path))
        numbers = [number_of(one), number_of(two)]
        (mother,) = {mother_of(number) for number in numbers}
        assert len(list(Path(f"/proc/{mother}/task").iterdir())) == 1
        assert [os.getsid(number) for number in numbers] == numbers
        for child in (one, two):
            child.hang_up()  # no job: it ends
        assert [await one.wait(), await two.wait()] == [0, 0]

    with_spawner(do)


def test_a_forked_worker_does_a_job(tmp_path: Path) -> None:
    async def do(spawner: ForkServerSpawner) -> None:
        child = await spawner.start(tmp_path / "1")
        ended = await answer_of(child, make_job(1, tmp_path / "1"))
        assert (ended.blame, await child.wait()) == ("row", 0)
        assert (tmp_path / "1" / files.LOG).read_text() == "attempt 1\n"

    with_spawner(do)


def test_a_killed_worker_costs_itself_alone(tmp_path: Path) -> None:
    async def do(spawner: ForkServerSpawner) -> None:
        one, two = await spawner.start(tmp_path / "1"), await spawner.start(tmp_path / "2")
        os.kill(number_of(one), signal.SIGKILL)
        assert (await one.wait(), await one.read()) == (-signal.SIGKILL, b"")
        assert (await answer_of(two, make_job(2, tmp_path / "2"))).blame == "row"

    with_spawner(do)


@pytest.mark.slow
def test_a_dead_fork_server_leaves_its_workers_and_is_replaced(tmp_path: Path) -> None:
    async def do(spawner: ForkServerSpawner) -> None:
        one = await spawner.start(tmp_path / "1")
        mother = mother_of(number_of(one))
        os.kill(mother, signal.SIGKILL)
        two = await spawner.start(tmp_path / "2")
        assert mother_of(number_of(two)) not in (mother, os.getpid())
        ended = await answer_of(one, make_job(1, tmp_path / "1"))
        assert (ended.blame, await one.wait()) == ("row", None)  # nobody can tell its exit code
        assert (await answer_of(two, make_job(2, tmp_path / "2"))).blame == "row"

    with_spawner(do)


def test_where_no_fork_server_starts_workers_are_started_one_by_one(tmp_path: Path) -> None:
    async def go() -> None:
        spawner = ForkServerSpawner(("false",))
        child = await spawner.start(tmp_path / "1")
        assert (await answer_of(child, make_job(1, tmp_path / "1"))).blame == "row"
        await child.wait()
        await spawner.close()

    asyncio.run(asyncio.wait_for(go(), 60))


def test_without_a_driver_the_fork_server_ends_and_a_worker_sees_it(tmp_path: Path) -> None:
    async def do(spawner: ForkServerSpawner) -> None:
        child = await spawner.start(tmp_path / "1")
        mother = mother_of(number_of(child))
        (tmp_path / "1").mkdir(exist_ok=True)
        with locked(tmp_path / "1" / files.LOCK):
            child.send(encode_line(make_job(1, tmp_path / "1")))  # it waits for the lock
            await spawner.close()
            assert not Path(f"/proc/{mother}").exists()
            assert Path(f"/proc/{number_of(child)}").exists()
        await child.wait()

    with_spawner(do)


def test_the_second_job_knows_that_the_sandbox_was_tried(tmp_path: Path) -> None:
    class Mute(SolverProcess):
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
        async def start(self, folder: Path) -> SolverProcess:
            return waiting.pop(0)

        async def close(self) -> None: ...

    async def go() -> None:
        engine = LocalEngine(Listener(), 10.0, Spawner())
        for number in (1, 2, 3):
            await engine.attempt(make_job(number, tmp_path))

    asyncio.run(go())
    told = [SolveJob.model_validate_json(child.sent).sandbox_tried for child in children]
    assert told == [False, True, False]  # the second has died: what it left behind is removed


@pytest.mark.parametrize("name", [name for name in worker._NEEDED if "_" not in name])
def test_what_is_loaded_ahead_is_there(name: str) -> None:
    importlib.import_module(name)


def test_the_last_word_of_a_dead_worker_is_still_read(tmp_path: Path) -> None:
    async def do(spawner: ForkServerSpawner) -> None:
        child = await spawner.start(tmp_path / "1")
        child.send(encode_line(make_job(1, tmp_path / "1")))
        assert await child.wait() == 0
        lines = [line async for line in lines_of(child)]
        assert lines[-1].startswith(b'{"kind":"ended"')

    with_spawner(do)


async def lines_of(child: SolverProcess) -> AsyncIterator[bytes]:
    while line := await child.read():
        yield line
