"""The sandbox and the validator."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from agent.errors import SandboxUnavailable
from agent.protocols import Reporter, Snapshot, Validator
from agent.settings import Settings, environment

if TYPE_CHECKING:
    from agent.types import Problem
    from sandbox.types import Probe


async def open_validator(
    stack: AsyncExitStack,
    settings: Settings,
    problem: Problem,
    snapshot: Snapshot,
    reporter: Reporter,
) -> Validator:
    """A validator in the sandbox of the settings, closed with `stack`; without tests, syntax only.

    Raises SandboxUnavailable.
    """
    from agent.validation.validator import NullValidator, SandboxValidator, ValidationOptions
    from sandbox.choose import choose_sandbox
    from sandbox.types import SandboxError

    if not settings.tests:
        return NullValidator()
    try:
        sandbox = await asyncio.to_thread(choose_sandbox, unsafe=settings.unsafe_no_sandbox)
    except SandboxError as error:
        raise SandboxUnavailable(
            f"{error} (or --no-tests to check the syntax only, or --unsafe-no-sandbox to run the "
            "target's tests without isolation)"
        ) from None
    options = ValidationOptions(
        python=settings.python,
        test_cmd=settings.test_cmd,
        max_test_files=settings.max_test_files,
        timeout=settings.test_timeout,
        virtual_env=environment(("VIRTUAL_ENV",)).get("VIRTUAL_ENV"),
    )
    validator = SandboxValidator(snapshot, problem, sandbox, options, reporter)
    return await stack.enter_async_context(validator)


def probe_sandbox(settings: Settings) -> Probe:
    """What the chosen backend guarantees here, found by trying it."""
    from sandbox.bwrap import BwrapSandbox
    from sandbox.process import ProcessSandbox

    backend = ProcessSandbox() if settings.unsafe_no_sandbox else BwrapSandbox()
    return backend.probe()
