"""Virtual environments for the projects of tests: without packages, or with copies of ours."""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

PYTEST = ("pytest", "pluggy", "iniconfig", "packaging", "pygments")
"""What pytest needs, and no plugin: each run in the sandbox starts in a fraction of a second."""


def bare_python(folder: Path) -> Path:
    """Make an environment that the sandbox's own user can enter; the path of its interpreter."""
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60
    )
    folder.chmod(0o755)
    return folder / "bin" / "python"


def python_with(folder: Path, names: Iterable[str] = PYTEST) -> Path:
    """Make an environment with copies of these distributions of ours, compiled."""
    python = bare_python(folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    for name in names:
        for file in importlib.metadata.files(name) or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                target = packages / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(str(file.locate()), target)
    subprocess.run([str(python), "-m", "compileall", "-q", str(packages)], check=True, timeout=120)
    return python
