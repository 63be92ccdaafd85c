"""Landlock beyond the contract: its launcher, its probe, and the weaknesses that it reports."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from sandbox.landlock import LandlockSandbox
from sandbox.types import Command, SandboxError
from sandbox.workspace import empty_workspace
from tests.support.sandboxes import Runner

pytestmark = pytest.mark.usefixtures("landlock_works")


@pytest.fixture
def run() -> Runner:
    return Runner("landlock")


def test_a_kernel_without_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """No such kernel is at hand, so the test replaces the one fact about it."""
    monkeypatch.setattr("sandbox.landlock.landlock_abi", lambda: 1)
    probe = LandlockSandbox().probe()
    assert (probe.available, probe.guarantees) == (False, {})
    assert "Linux 6.2" in probe.problem
    assert "lsm=" in probe.problem
    with (
        empty_workspace(mount=Path("/srv/x")) as workspace,
        pytest.raises(SandboxError, match="version 1"),
    ):
        LandlockSandbox().run(Command(("true",)), workspace)


def _open_to_all(folder: Path) -> None:
    """Let another uid pass up to the shared temporary directory."""
    for each in (folder, *folder.parents):
        if each.stat().st_mode & stat.S_ISVTX:
            break
        each.chmod(0o777)


def test_read_only_paths_are_readable_where_they_are(tmp_path: Path, run: Runner) -> None:
    shown = tmp_path / "shown"
    shown.mkdir()
    (shown / "file").write_text("here")
    _open_to_all(shown)
    script = f"cat {shown}/file; echo x >{shown}/file"
    for read_only, text in (((shown,), b"here"), ((), b"")):
        with empty_workspace(mount=Path("/srv/x")) as workspace:
            command = Command(("/bin/sh", "-c", script), read_only=read_only)
            assert LandlockSandbox().run(command, workspace).stdout == text
    assert (shown / "file").read_text() == "here"


@pytest.mark.parametrize("path", ["/", "/etc", "/home", "/none"])
def test_host_paths_that_hold_too_much_are_refused(path: str) -> None:
    with empty_workspace(mount=Path("/srv/x")) as workspace, pytest.raises(SandboxError):
        LandlockSandbox().run(Command(("true",), read_only=(Path(path),)), workspace)


def test_the_workspace_of_another_run_is_out_of_reach(run: Runner) -> None:
    with empty_workspace(mount=Path("/srv/x")) as other:
        other.write("secret", b"in the other one")
        result = run.shell(f"cat {other.path}/secret; ls {other.path.parent}; exit 0")
    assert result.stdout == b""


def test_a_launcher_that_fails_is_an_error_and_runs_nothing() -> None:
    with empty_workspace(mount=Path("/srv/x")) as workspace:
        command = Command(("touch", "ran"), cwd="none")
        with pytest.raises(SandboxError, match="No such file"):
            LandlockSandbox().run(command, workspace)
        assert not list(workspace.path.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has another uid to give")
def test_a_folder_that_the_uid_cannot_pass_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    made = empty_workspace(mount=Path("/srv/x"), parent=tmp_path)
    with made as workspace, pytest.raises(SandboxError, match="set TMPDIR"):
        LandlockSandbox().run(Command(("true",)), workspace)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has another uid to give")
def test_the_uid_owns_nothing_else(run: Runner) -> None:
    first, second = (int(run.shell("id -u").stdout) for _ in range(2))
    assert min(first, second) > 1_000_000
    assert first != second


def test_a_launcher_that_never_began_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the file, or when the interpreter does not start, nothing runs."""
    monkeypatch.setattr("sandbox.landlock._LAUNCHER", tmp_path / "none.py")
    with (
        empty_workspace(mount=Path("/srv/x")) as workspace,
        pytest.raises(SandboxError, match=r"none\.py"),
    ):
        LandlockSandbox().run(Command(("true",)), workspace)
