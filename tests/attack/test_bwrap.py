"""What a command sees of this machine under bubblewrap, and what its mounts allow."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
from pathlib import Path

import pytest

from sandbox.bwrap import BwrapSandbox
from sandbox.types import Command, SandboxError
from sandbox.workspace import empty_workspace
from tests.support.sandboxes import SYSTEM_PYTHON, Runner


def test_a_server_inside_can_use_its_own_loopback(isolated: Runner) -> None:
    code = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); "
        "socket.create_connection(s.getsockname()); print('ok')"
    )
    assert isolated.python(code).stdout == b"ok\n"


def test_only_an_allow_list_is_at_the_root(isolated: Runner) -> None:
    found = set(isolated.shell("ls /").stdout.decode().split())
    assert found - {"lib32", "lib64", "libx32", "nix", "gnu"} == {
        *("bin", "dev", "etc", "lib", "proc", "sbin", "srv", "tmp", "usr"),
        *(("report",) if "report" in found else ()),
    }


def test_the_host_is_not_named(isolated: Runner) -> None:
    result = isolated.shell("uname -n; cat /etc/passwd /etc/hosts; id -un")
    assert socket.gethostname().encode() not in result.stdout.split()
    assert result.stdout.startswith(b"sandbox\n")
    assert result.stdout.endswith(b"sandbox\n")


@pytest.mark.usefixtures("bwrap_works")
class TestOnThisHost:
    """Attacks that need more than one directory, as the user who runs the tests."""

    sandbox = BwrapSandbox()

    def test_the_home_around_the_mount_point_is_not_shown(self, tmp_path: Path) -> None:
        home = tmp_path / "home"
        (home / ".ssh").mkdir(parents=True)
        (home / ".ssh" / "id_ed25519").write_text("hunter2")
        (home / "project").mkdir()
        with empty_workspace(mount=home / "project") as workspace:
            script = f"find {home} | sort; cat {home}/.ssh/*; touch {home}/x"
            result = BwrapSandbox(homes=(home,)).run(Command(("sh", "-c", script)), workspace)
        assert result.stdout.decode().split() == [str(home), str(home / "project")]
        assert sorted(path.name for path in home.iterdir()) == [".ssh", "project"]

    @pytest.mark.parametrize("asked", ["/", "/home", "/etc", "home", "."])
    def test_a_home_is_not_shown_even_when_asked_for(self, tmp_path: Path, asked: str) -> None:
        home = tmp_path / "home"
        home.mkdir()
        command = Command(("true",), read_only=(tmp_path / asked,))
        sandbox = BwrapSandbox(homes=(home,))
        with (
            empty_workspace(mount=Path("/srv/project")) as workspace,
            pytest.raises(SandboxError, match="refused to show"),
        ):
            sandbox.run(command, workspace)

    def test_read_only_paths_are_shown_at_their_place_and_cannot_be_written(
        self, tmp_path: Path
    ) -> None:
        tools = tmp_path / "tools"
        tools.mkdir()
        (tools / "tool").write_text("tool")
        (tmp_path / "neighbour").write_text("hunter2")
        (tmp_path / "alias").symlink_to("tools")
        script = f"cat {tmp_path}/alias/tool; echo x >{tools}/new; cat {tmp_path}/neighbour"
        with empty_workspace(mount=Path("/srv/project")) as workspace:
            command = Command(("sh", "-c", script), read_only=(tmp_path / "alias",))
            result = self.sandbox.run(command, workspace)
        assert result.stdout == b"tool"
        assert [path.name for path in tools.iterdir()] == ["tool"]

    def test_an_environment_inside_the_repository_is_the_users_own(self, tmp_path: Path) -> None:
        environment = tmp_path / "project" / ".venv"
        environment.mkdir(parents=True)
        (environment / "marker").write_text("real")
        with empty_workspace(mount=tmp_path / "project") as workspace:
            script = "cat .venv/marker; echo x >.venv/new"
            command = Command(("sh", "-c", script), read_only=(environment,))
            result = self.sandbox.run(command, workspace)
        assert result.stdout == b"real"
        assert [path.name for path in environment.iterdir()] == ["marker"]

    def test_a_link_where_something_is_to_be_mounted_is_refused(self, tmp_path: Path) -> None:
        environment = tmp_path / "project" / ".venv"
        environment.mkdir(parents=True)
        victim = tmp_path / "victim"
        victim.mkdir()
        with empty_workspace(mount=tmp_path / "project") as workspace:
            (workspace.path / ".venv").symlink_to(victim)
            with pytest.raises(SandboxError, match=r"\.venv"):
                self.sandbox.run(Command(("true",), read_only=(environment,)), workspace)

    @pytest.mark.parametrize("mount", ["/", "/usr", "/etc", "/proc", "/tmp", "/report"])
    def test_the_workspace_cannot_hide_the_system(self, mount: str) -> None:
        with (
            empty_workspace(mount=Path(mount)) as workspace,
            pytest.raises(SandboxError, match="cannot be mounted"),
        ):
            self.sandbox.run(Command(("true",)), workspace)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
    def test_root_of_a_user_namespace_is_isolated_too(self, nobody_runner: Runner) -> None:
        """As in a rootless container, uid 0 has no other uid to drop to."""
        code = (
            "from sandbox.bwrap import BwrapSandbox; p = BwrapSandbox().probe(); "
            "print(p.isolated, p.problem)"
        )
        done = subprocess.run(
            ["unshare", "--user", "--map-root-user", SYSTEM_PYTHON, "-c", code],
            cwd=nobody_runner.library,
            user=65534,
            group=65534,
            extra_groups=[],
            capture_output=True,
            text=True,
            env={"PATH": "/usr/bin:/bin"},
            timeout=30,
        )
        assert done.stdout == "True \n", done.stderr

    def test_the_next_run_sees_what_the_last_one_wrote(self) -> None:
        with empty_workspace(mount=Path("/srv/project")) as workspace:
            self.sandbox.run(Command(("sh", "-c", "echo one >a")), workspace)
            workspace.write("b", b"two\n")
            result = self.sandbox.run(Command(("sh", "-c", "echo >>b; cat a b")), workspace)
            assert stat.S_IMODE((workspace.path / "b").stat().st_mode) == 0o644
        assert result.stdout == b"one\ntwo\n\n"
