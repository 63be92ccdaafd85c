from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import ConfigurationError
from agent.evaluation.retrieval.pool import MeasureJob, MeasureReply, WorkerStart, measure_all
from agent.evaluation.retrieval.worker import share_of_cores
from agent.shared.workers import write_frame
from tests.support.evaluation import bare_repository, dataset_row


def starts(count: int, **flags: object) -> list[WorkerStart]:
    return [
        WorkerStart(flags=flags, presets=("lexical",), number=number, workers=count)
        for number in range(count)
    ]


def jobs(folder: Path, count: int) -> list[MeasureJob]:
    commit = bare_repository(folder)
    return [
        MeasureJob.model_validate(
            {
                "instance": dataset_row(commit, number),
                "repository": str(folder / "owner__shop.git"),
                "presets": ("lexical",),
            }
        )
        for number in range(count)
    ]


def replies(
    work: Sequence[MeasureJob], workers: Sequence[WorkerStart], seconds: float
) -> list[MeasureReply]:
    with closing(measure_all(work, workers, seconds=seconds)) as found:
        return [reply for _, reply in found]


def test_all_jobs_are_done_by_several_processes(tmp_path: Path) -> None:
    work = jobs(tmp_path, 4)
    found = replies(work, starts(2), 60)
    assert sorted(reply.rows[0].row.instance_id for reply in found) == [
        job.instance.instance_id for job in work
    ]


def test_what_takes_too_long_costs_one_instance_each(tmp_path: Path) -> None:
    found = replies(jobs(tmp_path, 2), starts(1), 1e-6)
    assert [reply.skipped for reply in found] == ["took longer than 1e-06 s"] * 2


@pytest.mark.slow
def test_a_worker_that_dies_costs_one_instance(tmp_path: Path) -> None:
    with closing(measure_all(jobs(tmp_path, 6), starts(1))) as found:
        next(found)
        os.kill(worker_pid(), signal.SIGKILL)
        rest = [reply.skipped for _, reply in found]
    lost = "the worker process ended with exit code -9"
    assert sorted(rest) == ["", "", "", "", lost]


def test_a_worker_whose_parent_is_gone_ends_quietly(tmp_path: Path) -> None:
    (start,), (job,) = starts(1), jobs(tmp_path, 1)
    sent = io.BytesIO()
    for message in (start, job):
        write_frame(sent, message.model_dump_json().encode())
    ended, nobody = os.pipe()
    os.close(ended)
    done = subprocess.run(
        [sys.executable, "-m", "agent.evaluation.retrieval.worker"],
        input=sent.getvalue(),
        stdout=nobody,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    os.close(nobody)
    assert (done.returncode, done.stderr) == (0, b"")


def worker_pid() -> int:
    for task in Path("/proc/self/task").iterdir():
        for child in (task / "children").read_text().split():
            if b"agent.evaluation.retrieval.worker" in Path(f"/proc/{child}/cmdline").read_bytes():
                return int(child)
    raise AssertionError("no worker")


def test_a_setting_with_which_nothing_can_be_measured_ends_it(tmp_path: Path) -> None:
    work = jobs(tmp_path, 1)
    with pytest.raises(ConfigurationError, match="--embed remote needs a model"):
        replies(work, starts(1, embed="remote"), 60)


def test_no_thread_outlives_an_iteration_that_is_given_up(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with closing(measure_all(jobs(tmp_path, 20), starts(1))) as found:
        next(found)
    assert set(threading.enumerate()) <= before


@given(st.integers(1, 40), st.integers(1, 40))
def test_workers_share_the_cores(cores: int, workers: int) -> None:
    shares = [share_of_cores(list(range(cores)), number, workers) for number in range(workers)]
    assert all(shares)
    assert set().union(*shares) == set(range(cores))
    if workers <= cores:
        assert sum(map(len, shares)) == cores
