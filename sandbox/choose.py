"""Choosing a backend. Never a weaker one than asked for, and never in silence."""

from __future__ import annotations

from sandbox.bwrap import BwrapSandbox
from sandbox.private import sweep_stale
from sandbox.process import ProcessSandbox
from sandbox.types import Sandbox, SandboxError


def choose_sandbox(*, unsafe: bool) -> Sandbox:
    """A backend that works here: isolated, or with `unsafe` the bare process.

    Also removes what killed agents left behind: this is where a run begins.

    Raises SandboxError, with what to install or allow, when nothing isolated can be run.
    """
    sweep_stale()
    if unsafe:
        return ProcessSandbox()
    sandbox = BwrapSandbox()
    probe = sandbox.probe()
    if not probe.isolated:
        raise SandboxError(f"no isolation on this machine: {probe.problem}")
    return sandbox
