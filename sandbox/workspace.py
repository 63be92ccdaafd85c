"""A private copy of a repository's snapshot: all that a sandboxed command can change."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Self

from sandbox.clone import WorkspaceError, check_out, objects_directory
from sandbox.nofollow import (
    delete_file,
    is_file,
    make_directory,
    make_link,
    parts_of,
    write_file,
)
from sandbox.places import store_size, working_place
from sandbox.private import PrivateDirectory, make_private, sweep_stale

__all__ = ["Workspace", "WorkspaceError", "prepare", "sweep_stale"]

# Byte code in a repository or a patch may claim to belong to a source that it does not.
_CACHE = "__pycache__"

# Copying some 10^5 files on a slow disk.
_TOOL_SECONDS = 300.0


class Workspace:
    """A directory tree of its own. Close it (or use it as a context manager) to remove it.

    `path` is the tree on the host, `mount` the absolute path at which a sandbox shows it. Host code
    must not run anything inside `path` after a command ran there: its content is untrusted. One
    command at a time: for parallel runs, copy.
    """

    def __init__(self, private: PrivateDirectory, mount: Path, *, parent: Path | None) -> None:
        self._private = private
        self._parent = parent
        self._scratch = itertools.count(1)
        self._closed = False
        self._owner: int | None = None
        self.mount = mount

    @property
    def path(self) -> Path:
        """The tree on the host."""
        return self._private.path / "tree"

    @property
    def owner(self) -> int | None:
        """The uid that the tree was given to; None: whoever made it."""
        return self._owner

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def relative(self, directory: str) -> PurePosixPath:
        """A directory as it is given in a `Command`. Raises WorkspaceError for one outside."""
        relative = PurePosixPath(directory)
        if relative.is_absolute() or ".." in relative.parts:
            raise WorkspaceError(f"the directory must lie in the workspace: {directory!r}")
        return relative

    def inside(self, directory: str) -> Path:
        """Where a sandbox shows the relative `directory`. Raises WorkspaceError."""
        return self.mount / self.relative(directory)

    def write(self, path: str, data: bytes | None, executable: bool | None = None) -> None:
        """Put `data` at the relative `path`, or delete what is there when it is None.

        Links are replaced, never followed; directories are made (and, when empty, removed) as
        needed. `executable` None keeps the bit of the file that is replaced. Raises WorkspaceError
        for a path that leaves the tree, lies in `.git` or `__pycache__`, or would be written
        through a link.
        """
        try:
            parts = parts_of(path)
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
        """An independent workspace with the same content and mount. Raises WorkspaceError."""
        twin = _empty(self.mount, self._parent)
        try:
            _copy_tree(self.path, twin.path)
        except BaseException:
            twin.close()
            raise
        return twin

    def scratch(self) -> Path:
        """A new directory beside the tree, for a backend's own files; `close` removes it."""
        path = self._private.path / f"run-{next(self._scratch)}"
        path.mkdir(mode=0o700)
        return path

    def ensure_directory(self, path: str) -> None:
        """Make the relative `path` a real directory, a place to mount something on.

        Raises WorkspaceError when a component of it is a link or a file.
        """
        try:
            make_directory(self.path, path)
        except OSError as error:
            raise WorkspaceError(f"cannot mount on {path!r}: {error.strerror}") from error

    def ensure_link(self, path: str, points_to: str) -> None:
        """Make the relative `path` a symbolic link, unless something is there.

        Raises WorkspaceError when a component of it is a link or a file.
        """
        try:
            make_link(self.path, path, points_to)
        except OSError as error:
            raise WorkspaceError(f"cannot link {path!r}: {error.strerror}") from error

    def has_file(self, path: str) -> bool:
        """Whether the relative `path` is a regular file that is reached without a link."""
        return is_file(self.path, path)

    def give_to(self, uid: int) -> None:
        """Make `uid` (and the gid of the same number) own the tree; only root can.

        Raises WorkspaceError when it cannot be done.
        """
        if self._owner != uid:
            _tool("chown", "-R", "-h", "--", f"{uid}:{uid}", str(self.path))
            self._owner = uid

    def close(self) -> None:
        """Remove everything. Safe to call twice."""
        if not self._closed:
            self._closed = True
            self._private.remove()


def prepare(
    repository: Path,
    commit: str,
    overlay: Mapping[str, bytes | None],
    *,
    mount: Path | None = None,
    parent: Path | None = None,
) -> Workspace:
    """A private copy of `repository` at `commit` with `overlay` written over it.

    Nothing of the repository is run, and only its object store is read. `overlay` maps a relative
    path to its bytes, or to None for a deleted file; `__pycache__` is left out of both. `mount` is
    where the sandbox shows the tree; the default is the repository's own path, so that an editable
    install of the project in the user's environment finds the private copy there. `parent` holds
    the private directory; the default is memory where there is plenty (see `sandbox.places`).

    Raises WorkspaceError when the copy cannot be made.
    """
    if parent is None:
        parent = working_place(store_size(objects_directory(repository)))
    workspace = _empty(repository.resolve() if mount is None else mount, parent)
    try:
        check_out(repository, commit, workspace.path)
        _drop_caches(workspace.path)
        _write_overlay(workspace, overlay)
    except BaseException:
        workspace.close()
        raise
    return workspace


def empty(*, mount: Path, parent: Path | None = None) -> Workspace:
    """A workspace without content: for probing a backend, or for code without a repository."""
    workspace = _empty(mount, parent)
    workspace.path.mkdir()
    return workspace


def _empty(mount: Path, parent: Path | None) -> Workspace:
    if not mount.is_absolute():
        raise WorkspaceError(f"the mount point must be an absolute path, not {mount}")
    try:
        return Workspace(make_private(parent), mount, parent=parent)
    except OSError as error:
        where = parent or "the temporary directory (TMPDIR)"
        raise WorkspaceError(f"cannot make a private directory in {where}: {error}") from error


def _write_overlay(workspace: Workspace, overlay: Mapping[str, bytes | None]) -> None:
    """Deletions first: a directory may stand where a file or a link was."""
    paths = [path for path in sorted(overlay) if _CACHE not in PurePosixPath(path).parts]
    for path in paths:
        if overlay[path] is None:
            workspace.write(path, None)
    for path in paths:
        data = overlay[path]
        if data is not None:
            workspace.write(path, data)


def _drop_caches(tree: Path) -> None:
    """Remove every `__pycache__` that was committed; `find` follows no links."""
    remove = ("-exec", "rm", "-rf", "--", "{}", "+")
    _tool("find", str(tree), "-name", _CACHE, "-prune", *remove)


def _copy_tree(source: Path, target: Path) -> None:
    """Share blocks where the file system can, copy links as links, and trees of any depth."""
    _tool("cp", "-a", "--reflink=auto", "--no-target-directory", "--", str(source), str(target))


def _tool(*argv: str) -> None:
    """A tool of coreutils: it never follows links and no depth of a tree exhausts its stack."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"},
            timeout=_TOOL_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise WorkspaceError(f"{argv[0]} failed on the private copy: {error}") from error
    if done.returncode != 0:
        reason = done.stderr.decode("utf-8", errors="replace").strip().splitlines()
        raise WorkspaceError(f"{argv[0]} failed on the private copy: {' '.join(reason[-1:])}")
