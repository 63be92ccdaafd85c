"""The sandbox and the validator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agent.errors import ConfigurationError, SandboxUnavailable
from agent.events import Notice
from agent.protocols import Reporter, Snapshot, Validator
from agent.settings import Settings, environment

if TYPE_CHECKING:
    from agent.types import KnownTests, Problem
    from agent.validation.running.surroundings import Surroundings
    from sandbox.types import Probe, Sandbox


async def open_validator(
    stack: AsyncExitStack,
    settings: Settings,
    problem: Problem,
    snapshot: Snapshot,
    reporter: Reporter,
    *,
    sandbox_tried: bool = False,
    trial: Callable[[], Sandbox] | None = None,
    around: Callable[[Sandbox], Sandbox] | None = None,
) -> Validator:
    """A validator in the sandbox of the settings, closed with `stack`; without tests, syntax only.

    `sandbox_tried`: somebody has just made sure of it on this machine. `trial`: waits for somebody
    who is doing so (`ahead.Ahead`). `around`: what is put around the sandbox.

    Raises SandboxUnavailable.
    """
    from agent.validation.validator import NullValidator, SandboxValidator, ValidationOptions
    from sandbox.choose import made_sure
    from sandbox.types import SandboxError

    if not settings.tests:
        return NullValidator()
    untried = make_sandbox(settings)
    try:
        make_sure = trial or partial(made_sure, untried)
        sandbox = untried if sandbox_tried else await asyncio.to_thread(make_sure)
    except SandboxError as error:
        raise SandboxUnavailable(
            f"{error} (or --no-tests to check the syntax only, {_other_backends(settings)} where "
            "`agent doctor` shows that it works, or --unsafe-no-sandbox to run the target's tests "
            "without isolation)"
        ) from None
    python, surroundings = await _environment(settings, snapshot, reporter)
    options = ValidationOptions(
        python=python,
        test_cmd=settings.test_cmd,
        max_test_files=settings.max_test_files,
        timeout=settings.test_timeout,
        virtual_env=environment(("VIRTUAL_ENV",)).get("VIRTUAL_ENV"),
        known=_known_tests(settings),
        cache=settings.cache_dir / "runs" if settings.run_cache else None,
        surroundings=surroundings,
    )
    if around is not None:
        sandbox = around(sandbox)
    validator = SandboxValidator(snapshot, problem, sandbox, options, reporter)
    return await stack.enter_async_context(validator)


async def _environment(
    settings: Settings, snapshot: Snapshot, reporter: Reporter
) -> tuple[Path | None, Surroundings]:
    """The interpreter for the target's tests and what stands around them, built where need be.

    Raises ConfigurationError.
    """
    from agent.validation.running.surroundings import Surroundings

    if settings.environments is None:
        return settings.python, Surroundings()
    from agent.environments.solving import target_of

    def note(text: str) -> None:
        reporter(Notice(text))

    return await asyncio.to_thread(target_of, settings, snapshot, note)


def _other_backends(settings: Settings) -> str:
    """The options that choose another backend than the settings do."""
    backend = "container" if settings.image is not None else settings.sandbox
    options = {"container": "--image", "landlock": "--sandbox landlock"}
    if backend in options:
        options["bwrap"] = "--sandbox bwrap"
    return " or ".join(option for name, option in options.items() if name != backend)


def _known_tests(settings: Settings) -> KnownTests | None:
    """The tests that are given to decide, None for none. Raises ConfigurationError."""
    from agent.types import KnownTests
    from agent.validation.judging.known import read_known

    named = KnownTests(settings.fail_to_pass, settings.pass_to_pass)
    row = read_known(settings.tests_from) if settings.tests_from else KnownTests()
    both = KnownTests(
        (*named.fail_to_pass, *row.fail_to_pass), (*named.pass_to_pass, *row.pass_to_pass)
    )
    return both if both.fail_to_pass or both.pass_to_pass else None


def make_sandbox(settings: Settings) -> Sandbox:
    """The backend of the settings, untried. Raises ConfigurationError when they contradict."""
    from sandbox import choose
    from sandbox.types import SandboxError

    unsafe, backend, image = settings.unsafe_no_sandbox, settings.sandbox, settings.image
    try:
        return choose.make_sandbox(unsafe=unsafe, backend=backend, image=image)
    except SandboxError as error:
        given = (
            (f"--sandbox {backend}", backend != "auto"),
            ("--image", image is not None),
            ("--unsafe-no-sandbox", unsafe),
        )
        at_fault = ", ".join(option for option, is_given in given if is_given)
        raise ConfigurationError(f"{at_fault}: {error}") from None


def why_no_python(settings: Settings) -> str:
    """Why the interpreter that tests here would be tried with first cannot start in the sandbox.

    "" when nothing speaks against it.
    """
    from agent.validation.frameworks.interpreter import candidates
    from sandbox.interpreter import find_interpreter
    from sandbox.landlock import why_shut_out
    from sandbox.types import SandboxError

    sandbox = make_sandbox(settings)
    if sandbox.foreign_root:
        return ""
    active = environment(("VIRTUAL_ENV",)).get("VIRTUAL_ENV")
    try:
        first = candidates(Path.cwd(), settings.python, active)[0]
        found = find_interpreter(first.path)
    except (ConfigurationError, SandboxError) as error:
        return str(error)
    why = why_shut_out(sandbox, (found.executable, *found.paths))
    return f"{found.executable} does not start inside the sandbox: {why}" if why else ""


def probe_sandboxes(settings: Settings) -> tuple[Probe, ...]:
    """What backends guarantee here, found by trying them: the chosen one first, then the others.

    Raises ConfigurationError when the settings contradict.
    """
    from sandbox.choose import other_backends

    chosen = make_sandbox(settings)
    return (chosen.probe(), *other_backends(chosen.name, settings.image))
