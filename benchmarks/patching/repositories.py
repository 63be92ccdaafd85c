"""Reads fetched public repositories: blobs and history, never a work tree, never written to."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

# Of one git call, in seconds; a log of a large history takes a few.
_LIMIT = 120


def find_repository(corpora: Path, name: str) -> Path | None:
    """The git directory of `owner/name` below a folder of fetched repositories, or None."""
    for spelling in (name.replace("/", "+"), name.replace("/", "__"), name):
        root = corpora / spelling
        for place in (
            root,
            root / ".git",
            root / "repo",
            root / "repo" / ".git",
            Path(f"{root}.git"),
        ):
            if (place / "HEAD").is_file() and (place / "objects").is_dir():
                return place
    return None


@dataclass(frozen=True, slots=True)
class Modified:
    """One file that a commit changed; blob ids."""

    commit: str
    path: str
    old: str
    new: str


class Repository:
    """A git directory, with one long-lived reader of objects."""

    def __init__(self, directory: Path) -> None:
        self._base = ["git", f"--git-dir={directory}", "-c", "safe.directory=*"]
        self._reader = subprocess.Popen(
            [*self._base, "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._reader.kill()
        self._reader.communicate()

    def blob(self, name: str) -> bytes | None:
        """The content of an object (`<id>` or `<commit>:<path>`), None if it is not there."""
        source, sink = self._reader.stdout, self._reader.stdin
        assert source is not None
        assert sink is not None
        sink.write(name.encode() + b"\n")
        sink.flush()
        head = source.readline().split()
        if len(head) != 3 or not head[2].isdigit():
            return None
        content = source.read(int(head[2]))
        source.read(1)
        return content if head[1] == b"blob" else None

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

    def history(self, path: str) -> list[Modified]:
        """All commits without merges that modified a file, newest first."""
        return self._modified("--no-merges", "--diff-filter=M", "HEAD", "--", path)

    def exists(self, commit: str) -> bool:
        """Whether there is such a commit."""
        done = subprocess.run(
            [*self._base, "cat-file", "-e", f"{commit}^{{commit}}"],
            capture_output=True, timeout=_LIMIT, check=False,
        )  # fmt: skip
        return done.returncode == 0

    def _modified(self, *arguments: str) -> list[Modified]:
        out = self._git(
            "log", "--raw", "--no-abbrev", "--no-renames", "--format=commit %H", *arguments
        )
        found, commit = [], ""
        for line in out.decode("utf-8", "replace").splitlines():
            if line.startswith("commit "):
                commit = line[7:]
            elif line.startswith(":"):
                fields, _, path = line.partition("\t")
                parts = fields.split()
                if parts[1] in ("100644", "100755", "000000"):
                    found.append(Modified(commit, path, parts[2], parts[3]))
        return found

    def _git(self, *arguments: str) -> bytes:
        done = subprocess.run(
            [*self._base, *arguments], capture_output=True, timeout=_LIMIT, check=True
        )
        return done.stdout
