"""Fixtures that tests in several folders use; `tests/conftest.py` names this plugin."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from sandbox.container import ContainerSandbox
from sandbox.landlock import LandlockSandbox
from tests.support.batch_command import Bench
from tests.support.behaviours import Step
from tests.support.images import remove_image, require_container
from tests.support.sandboxes import Runner, can_be_nobody, library_for_nobody, require_bwrap
from tests.support.scripted_provider import ScriptedProvider

MakeBench = Callable[[Sequence[Step]], Bench]


@pytest.fixture(scope="session")
def bwrap_works() -> None:
    require_bwrap()


@pytest.fixture(scope="session")
def landlock_works() -> None:
    probe = LandlockSandbox().probe()
    if not probe.available:
        pytest.skip(f"Landlock cannot be used: {probe.problem}")


@pytest.fixture(scope="session")
def container() -> Iterator[ContainerSandbox]:
    yield ContainerSandbox(require_container(), "podman")
    remove_image()


@pytest.fixture(scope="session")
def nobody_runner(bwrap_works: None) -> Iterator[Runner]:
    if reason := can_be_nobody():
        pytest.skip(reason)
    with library_for_nobody() as library:
        yield Runner("bwrap-user", library)


@pytest.fixture
def make_bench(tmp_path: Path) -> Iterator[MakeBench]:
    with ExitStack() as stack:
        yield lambda script: Bench(tmp_path, stack.enter_context(ScriptedProvider(script)))
