"""The container backend: podman or docker, with an image that brings the interpreters.

Weaker in one point than bubblewrap: all of the image is readable. The rest is the same: no network,
no privileges, a read-only root, a private workspace, and a bound on everything.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from sandbox import identity
from sandbox.channels import JUNIT_NAME, Channels
from sandbox.container_controls import GO, STATUS, Controls
from sandbox.container_engine import (
    Engine,
    Image,
    container_name,
    find_engine,
    find_image,
    sweep_containers,
)
from sandbox.container_launch import script
from sandbox.container_meter import ContainerMeter
from sandbox.container_options import (
    FIRST_VARIABLES,
    HOME,
    JUNIT_DIRECTORY,
    REPORT,
    START,
    Inside,
    run_arguments,
    sizes,
)
from sandbox.container_process import ContainerProcess, RuntimeProblem
from sandbox.container_seccomp import stricter
from sandbox.disk import DiskMeter, MemoryDiskMeter
from sandbox.environment import PATH, command_environment
from sandbox.meters import InsideMeter, Meters, TreeMeter
from sandbox.private import remove_tree
from sandbox.probing import own_homes, probe_by_running, unavailable
from sandbox.results import run_result
from sandbox.supervise import watch
from sandbox.types import Command, Limits, Probe, RunResult, SandboxError
from sandbox.workspace import Workspace


@dataclass(frozen=True, slots=True)
class _Ready:
    """What was found out once: the engine that answers and the image that is there."""

    engine: Engine
    image: Image
    seccomp: bytes | None  # None: the engine's own filter


class ContainerSandbox:
    """Runs commands in fresh containers of `image`, which must be on this machine.

    `engine` is the podman or docker to use (default: the first that answers). `homes` are
    directories of the host that must not be shown (default: the home of the user). The image's
    user, entry point and volumes are not used; its variables are, but for what the protocol fixes.
    """

    def __init__(
        self, image: str, engine: str | None = None, *, homes: tuple[Path, ...] | None = None
    ) -> None:
        self._image = image
        self._wanted = engine
        self._homes = own_homes() if homes is None else homes
        self._found: _Ready | None = None
        self._runtimes: tuple[str | None, ...] = ()

    @property
    def name(self) -> str:
        """As it is called in reports and settings."""
        return "container"

    @property
    def foreign_root(self) -> bool:
        """Always: commands see the image's file system."""
        return True

    def probe(self) -> Probe:
        """Run a small script inside and report what it could and could not do. Never raises."""
        try:
            variables = {*FIRST_VARIABLES, *self.image_environment()}
            return probe_by_running(self, homes=self._homes, variables=variables)
        except SandboxError as error:
            return unavailable(self.name, str(error))

    def sweep(self) -> tuple[str, ...]:
        """Remove what killed agents left behind; the names of the containers, in order.

        Raises SandboxError when no engine answers.
        """
        return sweep_containers(self._ready().engine)

    def image_environment(self) -> Mapping[str, str]:
        """The variables that the image sets (`ENV`). Raises SandboxError."""
        return self._ready().image.environment

    def run(
        self, command: Command, workspace: Workspace, *, cancel: threading.Event | None = None
    ) -> RunResult:
        """Run it isolated; see the protocol `Sandbox`.

        Where the engine's own choice of an OCI runtime cannot start containers, the others that are
        installed are tried, and the one that works is kept: all of them isolate in the same way.
        """
        ready = self._ready()
        problems: list[str] = []
        for runtime in self._runtimes:
            try:
                result = _run_by(ready, runtime, command, workspace, self._homes, cancel)
            except RuntimeProblem as error:
                problems.append(str(error))
                continue
            self._runtimes = (runtime,)
            return result
        raise SandboxError("; ".join(dict.fromkeys(problems)))

    def _ready(self) -> _Ready:
        if self._found is None:
            engine = find_engine(self._wanted)
            filtered = None if engine.seccomp is None else stricter(engine.seccomp)
            self._found = _Ready(engine, find_image(engine, self._image), filtered)
            self._runtimes = (None, *engine.runtimes())
        return self._found


