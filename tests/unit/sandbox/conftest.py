from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.sandboxes import Runner, can_be_nobody, library_for_nobody, require_bwrap


@pytest.fixture(scope="session")
def bwrap_works() -> None:
    require_bwrap()


@pytest.fixture(scope="session")
def nobody_runner(bwrap_works: None) -> Iterator[Runner]:
    if reason := can_be_nobody():
        pytest.skip(reason)
    with library_for_nobody() as library:
        yield Runner("bwrap-user", library)


def _runner(name: str, request: pytest.FixtureRequest) -> Runner:
    if name == "bwrap-user":
        found: Runner = request.getfixturevalue("nobody_runner")
        return found
    if name == "bwrap":
        request.getfixturevalue("bwrap_works")
    return Runner(name)


@pytest.fixture(params=["bwrap", "bwrap-user", "process"])
def run(request: pytest.FixtureRequest) -> Runner:
    """Every backend: what the protocol promises."""
    return _runner(request.param, request)


@pytest.fixture(params=["bwrap", "bwrap-user"])
def isolated(request: pytest.FixtureRequest) -> Runner:
    """The isolating backends, as root and as a user: what attacks must not achieve."""
    return _runner(request.param, request)
