"""The container backend: podman or docker, with an image that brings the interpreters.

It is weaker than bubblewrap in one point: all of the image is readable. The rest is the same: no
network, no privileges, a read-only root, a private workspace, and a bound on everything.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from sandbox.container.engine import (
    Engine,
    Image,
    container_name,
    find_engine,
    find_image,
    sweep_containers,
)
from sandbox.container.launch import GO, STATUS, Controls, ScriptStatus, start_script
from sandbox.container.options import FIRST_VARIABLES, START, ContainerSetup, run_arguments
from sandbox.container.process import ContainerProcess, RuntimeProblem
from sandbox.environment import PATH, find_spare_uid
from sandbox.probing import home_directories, probe_by_running, unavailable_probe
from sandbox.processes.cgroups import Bound, find_group
from sandbox.processes.meters import GroupMeter, out_of_memory, too_many_processes
from sandbox.processes.supervise import Breach, Meter, ProcessOutcome
from sandbox.runs import HOME, SandboxRun, open_run
from sandbox.seccomp import stricter_profile
from sandbox.types import Command, Limits, Probe, RunResult, SandboxError
from sandbox.workspace.copy import Workspace


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
