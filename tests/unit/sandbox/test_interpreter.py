from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.bwrap import BwrapSandbox
from sandbox.interpreter import find_interpreter, interpreter_paths
from sandbox.types import Command, SandboxError
from sandbox.workspace import empty


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with a module of its own, made from the interpreter of the tests."""
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
    with empty(mount=Path("/srv/project")) as workspace:
        command = Command((str(python), "-c", code), read_only=interpreter_paths(python))
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
    interpreter_paths(path / "bin" / "python")
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
