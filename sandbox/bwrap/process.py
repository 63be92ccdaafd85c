"""Starts one bwrap and keeps a handle on the first process of its PID namespace.

bwrap(1): `--args` reads options from a descriptor, `--block-fd` holds the command back until we
have a pidfd of the namespace's first process, `--json-status-fd` tells its pid and, only when the
command was really started, its status. When that process dies, everything inside dies.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Self

from sandbox.processes.killing import adopt_orphans, reap
from sandbox.types import SandboxError

# Setting up takes some 10 ms, but longer on a machine under heavy load.
_SETUP_SECONDS = 30.0

# SIGKILL of a namespace is immediate, except for processes inside a hanging system call.
_DEATH_SECONDS = 30.0

_MILLISECONDS = 1000


class BwrapProcess:
    """A running bwrap. A context manager: when it is left, everything inside is dead."""

    def __init__(
        self,
        program: str,
        options: Sequence[str],
        command: Sequence[str],
        environment: Mapping[str, str],
        seccomp: bytes | None = None,
        enter: Callable[[int], None] | None = None,
    ) -> None:
        """Start bwrap. `environment` is that of bwrap itself, which the command can read.

        `enter` is called with the pid of the first process inside before it starts anything.
        Raises SandboxError.
        """
        adopt_orphans()
        self._enter = enter
        self._init: int | None = None
        self._init_pid = 0
        self._status, status_end = os.pipe()
        block_end, self._block = os.pipe()
        passed = [status_end, block_end]
        control = ["--json-status-fd", str(status_end), "--block-fd", str(block_end)]
        if seccomp is not None:
            passed.append(_memory_file(seccomp))
            control += ["--seccomp", str(passed[-1])]
        passed.append(_memory_file(b"".join(os.fsencode(o) + b"\0" for o in [*options, *control])))
        try:
            self.popen = subprocess.Popen(
                [program, "--args", str(passed[-1]), "--", *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=environment,
                pass_fds=passed,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            os.close(self._status)
            os.close(self._block)
            raise SandboxError(f"cannot start {program}: {error}") from error
        finally:
            for descriptor in passed:
                os.close(descriptor)

    def __enter__(self) -> Self:
        """Wait for the first process inside, then let it start the command. Raises SandboxError."""
        try:
            self._hold_init()
        except BaseException:
            self.kill()
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._close()

    def kill(self) -> None:
        """End everything inside and wait until it is gone. Safe to call again.

        Raises SandboxError when something inside does not die.
        """
        if self._init is None:
            self.popen.kill()
            return
        try:
            signal.pidfd_send_signal(self._init, signal.SIGKILL)
        except ProcessLookupError:
            pass
        poll = select.poll()
        poll.register(self._init, select.POLLIN)
        if not poll.poll(_DEATH_SECONDS * _MILLISECONDS):
            raise SandboxError("a sandboxed process does not die; it hangs inside the kernel")
        self.popen.wait()
        reap(self._init_pid)

    def exit_code(self) -> int | None:
        """Return the command's status (128 + N for signal N), None when it was never started.

        Call this when bwrap has ended.
        """
        os.set_blocking(self._status, False)
        for line in _read_all(self._status).splitlines():
            code = _number(line, b"exit-code")
            if code is not None:
                return code
        return None

    def _hold_init(self) -> None:
        pid = _number(self._first_status(), b"child-pid")
        if pid is not None:  # otherwise bwrap refused its arguments and says so on stderr
            self._init_pid = pid
            self._init = os.pidfd_open(pid)
            if self._enter is not None:
                self._enter(pid)
        try:
            os.write(self._block, b"1")
        except BrokenPipeError:
            pass  # as above

    def _first_status(self) -> bytes:
        """Read the first line of bwrap's status, which it writes in pieces; b"" when it ended."""
        poll = select.poll()
        poll.register(self._status, select.POLLIN)
        line = b""
        while not line.endswith(b"\n"):
            if not poll.poll(_SETUP_SECONDS * _MILLISECONDS):
                raise SandboxError(f"bwrap did not start within {_SETUP_SECONDS:.0f} s")
            if not (piece := os.read(self._status, 1)):
                return b""
            line += piece
        return line

    def _close(self) -> None:
        self.popen.wait()
        for descriptor in (self._status, self._block, self._init):
            if descriptor is not None:
                os.close(descriptor)
        for file in (self.popen.stdout, self.popen.stderr):
            if file is not None:
                file.close()


def _memory_file(content: bytes) -> int:
    descriptor = os.memfd_create("sandbox", os.MFD_CLOEXEC)
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _read_all(descriptor: int) -> bytes:
    data = b""
    try:
        while piece := os.read(descriptor, select.PIPE_BUF):
            data += piece
    except BlockingIOError:
        pass
    return data


def _number(document: bytes, key: bytes) -> int | None:
    """Return the number under `key` of a one-line JSON object that bwrap itself wrote."""
    if key not in document:
        return None
    value = json.loads(document.splitlines()[0])[key.decode()]
    return int(value)
