"""Checks out one commit of an untrusted repository in a private clone, and runs nothing of it.

No git process starts inside the user's repository, and none reads its configuration. A fresh
repository names its object store as an alternate for two commands that run side by side: one packs
the commit, the other writes its files. So hooks, fsmonitor, filters, aliases, remotes, lazy fetches
and ownership checks of the source play no part. The clone holds the objects of exactly that commit:
no history before it, nothing after it (a future fix), no remotes, tags or reflogs.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sandbox.hardened_git import git_environment, git_options
from sandbox.types import WorkspaceError
from sandbox.workspace.git_directory import check_objects, find_git_directory

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")

# Time for a few 10^5 files of a cold disk. It also bounds a hostile repository.
_GIT_SECONDS = 300.0

# The private clone is short-lived: deltas, reflogs and flushing to disk would be wasted.
_SETTINGS = (
    "core.fsync=none",
    "init.defaultBranch=base",
    "core.logAllRefUpdates=false",
    "pack.window=0",
    # Concerns loose objects; packed ones are copied as they are. Deflating costs more time than it
    # saves in a handful of copies.
    "pack.compression=0",
    "checkout.workers=0",  # as many as there are processors
    "advice.detachedHead=false",
)


def check_out(
    repository: Path, commit: str, tree: Path, withheld: Collection[str] = frozenset()
) -> None:
    """Make `tree` (which must not exist) a clone of `repository` at `commit`, checked out.

    `commit` is a full id, SHA-1 or SHA-256. The contents of the `withheld` paths are not among the
    objects of the clone; the caller replaces the files. Raises WorkspaceError when the repository
    or the commit is missing or incomplete, or git is.
    """
    if _COMMIT.fullmatch(commit) is None:
        raise WorkspaceError(f"not a full commit id: {commit!r}; resolve it with git rev-parse")
    objects = objects_directory(repository)
    kind = "sha1" if len(commit) == 40 else "sha256"
    tree.mkdir()
    _git(tree, "init", "--quiet", "--template=", f"--object-format={kind}")
    git_directory = tree / ".git"
    (git_directory / "HEAD").write_text(f"{commit}\n", encoding="ascii")
    (git_directory / "shallow").write_text(f"{commit}\n", encoding="ascii")
    alternate = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": _quoted(objects)}
    checkout = ("checkout", "--quiet", "--force", "--detach", commit)
    with ThreadPoolExecutor(max_workers=1) as pool:  # each command takes one processor
        packed = pool.submit(_pack, tree, commit, objects, alternate, withheld)
        try:
            _git(tree, *checkout, more=alternate)
        except WorkspaceError:
            packed.result()  # its error says better what is missing
            raise
        packed.result()


def objects_directory(repository: Path) -> Path:
    """Return the object store of a work tree, a linked work tree or a bare repository.

    Raises WorkspaceError when `repository` is none of these, or git could not open its files.
    """
    objects = find_git_directory(repository).objects
    check_objects(objects)
    return objects.resolve()


def _pack(
    tree: Path, commit: str, objects: Path, alternate: Mapping[str, str], withheld: Collection[str]
) -> None:
    """Store every object of `commit` in the clone, read from the alternate store."""
    left_out = "".join(f"^{blob}\n" for blob in _blobs(tree, commit, alternate, withheld))
    pack = tree / ".git" / "objects" / "pack" / "pack"
    arguments = ("pack-objects", "--quiet", "--revs", "--delta-base-offset", str(pack))
    try:
        _git(tree, *arguments, stdin=f"{commit}\n{left_out}", more=alternate)
    except WorkspaceError as error:
        raise WorkspaceError(
            f"commit {commit} is not wholly stored in {objects.parent} ({error}); "
            "fetch it first (a partial clone: git fetch --refetch origin)"
        ) from error


def _blobs(
    tree: Path, commit: str, alternate: Mapping[str, str], paths: Collection[str]
) -> Iterator[str]:
    """Return the ids of the files at these paths of the commit, those that exist."""
    if not paths:
        return
    wanted = {path.encode("utf-8", "surrogateescape") for path in paths}
    listed = _git(tree, "ls-tree", "-r", "-z", "--full-tree", commit, more=alternate)
    for entry in listed.split(b"\0"):
        about, _, path = entry.partition(b"\t")
        if path in wanted and about.split()[1] == b"blob":
            yield about.split()[2].decode("ascii")


def _quoted(path: Path) -> str:
    """Quote a path as git needs it where a colon would separate entries."""
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _git(
    tree: Path, *arguments: str, stdin: str = "", more: Mapping[str, str] | None = None
) -> bytes:
    settings = (part for setting in _SETTINGS for part in ("-c", setting))
    environment = {**git_environment(), **(more or {})}
    environment["GIT_CEILING_DIRECTORIES"] = str(tree.parent)
    command = ["git", *git_options(), *settings, "-C", str(tree), *arguments]
    try:
        done = subprocess.run(
            command,
            input=stdin.encode(),
            capture_output=True,
            env=environment,
            timeout=_GIT_SECONDS,
            check=False,
        )
    except FileNotFoundError as error:
        raise WorkspaceError("git is not installed; install git 2.30 or later") from error
    except subprocess.TimeoutExpired as error:
        raise WorkspaceError(f"git {arguments[0]} took over {_GIT_SECONDS:.0f} s") from error
    if done.returncode != 0:
        raise WorkspaceError(_last_line(done.stderr) or f"git {arguments[0]} failed")
    return done.stdout


def _last_line(stderr: bytes) -> str:
    lines = stderr.decode("utf-8", errors="replace").strip().splitlines()
    return lines[-1].removeprefix("fatal: ") if lines else ""
