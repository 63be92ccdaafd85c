"""Starts one container and makes sure that it does not outlive us, however we end.

The engine's client is our child, the container is not. So a guard (a shell in a session of its own)
waits on a pipe that ends when we do, however that happens, and then removes the container.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import Self

from sandbox.container.engine import Engine, last_line
from sandbox.container.launch import Controls
from sandbox.processes.killing import reap_session
from sandbox.types import SandboxError

# Words of an engine when its OCI runtime, and not an argument, is at fault.
_RUNTIME_WORDS = ("OCI", "crun", "runc", "runtime")

# An image of many layers on a cold disk.
_START_SECONDS = 120.0
_TICK_SECONDS = 0.05

# The client cleans up before it reports the end of its container.
_TIDY_SECONDS = 2.0

# Any line dismisses the guard; the end of the pipe does not. It removes twice, because the client
# may still be making the container at the first attempt.
_GUARD = 'read -r _ && exit; kill -9 "$1"; shift; "$@"; sleep 2; exec "$@"'

# podman writes a pid as soon as it knows of the start.
_PID_SECONDS = 2.0
_PAUSE_SECONDS = 0.001

_DIAGNOSIS_BYTES = 64 * 1024

_MILLISECONDS = 1000


class RuntimeProblem(SandboxError):
    """The engine's OCI runtime cannot start containers here; another one might."""


class ContainerProcess:
    """A running container. A context manager: when it is left, the container is removed.

    `popen` is the engine's client, whose streams and status are the command's. `pid` is the pid, on
    this machine, of the container's first process, None where the engine does not tell it.
    """

    def __init__(
        self,
        engine: Engine,
        arguments: Sequence[str],
        name: str,
        controls: Controls,
    ) -> None:
        """Start a container whose `arguments` name it `name` and show the `controls` in it."""
        self._engine = engine
        self._name = name
        self._controls = controls
        self._first: int | None = None  # a pidfd of the container's first process
        self.pid: int | None = None
        try:
            self.popen = subprocess.Popen(
                [engine.program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                # conmon leaves a file `oom` in its directory when memory runs out.
                cwd=controls.start.parent,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise SandboxError(f"cannot start {engine.program}: {error}") from error
        self._guard = self._start_guard()

    def __enter__(self) -> Self:
        """Wait until the script runs and waits for `Controls.release`.

        Raises SandboxError, or RuntimeProblem.
        """
        try:
            self._await_start()
            self._hold_first_process()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.kill()
        finally:
            self._dismiss_guard()
            # If another backend made us adopt orphans, we must reap the monitor that podman leaves.
            if (monitor := self._controls.monitor()) is not None:
                reap_session(monitor)
            if self._first is not None:
                os.close(self._first)
                self._first = None
            for file in (self.popen.stdout, self.popen.stderr):
                if file is not None:
                    file.close()

    def kill(self) -> None:
        """Kill the container and wait until it is gone. Safe to call again.

        Raises SandboxError when the engine cannot do it.
        """
        if self.popen.poll() is not None:
            status = self._controls.status()
            if status.started and not status.ended:
                self._engine.remove(self._name)  # the client died, or the script was killed
            return  # otherwise the client itself has removed the container
        self._end_first_process()
        try:
            self.popen.wait(_TIDY_SECONDS)
        except subprocess.TimeoutExpired:
            # Its output exceeds our pipe. While the client waits for us, the container cannot end.
            self.popen.kill()
            self.popen.wait()
            self._engine.remove(self._name)

    def _end_first_process(self) -> None:
        """Kill the first process, and so all others: far quicker than asking the engine."""
        if self._first is None:
            self._engine.kill(self._name)
            return
        try:
            signal.pidfd_send_signal(self._first, signal.SIGKILL)
        except ProcessLookupError:
            pass
        except PermissionError:
            self._engine.kill(self._name)

    def _await_start(self) -> None:
        poll = select.poll()
        poll.register(self._controls.pipe.reader, select.POLLIN)
        deadline = time.monotonic() + _START_SECONDS
        while not (status := self._controls.status()).started:
            if status.problem:
                raise SandboxError(f"in the container: {status.problem}")
            if self.popen.poll() is not None:
                raise self._refusal()
            if time.monotonic() > deadline:
                raise SandboxError(
                    f"{self._engine.kind} started no container within {_START_SECONDS:.0f} s"
                )
            poll.poll(_TICK_SECONDS * _MILLISECONDS)

    def _hold_first_process(self) -> None:
        """Open a pidfd of the first process. Podman tells its pid a moment after the start."""
        deadline = time.monotonic() + (_PID_SECONDS if self._engine.kind == "podman" else 0)
        while (pid := self._controls.pid()) is None and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)
        self.pid = pid
        try:
            self._first = None if self.pid is None else os.pidfd_open(self.pid)
        except OSError:
            self.pid = None  # it has ended already

    def _refusal(self) -> SandboxError:
        """Explain why the client gave up before anything of the container was run."""
        assert self.popen.stderr is not None
        os.set_blocking(self.popen.stderr.fileno(), False)
        reason = last_line(self.popen.stderr.read(_DIAGNOSIS_BYTES) or b"")
        reason = reason or f"status {self.popen.returncode}"
        kind = RuntimeProblem if any(word in reason for word in _RUNTIME_WORDS) else SandboxError
        return kind(f"{self._engine.kind} cannot start a container ({reason})")

    def _start_guard(self) -> subprocess.Popen[bytes]:
        """Start the guard. If that fails, kills the client and raises SandboxError."""
        removal = (self._engine.program, *self._engine.removal(), self._name)
        try:
            return subprocess.Popen(
                ["/bin/sh", "-c", _GUARD, "sh", str(self.popen.pid), *removal],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            self.popen.kill()
            self.popen.wait()
            raise SandboxError(f"cannot start /bin/sh: {error}") from error

    def _dismiss_guard(self) -> None:
        assert self._guard.stdin is not None
        try:
            self._guard.stdin.write(b"\n")
            self._guard.stdin.close()
        except BrokenPipeError:
            pass  # somebody has killed the guard
        self._guard.wait()
