"""Choosing a backend. Never a weaker one than asked for, and never in silence."""

from __future__ import annotations

from sandbox.bwrap import BwrapSandbox
from sandbox.process import ProcessSandbox
from sandbox.types import Sandbox, SandboxError


def choose_sandbox(*, unsafe: bool) -> Sandbox:
    """A backend that works here: isolated, or with `unsafe` the bare process.

    Raises SandboxError, with what to install or allow, when nothing isolated can be run.
    """
    if unsafe:
        return ProcessSandbox()
    sandbox = BwrapSandbox()
    probe = sandbox.probe()
    if not probe.isolated:
        raise SandboxError(f"no isolation on this machine: {probe.problem}")
    return sandbox
