"""The files of one commit, read from git's objects as patches need them."""

from __future__ import annotations

from agent.repository.git import GitRepository
from agent.repository.listings import SUBMODULE_MODE, SYMLINK_MODE
from agent.scoring.applying import TreeFile
from agent.scoring.unidiff import PatchError


class CommitTree:
    """An `agent.scoring.applying.Tree`. Usable as long as the repository is open."""

    def __init__(self, git: GitRepository, commit: str) -> None:
        """`commit` is a full id. Raises RepositoryError when it cannot be read."""
        self._git = git
        self._entries = {
            entry.path.decode("utf-8", "surrogateescape"): entry
            for entry in git.tree(commit, sizes=False)
        }
        self._folders = {folder for path in self._entries for folder in _parents(path)}
        self._read: dict[str, TreeFile] = {}

    def get(self, path: str) -> TreeFile | None:
        """The file, None where there is none.

        Raises PatchError for a link, a submodule, what lies beyond one, or a missing object.
        """
        for parent in _parents(path):
            if self._is_link(parent):
                raise PatchError(f"{path}: is beyond a symbolic link")
        entry = self._entries.get(path)
        if entry is None:
            return None
        if entry.mode in (SYMLINK_MODE, SUBMODULE_MODE):
            what = "a symbolic link" if entry.mode == SYMLINK_MODE else "a submodule"
            raise PatchError(f"{path}: is {what}, which is not patched here")
        if path not in self._read:
            data = self._git.blobs([entry.oid]).get(entry.oid)
            if data is None:
                raise PatchError(f"{path}: its content is missing in the repository")
            self._read[path] = TreeFile(data, entry.mode)
        return self._read[path]

    def is_folder(self, path: str) -> bool:
        """Whether the commit has files below the path."""
        return path in self._folders

    def has(self, path: str) -> bool:
        """Whether the commit has a file, link or submodule of this path."""
        return path in self._entries

    def _is_link(self, path: str) -> bool:
        entry = self._entries.get(path)
        return entry is not None and entry.mode == SYMLINK_MODE


def _parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]
