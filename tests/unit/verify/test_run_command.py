"""Shell commands of the step-by-step mode, in a real sandbox."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.repository.snapshot import take_snapshot
from agent.types import AppliedPatch, CommandRun, Problem
from agent.verify.validator import SandboxValidator, ValidationOptions
from sandbox.bwrap import BwrapSandbox
from sandbox.in_place import ProcessSandbox
from sandbox.types import Sandbox
from tests.support.sandboxes import require_bwrap
from tests.support.validation import edit, patch_of

pytestmark = pytest.mark.slow

FILES = {
    "calc.py": "def add(a, b):\n    return a - b\n",
    "tests/test_calc.py": "from calc import add\n\n\ndef test_zero():\n    assert add(1, 0) == 1\n",
    ".gitignore": "build/\n",
    "link-to": "x\n",
}

RunScript = Callable[..., CommandRun]


@pytest.fixture
def script(make_repository: Callable[..., Path], python_with_pytest: Path) -> RunScript:
    def one(
        command: str, patch: AppliedPatch | None = None, sandbox: Sandbox | None = None
    ) -> CommandRun:
        if sandbox is None:
            require_bwrap()
        snapshot = take_snapshot(make_repository(FILES))
        options = ValidationOptions(python=python_with_pytest, timeout=20.0)

        async def run() -> CommandRun:
            backend = sandbox or BwrapSandbox()
            async with SandboxValidator(snapshot, Problem("x", ""), backend, options) as validator:
                return await validator.run_command(patch, command)

        return asyncio.run(run())

    return one


def test_a_command_sees_the_edits_and_the_targets_python(script: RunScript) -> None:
    patch = patch_of(edit("calc.py", FILES["calc.py"], "def add(a, b):\n    return a + b\n"))
    run = script("cat calc.py; python -m pytest -q tests/test_calc.py 2>&1 | tail -1", patch)
    assert "return a + b" in run.output
    assert "1 passed" in run.output
    assert (run.exit_code, run.ended) == (0, "exited")


def test_written_and_deleted_files_come_back(script: RunScript) -> None:
    run = script(
        "sed -i s/-/+/ calc.py; echo new > new.txt; rm tests/test_calc.py;"
        " ln -sf /etc/passwd link-to; mkdir -p a/__pycache__; echo 1 > a/__pycache__/x.pyc;"
        " head -c 2000000 /dev/zero > big; touch -r calc.py .gitignore"
    )
    assert run.written == {
        "calc.py": b"def add(a, b):\n    return a + b\n",
        "new.txt": b"new\n",
        "tests/test_calc.py": None,
        ".gitignore": b"build/\n",  # its times differ; whether its content does is told later
    }
    assert run.left_out == ("big", "link-to")


def test_nothing_outside_of_the_copy_is_reached(script: RunScript, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        run = script(
            f"echo x > {outside}/made; echo x > /etc/made; cat {os.environ['HOME']}/.bashrc;"
            f" python -c \"import socket; socket.create_connection(('127.0.0.1', {port}), 2)\";"
            " python -c \"import socket; socket.getaddrinfo('example.org', 80)\""
        )
    assert list(outside.iterdir()) == []
    assert not Path("/etc/made").exists()
    assert run.exit_code != 0
    assert "Connection refused" in run.output
    assert run.written == {}


def test_exhausting_commands_end_at_a_limit(script: RunScript) -> None:
    flood = script("yes flooding")
    assert flood.ended != "exited"
    assert len(flood.output) < 40_000


def test_a_fork_bomb_ends_at_a_limit(script: RunScript) -> None:
    bomb = script("bash -c ':(){ :|:& };:; sleep 100'")
    assert bomb.ended != "exited" or "fork" in bomb.output.lower()


def test_history_and_secrets_cannot_be_read(script: RunScript) -> None:
    """The value of a file of secrets is nowhere in the copy."""
    run = script("git log --all -p 2>/dev/null | grep hunter2; echo done")
    assert "hunter2" not in run.output


def test_no_command_runs_without_isolation(script: RunScript, tmp_path: Path) -> None:
    run = script(f"touch {tmp_path}/ran", sandbox=ProcessSandbox())
    assert "the sandbox 'process' does not isolate" in run.output
    assert run.exit_code is None
    assert not (tmp_path / "ran").exists()
