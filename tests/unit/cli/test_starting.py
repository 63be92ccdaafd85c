"""`agent` started with closed streams, into pipes that nobody reads, and interrupted at once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from agent.cli import INTERRUPTED, PIPE_CLOSED
from agent.errors import Status
from tests.support.agent_process import INTERRUPTIBLE, agent_environment

pytestmark = pytest.mark.slow

AGENT = f"{sys.executable} -m agent"


def shell(script: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*INTERRUPTIBLE, "bash", "-c", script],
        cwd=home,
        env=agent_environment(home),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_code_is_that_of_the_commands() -> None:
    assert Status.INTERRUPTED.exit_code == INTERRUPTED


@pytest.mark.parametrize("command", ["--version", "search --help", "index --list"])
def test_a_pipe_that_nobody_reads_ends_quietly(command: str, tmp_path: Path) -> None:
    done = shell(f"{AGENT} {command} | true; exit ${{PIPESTATUS[0]}}", tmp_path)

    assert (done.returncode, done.stderr) == (PIPE_CLOSED, "")


def test_with_closed_streams_the_exit_code_still_tells(tmp_path: Path) -> None:
    assert shell(f"{AGENT} --version <&- 2>&-", tmp_path).stdout.strip()
    assert shell(f"{AGENT} index --list <&- >&- 2>&-", tmp_path).returncode == 0
    assert shell(f"{AGENT} index --drop none 2>&-", tmp_path).returncode == 2


@pytest.mark.parametrize("place", ["click", "agent.cli.commands.search", "agent.settings"])
def test_ctrl_c_while_something_is_imported_is_told(place: str, tmp_path: Path) -> None:
    starter = tmp_path / "start.py"
    starter.write_text(
        "import os, signal, sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {place!r}:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "from agent.cli import main\n"
        "sys.argv = ['agent', 'search', 'words']\n"
        "main()\n"
    )
    done = shell(f"{sys.executable} {starter}", tmp_path)

    assert (done.returncode, done.stderr.strip()) == (INTERRUPTED, "agent: interrupted")


def test_apply_of_python_code_loads_no_numpy(
    tmp_path: Path, make_repository: Callable[[Mapping[str, str]], Path]
) -> None:
    root = make_repository({"a.py": "a = 1\n"})
    reply = tmp_path / "reply.json"
    edit = {"path": "a.py", "search": "a = 1", "replace": "a = 2"}
    reply.write_text(json.dumps({"edits": [edit]}))

    done = shell(
        f"{sys.executable} -X importtime -m agent apply --reply {reply} --repo {root}", tmp_path
    )

    assert "+a = 2" in done.stdout
    assert "agent.patching.applying" in done.stderr
    assert "numpy" not in done.stderr
