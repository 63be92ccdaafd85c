"""One commit of an untrusted repository, checked out from a private clone that runs nothing of it.

No git process is ever started inside the user's repository and no configuration of it is read:
its object store is named to a fresh repository as an alternate, for the two commands that pack the
commit and write its files, side by side. So hooks, fsmonitor, filters, aliases, remotes, lazy
fetches and ownership checks of the source have no part in it. The clone holds the objects of
exactly that commit: no history before it, nothing after it (a future fix), no remotes, tags or
reflogs.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sandbox import hardened_git
from sandbox.types import SandboxError

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")

# A few 10^5 files of a cold disk; a hostile repository ends here too.
_GIT_SECONDS = 300.0

# The private clone is thrown away soon: deltas, reflogs and flushing to disk would be wasted.
_SETTINGS = (
    "core.fsync=none",
    "init.defaultBranch=base",
    "core.logAllRefUpdates=false",
    "pack.window=0",
    # Of loose objects; what is packed already is taken as it is. Deflating costs more time than
    # it saves in a handful of copies.
    "pack.compression=0",
    "checkout.workers=0",  # as many as there are processors
    "advice.detachedHead=false",
)


class WorkspaceError(SandboxError):
    """The private copy of a repository cannot be made or changed; the message says why."""


def check_out(repository: Path, commit: str, tree: Path) -> None:
    """Make `tree` (which must not exist) a clone of `repository` at `commit`, checked out.

    `commit` is a full id, SHA-1 or SHA-256. Raises WorkspaceError when the repository or the
    commit is missing or incomplete, or git is.
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
    with ThreadPoolExecutor(max_workers=1) as pool:  # each takes one processor
        packed = pool.submit(_pack, tree, commit, objects, alternate)
        try:
            _git(tree, *checkout, more=alternate)
        except WorkspaceError:
            packed.result()  # says better what is missing
            raise
        packed.result()


def objects_directory(repository: Path) -> Path:
    """Where the objects of a work tree, a linked work tree or a bare repository are stored.

    Raises WorkspaceError when `repository` is none of these.
    """
    git_directory = _common_directory(_git_directory(repository))
    objects = git_directory / "objects"
    if not objects.is_dir():
        raise WorkspaceError(f"not a git repository: {repository}; name its top directory")
    return objects.resolve()


def _git_directory(repository: Path) -> Path:
    entry = repository / ".git"
    if entry.is_dir():
        return entry
    if not entry.is_file():
        return repository
    # A linked work tree or a submodule: gitrepository-layout(5), "gitfile" in gitglossary(7).
    return repository / _line(entry).removeprefix("gitdir:").strip()


def _common_directory(git_directory: Path) -> Path:
    common = git_directory / "commondir"
    return git_directory / _line(common) if common.is_file() else git_directory


def _line(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="surrogateescape").strip()
    except OSError as error:
        raise WorkspaceError(f"cannot read {file}: {error.strerror}") from error


def _pack(tree: Path, commit: str, objects: Path, alternate: Mapping[str, str]) -> None:
    """Store every object of `commit` in the clone, read from the alternate store."""
    pack = tree / ".git" / "objects" / "pack" / "pack"
    arguments = ("pack-objects", "--quiet", "--revs", "--delta-base-offset", str(pack))
    try:
        _git(tree, *arguments, stdin=f"{commit}\n", more=alternate)
    except WorkspaceError as error:
        raise WorkspaceError(
            f"commit {commit} is not wholly stored in {objects.parent} ({error}); "
            "fetch it first (a partial clone: git fetch --refetch origin)"
        ) from error


def _quoted(path: Path) -> str:
    """A path in the C-style quotes that git takes where a colon would separate entries."""
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _git(
    tree: Path, *arguments: str, stdin: str = "", more: Mapping[str, str] | None = None
) -> None:
    settings = (part for setting in _SETTINGS for part in ("-c", setting))
    environment = {**hardened_git.environment(), **(more or {})}
    environment["GIT_CEILING_DIRECTORIES"] = str(tree.parent)
    command = ["git", *hardened_git.options(), *settings, "-C", str(tree), *arguments]
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


def _last_line(stderr: bytes) -> str:
    lines = stderr.decode("utf-8", errors="replace").strip().splitlines()
    return lines[-1].removeprefix("fatal: ") if lines else ""
