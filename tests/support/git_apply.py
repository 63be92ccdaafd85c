"""The real `git apply`, as an oracle."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from agent.types import FileChange


def git_apply(changes: Sequence[FileChange], diff: bytes) -> dict[str, tuple[bytes, bool]]:
    """Apply a diff with git on a committed base; give the files and their executable bits."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        _git(root, "init", "-q")
        for change in changes:
            if change.before is not None:
                file = root / change.path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(change.before)
                file.chmod(0o755 if change.executable else 0o644)
        _git(root, "add", "-A", "-f")
        _git(root, "apply", "--check", "--index", "-", input=diff)
        complaints = _git(root, "apply", "--index", "--whitespace=nowarn", "-", input=diff)
        assert complaints == b""
        return {
            str(file.relative_to(root)): (file.read_bytes(), bool(file.stat().st_mode & 0o100))
            for file in _files(root)
        }


def _files(root: Path) -> Iterator[Path]:
    for file in sorted(root.rglob("*")):
        if file.is_file() and ".git" not in file.relative_to(root).parts:
            yield file


def contents(root: Path) -> dict[str, bytes]:
    """The files below a folder, without git's own."""
    return {str(file.relative_to(root)): file.read_bytes() for file in _files(root)}


def git(root: Path, *arguments: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run git without any configuration."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(root),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
    }
    command = ["git", "-c", "core.autocrlf=false", *arguments]
    return subprocess.run(
        command, cwd=root, input=data, capture_output=True, timeout=60, env=environment
    )


def _git(root: Path, *arguments: str, input: bytes = b"") -> bytes:
    done = git(root, *arguments, data=input)
    assert done.returncode == 0, (done.stderr, input)
    return done.stderr
