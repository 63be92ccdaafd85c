from __future__ import annotations

import io
import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.retrieval.index import BlockBuilder
from agent.retrieval.index.corpus import encode
from agent.retrieval.index.index import Job, build_here, build_in_workers, serve
from agent.shared.workers import Cancelled, read_frame, write_frame


def jobs(count: int = 12) -> Iterator[Job]:
    """Enough for both workers, with some to wait."""
    for number in range(count):
        body = "".join(f"    value_{number}_{line} = {line}\n" for line in range(300))
        yield [("python", f"def function_{number}():\n{body}")] * 3


def all_children() -> set[int]:
    tasks = Path("/proc/self/task").glob("*/children")
    return {int(pid) for task in tasks for pid in task.read_text().split()}


@pytest.fixture(autouse=True)
def earlier() -> Iterator[set[int]]:
    """Children that other tests of this process have left, such as a database server."""
    EARLIER.update(all_children())
    yield EARLIER
    EARLIER.clear()


EARLIER: set[int] = set()


def children() -> list[int]:
    """The children that this test has started."""
    return sorted(all_children() - EARLIER)


def test_workers_build_what_this_process_would() -> None:
    here = list(build_here(jobs(), threading.Event()))
    assert list(build_in_workers(jobs(), threading.Event(), 2)) == here
    assert children() == []


def test_a_killed_workers_files_are_done_here() -> None:
    here = list(build_here(jobs(), threading.Event()))
    results = build_in_workers(jobs(), threading.Event(), 2)
    built = [next(results)]
    for pid in children():
        os.kill(pid, signal.SIGKILL)
    assert built + list(results) == here


def test_cancelling_ends_the_work_and_the_workers() -> None:
    cancel = threading.Event()
    results = build_in_workers(jobs(), cancel, 2)
    next(results)
    cancel.set()
    with pytest.raises(Cancelled):
        list(results)
    assert children() == []


FILES = [("python", "def f():\n    pass\n"), ("text", "é \udc80\n"), ("python", "")]


def test_each_request_is_answered_until_the_input_ends() -> None:
    source, sink = io.BytesIO(), io.BytesIO()
    for _ in range(2):
        write_frame(source, json.dumps(FILES).encode())
    source.seek(0)
    serve(source, sink)
    sink.seek(0)
    builder = BlockBuilder()
    expected = [encode(builder.build(FILES))] * 2
    assert [read_frame(sink) for _ in expected] == expected
    assert sink.read() == b""
