"""Worker processes that answer requests over pipes, a pool of them, and work in a thread.

Executors do not fit: forking with threads can deadlock, spawning runs the caller's main module
again, and none can end one job that hangs. A frame is a little-endian uint32 length and its bytes;
a worker answers requests of one or more frames with one frame, and exits when its input ends.
"""

from __future__ import annotations

import asyncio
import os
import queue
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, BinaryIO, Generic, Protocol, TypeVar

_LENGTH = struct.Struct("<I")
_T = TypeVar("_T")


def read_frame(stream: BinaryIO) -> bytes:
    """One frame; raises EOFError at the end of the stream or inside a frame."""
    (size,) = _LENGTH.unpack(_read_exactly(stream, _LENGTH.size))
    return _read_exactly(stream, size)


def _read_exactly(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if data is None or len(data) != size:
        raise EOFError
    return data


def write_frame(stream: BinaryIO, data: bytes) -> None:
    """Write one frame, unflushed."""
    stream.write(_LENGTH.pack(len(data)))
    stream.write(data)


def import_path() -> str:
    """`PYTHONPATH` with which a worker imports the same code and packages as this process."""
    here = str(Path(__file__).resolve().parents[2])
    entries = [here, *(entry for entry in sys.path if Path(entry).is_absolute())]
    return os.pathsep.join(dict.fromkeys(entries))


class WorkerFailed(Exception):
    """A worker gave no answer: it ended, or `late`: it was killed because it took too long."""

    def __init__(self, exit_code: int, *, late: bool) -> None:
        super().__init__(f"the worker process ended with exit code {exit_code}")
        self.late = late


class WorkerProcess:
    """One running worker, for one request at a time. `stop` may be called from any thread."""

    def __init__(
        self,
        module: str,
        *arguments: str,
        environment: Mapping[str, str],
        folder: str | None = None,
        stderr: int | None = None,
        grace: float = 0.0,
    ) -> None:
        """Start `module`. Raises OSError.

        `folder` is its working directory (None: this process's). `grace`: seconds that it has to
        clean up when it is stopped.
        """
        if not sys.executable:
            raise OSError("no interpreter")
        self._grace = grace
        # -P: nothing in the working directory, which may be untrusted, is ever imported.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            cwd=folder,
            env={**environment, "PYTHONPATH": import_path()},
            start_new_session=True,  # Ctrl-C reaches only the parent, which then stops its workers
        )

    def ask(self, frames: Sequence[bytes], seconds: float) -> bytes:
        """Return the answer to a request. Raises WorkerFailed; the process has ended then."""
        late = threading.Event()
        timer = threading.Timer(seconds, self._kill, (late,))
        timer.daemon = True
        timer.start()
        try:
            sink = _open(self._process.stdin)
            for frame in frames:
                write_frame(sink, frame)
            sink.flush()
            return read_frame(_open(self._process.stdout))
        except (OSError, EOFError, ValueError):
            self.stop()
            raise WorkerFailed(self._process.returncode, late=late.is_set()) from None
        finally:
            timer.cancel()
            timer.join()  # no thread of a request outlives it

    def _kill(self, late: threading.Event) -> None:
        late.set()
        self._process.kill()

    def stop(self) -> None:
        """End the process and collect it. A request under way fails."""
        if self._grace:
            self._process.terminate()
        else:
            self._process.kill()
        try:
            self._process.wait(self._grace or None)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for stream in (_open(self._process.stdin), _open(self._process.stdout)):
            with suppress(OSError, ValueError):  # unsent bytes, or a thread still reads
                stream.close()


def _open(stream: IO[Any] | None) -> BinaryIO:
    assert stream is not None, "both streams are pipes"
    return stream  # type: ignore[return-value]


class _Stoppable(Protocol):
    def stop(self) -> None: ...


_Worker = TypeVar("_Worker", bound=_Stoppable)


class WorkerPool(Generic[_Worker]):
    """Hands each piece of work to a free worker. A context manager; no worker outlives it."""

    def __init__(self, workers: Sequence[_Worker], name: str) -> None:
        self._workers = workers
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        for worker in workers:
            self._idle.put(worker)
        self._executor = ThreadPoolExecutor(len(workers), thread_name_prefix=name)

    def __enter__(self) -> WorkerPool[_Worker]:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.stop()  # first: it ends the reads that the executor's threads wait in
        self._executor.shutdown(cancel_futures=True)

    def submit(self, ask: Callable[[_Worker], _T]) -> Future[_T]:
        """Call `ask` with a worker as soon as one is free."""

        def work() -> _T:
            worker = self._idle.get()
            try:
                return ask(worker)
            finally:
                self._idle.put(worker)

        return self._executor.submit(work)


class Cancelled(Exception):
    """The work stopped because its `cancel` event was set."""


async def in_thread(work: Callable[[threading.Event], _T], *, wait: bool = False) -> _T:
    """Run `work` in a thread. If this is cancelled, the event given to `work` is set.

    `wait`: the cancellation ends only after `work` has ended, not soon before.
    """
    cancel = threading.Event()
    task = asyncio.ensure_future(asyncio.to_thread(work, cancel))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        cancel.set()
        if wait:
            await asyncio.wait({task})
        # The cancellation is the result; what the work raises when it stops is not.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        raise
