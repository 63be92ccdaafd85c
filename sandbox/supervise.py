"""Watches one process tree from outside, captures what it writes, and explains its end."""

from __future__ import annotations

import fcntl
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from sandbox.files import read_file
from sandbox.types import Ended, Limits, RunResult, SandboxError


class Capture:
    """Keeps the head and the tail of a stream, together at most `limit` bytes.

    `total` is the number of bytes seen.
    """

    def __init__(self, limit: int) -> None:
        self._head_size = limit // 2
        self._tail_size = limit - self._head_size
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def feed(self, data: bytes) -> None:
        """Take the next piece of the stream."""
        self.total += len(data)
        room = self._head_size - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        # Cut only now and then, because moving the tail for every piece would be quadratic.
        if len(self._tail) > 2 * self._tail_size:
            self._cut()

    def value(self) -> bytes:
        """Return what is kept, with a line in place of what was cut."""
        self._cut()
        missing = self.total - len(self._head) - len(self._tail)
        gap = f"\n[{missing} bytes cut]\n".encode() if missing else b""
        return bytes(self._head) + gap + bytes(self._tail)

    def _cut(self) -> None:
        del self._tail[: max(0, len(self._tail) - self._tail_size)]


class HeadCapture:
    """Keeps the first `limit` bytes of a stream. `total` is the number of bytes seen."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._head = bytearray()
        self.total = 0

    def feed(self, data: bytes) -> None:
        """Take the next piece of the stream."""
        self.total += len(data)
        self._head += data[: self.limit - len(self._head)]

    def value(self) -> bytes:
        """Return what is kept."""
        return bytes(self._head)

    @property
    def dropped(self) -> int:
        """The number of bytes beyond the limit."""
        return self.total - len(self._head)


REPORT_NAME = "report"
JUNIT_NAME = "junit.xml"

# Anybody may write and nobody read. The private directory around it keeps other users out.
_PIPE_MODE = 0o222

# The largest size that every user may set (pipe(7)), so that a command rarely waits for us.
_PIPE_BYTES = 1024 * 1024


class ReportPipe:
    """The reading end of a FIFO. It never blocks and keeps the first `limit` bytes."""

    def __init__(self, path: Path, limit: int) -> None:
        """Make the FIFO at `path`, which must not exist. Raises OSError."""
        self.capture = HeadCapture(limit)
        os.mkfifo(path, 0o600)
        flags = os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        self.reader = os.open(path, os.O_RDONLY | flags)
        # Without any writer, the reading end would report end of file all the time.
        self._writer: int | None = os.open(path, os.O_WRONLY | flags)
        path.chmod(_PIPE_MODE)
        try:
            fcntl.fcntl(self.reader, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        except PermissionError:
            pass  # this user has too many pipes already (pipe-user-pages-soft)

    def seal(self) -> None:
        """Let the pipe end when its last foreign writer is gone. Safe to call twice."""
        if self._writer is not None:
            os.close(self._writer)
            self._writer = None

    def close(self) -> None:
        """Close both ends; a writer that is left gets EPIPE."""
        self.seal()
        os.close(self.reader)


class ReportChannels:
    """The report pipe and the JUnit file, in new directories below `scratch`. A context manager.

    The sandbox shows `report_directory`, which holds the FIFO REPORT_NAME, read-only, and
    `junit_directory`, where the command may make the file JUNIT_NAME, writable. `owner` is the uid
    (and gid) of the command, None when it is our own. Raises SandboxError when they cannot be made.
    """

    def __init__(self, scratch: Path, limits: Limits, owner: int | None) -> None:
        self.report_directory = scratch / "report"
        self.junit_directory = scratch / "junit"
        self._limit = limits.report
        try:
            self.report_directory.mkdir(mode=0o755)
            self.junit_directory.mkdir(mode=0o700)
            if owner is not None:
                os.chown(self.junit_directory, owner, owner)
            self.pipe = ReportPipe(self.report_directory / REPORT_NAME, limits.report)
        except OSError as error:
            raise SandboxError(f"cannot make the pipe for reports in {scratch}: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.pipe.close()

    def junit(self) -> bytes:
        """Read the JUnit file up to `Limits.report`; b"" when it is missing or no regular file.

        Call this when the command is dead.
        """
        return read_file(self.junit_directory, JUNIT_NAME, self._limit)


# ---- watching a process tree, and explaining how it ended


# A cancel is seen this soon; 0.2 s are promised.
_TICK_SECONDS = 0.05

# A stream that is this many times its limit is a flood, not a log.
_FLOOD = 64

_PIECE_BYTES = 256 * 1024

# SIGKILL takes effect at once, except on a process in an uninterruptible read.
_DEATH_SECONDS = 30.0

# What a dead tree left in its pipes is read at once. If a stranger holds an end, we do not wait.
_DRAIN_SECONDS = 1.0

_SHELL_SIGNAL = 128  # a shell and bwrap report death by signal N as 128 + N


@dataclass(frozen=True, slots=True)
class Breach:
    """A limit that was passed. If it is not `decisive`, it only explains a failure."""

    ended: Ended
    detail: str
    decisive: bool = True


class Meter:
    """Measures a run from outside, beside what `watch` itself sees. This one measures nothing."""

    def enter(self, pid: int) -> None:
        """Begin, told the first process of the sandbox before that process runs anything.

        Raises SandboxError when the run must not go on.
        """

    def breach(self) -> Breach | None:
        """Return the decisive limit that was passed, if any. Called some 20 times a second."""
        return None

    def after(self) -> Breach | None:
        """Return the limit that was passed or reached, if any. Called once, after all are dead."""
        return None

    def close(self) -> None:
        """Release resources. Safe to call twice."""


@dataclass(frozen=True, slots=True)
class ProcessOutcome:
    """How a watched process ended. `cut` is why it was killed from outside, None if it was not.

    `returncode` is that of `subprocess`: negative for a signal. `detail` describes the cut.
    `reached` is what the meter found after the end.
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
) -> ProcessOutcome:
    """Wait for `process` (stdout and stderr piped) within `limits`, and kill its whole tree.

    `kill` is called in every case, also when the process ended by itself, so that nothing it
    started survives. It must return when the tree is dead. `report` is read meanwhile.

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
    return ProcessOutcome(
        cut=None if cut is None else cut.ended,
        returncode=returncode,
        stdout=streams.stdout.value(),
        stderr=streams.stderr.value(),
        seconds=seconds,
        detail="" if cut is None else cut.detail,
        reached=None if meter is None else meter.after(),
    )


class _Streams:
    """The pipes of a process and its pidfd, registered with one selector."""

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
        """Return a breach when far more than its limit came through one of the pipes."""
        if max(self.stdout.total, self.stderr.total) > self._limit * _FLOOD:
            return _flooded("output", self._limit)
        if self._report is not None:
            limit = self._report.capture.limit
            if self._report.capture.total > limit * _FLOOD:
                return _flooded("its report", limit)
        return None

    def step(self, seconds: float) -> None:
        """Read what is available, after waiting at most `seconds` for an event."""
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
            data = os.read(descriptor, _PIECE_BYTES)
        except BlockingIOError:
            return
        if data:
            self._open[descriptor].feed(data)
        else:
            self._selector.unregister(descriptor)
            del self._open[descriptor]


@dataclass(slots=True)
class _Conditions:
    """The reasons to end a run from outside: cancellation, the wall limit, the meter."""

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
        """Ask the meter, which reads files, but not for every piece of a busy stream."""
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


def run_result(
    outcome: ProcessOutcome, status: int, limits: Limits, channels: ReportChannels | None
) -> RunResult:
    """Return the result of a run that has ended, with what came through its `channels`.

    `status` is the command's: 0..255 (128 + N for signal N) or -N. When a limit was reached and the
    command failed or was killed, the limit is the reason; when it succeeded, only a detail.
    """
    ended, code, detail = _find_end(outcome, status, limits)
    return RunResult(
        ended=ended,
        exit_code=code,
        stdout=outcome.stdout,
        stderr=outcome.stderr,
        seconds=outcome.seconds,
        report=b"" if channels is None else channels.pipe.capture.value(),
        detail=detail,
        junit=b"" if channels is None else channels.junit(),
        report_dropped=0 if channels is None else channels.pipe.capture.dropped,
    )


def _find_end(
    outcome: ProcessOutcome, status: int, limits: Limits
) -> tuple[Ended, int | None, str]:
    reached = outcome.reached
    if outcome.cut is not None:
        also = "" if reached is None or reached.detail == outcome.detail else f"; {reached.detail}"
        return outcome.cut, None, outcome.detail + also
    ended, code, detail = explain_status(status, outcome.seconds, limits)
    if reached is None or ended in (Ended.CPU_LIMIT, Ended.DISK_LIMIT):
        return ended, code, detail
    if reached.decisive or (ended, code) != (Ended.EXITED, 0):
        return reached.ended, None, reached.detail
    return ended, code, reached.detail


def explain_status(
    returncode: int, seconds: float, limits: Limits
) -> tuple[Ended, int | None, str]:
    """Explain a status of 0..255 (128 + N for signal N) or -N: the end, exit code and detail.

    A command that itself exits with 128 + N cannot be told from one that died of signal N.
    """
    number = -returncode if returncode < 0 else returncode - _SHELL_SIGNAL
    if number <= 0 or number >= signal.NSIG:
        return Ended.EXITED, returncode, ""
    out_of_cpu = f"used {limits.cpu_seconds} s of CPU time"
    if number == signal.SIGXCPU:
        return Ended.CPU_LIMIT, None, out_of_cpu
    if number == signal.SIGXFSZ:
        return Ended.DISK_LIMIT, None, f"wrote a file of more than {limits.file_size} bytes"
    if number == signal.SIGKILL and seconds >= limits.cpu_seconds:
        return Ended.CPU_LIMIT, None, f"killed, probably because it {out_of_cpu}"
    try:
        return Ended.SIGNALLED, None, signal.Signals(number).name
    except ValueError:
        return Ended.SIGNALLED, None, f"signal {number}"
