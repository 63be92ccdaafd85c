"""The workspace: a private copy of a commit, all that a sandboxed command can change."""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Self

from sandbox.files import (
    delete_file,
    is_file,
    make_directory,
    make_link,
    make_private,
    read_small_file,
    remove_tree,
    split_path,
    write_file,
)
from sandbox.git import check_out
from sandbox.host import run_program
from sandbox.types import SandboxError, WorkspaceError

# Byte code in a repository or a patch may belong to another source than it claims.
_CACHE = "__pycache__"

# Time to copy some 10^5 files on a slow disk.
_TOOL_SECONDS = 300.0


class Workspace:
    """A private directory tree, `path` on the host, shown by a sandbox at `mount`.

    A context manager that removes it. Run one command at a time; for parallel runs, copy. `owner`
    is the uid that the tree was given to; None while it belongs to its maker.
    """

    def __init__(self, mount: Path, parent: Path | None) -> None:
        if not mount.is_absolute():
            raise WorkspaceError(f"the mount point must be an absolute path, not {mount}")
        try:
            self._private = make_private(parent)
        except OSError as error:
            where = parent or "the temporary directory (TMPDIR)"
            raise WorkspaceError(f"cannot make a private directory in {where}: {error}") from error
        self._parent = parent
        self._scratch = itertools.count(1)
        self.path = self._private / "tree"
        self.owner: int | None = None
        self.mount = mount

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def relative(self, directory: str) -> PurePosixPath:
        """Check a directory of a `Command`. Raises WorkspaceError for one outside the workspace."""
        relative = PurePosixPath(directory)
        if relative.is_absolute() or ".." in relative.parts:
            raise WorkspaceError(f"the directory must lie in the workspace: {directory!r}")
        return relative

    def inside(self, directory: str) -> Path:
        """Return where a sandbox shows the relative `directory`. Raises WorkspaceError."""
        return self.mount / self.relative(directory)

    def write(self, path: str, data: bytes | None, executable: bool | None = None) -> None:
        """Write `data` to the relative `path`; None deletes what is there.

        `executable` None keeps the bit of the replaced file. Raises WorkspaceError for a path that
        leaves the tree, lies in `.git` or `__pycache__`, or leads through a link.
        """
        try:
            parts = split_path(path)
            if parts[0].lower() == ".git" or _CACHE in parts:
                raise WorkspaceError(f"refused to write inside .git or {_CACHE}: {path!r}")
            if data is None:
                delete_file(self.path, path)
            else:
                write_file(self.path, path, data, executable=executable)
        except ValueError as error:
            raise WorkspaceError(str(error)) from error
        except OSError as error:
            reason = f"cannot write {path!r} in the private copy: {error.strerror}"
            raise WorkspaceError(f"{reason}; links are not followed") from error

    def copy(self) -> Workspace:
        """Make an independent workspace with the same content and mount. Raises WorkspaceError."""
        twin = Workspace(self.mount, self._parent)
        try:
            # Links stay links; blocks are shared where the file system can.
            _run_tool("cp", "-a", "--reflink=auto", "-T", "--", str(self.path), str(twin.path))
        except BaseException:
            twin.close()
            raise
        return twin

    def scratch(self) -> Path:
        """Make a directory beside the tree for a backend's own files; `close` removes it."""
        path = self._private / f"run-{next(self._scratch)}"
        path.mkdir(mode=0o700)
        return path

    def make_mount_point(self, path: str, *, is_directory: bool) -> None:
        """Make the relative `path` a directory or a file. Raises WorkspaceError for a link."""
        try:
            if is_directory:
                make_directory(self.path, path)
            elif not is_file(self.path, path):
                write_file(self.path, path, b"")
        except OSError as error:
            raise WorkspaceError(f"cannot mount on {path!r}: {error.strerror}") from error

    def ensure_link(self, path: str, points_to: str) -> None:
        """Make the relative `path` a symbolic link, unless it exists. Raises WorkspaceError."""
        try:
            make_link(self.path, path, points_to)
        except OSError as error:
            raise WorkspaceError(f"cannot link {path!r}: {error.strerror}") from error

    def give_to(self, uid: int) -> None:
        """Make `uid` (and its gid) own the tree, as only root can. Raises WorkspaceError."""
        if self.owner != uid:
            _run_tool("chown", "-R", "-h", "--", f"{uid}:{uid}", str(self.path))
            self.owner = uid

    def close(self) -> None:
        """Remove the tree. Safe to call twice."""
        remove_tree(self._private)


