"""Git on untrusted repositories: safe options, checks of its files, and private clones."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from sandbox.files import read_small_file
from sandbox.host import run_program
from sandbox.types import SandboxError, WorkspaceError

_KEEP = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "SSL_CERT_FILE")

# Passed as `-c key=value`: these win over the repository's own configuration.
OPTIONS = (
    *("core.fsmonitor=false", "core.hooksPath=/dev/null", "core.untrackedCache=false"),
    *("core.quotePath=false", "core.alternateRefsCommand=", "protocol.ext.allow=never"),
    *("safe.bareRepository=explicit", "gc.auto=0", "maintenance.auto=false"),
    *("submodule.recurse=false", "diff.external=", "credential.helper="),
)


def git_environment() -> Mapping[str, str]:
    """Return a minimal environment for git."""
    inherited = {name: os.environ[name] for name in _KEEP if name in os.environ}
    return inherited | {
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "/bin/false",
        "GIT_PAGER": "cat",
        "GIT_EDITOR": "/bin/false",
    }


def git_options() -> tuple[str, ...]:
    """Return the `-c` options as arguments that follow `git`."""
    return tuple(part for option in OPTIONS for part in ("-c", option))


# ---- the files of a repository, looked at before git opens them

# Git reads a loose reference as a whole. It holds an object id or the name of another reference.
_REFERENCE_BYTES = 4096

# Git follows alternates of alternates to this depth (object-file.c).
_ALTERNATES_DEPTH = 5

# References have names with slashes; nobody uses so many of them.
_FOLDER_DEPTH = 64


@dataclass(frozen=True, slots=True)
class GitDirectory:
    """Where git keeps a repository: `own` has HEAD and the index, `common` all else."""

    own: Path
    common: Path

    @property
    def objects(self) -> Path:
        """The object store."""
        return self.common / "objects"


def find_git_directory(repository: Path) -> GitDirectory:
    """Find the git directory of a work tree or bare repository. Raises WorkspaceError."""
    entry = repository / ".git"
    own = entry
    if not entry.is_dir():
        link = read_control_file(entry)  # "gitfile" in gitglossary(7)
        own = repository / (_line(link).removeprefix("gitdir:").strip() if link else "")
    named = read_control_file(own / "commondir")
    directory = GitDirectory(own, own if named is None else own / _line(named))
    if not directory.objects.is_dir():
        raise WorkspaceError(f"not a git repository: {repository}; name its top directory")
    return directory


def read_control_file(path: Path, most: int = _REFERENCE_BYTES) -> bytes | None:
    """Read a regular file of at most `most` bytes; None for no file. Raises WorkspaceError."""
    try:
        data = read_small_file(path, most)
    except OSError as error:
        raise WorkspaceError(f"{path}: {error.strerror}; git's own are smaller") from None
    if data is None and os.path.lexists(path):
        raise WorkspaceError(f"{path}: a link, no regular file, or closed to this user; see to it")
    return data


def check_objects(objects: Path) -> None:
    """Raise WorkspaceError unless git can open every file of a store and its alternates."""
    checked: set[Path] = set()
    waiting = [objects]
    for _ in range(_ALTERNATES_DEPTH + 1):
        following: list[Path] = []
        for store in waiting:
            real = store.resolve()
            if real not in checked and real.is_dir():
                checked.add(real)
                check_files(real)
                following += _alternates(real)
        waiting = following


def check_references(common: Path) -> None:
    """Check the loose references and reflogs of a repository. Raises WorkspaceError."""
    check_files(common / "refs", most=_REFERENCE_BYTES)
    check_files(common / "logs")
    check_files(common / "reftable")


def check_files(folder: Path, *, most: int | None = None, depth: int = _FOLDER_DEPTH) -> None:
    """Raise WorkspaceError unless a folder holds, at any depth, files of at most `most` bytes."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False) and depth:
                    check_files(Path(entry.path), most=most, depth=depth - 1)
                elif most is not None or not entry.is_file(follow_symlinks=False):
                    _check_file(entry, most)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise WorkspaceError(f"{error.filename}: {error.strerror}") from None


def _check_file(entry: os.DirEntry[str], most: int | None) -> None:
    try:
        state = entry.stat()
    except FileNotFoundError:  # a link that leads nowhere, or a lock that is gone by now
        return
    if not stat.S_ISREG(state.st_mode):
        raise WorkspaceError(f"{entry.path}: no regular file; remove it, then run git fsck")
    if most is not None and state.st_size > most:
        raise WorkspaceError(f"{entry.path}: larger than {most:,} bytes; git's own are smaller")


def _alternates(objects: Path) -> Iterator[Path]:
    data = read_control_file(objects / "info" / "alternates", 1 << 20) or b""
    for line in data.splitlines():
        if line and not line.startswith(b"#"):
            yield objects / os.fsdecode(line)


def _line(data: bytes) -> str:
    return os.fsdecode(data).strip()


# ---- a private clone of one commit

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
    """Make `tree`, which must not exist, a clone of `repository` at the full id `commit`.

    The contents of `withheld` paths are not among its objects. Raises WorkspaceError.
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
    """Return the checked object store of a repository. Raises WorkspaceError."""
    objects = find_git_directory(repository).objects
    check_objects(objects)
    return objects.resolve()


def _pack(
    tree: Path, commit: str, objects: Path, alternate: Mapping[str, str], withheld: Collection[str]
) -> None:
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
    if not paths:
        return
    withheld = {path.encode("utf-8", "surrogateescape") for path in paths}
    listed = _git(tree, "ls-tree", "-r", "-z", "--full-tree", commit, more=alternate)
    for entry in listed.split(b"\0"):
        about, _, path = entry.partition(b"\t")
        if path in withheld and about.split()[1] == b"blob":
            yield about.split()[2].decode("ascii")


def _quoted(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _git(
    tree: Path, *arguments: str, stdin: str = "", more: Mapping[str, str] | None = None
) -> bytes:
    settings = (part for setting in _SETTINGS for part in ("-c", setting))
    environment = {**git_environment(), **(more or {})}
    environment["GIT_CEILING_DIRECTORIES"] = str(tree.parent)
    argv = ("git", *git_options(), *settings, "-C", str(tree), *arguments)
    try:
        return run_program(*argv, seconds=_GIT_SECONDS, environment=environment, text=stdin)
    except SandboxError as error:
        raise WorkspaceError(f"{error} (git {arguments[0]})") from error
