from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox.container import ContainerSandbox
from sandbox.container_engine import LABEL, find_engine
from sandbox.killing import new_name
from tests.support.claims import BACKENDS
from tests.support.images import require_container
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


@pytest.fixture
def stale_container(container: ContainerSandbox) -> Iterator[str]:
    """The name of a container whose process has ended."""
    engine = find_engine("podman")
    parts = new_name().split("-")
    name = "-".join((*parts[:-2], "1", parts[-1]))
    label = ("--label", f"{LABEL}=1", "--network", "none")
    engine.ask("create", "--name", name, *label, require_container(), "true")
    yield name
    engine.remove(name)
