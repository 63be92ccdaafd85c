"""The network is shown to a command only if it is asked for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sandbox.bwrap import BwrapSandbox
from sandbox.host import find_interpreter
from sandbox.landlock import LandlockSandbox
from sandbox.types import Command, RunResult, SandboxError
from sandbox.workspace import empty_workspace
from tests.support.behaviours import Good
from tests.support.sandboxes import require_bwrap
from tests.support.scripted_provider import ScriptedProvider

_ASK = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=5).status)"


def ask(url: str, *, network: bool) -> RunResult:
    found = find_interpreter(Path(sys.executable))
    argv = (str(found.executable), "-I", "-c", _ASK, url)
    command = Command(argv, read_only=found.paths, network=network)
    with empty_workspace(mount=Path("/work")) as tree:
        return BwrapSandbox().run(command, tree)


def test_bwrap_shows_the_network_only_on_request() -> None:
    require_bwrap()
    with ScriptedProvider([Good("{}")]) as server:
        url = f"{server.base_url}/models"
        assert ask(url, network=False).exit_code == 1
        assert not server.requests
        shown = ask(url, network=True)
    assert (shown.exit_code, shown.stdout) == (0, b"200\n"), shown.stderr


@pytest.mark.parametrize("network", [True, False])
def test_names_are_resolved_only_with_the_network(network: bool) -> None:
    require_bwrap()
    with empty_workspace(mount=Path("/work")) as tree:
        command = Command(("cat", "/etc/nsswitch.conf"), network=network)
        found = BwrapSandbox().run(command, tree)
    assert (b"hosts: files dns" in found.stdout) is network


def test_landlock_refuses_rather_than_runs_without() -> None:
    with (
        empty_workspace(mount=Path("/work")) as tree,
        pytest.raises(SandboxError, match="cannot give a command the network"),
    ):
        LandlockSandbox().run(Command(("true",), network=True), tree)