def _run_by(
    ready: _Ready,
    runtime: str | None,
    command: Command,
    workspace: Workspace,
    homes: tuple[Path, ...],
    cancel: threading.Event | None,
) -> RunResult:
    uid, gid = _owner(ready.engine, workspace)
    with _prepared(command, workspace, ready, uid) as (controls, channels):
        name = container_name(secrets.token_hex(8))
        inside = Inside(name, workspace, uid, gid, controls, channels, homes)
        arguments = run_arguments(ready.engine, ready.image, runtime, command, inside)
        with (
            ContainerProcess(ready.engine, arguments, name, controls) as process,
            closing(_meters(command.limits, inside, process.pid)) as meter,
        ):
            controls.release()
            outcome = watch(
                process.popen,
                command.limits,
                cancel,
                process.kill,
                report=None if channels is None else channels.pipe,
                meter=meter,
            )
        return run_result(outcome, outcome.returncode, command.limits, channels)


def _meters(limits: Limits, inside: Inside, pid: int | None) -> Meters:
    """What is measured from this machine: all where the engine tells the first process's pid."""
    grouped = ContainerMeter(limits, inside.controls.status)
    if pid is not None:
        grouped.enter(pid)
    tree = TreeMeter(limits, grouped.bounds)
    places = [inside.workspace.path]
    if inside.channels is not None:
        places.append(inside.channels.junit_directory)
    apart: list[InsideMeter] = [
        tree,
        DiskMeter(places, limits, tree.pids),
        MemoryDiskMeter(sizes(limits), limits),
    ]
    if pid is not None:
        for meter in apart:
            meter.enter(pid)
    return Meters([grouped, *apart])


def _owner(engine: Engine, workspace: Workspace) -> tuple[int, int]:
    """Uid and gid of the command: the workspace's owner, and never root. Raises SandboxError."""
    if engine.rootless or os.geteuid() != 0:
        if os.getuid() == 0:
            raise SandboxError("rootless podman as root of a user namespace cannot drop its uid")
        return os.getuid(), os.getgid()
    uid = workspace.owner if workspace.owner is not None else identity.spare_uid()
    if uid is None:
        raise SandboxError("this user namespace has no uid to drop to; map more than one")
    workspace.give_to(uid)
    return uid, uid


@contextmanager
def _prepared(
    command: Command, workspace: Workspace, ready: _Ready, uid: int
) -> Iterator[tuple[Controls, Channels | None]]:
    """The files of one run, gone at its end: the script with its pipes, and the two reports."""
    if not command.argv:
        raise SandboxError("nothing to run: argv is empty")
    text = script(
        command.argv,
        _environment(command, ready.image),
        inherited={*FIRST_VARIABLES, *ready.image.environment},
        cwd=workspace.inside(command.cwd),
        home=HOME,
        status=START / STATUS,
        go=START / GO,
        # Where the memory of all is bounded, what is only reserved is no harm.
        address_space=None if ready.engine.groups else command.limits.address_space,
    )
    scratch = workspace.scratch()
    owner = uid if os.geteuid() == 0 else None
    try:
        both = Channels(scratch, command.limits, owner) if command.report else nullcontext()
        with Controls(scratch, text, ready.seccomp) as controls, both as channels:
            yield controls, channels
    finally:
        remove_tree(scratch)


def _environment(command: Command, image: Image) -> Mapping[str, str]:
    """The image's variables, then ours; the image's directories of programs come after ours."""
    junit = JUNIT_DIRECTORY / JUNIT_NAME if command.report else None
    own = command_environment(
        command, home=HOME, report=REPORT if command.report else None, junit=junit
    )
    path = [*own.get("PATH", PATH).split(":"), *image.environment.get("PATH", "").split(":")]
    whole = {**image.environment, **own, "PATH": ":".join(dict.fromkeys(filter(None, path)))}
    return {name: value for name, value in whole.items() if "\0" not in name + value}
