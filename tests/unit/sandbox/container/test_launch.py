"""Runs the first script of a container in this machine's own shell."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox.container import ScriptStatus, read_status, script_text
from sandbox.types import SandboxError

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
NAME = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)

SHOW = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]))"


def launched(
    folder: Path, argv: tuple[str, ...], environment: Mapping[str, str], cwd: Path | None = None
) -> tuple[subprocess.CompletedProcess[bytes], bytes]:
    """Return how the script ended and what it said."""
    status = folder / "status"
    text = script_text(
        argv,
        {"PATH": "/usr/bin:/bin", **environment},
        cwd=cwd or folder,
        start=folder,
        address_space=None,
    )
    given = {"PATH": "/usr/bin:/bin", "HTTP_PROXY": "by the engine"}
    done = subprocess.run(["/bin/sh", "-c", text], capture_output=True, env=given, timeout=20)
    return done, status.read_bytes() if status.exists() else b""


@pytest.mark.parametrize(
    ("argv", "code", "stdout", "stderr"),
    [
        (("sh", "-c", "echo out; echo err >&2; exit 7"), 7, b"out\n", b"err\n"),
        (("sh", "-c", "kill -SEGV $$"), 139, b"", b""),  # the shell says nothing of a signal
        (("no-such-program",), 127, b"", b"no-such-program"),
    ],
)
def test_it_says_how_it_went(
    tmp_path: Path, argv: tuple[str, ...], code: int, stdout: bytes, stderr: bytes
) -> None:
    done, said = launched(tmp_path, argv, {})
    assert (done.returncode, done.stdout) == (code, stdout)
    assert stderr in done.stderr
    status = read_status(said)
    assert (status.started, status.ended) == (True, True)


def test_without_its_directory_nothing_runs(tmp_path: Path) -> None:
    done, said = launched(tmp_path, ("touch", str(tmp_path / "ran")), {}, tmp_path / 'a"`x`')
    assert (done.returncode, said) == (125, b"")
    assert not (tmp_path / "ran").exists()


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(arguments=st.lists(TEXT, max_size=4), environment=st.dictionaries(NAME, TEXT, max_size=4))
def test_arguments_and_variables_arrive_as_they_are(
    tmp_path: Path, arguments: list[str], environment: dict[str, str]
) -> None:
    taken = {"PATH", "HOME", "PWD", "OLDPWD", "_", "SHLVL"}
    environment = {name: value for name, value in environment.items() if name not in taken}
    shown, _ = launched(tmp_path, ("python3", "-I", "-S", "-c", SHOW, *arguments), environment)
    argv, found, cwd = json.loads(shown.stdout)
    assert (argv, cwd) == (arguments, str(tmp_path))
    for own in (*taken, "LC_CTYPE"):
        found.pop(own, None)
    environment.pop("LC_CTYPE", None)
    assert found == environment


@pytest.mark.parametrize("name", ["not.a.name", "1x", "a-b", "UID", ""])
def test_a_variable_that_a_shell_cannot_set_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SandboxError, match="cannot set the variable"):
        launched(tmp_path, ("true",), {name: "x"})


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (b"", ScriptStatus(started=False)),
        (b"sta", ScriptStatus(started=False)),
        (b"started\n", ScriptStatus(started=True)),
        (b"started\nend 1 0 0\n", ScriptStatus(started=True, ended=True)),
        (b"started\nend 1 2 3\n", ScriptStatus(started=True, ended=True, killed=2, refused=3)),
        # What the command writes comes before what the script writes in the end.
        (
            b"started\nend 0 9 9\njunk\nend 1 0 4\n",
            ScriptStatus(started=True, ended=True, refused=4),
        ),
        (b"started\nend 1 2\nend x y z\n", ScriptStatus(started=True)),
        (b"junk\nstarted\n", ScriptStatus(started=False)),
    ],
)
def test_what_was_said_is_read(said: bytes, status: ScriptStatus) -> None:
    assert read_status(said) == status
