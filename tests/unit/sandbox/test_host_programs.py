from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.bwrap import BwrapSandbox
from sandbox.host import find_interpreter, hide_programs
from sandbox.types import Command, SandboxError
from sandbox.workspace import empty_workspace


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment of the tests' interpreter, with a module of its own."""
    path = tmp_path_factory.mktemp("environments") / "venv"
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(path)], check=True, timeout=60
    )
    site = next(path.glob("lib/python*/site-packages"))
    (site / "installed_module.py").write_text("VALUE = 42\n")
    return path


@pytest.mark.usefixtures("bwrap_works")
def test_an_environment_works_inside_with_the_paths_that_are_found(environment: Path) -> None:
    python = environment / "bin" / "python"
    code = "import installed_module, sys, ssl, ctypes; print(installed_module.VALUE, sys.prefix)"
    with empty_workspace(mount=Path("/srv/project")) as workspace:
        command = Command((str(python), "-c", code), read_only=find_interpreter(python).paths)
        result = BwrapSandbox().run(command, workspace)
    assert (result.stdout.decode(), result.stderr) == (f"42 {environment}\n", b"")


def test_a_launcher_leads_to_the_real_interpreter(tmp_path: Path) -> None:
    shim = tmp_path / "python"
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    shim.chmod(0o755)
    assert find_interpreter(shim).executable == Path(sys.executable)


def test_asking_runs_no_code_of_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(path)], check=True)
    site = next(path.glob("lib/python*/site-packages"))
    (site / "evil.pth").write_text(f"import os; os.mkdir({str(tmp_path / 'owned')!r})\n")
    (site / "sitecustomize.py").write_text(f"import os; os.mkdir({str(tmp_path / 'owned2')!r})\n")
    find_interpreter(path / "bin" / "python")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["venv"]


@pytest.mark.parametrize(
    "script", ["#!/bin/sh\nexit 1\n", "#!/bin/sh\necho nonsense\n", "no interpreter", "#!/bin/sh\n"]
)
def test_what_does_not_answer_is_an_error(tmp_path: Path, script: str) -> None:
    program = tmp_path / "python"
    program.write_text(script)
    program.chmod(0o755)
    with pytest.raises(SandboxError, match="does not work"):
        find_interpreter(program)


def test_a_missing_interpreter_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="no interpreter"):
        find_interpreter(tmp_path / "python")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to somebody else")
def test_an_interpreter_of_another_user_is_not_run(tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/owned\n")
    program.chmod(0o755)
    os.chown(program, 65534, 65534)
    with pytest.raises(SandboxError, match="another user"):
        find_interpreter(program)
    assert not (tmp_path / "owned").exists()


# ------------------------------------------------------------------ what lies in a work tree


def _planted(python: Path, marker: Path) -> Path:
    python.parent.mkdir(parents=True, exist_ok=True)
    python.write_text(f"#!/bin/sh\ntouch {marker}\n")
    python.chmod(0o755)
    return python


def test_a_configuration_shows_no_folder_but_an_installation(tmp_path: Path) -> None:
    python = _planted(tmp_path / "target" / ".venv" / "bin" / "python", tmp_path / "owned")
    (tmp_path / "letters" / "bin").mkdir(parents=True)
    (tmp_path / "letters" / "secret").write_text("secret")
    (python.parent.parent / "pyvenv.cfg").write_text(f"home = {tmp_path}/letters/bin\n")
    found = find_interpreter(python, work_tree=tmp_path / "target")
    assert found.paths == (python.parent.parent, python)


def test_an_environment_that_is_the_repository_is_refused(tmp_path: Path) -> None:
    _planted(tmp_path / "target" / "bin" / "python", tmp_path / "owned")
    (tmp_path / "target" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (tmp_path / "target" / ".venv").symlink_to(".")
    with pytest.raises(SandboxError, match="holds the repository"):
        find_interpreter(
            tmp_path / "target" / ".venv" / "bin" / "python", work_tree=tmp_path / "target"
        )


def test_programs_of_a_work_tree_are_not_on_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, outside = tmp_path / "target", tmp_path / "outside"
    for folder in (tree / "bin", outside):
        folder.mkdir(parents=True)
    (tmp_path / "link").symlink_to("target/bin")
    (tree / "back").symlink_to(outside)
    (tmp_path / "loop").symlink_to("loop")
    entries = [".", "", "bin", tree, tree / "bin", tmp_path / "link", tree / "back", outside]
    entries += [tmp_path / "loop", Path("/usr/bin")]
    monkeypatch.setenv("PATH", ":".join(map(str, entries)))
    hide_programs(tree)
    assert os.environ["PATH"] == f"{outside}:/usr/bin"


def test_a_home_under_version_control_keeps_its_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"bin:{tmp_path}/bin")
    hide_programs(tmp_path)
    assert os.environ["PATH"] == f"{tmp_path}/bin"
