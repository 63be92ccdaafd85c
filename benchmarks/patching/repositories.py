"""Reads fetched public repositories: blobs and history, never a work tree, never written to."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

# Of one git call, in seconds; a log of a large history takes a few.
_LIMIT = 120


def find_repository(corpora: Path, name: str) -> Path | None:
    """The git directory of `owner/name`, cloned as `owner+name` into `corpora`, or None."""
    root = corpora / name.replace("/", "+")
    for directory in (root / ".git", root):
        if (directory / "HEAD").is_file():
            return directory
    return None


@dataclass(frozen=True, slots=True)
class Modified:
    """One file that a commit changed; blob ids."""

    commit: str
    path: str
    old: str
    new: str


class Repository:
    """A git directory."""

    def __init__(self, directory: Path) -> None:
        self._base = ["git", f"--git-dir={directory}", "-c", "safe.directory=*"]

    def blob(self, name: str) -> bytes | None:
        """The content of an object (`<id>` or `<commit>:<path>`), None if it is not there."""
        completed = self._run("cat-file", "blob", name)
        return completed.stdout if completed.returncode == 0 else None

    def paths(self, commit: str, below: str = "") -> list[str]:
        """All files of a commit below a folder, in git's order."""
        listed = self._git(
            "ls-tree", "-r", "-z", "--name-only", commit, *([below] if below else [])
        )
        return [path.decode("utf-8", "replace") for path in listed.split(b"\0") if path]

    def changed_by(self, commit: str) -> list[Modified]:
        """The files that a commit changed against its first parent (not renames: both sides)."""
        return self._modified("-n", "1", "--first-parent", "-m", commit)

    def modified(self, limit: int) -> list[Modified]:
        """Files modified in place by the newest commits without merges, newest first."""
        return self._modified("--no-merges", "--diff-filter=M", "-n", str(limit), "HEAD")

    def exists(self, commit: str) -> bool:
        """Whether there is such a commit."""
        return self._run("cat-file", "-e", f"{commit}^{{commit}}").returncode == 0

    def _modified(self, *arguments: str) -> list[Modified]:
        out = self._git(
            "log", "--raw", "--no-abbrev", "--no-renames", "--format=commit %H", *arguments
        )
        changes, commit = [], ""
        for line in out.decode("utf-8", "replace").splitlines():
            if line.startswith("commit "):
                commit = line[7:]
            elif line.startswith(":"):
                fields, _, path = line.partition("\t")
                parts = fields.split()
                if parts[1] in ("100644", "100755", "000000"):
                    changes.append(Modified(commit, path, parts[2], parts[3]))
        return changes

    def _git(self, *arguments: str) -> bytes:
        completed = self._run(*arguments)
        completed.check_returncode()
        return completed.stdout

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*self._base, *arguments], capture_output=True, timeout=_LIMIT, check=False
        )
