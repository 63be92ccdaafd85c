"""Fixtures that tests in several folders use; `tests/conftest.py` names this plugin."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from sandbox.container import ContainerSandbox
from sandbox.landlock import LandlockSandbox
from tests.support.batch_command import Bench
from tests.support.behaviours import Behaviour
from tests.support.evaluation import bare_repository
from tests.support.images import remove_image, require_container
from tests.support.sandboxes import Runner, can_be_nobody, library_for_nobody, require_bwrap
from tests.support.scripted_provider import ScriptedProvider

MakeBench = Callable[[Sequence[Behaviour]], Bench]


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
def make_bench(tmp_path: Path, request: pytest.FixtureRequest) -> MakeBench:
    def make(script: Sequence[Behaviour]) -> Bench:
        provider = ScriptedProvider(script)
        provider.__enter__()
        request.addfinalizer(lambda: provider.__exit__(None, None, None))
        (tmp_path / "tmp").mkdir()
        bench = Bench(tmp_path, bare_repository(tmp_path / "repos"), provider)
        bench.rows(*map(bench.row, range(1, 4)))
        return bench

    return make
