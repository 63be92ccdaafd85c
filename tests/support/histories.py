"""Repositories whose history is made for a test."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.conftest import run_git


def git(folder: Path, *arguments: str) -> str:
    """Run git there, as nobody in particular; its output."""
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    argv = ["git", "-C", str(folder), *identity, *arguments]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=30)
    return done.stdout.strip()


def commit(folder: Path, *paths: str) -> str:
    """Change these files and commit them; the id of the commit."""
    for path in paths:
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(file.read_text() + "x\n" if file.exists() else "x\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "change")
    return git(folder, "rev-parse", "HEAD")


def write_and_commit(root: Path, message: str, files: Mapping[str, str | bytes | None] = {}) -> str:
    """Write (None: delete) and commit; the id of the commit."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content.encode() if isinstance(content, str) else content)
    run_git(root, "add", "-A", "-f")
    run_git(root, "commit", "-q", "--allow-empty", "--allow-empty-message", "-m", message)
    return run_git(root, "rev-parse", "HEAD").strip()


CLIENT = """\
import os


class Client:
    retries = 3

    def get(self, url):
        return self.send(url)

    def send(self, url):
        return url


def helper():
    return 1
"""


def hide_git(root: Path) -> None:
    """What is read of the repository from now on fails."""
    (root / ".git" / "objects").rename(root / ".git" / "hidden")
