"""Worker processes that measure instances beside each other.

Own processes for the reasons of `agent.retrieval.pool`, and because a crash inside a parser or an
embedding library must cost one instance, not the run.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path

from agent.errors import ConfigurationError, PatchshotError
from agent.evaluation.messages import Job, Reply, Start
from agent.retrieval.worker import read_frame, write_frame

JOB_SECONDS = 900.0
"""For one instance under all presets: what takes longer hangs."""

_START_SECONDS = 120.0
_STOP_SECONDS = 3.0  # to remove temporary folders


def measure_all(
    jobs: Sequence[Job], starts: Sequence[Start], *, seconds: float = JOB_SECONDS
) -> Generator[tuple[Job, Reply], None, None]:
    """Replies as they come, from one worker for each of `starts`.

    An instance that takes longer than `seconds`, or on which a worker dies, is skipped with that
    reason. Raises ConfigurationError or PatchshotError where no instance can be measured. No worker
    outlives the iteration, however it ends.
    """
    workers = [_Worker(start, seconds) for start in starts]
    idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
    for worker in workers:
        idle.put(worker)
    executor = ThreadPoolExecutor(len(workers), thread_name_prefix="evaluate")
    try:
        futures: dict[Future[Reply], Job] = {executor.submit(_ask, idle, job): job for job in jobs}
        for future in as_completed(futures):
            reply = future.result()
            if reply.fatal:
                raise ConfigurationError(reply.fatal)
            yield futures[future], reply
    finally:
        for worker in workers:
            worker.close()
        executor.shutdown(cancel_futures=True)


def _ask(idle: queue.SimpleQueue[_Worker], job: Job) -> Reply:
    worker = idle.get()
    try:
        return worker.measure(job)
    finally:
        idle.put(worker)


class _Worker:
    """One process, started when first needed and again after it has died."""

    def __init__(self, start: Start, seconds: float) -> None:
        self._start = start
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._closed = False

    def measure(self, job: Job) -> Reply:
        if self._process is None:
            reply = self._open()
            if reply.fatal:
                return reply
        return self._ask(job.model_dump_json().encode(), self._seconds)

    def close(self) -> None:
        """End the process, from any thread; a job under way then comes back skipped."""
        with self._lock:
            self._closed = True
            process = self._process
        if process is not None:
            _stop(process)

    def _open(self) -> Reply:
        with self._lock:
            if self._closed:
                return Reply(skipped="stopped")
            self._process = _spawn()
        reply = self._ask(self._start.model_dump_json().encode(), _START_SECONDS)
        if reply.skipped and not self._closed:
            raise PatchshotError(
                f"a worker process of the evaluation did not start ({reply.skipped}); "
                "see what it says above, or try --workers 1"
            )
        return reply

    def _ask(self, request: bytes, seconds: float) -> Reply:
        process = self._process
        if process is None:
            return Reply(skipped="stopped")
        assert process.stdin is not None
        assert process.stdout is not None
        late = threading.Event()
        timer = threading.Timer(seconds, _kill, (process, late))
        timer.daemon = True
        timer.start()
        try:
            write_frame(process.stdin, request)  # type: ignore[arg-type]
            process.stdin.flush()
            return Reply.model_validate_json(read_frame(process.stdout))  # type: ignore[arg-type]
        except (OSError, EOFError, ValueError):
            _stop(process)
            self._process = None
            if late.is_set():
                return Reply(skipped=f"took longer than {seconds:g} s")
            return Reply(skipped=f"the worker process ended with exit code {process.returncode}")
        finally:
            timer.cancel()
            timer.join()  # it wakes up and ends: no thread of a request outlives it


def _kill(process: subprocess.Popen[bytes], late: threading.Event) -> None:
    late.set()
    process.kill()


def _spawn() -> subprocess.Popen[bytes]:
    # -P: nothing of the current folder is imported; it stays the working directory, because paths
    # and the configuration file are relative to it. The environment is the user's own: keys are.
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "agent.evaluation.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": _import_path()},
        start_new_session=True,  # Ctrl-C reaches the parent only, which then stops its workers
    )


def _import_path() -> str:
    here = str(Path(__file__).resolve().parents[2])
    entries = [here, *(entry for entry in sys.path if Path(entry).is_absolute())]
    return os.pathsep.join(dict.fromkeys(entries))


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ask the process to end, make it, and collect it."""
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for stream in (process.stdin, process.stdout):
        try:
            if stream is not None:
                stream.close()
        except (OSError, ValueError):
            pass  # unsent bytes of a dead worker, or a thread still reads
