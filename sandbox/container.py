"""The container backend: podman or docker, with an image that brings the interpreters.

It is weaker than bubblewrap in one point: all of the image is readable. The engine's client is our
child, the container is not; so a guard (a shell in a session of its own) removes the container when
we end, however that happens.
"""

from __future__ import annotations

import os
import secrets
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from sandbox.cgroups import Bound, find_group
from sandbox.choose import home_directories, probe_by_running, unavailable_probe
from sandbox.container_engine import (
    Engine,
    Image,
    container_name,
    find_engine,
    find_image,
    last_line,
    sweep_containers,
)
from sandbox.container_options import (
    FIRST_VARIABLES,
    GO,
    START,
    STATUS,
    ContainerSetup,
    Controls,
    ScriptStatus,
    run_arguments,
    start_script,
)
from sandbox.host import PATH, find_spare_uid
from sandbox.killing import reap_session
from sandbox.meters import GroupMeter, out_of_memory, too_many_processes
from sandbox.runs import HOME, SandboxRun, open_run
from sandbox.seccomp import stricter_profile
from sandbox.supervise import Breach, Meter, ProcessOutcome
from sandbox.types import Command, Limits, Probe, RunResult, SandboxError
from sandbox.workspace import Workspace

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


# ---- the backend


@dataclass(frozen=True, slots=True)
class _Ready:
    """What is asked only once: the engine that answers, and the image that it has."""

    engine: Engine
    image: Image
    seccomp: bytes | None  # None: the engine's own filter


class ContainerSandbox:
    """Runs commands in fresh containers of `image`, which must be on this machine.

    `engine` is the podman or docker to use (default: the first that answers). `homes` are
    directories of the host that must not be shown (default: the home of the user). The image's
    user, entry point and volumes are not used; its variables are, where the protocol fixes none.
    """

    name = "container"
    foreign_root = True

    def __init__(
        self, image: str, engine: str | None = None, *, homes: tuple[Path, ...] | None = None
    ) -> None:
        self._image = image
        self._wanted = engine
        self._homes = home_directories() if homes is None else homes
        self._found: _Ready | None = None
        self._runtimes: tuple[str | None, ...] = ()

    def probe(self) -> Probe:
        """Run a small script inside and report what it could and could not do. Never raises."""
        try:
            variables = {*FIRST_VARIABLES, *self.image_environment()}
            return probe_by_running(self, homes=self._homes, variables=variables)
        except SandboxError as error:
            return unavailable_probe(self.name, str(error))

    def sweep(self) -> tuple[str, ...]:
        """Remove what killed agents left behind; return the names of the containers in order.

        Raises SandboxError when no engine answers.
        """
        return sweep_containers(self._ready().engine)

    def image_environment(self) -> Mapping[str, str]:
        """The variables that the image sets (`ENV`). Raises SandboxError."""
        return self._ready().image.environment

    def run(
        self, command: Command, workspace: Workspace, *, cancel: threading.Event | None = None
    ) -> RunResult:
        """Run the command isolated; see the protocol `Sandbox`.

        If the engine's default OCI runtime cannot start containers here, the other installed ones
        are tried and the first that works is kept. All of them isolate in the same way.
        """
        ready = self._ready()
        problems: list[str] = []
        for runtime in self._runtimes:
            try:
                result = self._run_by(runtime, ready, command, workspace, cancel)
            except RuntimeProblem as error:
                problems.append(str(error))
                continue
            self._runtimes = (runtime,)
            return result
        raise SandboxError("; ".join(dict.fromkeys(problems)))

    def _ready(self) -> _Ready:
        if self._found is None:
            engine = find_engine(self._wanted)
            profile = None if engine.seccomp is None else stricter_profile(engine.seccomp)
            self._found = _Ready(engine, find_image(engine, self._image), profile)
            self._runtimes = (None, *engine.runtimes())
        return self._found

    def _run_by(
        self,
        runtime: str | None,
        ready: _Ready,
        command: Command,
        workspace: Workspace,
        cancel: threading.Event | None,
    ) -> RunResult:
        uid, gid = _give_workspace(ready.engine, workspace)
        owner = uid if os.geteuid() == 0 else None
        with open_run(command, workspace, owner, cancel) as run:
            name = container_name(secrets.token_hex(8))
            with Controls(run.scratch, _script(run, ready), ready.seccomp) as controls:
                setup = ContainerSetup(name, run, uid, gid, controls, self._homes)
                arguments = run_arguments(ready.engine, ready.image, runtime, setup)
                with ContainerProcess(ready.engine, arguments, name, controls) as process:
                    outcome = _watch(run, process, controls)
                return run.result(outcome, outcome.returncode)


