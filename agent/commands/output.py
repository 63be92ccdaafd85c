"""Writing patches where the user asked: a file, or (with `--apply`) the work tree itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from agent.durable import replace_file
from agent.errors import ConfigurationError, RepositoryError

if TYPE_CHECKING:
    from agent.protocols import Snapshot
    from agent.types import AppliedPatch


class PatchFile:
    """`--output`: the best patch so far, replaced as a whole each time there is a better one.

    `problem` says why the last one could not be written, "" when it was: a full disk must not cost
    the run.
    """

    def __init__(self, path: Path | None) -> None:
        """Raises ConfigurationError when nothing could be written there."""
        if path is not None and not path.parent.is_dir():
            raise ConfigurationError(f"--output {path}: there is no folder {path.parent}")
        if path is not None and path.is_dir():
            raise ConfigurationError(f"--output {path}: is a folder, not a file")
        self._path = path
        self.problem = ""

    def write(self, patch: AppliedPatch) -> None:
        """Replace the file atomically; what stands in the way of it is kept in `problem`."""
        if self._path is None:
            return
        try:
            self._replace(self._path, patch.diff)
        except OSError as error:
            self.problem = f"--output {self._path} could not be written: {error.strerror}"
        else:
            self.problem = ""

    def _replace(self, path: Path, data: bytes) -> None:
        if path.exists() and not path.is_file():
            path.write_bytes(data)  # a pipe or /dev/stderr cannot be replaced
            return
        replace_file(path, (data,))


def write_into_work_tree(patch: AppliedPatch, snapshot: Snapshot) -> None:
    """Write a patch into the user's files, all or none, if they are still what it was made for.

    Raises RepositoryError, with nothing written, when a file has changed in the meantime.
    """
    from sandbox.nofollow import delete_file, write_file

    for change in patch.changes:
        if _on_disk(snapshot.root / change.path) != change.before:
            raise RepositoryError(
                f"{change.path} has changed since it was read; nothing was written: solve again"
            )
    for change in patch.changes:
        if change.after is None:
            delete_file(snapshot.root, change.path)
        else:
            write_file(snapshot.root, change.path, change.after, executable=change.executable)


def _on_disk(path: Path) -> bytes | None:
    try:
        if path.is_symlink():
            raise RepositoryError(f"{path} is a link now; nothing was written")
        return path.read_bytes()
    except FileNotFoundError:
        return None
