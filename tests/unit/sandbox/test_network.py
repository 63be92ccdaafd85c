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
from tests.support.sandboxes import require_bwrap
from tests.support.scripted_provider import ScriptedProvider

_ASK = (
    "import sys, urllib.request as r; print('dns' in open('/etc/nsswitch.conf').read());"
    "print(r.urlopen(sys.argv[1], timeout=5).status)"
)


def ask(url: str, *, network: bool) -> RunResult:
    found = find_interpreter(Path(sys.executable))
    argv = (str(found.executable), "-I", "-c", _ASK, url)
    command = Command(argv, read_only=found.paths, network=network)
    with empty_workspace(mount=Path("/work")) as tree:
        return BwrapSandbox().run(command, tree)


def test_bwrap_shows_the_network_only_on_request() -> None:
    require_bwrap()
    with ScriptedProvider(["{}"]) as server:
        url = f"{server.base_url}/models"
        hidden = ask(url, network=False)
        assert (hidden.exit_code, hidden.stdout) == (1, b"False\n")  # and no name is resolved
        assert not server.requests
        shown = ask(url, network=True)
    assert (shown.exit_code, shown.stdout) == (0, b"True\n200\n"), shown.stderr


def test_landlock_refuses_rather_than_runs_without() -> None:
    with (
        empty_workspace(mount=Path("/work")) as tree,
        pytest.raises(SandboxError, match="cannot give a command the network"),
    ):
        LandlockSandbox().run(Command(("true",), network=True), tree)
