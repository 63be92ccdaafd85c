"""Watching one process tree from outside: time, output, cancellation. Linux only (pidfds)."""

from __future__ import annotations

import os
import selectors
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from sandbox.capture import Capture
from sandbox.types import Ended, Limits, SandboxError

# How soon a cancel is seen: well below the 0.2 s that is promised.
_TICK_SECONDS = 0.05

# A stream that is this many times its limit is a flood, not a log.
_FLOOD = 64

_PIECE = 64 * 1024

# SIGKILL takes effect at once, but a process in an uninterruptible read may take its time.
_DEATH_SECONDS = 30.0

# What a dead tree left in its pipes is read at once; an end held by a stranger is not waited for.
_DRAIN_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a watched process ended. `cut` is why it was killed from outside, None if it was not.

    `returncode` is that of `subprocess`: negative for a signal.
    """

    cut: Ended | None
    returncode: int
    stdout: bytes
    stderr: bytes
    seconds: float


def watch(
    process: subprocess.Popen[bytes],
    limits: Limits,
    cancel: threading.Event | None,
    kill: Callable[[], None],
) -> Outcome:
    """Wait for `process` (stdout and stderr piped), within `limits`; `kill` ends its whole tree.

    `kill` is called in every case, also when the process ended by itself, so that nothing it
    started survives; it must return when the tree is dead.

    Raises SandboxError when the process cannot be killed.
    """
    started = time.monotonic()
    streams = _Streams(process, limits.output)
    try:
        cut = _wait(process, streams, started + limits.wall_seconds, cancel)
    finally:
        kill()
        returncode = _reap(process)
        streams.drain()
        streams.close()
    seconds = time.monotonic() - started
    return Outcome(cut, returncode, streams.stdout.value(), streams.stderr.value(), seconds)


class _Streams:
    """The two pipes of a process and its pidfd, under one selector."""

    def __init__(self, process: subprocess.Popen[bytes], limit: int) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self._files = (process.stdout, process.stderr)
        self._flood = limit * _FLOOD
        self._open: dict[int, Capture] = {}
        self.stdout, self.stderr = Capture(limit), Capture(limit)
        self._selector = selectors.DefaultSelector()
        for file, capture in zip(self._files, (self.stdout, self.stderr), strict=True):
            os.set_blocking(file.fileno(), False)
            self._selector.register(file.fileno(), selectors.EVENT_READ)
            self._open[file.fileno()] = capture
        self._pidfd = os.pidfd_open(process.pid)
        self._selector.register(self._pidfd, selectors.EVENT_READ)

    def flooded(self) -> bool:
        return max(self.stdout.total, self.stderr.total) > self._flood

    def step(self, seconds: float) -> None:
        """Read what is there, waiting at most so long for something to happen."""
        for key, _ in self._selector.select(max(0.0, seconds)):
            if key.fd in self._open:
                self._read(key.fd)

    def drain(self) -> None:
        self._selector.unregister(self._pidfd)
        deadline = time.monotonic() + _DRAIN_SECONDS
        while self._open and time.monotonic() < deadline and not self.flooded():
            self.step(_TICK_SECONDS)

    def close(self) -> None:
        self._selector.close()
        os.close(self._pidfd)
        for file in self._files:
            file.close()

    def _read(self, descriptor: int) -> None:
        try:
            data = os.read(descriptor, _PIECE)
        except BlockingIOError:
            return
        if data:
            self._open[descriptor].feed(data)
        else:
            self._selector.unregister(descriptor)
            del self._open[descriptor]


def described(cut: Ended, limits: Limits) -> str:
    """Why a run was cut, in words."""
    if cut is Ended.WALL_LIMIT:
        return f"still running after {limits.wall_seconds:g} s"
    if cut is Ended.OUTPUT_LIMIT:
        return f"wrote more than {_FLOOD} times {limits.output} bytes"
    return "cancelled"


def _wait(
    process: subprocess.Popen[bytes],
    streams: _Streams,
    deadline: float,
    cancel: threading.Event | None,
) -> Ended | None:
    while process.poll() is None:
        if cancel is not None and cancel.is_set():
            return Ended.CANCELLED
        left = deadline - time.monotonic()
        if left <= 0:
            return Ended.WALL_LIMIT
        if streams.flooded():
            return Ended.OUTPUT_LIMIT
        streams.step(min(_TICK_SECONDS, left))
    return None


def _reap(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(_DEATH_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise SandboxError(
            f"process {process.pid} does not die; a device or network file system may hang"
        ) from error
