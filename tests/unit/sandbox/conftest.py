from __future__ import annotations

import pytest

from tests.support.claims import BACKENDS
from tests.support.sandboxes import Runner


def _runner(name: str, request: pytest.FixtureRequest) -> Runner:
    if name == "container":
        return Runner(name, sandbox=request.getfixturevalue("container"))
    if name in ("bwrap", "landlock", "landlock-user"):
        request.getfixturevalue(f"{name.removesuffix('-user')}_works")
    if name.endswith("-user"):
        library: Runner = request.getfixturevalue("nobody_runner")
        return Runner(name, library.library)
    return Runner(name)


@pytest.fixture(params=BACKENDS)
def run(request: pytest.FixtureRequest) -> Runner:
    """Runs commands by every backend, to test what the protocol promises."""
    return _runner(request.param, request)


@pytest.fixture(params=["bwrap", "bwrap-user"])
def isolated(request: pytest.FixtureRequest) -> Runner:
    """Runs commands by the isolating backends, as root and as a user."""
    return _runner(request.param, request)
