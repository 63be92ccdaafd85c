"""Turns of test runs: how many at once, whose is next, and what becomes of those that end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.batch.local.cpu_slots import CpuSlots, SlotSandbox
from sandbox.types import Command
from sandbox.workspace.copy import Workspace, empty_workspace
from tests.support.scripted_sandbox import ScriptedSandbox


class Machine:
    """Turns, and which runs have begun."""

    def __init__(self, cores: int) -> None:
        self.slots = CpuSlots(cores)
        self.begun: list[str] = []

    def want(self, job: int, name: str) -> None:
        self.slots.request(job, lambda _: self.begun.append(name))


def test_as_many_runs_as_cores_begin_at_once() -> None:
    machine = Machine(2)
    for name in ("1a", "1b", "1c"):
        machine.want(1, name)
    assert machine.begun == ["1a", "1b"]
    machine.slots.release(1)
    assert machine.begun == ["1a", "1b", "1c"]


def test_the_older_job_is_next_then_the_run_that_came_first() -> None:
    machine = Machine(1)
    for job, name in ((5, "5a"), (7, "7a"), (6, "6a"), (5, "5b"), (6, "6b")):
        machine.want(job, name)
    for job in (5, 5, 6, 6):
        machine.slots.release(job)
    assert machine.begun == ["5a", "5b", "6a", "6b", "7a"]


def test_a_job_that_is_gone_holds_nothing_and_wants_nothing() -> None:
    machine = Machine(1)
    for job, name in ((1, "1a"), (1, "1b"), (2, "2a")):
        machine.want(job, name)
    machine.slots.job_ended(1)
    assert machine.begun == ["1a", "2a"]
    machine.slots.job_ended(1)  # twice is once
    machine.want(3, "3a")
    assert machine.begun == ["1a", "2a"]


def test_who_gives_back_what_it_has_not_changes_nothing() -> None:
    machine = Machine(1)
    machine.slots.release(1)
    for name in ("1a", "1b"):
        machine.want(1, name)
    assert machine.begun == ["1a"]


def test_a_turn_that_is_held_for_too_long_is_anothers() -> None:
    slots, given = CpuSlots(2), list[int]()
    for job in (1, 1, 2, 3):
        slots.request(job, given.append)
    assert len(given) == 2
    slots.release(1)  # one of the two; which, nobody says
    assert len(given) == 3
    slots.expire(1, given[1])
    assert len(given) == 4
    slots.expire(1, given[0])
    slots.release(1)
    slots.request(4, given.append)
    assert len(given) == 4, "what was taken back is not given back again"


def test_who_waits_and_holds_nothing_stands_still() -> None:
    slots = CpuSlots(1)
    slots.request(1, lambda _: None)
    slots.request(1, lambda _: None)
    slots.request(2, lambda _: None)
    assert (slots.stalled(1), slots.stalled(2), slots.stalled(3)) == (False, True, False)


@given(
    st.integers(1, 4),
    st.lists(st.tuples(st.sampled_from(["want", "over", "gone"]), st.integers(0, 5)), max_size=60),
)
def test_never_more_than_cores_and_never_idle_while_somebody_waits(
    cores: int, steps: list[tuple[str, int]]
) -> None:
    slots, running, waiting = CpuSlots(cores), list[int](), list[int]()

    def begin(job: int) -> None:
        waiting.remove(job)
        running.append(job)

    for step, job in steps:
        if step == "want":
            waiting.append(job)
            slots.request(job, lambda _, job=job: begin(job))  # type: ignore[misc]
        elif step == "over":
            if job in running:
                running.remove(job)
            slots.release(job)
        else:
            running[:] = [one for one in running if one != job]
            waiting[:] = [one for one in waiting if one != job]
            slots.job_ended(job)
        assert len(running) <= cores
        assert len(running) == cores or not waiting


# ------------------------------------------------------------------------------ the worker's side


class ScriptedDriver:
    """Gives a slot when `open` is set."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.asked = threading.Event()
        self.over = 0

    async def take_slot(self) -> None:
        self.asked.set()
        await self.open.wait()

    def release_slot(self) -> None:
        self.over += 1


@contextmanager
def loop_of(driver: ScriptedDriver) -> Iterator[asyncio.AbstractEventLoop]:
    """A loop in a thread of its own, as a worker's is to its validation."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(driver.open.set)
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0.05), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Workspace]:
    workspace = empty_workspace(mount=tmp_path)
    yield workspace
    workspace.close()


def test_a_run_waits_for_its_turn_and_gives_it_back(tree: Workspace) -> None:
    driver, inner = ScriptedDriver(), ScriptedSandbox()
    with loop_of(driver) as loop:
        sandbox = SlotSandbox(inner, driver, loop)
        thread = threading.Thread(target=lambda: sandbox.run(Command(("test",)), tree))
        thread.start()
        assert driver.asked.wait(10)
        assert (len(inner.runs), driver.over) == (0, 0)
        loop.call_soon_threadsafe(driver.open.set)
        thread.join(10)
        assert (len(inner.runs), driver.over) == (1, 1)
        assert sandbox.name == "scripted"


def test_what_is_waited_is_told_once_for_all_runs_of_a_job(tree: Workspace) -> None:
    driver, told, notes = ScriptedDriver(), list[float](), list[str]()
    with loop_of(driver) as loop:
        sandbox = SlotSandbox(
            ScriptedSandbox(), driver, loop, waited=told.append, note=notes.append
        )
        threads = [
            threading.Thread(target=lambda: sandbox.run(Command(("test",)), tree)) for _ in "ab"
        ]
        for thread in threads:
            thread.start()
        time.sleep(1.5)
        loop.call_soon_threadsafe(driver.open.set)
        for thread in threads:
            thread.join(10)
    assert 1.0 < sum(told) < 2.5
    assert [note.partition("waited")[0] for note in notes] == ["a run of tests "] * 2


def test_what_is_cancelled_waits_no_longer_and_gives_back_what_comes_too_late(
    tree: Workspace,
) -> None:
    driver, inner, cancel = ScriptedDriver(), ScriptedSandbox(), threading.Event()
    with loop_of(driver) as loop:
        sandbox = SlotSandbox(inner, driver, loop)
        cancel.set()
        sandbox.run(Command(("test",)), tree, cancel=cancel)
        assert (len(inner.runs), driver.over) == (1, 0)  # the inner one knows what cancelled means
    assert driver.over == 1
