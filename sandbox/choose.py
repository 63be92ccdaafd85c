"""Choosing a backend. Never a weaker one than asked for, and never in silence."""

from __future__ import annotations

from typing import Literal

from sandbox.bwrap import BwrapSandbox
from sandbox.cgroups import sweep_groups
from sandbox.container import ContainerSandbox
from sandbox.container_engine import find_engine
from sandbox.landlock import LandlockSandbox
from sandbox.private import sweep_stale
from sandbox.process import ProcessSandbox
from sandbox.types import Probe, Sandbox, SandboxError

# "auto" is bubblewrap, and a container where an image is named; the rest is asked for by name.
Backend = Literal["auto", "bwrap", "container", "landlock"]


def choose_sandbox(*, unsafe: bool, backend: Backend = "auto", image: str | None = None) -> Sandbox:
    """A backend that works here: the one that was asked for, or with `unsafe` the bare process.

    Raises SandboxError as `make_sandbox` and `made_sure` do.
    """
    return made_sure(make_sandbox(unsafe=unsafe, backend=backend, image=image))


def made_sure(sandbox: Sandbox) -> Sandbox:
    """The same backend, found to hold what it promises here.

    Also removes what killed agents left behind: this is where a run begins.

    Raises SandboxError, with what to install or allow, when it does not hold. No other backend
    takes its place.
    """
    sweep_stale()
    sweep_groups()
    if isinstance(sandbox, ProcessSandbox):
        return sandbox
    if isinstance(sandbox, ContainerSandbox):
        sandbox.sweep()
    probe = sandbox.probe()
    # Landlock never isolates wholly; whoever names it has chosen what `available` promises.
    if not (probe.available if isinstance(sandbox, LandlockSandbox) else probe.isolated):
        raise SandboxError(f"no isolation on this machine: {probe.problem}")
    return sandbox


def make_sandbox(*, unsafe: bool, backend: Backend = "auto", image: str | None = None) -> Sandbox:
    """The backend of these settings, untried. Raises SandboxError when they contradict."""
    if unsafe:
        if backend != "auto" or image is not None:
            raise SandboxError("a sandbox and none at all were both asked for; leave one out")
        return ProcessSandbox()
    if image is not None and backend not in ("auto", "container"):
        raise SandboxError(f"an image is for containers, not for {backend}; leave one out")
    if image is not None:
        return ContainerSandbox(image)
    if backend == "container":
        raise SandboxError(
            "a container needs an image that is on this machine; name it with --image"
        )
    return LandlockSandbox() if backend == "landlock" else BwrapSandbox()


def other_backends(chosen: str, image: str | None = None) -> tuple[Probe, ...]:
    """What the isolating backends beside `chosen` would give here, by name. Never raises."""
    others: dict[str, Sandbox] = {"bwrap": BwrapSandbox(), "landlock": LandlockSandbox()}
    if image is not None:
        others["container"] = ContainerSandbox(image)
    probes = {name: sandbox.probe() for name, sandbox in others.items() if name != chosen}
    if "container" not in (*others, chosen):
        probes["container"] = _without_image()
    return tuple(probes[name] for name in sorted(probes))


def _without_image() -> Probe:
    """Nothing can be tried without an image: only whether an engine answers."""
    try:
        engine = find_engine()
    except SandboxError as error:
        return Probe("container", False, False, {}, str(error))
    return Probe(
        "container", False, False, {}, f"{engine.kind} answers; name an image with --image"
    )
