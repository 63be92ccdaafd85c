"""Chooses the backend that was asked for. A weaker one never takes its place.

A backend is imported when it is made, because a run needs one of them only.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from sandbox.cgroups import sweep_groups
from sandbox.private import sweep_stale
from sandbox.types import Probe, Sandbox, SandboxError

# "auto" is bubblewrap, or a container if an image is named; the others are asked for by name.
Backend = Literal["auto", "bwrap", "container", "landlock"]


def check_isolation(sandbox: Sandbox) -> Sandbox:
    """Return the same backend after a trial that it keeps its promises on this machine.

    Also removes what killed agents left behind, because a run begins here.

    Raises SandboxError, with what to install or allow, when the backend does not keep them.
    """
    sweep_stale()
    sweep_groups()
    if sandbox.name == "process":
        return sandbox
    if sandbox.name == "container":
        from sandbox.container import ContainerSandbox

        if isinstance(sandbox, ContainerSandbox):
            sandbox.sweep()
    probe = sandbox.probe()
    # Landlock never isolates completely. Whoever names it has chosen what `available` promises.
    if not (probe.available if sandbox.name == "landlock" else probe.isolated):
        raise SandboxError(f"no isolation on this machine: {probe.problem}")
    return sandbox


def make_sandbox(*, unsafe: bool, backend: Backend = "auto", image: str | None = None) -> Sandbox:
    """Make the backend of these settings without a trial. Raises SandboxError."""
    if unsafe:
        if backend != "auto" or image is not None:
            raise SandboxError("a sandbox and none at all were both asked for; leave one out")
        from sandbox.in_place import ProcessSandbox

        return ProcessSandbox()
    if image is not None and backend not in ("auto", "container"):
        raise SandboxError(f"an image is for containers, not for {backend}; leave one out")
    if image is not None:
        try:
            from sandbox.container import ContainerSandbox
        except ModuleNotFoundError:  # the miner bundle runs in a container and starts none
            raise SandboxError("a bundle starts no containers; unset PATCHSHOT_IMAGE") from None
        return ContainerSandbox(image)
    if backend == "container":
        raise SandboxError(
            "a container needs an image that is on this machine; name it with --image"
        )
    if backend == "landlock":
        from sandbox.landlock import LandlockSandbox

        return LandlockSandbox()
    from sandbox.bwrap import BwrapSandbox

    return BwrapSandbox()


def other_backends(chosen: str, image: str | None = None) -> tuple[Probe, ...]:
    """Probe the isolating backends other than `chosen`, in order of names. Never raises."""
    from sandbox.bwrap import BwrapSandbox
    from sandbox.container import ContainerSandbox
    from sandbox.landlock import LandlockSandbox

    others: dict[str, Sandbox] = {"bwrap": BwrapSandbox(), "landlock": LandlockSandbox()}
    if image is not None:
        others["container"] = ContainerSandbox(image)
    probes = {name: sandbox.probe() for name, sandbox in others.items() if name != chosen}
    if "container" not in (*others, chosen):
        probes["container"] = _probe_engine()
    return tuple(probes[name] for name in sorted(probes))


def _probe_engine() -> Probe:
    """Find out whether an engine answers; without an image nothing else can be tried."""
    from sandbox.container_engine import find_engine

    try:
        engine = find_engine()
    except SandboxError as error:
        return Probe("container", False, False, {}, str(error))
    return Probe(
        "container", False, False, {}, f"{engine.kind} answers; name an image with --image"
    )


def explain_closed_paths(sandbox: Sandbox, needed: Iterable[Path]) -> str:
    """Say why a command that needs these absolute paths cannot start and what to do; "" if it can.

    As root the command has another uid, which cannot enter a folder that only we may read.
    """
    if sandbox.name != "landlock" or os.geteuid() != 0:
        return ""
    for way in (each for path in needed for each in (path, path.resolve())):
        for folder in (*reversed(way.parents), way):
            if folder.is_dir() and not folder.stat().st_mode & stat.S_IXOTH:
                return (
                    f"{folder} is closed to other users, and as root Landlock needs one: name an "
                    f"interpreter elsewhere with --python, or let others pass: chmod o+x {folder}"
                )
    return ""