def prepare_workspace(
    repository: Path,
    commit: str,
    overlay: Mapping[str, bytes | None],
    *,
    mount: Path | None = None,
    parent: Path | None = None,
    withheld: Collection[str] = frozenset(),
) -> Workspace:
    """Make a private copy of `repository` at `commit` with `overlay` written over it.

    Runs nothing of the repository and reads only its object store. `overlay` maps a relative path
    to its bytes, or to None for a deleted file. `mount` is by default the repository's own path,
    where an editable install finds the copy. The contents of `withheld` paths are not in the copy;
    `overlay` says what stands in their place. Raises WorkspaceError.
    """
    workspace = Workspace(repository.resolve() if mount is None else mount, parent)
    try:
        check_out(repository, commit, workspace.path, withheld)
        # `find` follows no links.
        caches = ("-name", _CACHE, "-prune", "-exec", "rm", "-rf", "--", "{}", "+")
        _run_tool("find", str(workspace.path), *caches)
        _write_overlay(workspace, overlay)
    except BaseException:
        workspace.close()
        raise
    return workspace


def empty_workspace(*, mount: Path, parent: Path | None = None) -> Workspace:
    """Make an empty workspace, to probe a backend or to run code without a repository."""
    workspace = Workspace(mount, parent)
    workspace.path.mkdir()
    return workspace


def _write_overlay(workspace: Workspace, overlay: Mapping[str, bytes | None]) -> None:
    """Delete first, because a directory may replace a file or a link."""
    paths = [path for path in sorted(overlay) if _CACHE not in PurePosixPath(path).parts]
    for path in paths:
        if overlay[path] is None:
            workspace.write(path, None)
    for path in paths:
        data = overlay[path]
        if data is not None:
            workspace.write(path, data)


def _run_tool(*argv: str) -> None:
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"}
    try:
        run_program(*argv, seconds=_TOOL_SECONDS, environment=environment)
    except SandboxError as error:
        raise WorkspaceError(f"{argv[0]} failed on the private copy: {error}") from error


# ---- which files a command has changed

_LEFT_OUT = frozenset({".git", "__pycache__"})

# Source trees are far smaller. A command may make more than it is worth to look at.
_MAX_DEPTH = 60
_MAX_ENTRIES = 500_000


FileStamp = tuple[int, int, int]
"""Inode, size and time of the last change in ns: what tells without reading that a file differs."""


@dataclass(frozen=True, slots=True)
class ChangedFiles:
    """`contents` by relative path, None for a deleted file. `left_out`: changed and not read."""

    contents: Mapping[str, bytes | None]
    left_out: tuple[str, ...] = ()


def stamp_files(root: Path) -> Mapping[str, FileStamp]:
    """Return a stamp of every regular file below `root`."""
    return dict(_stamps(root))


def find_changed(
    root: Path, before: Mapping[str, FileStamp], *, most_files: int, most_bytes: int
) -> ChangedFiles:
    """Return what differs from `before`: at most `most_files`, each of at most `most_bytes`."""
    after = stamp_files(root)
    written = [p for p, stamp in after.items() if p not in before or before[p] != stamp]
    deleted = [p for p in before if p not in after]
    contents: dict[str, bytes | None] = {}
    left_out: list[str] = []
    for path in sorted((*written, *deleted)):
        data = _read(root / path, most_bytes) if path in after else None
        # In the place of a deleted file a link, a folder or a device may stand.
        unread = data is None and os.path.lexists(root / path)
        if unread or len(contents) == most_files:
            left_out.append(path)
        else:
            contents[path] = data
    return ChangedFiles(contents, tuple(left_out))


def _stamps(root: Path) -> Iterator[tuple[str, FileStamp]]:
    folders = [("", 0)]
    count = 0
    while folders and count < _MAX_ENTRIES:
        folder, depth = folders.pop()
        for entry in _entries(root / folder):
            count += 1
            path = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in _LEFT_OUT and depth < _MAX_DEPTH:
                    folders.append((path, depth + 1))
            elif entry.is_file(follow_symlinks=False):
                state = entry.stat(follow_symlinks=False)
                yield path, (state.st_ino, state.st_size, state.st_mtime_ns)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:  # the command may have made it unreadable
        return []


def _read(path: Path, most: int) -> bytes | None:
    try:
        return read_small_file(path, most)
    except OSError:
        return None
