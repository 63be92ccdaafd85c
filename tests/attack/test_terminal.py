"""The user's shell would run keys that an attack pushes into the terminal of the agent."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.attack_traps import marker
from tests.support.images import require_container
from tests.support.sandboxes import ROOT, SYSTEM_PYTHON

_SECONDS = 30.0
_NEEDED = {"bwrap": "bwrap_works", "container": "container", "landlock": "landlock_works"}

_ATTACK = """
import fcntl, sys
print("tried", flush=True)
handles = [0, 1, 2]
try:
    handles.append(open("/dev/tty", "r+b", buffering=0).fileno())
except OSError:
    pass
for handle in handles:
    for sign in sys.argv[1]:
        try:
            fcntl.ioctl(handle, 0x5412, sign.encode())  # TIOCSTI
        except OSError:
            break
"""

# Takes the terminal for its own, as a shell's child has it, and starts the attack.
_AGENT = """
import fcntl, os, subprocess, sys
from pathlib import Path
from sandbox.types import Command
from sandbox.workspace import empty_workspace
fcntl.ioctl(0, 0x540E, 0)  # TIOCSCTTY
backend, python, attack, word = sys.argv[1:]
argv = (python, "-I", "-c", attack, word)
if backend == "none":
    said = subprocess.run(argv, stdout=subprocess.PIPE).stdout
else:
    if backend == "bwrap":
        from sandbox.bwrap import BwrapSandbox
        chosen = BwrapSandbox()
    elif backend == "landlock":
        from sandbox.landlock import LandlockSandbox
        chosen = LandlockSandbox()
    else:
        from sandbox.container import ContainerSandbox
        chosen = ContainerSandbox(os.environ["IMAGE"], "podman")
    with empty_workspace(mount=Path("/srv/project")) as workspace:
        said = chosen.run(Command(argv), workspace).stdout
Path(os.environ["SAID"]).write_bytes(said)
"""


def _typed(backend: str, folder: Path, image: str = "") -> tuple[str, str, bytes]:
    """Return the word to be typed, what the terminal shows, and what the attack printed."""
    word, said = marker(), folder / "said"
    ours, theirs = os.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", _AGENT, backend, SYSTEM_PYTHON, _ATTACK, word],
            cwd=ROOT,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env={**os.environ, "SAID": str(said), "IMAGE": image},
        )
        process.wait(_SECONDS)
        time.sleep(0.1)
        os.set_blocking(ours, False)
        try:
            shown = os.read(ours, 65536).decode("utf-8", "replace")
        except BlockingIOError:
            shown = ""
        return word, shown, said.read_bytes()
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param(name, marks=pytest.mark.attack_case("terminal input (TIOCSTI)", backend=name))
        for name in ("bwrap", "container", "landlock")
    ],
)
def test_the_terminal_gets_no_keys(
    backend: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(_NEEDED[backend])
    image = require_container() if backend == "container" else ""
    word, shown, said = _typed(backend, tmp_path, image)
    assert said.startswith(b"tried")
    assert word not in shown


def test_without_a_sandbox_it_does(tmp_path: Path) -> None:
    switch = Path("/proc/sys/dev/tty/legacy_tiocsti")
    if os.geteuid() != 0 and switch.exists() and switch.read_text().strip() == "0":
        pytest.skip("this kernel lets nobody but root do that")
    word, shown, _ = _typed("none", tmp_path)
    assert word in shown
