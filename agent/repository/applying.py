"""Applies a patch with `git apply`, all or nothing, on copies of the files that it names, in a
private directory, so no setting, hook or attribute of a repository is in force.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from agent.errors import RepositoryError
from agent.repository.git import GitRepository, private_git
from agent.repository.git_process import EXECUTABLE_MODE, SUBMODULE_MODE, SYMLINK_MODE
from agent.repository.unified_diff import DiffError, FileDiff, read_diff
from agent.types import FileChange

_PLAIN_MODE = "100644"
_MODES = (_PLAIN_MODE, EXECUTABLE_MODE, "100664")
_PLACEHOLDER = ".patchshot-folder"


class PatchError(ValueError):
    """The patch cannot be read or applied. The message is one line with the line or the file."""


@dataclass(frozen=True, slots=True)
class TreeFile:
    """The content of a file, and its mode as git writes it."""

    data: bytes
    mode: str = _PLAIN_MODE


class PatchTree(Protocol):
    """The files to which a patch is applied."""

    def get(self, path: str) -> TreeFile | None:
        """Return the file, None if there is none. Raises PatchError if it is not a plain file."""

    def is_folder(self, path: str) -> bool:
        """Return whether the tree has files below the path."""


@dataclass(frozen=True, slots=True)
class Patched:
    """The changes in order of path. `left_out` names submodules, which are not applied."""

    changes: tuple[FileChange, ...]
    left_out: tuple[str, ...] = ()


def apply_patch(data: bytes, tree: PatchTree) -> Patched:
    """Apply a whole patch. Raises PatchError, and then applies nothing; RepositoryError."""
    try:
        files = read_diff(data, any_folder=True)
    except DiffError as error:
        raise PatchError(str(error)) from None
    if not files:
        raise PatchError("no valid patches in the input: not a unified diff")
    submodules = [file for file in files if SUBMODULE_MODE in (file.new_mode, file.old_mode)]
    left_out = tuple(f"{file.new or file.old}: a submodule" for file in submodules)
    rest = [file for file in files if file not in submodules]
    if not rest:
        return Patched((), left_out)
    names = {name for file in rest for name in (file.old, file.new) if name is not None}
    for name in sorted(names):
        _check_name(name)
    for file in rest:
        _check_mode(file)
    excluded = [f"--exclude={file.new or file.old}" for file in submodules]
    with private_git() as (root, call):
        work = root / "files"
        work.mkdir()
        before = _copy(tree, names, work)
        whole = data if data.endswith(b"\n") else data + b"\n"
        output = call(work, "apply", "--whitespace=nowarn", *excluded, "-", stdin=whole)
        if output.code != 0:
            raise PatchError(output.complaint.removeprefix("error: "))
        changes = [_change(path, before.get(path), _read(work / path)) for path in sorted(names)]
    return Patched(tuple(change for change in changes if change is not None), left_out)


def _copy(tree: PatchTree, names: Collection[str], work: Path) -> Mapping[str, TreeFile]:
    files = {}
    for path in sorted({*names, *(parent for name in names for parent in _parents(name))}):
        if (file := tree.get(path)) is not None:
            files[path] = file
            _write(work / path, file.data, executable=file.mode == EXECUTABLE_MODE)
        elif tree.is_folder(path):
            _write(work / path / _PLACEHOLDER, b"", executable=False)
    return files


def _write(path: Path, data: bytes, *, executable: bool) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o755 if executable else 0o644)
    except OSError as error:
        raise RepositoryError(f"{path.name}: {error.strerror}") from None


def _read(path: Path) -> TreeFile | None:
    if path.is_symlink() or not path.is_file():
        return None
    executable = path.stat().st_mode & 0o100
    return TreeFile(path.read_bytes(), EXECUTABLE_MODE if executable else _PLAIN_MODE)


def _change(path: str, old: TreeFile | None, new: TreeFile | None) -> FileChange | None:
    states = [
        None if file is None else (file.data, file.mode == EXECUTABLE_MODE) for file in (old, new)
    ]
    if states[0] == states[1]:
        return None
    executable = new is not None and new.mode == EXECUTABLE_MODE
    before, after = (None if file is None else file.data for file in (old, new))
    return FileChange(path, before, after, executable=executable)


def _check_mode(file: FileDiff) -> None:
    if file.new_mode not in (None, *_MODES):
        what = "a symbolic link" if file.new_mode == SYMLINK_MODE else f"mode {file.new_mode}"
        raise PatchError(f"{file.new}: {what} cannot be put into the private copy")


def _check_name(path: str) -> None:
    """Refuse paths that leave the tree or reach into git's own files. Raises PatchError."""
    parts = path.split("/")
    if path.startswith("/") or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise PatchError(f"invalid path {path!r}")
    if any(part.lower() == ".git" for part in parts):
        raise PatchError(f"invalid path {path!r}: git's own files")


def merged(first: Sequence[FileChange], second: Sequence[FileChange]) -> tuple[FileChange, ...]:
    """Return both in order of path. If both change a file, `second` wins."""
    both: Mapping[str, FileChange] = {c.path: c for c in (*first, *second)}
    return tuple(both[path] for path in sorted(both))


class CommitTree:
    """The files of one commit as a `PatchTree`, read from git's objects while `git` is open."""

    def __init__(self, git: GitRepository, commit: str) -> None:
        """`commit` is a full id. Raises RepositoryError if it cannot be read."""
        self._git = git
        self._entries = {
            entry.path.decode("utf-8", "surrogateescape"): entry
            for entry in git.tree(commit, sizes=False)
        }
        self._folders = {folder for path in self._entries for folder in _parents(path)}
        self._read: dict[str, TreeFile] = {}

    def get(self, path: str) -> TreeFile | None:
        """Return the file, None if there is none. Raises PatchError if it cannot be patched."""
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
        """Return whether the commit has files below the path."""
        return path in self._folders

    def has(self, path: str) -> bool:
        """Return whether the commit has a file, link or submodule at this path."""
        return path in self._entries

    def _is_link(self, path: str) -> bool:
        entry = self._entries.get(path)
        return entry is not None and entry.mode == SYMLINK_MODE


def _parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]
