"""Watching one process tree from outside: time, output, cancellation. Linux only (pidfds)."""

from __future__ import annotations

import os
import selectors
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from sandbox.capture import Capture, HeadCapture
from sandbox.channels import ReportPipe
from sandbox.types import Ended, Limits, SandboxError

# How soon a cancel is seen: well below the 0.2 s that is promised.
_TICK_SECONDS = 0.05

# A stream that is this many times its limit is a flood, not a log.
_FLOOD = 64

_PIECE = 256 * 1024

# SIGKILL takes effect at once, but a process in an uninterruptible read may take its time.
_DEATH_SECONDS = 30.0

# What a dead tree left in its pipes is read at once; an end held by a stranger is not waited for.
_DRAIN_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Breach:
    """A limit that was passed. One that is not `decisive` only explains a failure."""

    ended: Ended
    detail: str
    decisive: bool = True


class Meter(Protocol):
    """Measures a run from outside, beside what `watch` itself sees."""

    def breach(self) -> Breach | None:
        """Called some 20 times a second: the decisive limit that was passed, which ends the run."""
        ...

    def after(self) -> Breach | None:
        """Called once when everything is dead: the limit that was passed or reached, if any."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a watched process ended. `cut` is why it was killed from outside, None if it was not.

    `returncode` is that of `subprocess`: negative for a signal. `detail` says the cut in words.
    `reached` is what its meter found in the end.
    """

    cut: Ended | None
    returncode: int
    stdout: bytes
    stderr: bytes
    seconds: float
    detail: str = ""
    reached: Breach | None = None


def watch(
    process: subprocess.Popen[bytes],
    limits: Limits,
    cancel: threading.Event | None,
    kill: Callable[[], None],
    *,
    report: ReportPipe | None = None,
    meter: Meter | None = None,
) -> Outcome:
    """Wait for `process` (stdout and stderr piped), within `limits`; `kill` ends its whole tree.

    `kill` is called in every case, also when the process ended by itself, so that nothing it
    started survives; it must return when the tree is dead. `report` is read all the while.

    Raises SandboxError when the process cannot be killed.
    """
    started = time.monotonic()
    streams = _Streams(process, limits.output, report)
    try:
        cut = _wait(process, streams, _Conditions(started, limits, cancel, meter))
    finally:
        kill()
        returncode = _reap(process)
        streams.drain()
        streams.close()
    seconds = time.monotonic() - started
    return Outcome(
        cut=None if cut is None else cut.ended,
        returncode=returncode,
        stdout=streams.stdout.value(),
        stderr=streams.stderr.value(),
        seconds=seconds,
        detail="" if cut is None else cut.detail,
        reached=None if meter is None else meter.after(),
    )


class _Streams:
    """The pipes of a process and its pidfd, under one selector."""

    def __init__(
        self, process: subprocess.Popen[bytes], limit: int, report: ReportPipe | None
    ) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self._files = (process.stdout, process.stderr)
        self._limit, self._report = limit, report
        self._open: dict[int, Capture | HeadCapture] = {}
        self.stdout, self.stderr = Capture(limit), Capture(limit)
        self._selector = selectors.DefaultSelector()
        for file, capture in zip(self._files, (self.stdout, self.stderr), strict=True):
            os.set_blocking(file.fileno(), False)
            self._add(file.fileno(), capture)
        if report is not None:
            self._add(report.reader, report.capture)
        self._pidfd = os.pidfd_open(process.pid)
        self._selector.register(self._pidfd, selectors.EVENT_READ)

    def flood(self) -> Breach | None:
        """Far more than its limit came through one of the pipes."""
        if max(self.stdout.total, self.stderr.total) > self._limit * _FLOOD:
            return _flooded("output", self._limit)
        if self._report is not None:
            limit = self._report.capture.limit
            if self._report.capture.total > limit * _FLOOD:
                return _flooded("its report", limit)
        return None

    def step(self, seconds: float) -> None:
        """Read what is there, waiting at most so long for something to happen."""
        for key, _ in self._selector.select(max(0.0, seconds)):
            if key.fd in self._open:
                self._read(key.fd)

    def drain(self) -> None:
        self._selector.unregister(self._pidfd)
        if self._report is not None:
            self._report.seal()
        deadline = time.monotonic() + _DRAIN_SECONDS
        while self._open and time.monotonic() < deadline and self.flood() is None:
            self.step(_TICK_SECONDS)

    def close(self) -> None:
        self._selector.close()
        os.close(self._pidfd)
        for file in self._files:
            file.close()

    def _add(self, descriptor: int, capture: Capture | HeadCapture) -> None:
        self._open[descriptor] = capture
        self._selector.register(descriptor, selectors.EVENT_READ)

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


@dataclass(slots=True)
class _Conditions:
    """What ends a run from outside, asked again and again."""

    started: float
    limits: Limits
    cancel: threading.Event | None
    meter: Meter | None
    _measured: float = 0.0

    def left(self) -> float:
        return self.started + self.limits.wall_seconds - time.monotonic()

    def breach(self) -> Breach | None:
        if self.cancel is not None and self.cancel.is_set():
            return Breach(Ended.CANCELLED, "cancelled")
        if self.left() <= 0:
            words = f"still running after {self.limits.wall_seconds:g} s"
            return Breach(Ended.WALL_LIMIT, words)
        return self._measure()

    def _measure(self) -> Breach | None:
        """The meter looks at files: not again for every piece of a busy stream."""
        now = time.monotonic()
        if self.meter is None or now - self._measured < _TICK_SECONDS:
            return None
        self._measured = now
        return self.meter.breach()


def _flooded(what: str, limit: int) -> Breach:
    return Breach(Ended.OUTPUT_LIMIT, f"wrote more than {_FLOOD} times {limit} bytes as {what}")


def _wait(
    process: subprocess.Popen[bytes], streams: _Streams, conditions: _Conditions
) -> Breach | None:
    while process.poll() is None:
        found = conditions.breach() or streams.flood()
        if found is not None:
            return found
        streams.step(min(_TICK_SECONDS, conditions.left()))
    return None


def _reap(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(_DEATH_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise SandboxError(
            f"process {process.pid} does not die; a device or network file system may hang"
        ) from error
