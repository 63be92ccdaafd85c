from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# What pytest needs, and no plugin: each run inside the sandbox starts in a fraction of a second.
_NEEDED = ("pytest", "pluggy", "iniconfig", "packaging", "pygments")


def _bare_environment(folder: Path) -> Path:
    """A virtual environment that the sandbox's own user can enter, without any package."""
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60
    )
    folder.chmod(0o755)
    return folder


@pytest.fixture(scope="session")
def python_without_pytest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _bare_environment(tmp_path_factory.mktemp("bare") / "venv") / "bin" / "python"


@pytest.fixture(scope="session")
def python_with_pytest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = _bare_environment(tmp_path_factory.mktemp("lean") / "venv")
    (packages,) = folder.glob("lib/python*/site-packages")
    for name in _NEEDED:
        for file in importlib.metadata.files(name) or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                target = packages / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(str(file.locate()), target)
    python = folder / "bin" / "python"
    subprocess.run([str(python), "-m", "compileall", "-q", str(packages)], check=True, timeout=120)
    return python
