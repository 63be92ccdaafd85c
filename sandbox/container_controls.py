"""The files of one container's start: our script, and the two pipes on which we speak with it."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Self

from sandbox.channels import ReportPipe
from sandbox.container_launch import Status, read_status

SCRIPT, HOSTS, STATUS, GO = "run", "hosts", "status", "go"

# The engine's own may name the machines of this network.
_HOSTS = "127.0.0.1 localhost\n::1 localhost\n"

_STATUS_BYTES = 64 * 1024


class Controls:
    """Files below `scratch`; a context manager that closes the pipes.

    `start` is the directory to be shown in the container, read-only. podman writes to `pid_file`
    and `monitor_file` the pids, on this machine, of the container's first process and of what
    watches over it. `seccomp` is a profile, None for the engine's own.
    """

    def __init__(self, scratch: Path, script: bytes, profile: bytes | None) -> None:
        self.start = scratch / "start"
        self.pid_file = scratch / "pid"
        self.monitor_file = scratch / "monitor"
        self.seccomp = None if profile is None else scratch / "seccomp.json"
        self.start.mkdir(mode=0o755)
        for name, content in ((SCRIPT, script), (HOSTS, _HOSTS.encode("ascii"))):
            (self.start / name).write_bytes(content)
            (self.start / name).chmod(0o444)
        if self.seccomp is not None and profile is not None:
            self.seccomp.write_bytes(profile)
        self.pipe = ReportPipe(self.start / STATUS, _STATUS_BYTES)
        os.mkfifo(self.start / GO, 0o600)
        # Both ends (fifo(7)): neither side waits for the other to open it.
        self._go = os.open(self.start / GO, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        (self.start / GO).chmod(0o444)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.pipe.close()
        os.close(self._go)

    def release(self) -> None:
        """Let the script go on: it starts the command."""
        os.write(self._go, b"\n")

    def status(self) -> Status:
        """What the script said up to now."""
        while data := self._read():
            self.pipe.capture.feed(data)
        return read_status(self.pipe.capture.value())

    def pid(self) -> int | None:
        """The first process, as this machine knows it; None while it is not told."""
        return _number(self.pid_file)

    def monitor(self) -> int | None:
        """What watches over the container; None while it is not told."""
        return _number(self.monitor_file)

    def _read(self) -> bytes:
        try:
            return os.read(self.pipe.reader, _STATUS_BYTES)
        except BlockingIOError:
            return b""


def _number(file: Path) -> int | None:
    """What podman wrote; None where it did not, or docker runs the container."""
    try:
        return int(file.read_text("ascii"))
    except (OSError, ValueError):
        return None
