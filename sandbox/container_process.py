"""Starting one container and holding on to it: nothing of it outlives us, however we end.

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
from types import TracebackType
from typing import Self

from sandbox.container_controls import Controls
from sandbox.container_engine import Engine, last_line
from sandbox.orphans import reap_session
from sandbox.types import SandboxError

# What an engine says when the program below it, and not an argument, is at fault.
_RUNTIME_WORDS = ("OCI", "crun", "runc", "runtime")

# An image of many layers on a cold disk.
_START_SECONDS = 120.0
_TICK_SECONDS = 0.05

# The client reports the end of its container after tidying up.
_TIDY_SECONDS = 2.0

# Any line lets the guard go; the end of the pipe does not. Twice: the first may come while the
# client, which dies with us or a moment later, is still making the container.
_GUARD = 'read -r _ && exit; kill -9 "$1"; shift; "$@"; sleep 2; exec "$@"'

# podman writes a pid as soon as it knows of the start.
_PID_SECONDS = 2.0
_PAUSE_SECONDS = 0.001

_DIAGNOSIS_BYTES = 64 * 1024

_MILLISECONDS = 1000


class RuntimeProblem(SandboxError):
    """The engine's OCI runtime cannot start containers here; another one may."""


class ContainerProcess:
    """A running container. A context manager: on leaving it, it is removed.

    `popen` is the engine's client, whose streams and status are the command's. `pid` is that of the
    container's first process on this machine, None where the engine does not tell.
    """

    def __init__(
        self,
        engine: Engine,
        arguments: Sequence[str],
        name: str,
        controls: Controls,
    ) -> None:
        """Start it. `arguments` name it `name` and show it the `controls`."""
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
        self._guard = self._watched_over()

    def __enter__(self) -> Self:
        """Wait until the command could start: `Controls.release` lets it.

        Raises SandboxError, or RuntimeProblem.
        """
        try:
            self._await_start()
            self._hold_first_process()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.kill()
        finally:
            self._dismiss_guard()
            # Where other backends made us adopt orphans, what podman leaves running is ours.
            if (monitor := self._controls.monitor()) is not None:
                reap_session(monitor)
            if self._first is not None:
                os.close(self._first)
                self._first = None
            for file in (self.popen.stdout, self.popen.stderr):
                if file is not None:
                    file.close()

    def kill(self) -> None:
        """End the container and wait until it is gone. Safe to call again.

        Raises SandboxError when the engine cannot do it.
        """
        if self.popen.poll() is not None:
            status = self._controls.status()
            if status.started and not status.ended:
                self._engine.remove(self._name)  # the client died, or the script was killed
            return  # otherwise the client has removed the container before it ended
        self._end_first_process()
        try:
            self.popen.wait(_TIDY_SECONDS)
        except subprocess.TimeoutExpired:
            # Its output is more than our pipe holds; while it waits, the container cannot end.
            self.popen.kill()
            self.popen.wait()
            self._engine.remove(self._name)

    def _end_first_process(self) -> None:
        """Its death is the death of all within; far quicker than asking the engine."""
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
        """Podman tells its pid a moment after it has started; the command waits for us."""
        deadline = time.monotonic() + (_PID_SECONDS if self._engine.kind == "podman" else 0)
        while (pid := self._controls.pid()) is None and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)
        self.pid = pid
        try:
            self._first = None if self.pid is None else os.pidfd_open(self.pid)
        except OSError:
            self.pid = None  # it has ended already

    def _refusal(self) -> SandboxError:
        """Why the client gave up before anything of the container was run."""
        assert self.popen.stderr is not None
        os.set_blocking(self.popen.stderr.fileno(), False)
        reason = last_line(self.popen.stderr.read(_DIAGNOSIS_BYTES) or b"")
        reason = reason or f"status {self.popen.returncode}"
        kind = RuntimeProblem if any(word in reason for word in _RUNTIME_WORDS) else SandboxError
        return kind(f"{self._engine.kind} cannot start a container ({reason})")

    def _watched_over(self) -> subprocess.Popen[bytes]:
        """The guard. Raises SandboxError, with the client ended, when it cannot be started."""
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
            pass  # somebody has ended it
        self._guard.wait()