def _watch(run: SandboxRun, process: ContainerProcess, controls: Controls) -> ProcessOutcome:
    grouped = ContainerMeter(run.limits, controls.status, process.pid)
    meters = run.meters(grouped, grouped.bounds, in_memory=run.memory_sizes)
    with closing(meters):
        if process.pid is not None:
            meters.enter(process.pid)
        controls.release()
        return run.watch(process.popen, process.kill, meters)


def _give_workspace(engine: Engine, workspace: Workspace) -> tuple[int, int]:
    """Let the command own the workspace; return its uid and gid, never root's.

    Raises SandboxError.
    """
    if engine.rootless or os.geteuid() != 0:
        if os.getuid() == 0:
            raise SandboxError("rootless podman as root of a user namespace cannot drop its uid")
        return os.getuid(), os.getgid()
    uid = workspace.owner if workspace.owner is not None else find_spare_uid()
    if uid is None:
        raise SandboxError("this user namespace has no uid to drop to; map more than one")
    workspace.give_to(uid)
    return uid, uid


def _script(run: SandboxRun, ready: _Ready) -> bytes:
    return start_script(
        run.command.argv,
        _merge_environment(run, ready.image),
        inherited={*FIRST_VARIABLES, *ready.image.environment},
        cwd=run.workspace.inside(run.command.cwd),
        home=HOME,
        status=START / STATUS,
        go=START / GO,
        # Where the memory of all processes is bounded, memory that is only reserved does no harm.
        address_space=None if ready.engine.groups else run.limits.address_space,
    )


def _merge_environment(run: SandboxRun, image: Image) -> Mapping[str, str]:
    """Lay our variables over the image's; its directories of programs follow ours in PATH."""
    own = run.environment()
    path = [*own.get("PATH", PATH).split(":"), *image.environment.get("PATH", "").split(":")]
    whole = {**image.environment, **own, "PATH": ":".join(dict.fromkeys(filter(None, path)))}
    return {name: value for name, value in whole.items() if "\0" not in name + value}


class ContainerMeter(Meter):
    """Watches a container's control group from the host; after the end, asks what its script said.

    Nothing inside can touch the numbers that the host sees, but the group is gone with the
    container. The numbers that the script reads in its last moment then take their place.
    """

    def __init__(
        self, limits: Limits, status: Callable[[], ScriptStatus], pid: int | None = None
    ) -> None:
        """`pid` is the container's first process, which the engine has put into the group."""
        self._limits = limits
        self._status = status
        self._group = None if pid is None else find_group(pid)
        self._live = None if self._group is None else GroupMeter(self._group, limits)
        self._refused = 0

    @property
    def bounds(self) -> frozenset[Bound]:
        """What the host sees of all processes together."""
        return frozenset() if self._group is None else self._group.bounds

    def breach(self) -> Breach | None:
        """Read the group's own counters while the container runs."""
        if self._group is None or self._live is None:
            return None
        self._refused = self._group.refused_processes()
        return self._live.breach()

    def after(self) -> Breach | None:
        """Use the counters that the script read when the command had ended.

        If the script was killed before it could look, what the host saw last counts.
        """
        status = self._status()
        if status.killed:
            return out_of_memory(self._limits)
        if status.refused or self._refused:
            return too_many_processes(self._limits, decisive=False)
        return None
