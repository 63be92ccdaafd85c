"""Watches one process tree from outside, captures what it writes, and explains its end."""

from __future__ import annotations

import fcntl
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from sandbox.types import Ended, Limits, SandboxError


class Capture:
    """Keeps at most `limit` bytes of a stream: head and tail, or all of it from the head.

    `total` is the number of bytes seen.
    """

    def __init__(self, limit: int, *, tail: bool = True) -> None:
        self.limit = limit
        self._tail_size = limit - limit // 2 if tail else 0
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def feed(self, data: bytes) -> None:
        """Take the next piece of the stream."""
        self.total += len(data)
        room = self.limit - self._tail_size - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        # Cut only now and then, because moving the tail for every piece would be quadratic.
        if len(self._tail) > 2 * self._tail_size:
            self._cut()

    @property
    def dropped(self) -> int:
        """The number of bytes that were not kept."""
        self._cut()
        return self.total - len(self._head) - len(self._tail)

    def value(self) -> bytes:
        """Return what is kept; where a tail is, a line stands in place of what was cut."""
        cut = self.dropped
        gap = f"\n[{cut} bytes cut]\n".encode() if cut and self._tail_size else b""
        return bytes(self._head) + gap + bytes(self._tail)

    def _cut(self) -> None:
        del self._tail[: max(0, len(self._tail) - self._tail_size)]


# The largest size that every user may set (pipe(7)), so that a command rarely waits for us.
_PIPE_BYTES = 1024 * 1024


