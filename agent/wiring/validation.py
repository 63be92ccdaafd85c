"""The sandbox and the validator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agent.errors import ConfigurationError, SandboxUnavailable
from agent.settings import Settings, environment, work_tree_of
from agent.types.events import Notice
from agent.types.protocols import Reporter, Snapshot, Validator
from agent.wiring.model import make_counter

if TYPE_CHECKING:
    from agent.types import KnownTests, Problem
    from agent.verify import ProjectSetup
    from sandbox import Probe, Sandbox


class Ahead:
    """Tests the sandbox and loads the tokenizer in threads that start at once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        threads = ThreadPoolExecutor(2, thread_name_prefix="ahead")
        self._sandbox = threads.submit(self._made_sure) if settings.tests else None
        threads.submit(self._load_ranks)
        threads.shutdown(wait=False)

    def sandbox(self) -> Sandbox:
        """Return the tested sandbox of the settings. Raises SandboxError, ConfigurationError."""
        return self._made_sure() if self._sandbox is None else self._sandbox.result()

    def _made_sure(self) -> Sandbox:
        from sandbox import check_isolation

        return check_isolation(make_sandbox(self._settings))

    def _load_ranks(self) -> None:
        with suppress(ConfigurationError):
            make_counter(self._settings.model).count("ready")


async def open_validator(
    stack: AsyncExitStack,
    settings: Settings,
    problem: Problem,
    snapshot: Snapshot,
    reporter: Reporter,
    *,
    trial: Callable[[], Sandbox] | None = None,
    around: Callable[[Sandbox], Sandbox] | None = None,
    project: str | None = None,
) -> Validator:
    """Make a validator in the sandbox of the settings; without tests it checks only the syntax.

    `trial`: waits for a running test (`Ahead`). `around`: wraps the sandbox. Raises
    ConfigurationError and SandboxUnavailable.
    """
    from agent.verify import NullValidator, SandboxValidator, ValidationOptions
    from sandbox import SandboxError, check_isolation

    if not settings.tests:
        return NullValidator()
    if settings.setup_network and settings.setup_cmd is None:
        raise ConfigurationError("PATCHSHOT_SETUP_NETWORK is for --setup-cmd: give that too")
    untried = make_sandbox(settings)
    try:
        sandbox = await asyncio.to_thread(trial or partial(check_isolation, untried))
    except SandboxError as error:
        raise SandboxUnavailable(
            f"{error} (or --no-tests to check the syntax only, another --sandbox that `agent "
            "doctor` shows to work, or --unsafe-no-sandbox to run the target's tests without "
            "isolation)"
        ) from None
    python, surroundings = await _environment(settings, snapshot, reporter, project)
    options = ValidationOptions(
        python=python,
        test_cmd=settings.test_cmd,
        setup_cmd=settings.setup_cmd,
        setup_network=settings.setup_network,
        timeout=settings.test_timeout,
        virtual_env=environment(("VIRTUAL_ENV",)).get("VIRTUAL_ENV"),
        known=problem.known,
        allow=settings.allow,
        cache=settings.cache_dir / "runs",
        setup=surroundings,
    )
    if around is not None:
        sandbox = around(sandbox)
    validator = SandboxValidator(snapshot, problem, sandbox, options, reporter)
    return await stack.enter_async_context(validator)


async def _environment(
    settings: Settings, snapshot: Snapshot, reporter: Reporter, project: str | None
) -> tuple[Path | None, ProjectSetup]:
    """Return the interpreter for the target's tests and the setup of the project."""
    from agent.verify import ProjectSetup

    if settings.environments is None:
        return settings.python, ProjectSetup()
    from agent.verify.environments import prepare_target

    def note(text: str) -> None:
        reporter(Notice(text))

    return await asyncio.to_thread(prepare_target, settings, snapshot, note, project)


def known_tests(
    fail_to_pass: Sequence[str] = (),
    pass_to_pass: Sequence[str] = (),
    tests_from: Path | None = None,
) -> KnownTests | None:
    """Return the tests that decide whether a patch is accepted, or None: ids, and a JSON row."""
    from agent.types import KnownTests
    from agent.verify import read_known

    row = read_known(tests_from) if tests_from else KnownTests()
    both = KnownTests((*fail_to_pass, *row.fail_to_pass), (*pass_to_pass, *row.pass_to_pass))
    return both if both.fail_to_pass or both.pass_to_pass else None


def make_sandbox(settings: Settings) -> Sandbox:
    """Make the backend of the settings without testing it. Raises ConfigurationError."""
    from sandbox import SandboxError
    from sandbox import make_sandbox as make_one

    try:
        return make_one(
            unsafe=settings.unsafe_no_sandbox, backend=settings.sandbox, image=settings.image
        )
    except SandboxError as error:
        raise ConfigurationError(f"--sandbox, --image, --unsafe-no-sandbox: {error}") from None


def why_no_python(settings: Settings) -> str:
    """Return why the first interpreter for tests cannot start in the sandbox; "" if it can."""
    from agent.verify import candidates
    from sandbox import SandboxError, find_interpreter

    if make_sandbox(settings).foreign_root:
        return ""
    active = environment(("VIRTUAL_ENV",)).get("VIRTUAL_ENV")
    try:
        root = work_tree_of(Path.cwd())
        first = candidates(root, settings.python, active)[0]
        find_interpreter(first.path, work_tree=root)
    except (ConfigurationError, SandboxError) as error:
        return str(error)
    return ""


def probe_sandboxes(settings: Settings) -> tuple[Probe, ...]:
    """Test which guarantees the backends give here: the chosen one first, then the others."""
    from sandbox import other_backends

    chosen = make_sandbox(settings)
    return (chosen.probe(), *other_backends(chosen.name, settings.image))
