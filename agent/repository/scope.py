"""Where a repository lies (found by its folders: its configuration could name any folder), the
scope of a run, and the selection of files that retrieval sees. Paths are relative to the root.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from agent.errors import RepositoryError
from agent.repository.languages import language_of
from agent.repository.text import is_binary
from agent.types import SkippedFile, SkipReason, SourceFile
from agent.types.protocols import Snapshot


@dataclass(frozen=True, slots=True)
class Location:
    """A repository on disk. `root`: top of the work tree or a bare git directory. `git_dir`: may be
    a `.git` file. `inside`: the given path relative to `root`.
    """

    root: Path
    git_dir: Path
    bare: bool
    inside: str = ""


def locate_repository(path: Path) -> Location:
    """Return the repository at `path` or above it. Raises RepositoryError."""
    try:
        return _locate(path)
    except PermissionError as error:
        name = error.filename or path
        raise RepositoryError(f"{name}: permission denied; run as a user who may read it") from None
    except (OSError, RuntimeError, ValueError) as error:  # loops of symlinks, NUL in the name
        raise RepositoryError(f"{path}: cannot be opened as a repository: {error}") from None


def _locate(path: Path) -> Location:
    if not path.exists():
        raise RepositoryError(f"{path}: no such directory; give the repository's path with --repo")
    if not path.is_dir():
        raise RepositoryError(f"{path}: not a directory; --repo takes a repository's directory")
    real = path.resolve()
    for top in (real, *real.parents):
        if (top / ".git").exists():
            inside = real.relative_to(top).as_posix()
            return Location(top, top / ".git", bare=False, inside="" if inside == "." else inside)
        if top == real and _is_git_dir(top):
            return Location(top, top, bare=True)
    raise RepositoryError(
        f"{path}: not a git repository; run `git init` and commit, or give another path"
    )


def _is_git_dir(path: Path) -> bool:
    return (path / "HEAD").is_file() and (path / "objects").is_dir() and (path / "refs").is_dir()


# The files by which package managers and test runners recognise the root of a project.
_PROJECT_FILES = frozenset(
    {
        "pyproject.toml", "setup.py", "setup.cfg", "pytest.ini", "tox.ini", "noxfile.py",
        "requirements.txt", "manage.py", "package.json", "go.mod", "Cargo.toml", "pom.xml",
    }
)  # fmt: skip


def find_scope(location: Location, given: Path | None, files: Collection[str]) -> str:
    """Return the scope as a path, "" for all; None takes the project around. Raises
    RepositoryError.
    """
    if given is None:
        return _project_around(location.inside, files)
    root = location.root
    place = Path(os.path.normpath(root / given.expanduser()))
    if not place.is_relative_to(root):
        real = place.resolve()
        if not given.expanduser().is_absolute() or not real.is_relative_to(root):
            raise RepositoryError(f"--path {given}: leads out of the repository {root}")
        place = real
    scope = place.relative_to(root).as_posix()
    if scope == ".":
        return ""
    if scope in files:
        raise RepositoryError(f"--path {given}: is a file; name the folder that it is in")
    if not any(is_below(scope, path) for path in files):
        raise RepositoryError(
            f"--path {given}: {root} has no files there; name a folder relative to its root"
        )
    return scope


def _project_around(inside: str, files: Collection[str]) -> str:
    folder = PurePosixPath(inside)
    while folder.name:
        if any(f"{folder}/{name}" in files for name in _PROJECT_FILES):
            return str(folder)
        folder = folder.parent
    return ""


def is_below(scope: str, path: str) -> bool:
    """Whether a path of the repository lies in the scope."""
    return not scope or path.startswith(f"{scope}/")


@dataclass(frozen=True, slots=True)
class _View:
    """A `Snapshot` that shows the files of another one below `prefix`, without that."""

    root: Path
    commit: str
    dirty: bool
    scope: str
    files: Mapping[str, SourceFile]
    skipped: Sequence[SkippedFile]
    whole: Snapshot
    prefix: str = ""

    def read(self, path: str) -> bytes:
        return self.whole.read(self.prefix + self.files[path].path)

    def text(self, path: str) -> str:
        return self.whole.text(self.prefix + self.files[path].path)

    def exists(self, path: str) -> bool:
        return self.whole.exists(self.prefix + path)

    def overlay(self) -> Mapping[str, bytes | None]:
        return self.whole.overlay()


def narrowed(snapshot: Snapshot, paths: Iterable[str]) -> Snapshot:
    """Return the snapshot with only these of its files, in path order."""
    s = snapshot
    files = {path: s.files[path] for path in sorted(paths)}
    return _View(s.root, s.commit, s.dirty, s.scope, files, s.skipped, s)


def subtree(snapshot: Snapshot) -> Snapshot:
    """Return the scope of the snapshot with paths relative to it; `skipped` and `overlay` stay."""
    s = snapshot
    if not s.scope:
        return s
    prefix = f"{s.scope}/"
    inside = (
        (path.removeprefix(prefix), s.files[path]) for path in s.files if path.startswith(prefix)
    )
    files = {name: replace(file, path=name) for name, file in inside}
    return _View(s.root, s.commit, s.dirty, "", files, s.skipped, s, prefix)


# https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md: a pointer begins with this line and is
# smaller than 1,024 bytes.
_LFS_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:.*\n)*?oid sha256:[0-9a-f]{64}\n"
)
LFS_POINTER_BYTES = 1024

PATHS_NAMED = 3  # in a message

# Characters that would break a line of output, a prompt or a terminal: controls, direction marks.
_UNSHOWABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
# Parts of a path that lead elsewhere (git refuses to check them out).
_NO_COMPONENT = frozenset({b"", b".", b"..", b".git"})


def is_safe_path(raw: bytes) -> bool:
    """Whether the path stays below the root and out of `.git`."""
    return _NO_COMPONENT.isdisjoint(raw.lower().split(b"/"))


def checked_path(raw: bytes) -> str | None:
    """Return the path as text; None if it is not safe or not UTF-8."""
    try:
        return raw.decode("utf-8") if is_safe_path(raw) else None
    except UnicodeDecodeError:
        return None


def shown_path(raw: bytes) -> str:
    """Return a printable path, with backslash escapes for what is not UTF-8 or not printable."""
    path = raw.decode("utf-8", errors="backslashreplace")
    return _UNSHOWABLE.sub(lambda match: ascii(match.group())[1:-1], path)


def skipped_in_words(skipped: Iterable[SkippedFile]) -> str:
    """Return counts by reason, most frequent first: "4 links, 2 too large"; "" for none."""
    counts = Counter(file.reason for file in skipped)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{n:,} {reason.replace('-', ' ')}" for reason, n in ordered)


def is_lfs_pointer(data: bytes) -> bool:
    """Whether the bytes are a Git LFS pointer, which stands for a content elsewhere."""
    return len(data) < LFS_POINTER_BYTES and _LFS_POINTER.match(data) is not None


@dataclass(slots=True)
class Selection:
    """Collects usable files, the bytes of those that were read whole, and skipped paths."""

    max_file_bytes: int
    files: dict[str, SourceFile] = field(default_factory=dict)
    contents: dict[str, bytes] = field(default_factory=dict)
    skipped: list[SkippedFile] = field(default_factory=list)

    def skip(self, raw: bytes, reason: SkipReason) -> None:
        """Record that retrieval does not see this path."""
        self.skipped.append(SkippedFile(shown_path(raw), reason))

    def add(self, raw: bytes, data: bytes, *, blob: str, executable: bool) -> None:
        """Add a regular file, or skip it if its name or its bytes are not fit for retrieval."""
        path = checked_path(raw)
        if path is None:
            self.skip(raw, "name-not-utf-8" if is_safe_path(raw) else "name-outside")
        elif _UNSHOWABLE.search(path):
            self.skip(raw, "control-in-name")
        elif len(data) > self.max_file_bytes:
            self.skip(raw, "too-large")
        elif is_lfs_pointer(data):
            self.skip(raw, "lfs-pointer")
        elif is_binary(data):
            self.skip(raw, "binary")
        else:
            language = language_of(path, data[:128])
            self.files[path] = SourceFile(path, blob, len(data), language, executable)
            self.contents[path] = data

    def summary(self) -> str:
        """Return what was skipped in words; "" for nothing."""
        return skipped_in_words(self.skipped)