class ReportPipe:
    """The reading end of a FIFO. It never blocks and keeps the first `limit` bytes."""

    def __init__(self, path: Path, limit: int) -> None:
        """Make the FIFO at `path`, which must not exist. Raises OSError."""
        self.capture = Capture(limit, tail=False)
        os.mkfifo(path, 0o600)
        flags = os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        self.reader = os.open(path, os.O_RDONLY | flags)
        # Without any writer, the reading end would report end of file all the time.
        self._writer: int | None = os.open(path, os.O_WRONLY | flags)
        # Anybody may write and nobody read. The private directory around it keeps others out.
        path.chmod(0o222)
        with suppress(PermissionError):  # too many pipes of this user (pipe-user-pages-soft)
            fcntl.fcntl(self.reader, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def read(self) -> bytes:
        """Return what was written up to now."""
        with suppress(BlockingIOError):
            while data := os.read(self.reader, _PIECE_BYTES):
                self.capture.feed(data)
        return self.capture.value()

    def seal(self) -> None:
        """Let the pipe end when its last foreign writer is gone. Safe to call twice."""
        if self._writer is not None:
            os.close(self._writer)
            self._writer = None

    def close(self) -> None:
        """Close both ends; a writer that is left gets EPIPE."""
        self.seal()
        os.close(self.reader)


# ---- starting a process, and what happens to it when we die first


def start_process(
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own with piped streams. Raises SandboxError."""
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=cwd,
            env=environment,
            pass_fds=pass_fds,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise SandboxError(f"cannot start {argv[0]}: {error}") from error


# A line of input dismisses the guard. If its input ends without one, its parent has died.
_GUARD = 'read -r _ && exit; exec "$@"'


class Guard:
    """Runs `argv` when this process dies, however that happens, before the context is left.

    It is a shell in a session of its own that waits for the end of a pipe from us.
    """

    def __init__(self, argv: Sequence[str]) -> None:
        try:
            self._popen = subprocess.Popen(
                ["/bin/sh", "-c", _GUARD, "sh", *argv],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise SandboxError(f"cannot start /bin/sh: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._popen.stdin is not None
        with suppress(BrokenPipeError):  # somebody has killed the guard
            self._popen.stdin.write(b"\n")
        self._popen.stdin.close()
        self._popen.wait()


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


@dataclass(frozen=True, slots=True)
class ProcessOutcome:
    """How a watched process ended. `cut` is why it was killed from outside, None if it was not.

    `returncode` is that of `subprocess`: negative for a signal.
    """

    cut: Breach | None
    returncode: int
    stdout: bytes
    stderr: bytes
    seconds: float


def watch(
    process: subprocess.Popen[bytes],
    limits: Limits,
    cancel: threading.Event | None,
    kill: Callable[[], None],
    *,
    report: ReportPipe | None = None,
    breach: Callable[[], Breach | None] = lambda: None,
) -> ProcessOutcome:
    """Wait for `process` (stdout and stderr piped) within `limits`, and kill its whole tree.

    `kill` is called in every case and must return when the tree is dead. `breach` is asked some 20
    times a second. Raises SandboxError when the process cannot be killed.
    """
    started = time.monotonic()
    streams = _Streams(process, limits.output, report)
    try:
        cut = _wait(process, streams, limits, cancel, breach)
    finally:
        kill()
        try:
            returncode = process.wait(_DEATH_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise SandboxError(f"process {process.pid} hangs inside the kernel") from error
        if report is not None:
            report.seal()
        streams.drain()
    seconds = time.monotonic() - started
    return ProcessOutcome(cut, returncode, streams.stdout.value(), streams.stderr.value(), seconds)


class _Streams:
    def __init__(
        self, process: subprocess.Popen[bytes], limit: int, report: ReportPipe | None
    ) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self._files = (process.stdout, process.stderr)
        self.stdout, self.stderr = Capture(limit), Capture(limit)
        self._open = {process.stdout.fileno(): self.stdout, process.stderr.fileno(): self.stderr}
        if report is not None:
            self._open[report.reader] = report.capture
        self._captures = tuple(self._open.values())
        self._pidfd = os.pidfd_open(process.pid)
        self._selector = selectors.DefaultSelector()
        for descriptor in (*self._open, self._pidfd):
            os.set_blocking(descriptor, False)
            self._selector.register(descriptor, selectors.EVENT_READ)

    def flood(self) -> Breach | None:
        """Return a breach when far more than its limit came through one of the pipes."""
        for capture in self._captures:
            if capture.total > capture.limit * _FLOOD:
                words = f"wrote more than {_FLOOD} times {capture.limit} bytes of output or report"
                return Breach(Ended.OUTPUT_LIMIT, words)
        return None

    def step(self, seconds: float) -> None:
        """Read what is available, after waiting at most `seconds` for an event."""
        for key, _ in self._selector.select(max(0.0, seconds)):
            if key.fd not in self._open:
                continue
            try:
                data = os.read(key.fd, _PIECE_BYTES)
            except BlockingIOError:
                continue
            if data:
                self._open[key.fd].feed(data)
            else:
                self._selector.unregister(key.fd)
                del self._open[key.fd]

    def drain(self) -> None:
        """Read what a dead tree has left in the pipes, and close them."""
        self._selector.unregister(self._pidfd)
        deadline = time.monotonic() + _DRAIN_SECONDS
        while self._open and time.monotonic() < deadline and self.flood() is None:
            self.step(_TICK_SECONDS)
        self._selector.close()
        os.close(self._pidfd)
        for file in self._files:
            file.close()


def _wait(
    process: subprocess.Popen[bytes],
    streams: _Streams,
    limits: Limits,
    cancel: threading.Event | None,
    breach: Callable[[], Breach | None],
) -> Breach | None:
    deadline = time.monotonic() + limits.wall_seconds
    measured = 0.0
    while process.poll() is None:
        now = time.monotonic()
        if cancel is not None and cancel.is_set():
            return Breach(Ended.CANCELLED, "cancelled")
        if now >= deadline:
            return Breach(Ended.WALL_LIMIT, f"still running after {limits.wall_seconds:g} s")
        if flood := streams.flood():
            return flood
        if now - measured >= _TICK_SECONDS:  # it reads files: not for every piece of a busy stream
            measured = now
            if passed := breach():
                return passed
        streams.step(min(_TICK_SECONDS, deadline - now))
    return None


def explain_end(
    outcome: ProcessOutcome, status: int, reached: Breach | None, limits: Limits
) -> tuple[Ended, int | None, str]:
    """Return the end, exit code and detail of a run that ended with a status of 0..255 or -N.

    A limit that was reached is the reason of a failure, and only a detail of a success. A command
    that itself exits with 128 + N cannot be told from one that died of signal N.
    """
    cut = outcome.cut
    if cut is not None:
        also = "" if reached is None or reached.detail == cut.detail else f"; {reached.detail}"
        return cut.ended, None, cut.detail + also
    number = -status if status < 0 else status - _SHELL_SIGNAL
    # A process that ignores SIGXCPU is killed a second later.
    out_of_time = number == signal.SIGKILL and outcome.seconds >= limits.cpu_seconds
    if number == signal.SIGXCPU or out_of_time:
        return Ended.CPU_LIMIT, None, f"used {limits.cpu_seconds} s of CPU time"
    if number == signal.SIGXFSZ:
        return Ended.DISK_LIMIT, None, f"wrote a file of more than {limits.file_size} bytes"
    if reached is not None and (reached.decisive or status != 0):
        return reached.ended, None, reached.detail
    if 0 < number < signal.NSIG:
        names = {one.value: one.name for one in signal.Signals}
        return Ended.SIGNALLED, None, names.get(number, f"signal {number}")
    return Ended.EXITED, status, "" if reached is None else reached.detail
