"""Reads a folder that is not a git repository as a snapshot without commits.

Only search and indexing use it, because a patch needs a repository.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from agent.errors import RepositoryError
from agent.repository import MAX_FILE_BYTES, Kind, Selection, decode, is_vendored_path, read_files
from agent.types import SkippedFile, SourceFile

MAX_FILES = 100_000
"""A folder with more files is probably a home folder or a whole disk, named by mistake."""

_NOT_SOURCES = frozenset(
    {"node_modules", "__pycache__", "venv", "env", "build", "dist", "target", "site-packages"}
)
"""Folders that tools generate. Without git there is no ignore file that excludes them."""


@dataclass(frozen=True, slots=True, repr=False)
class FolderSnapshot:
    """An `agent.types.protocols.Snapshot` whose `commit` is 40 zeros."""

    root: Path
    files: Mapping[str, SourceFile]
    skipped: Sequence[SkippedFile]
    notes: tuple[str, ...]
    _contents: Mapping[str, bytes]
    commit: str = "0" * 40
    dirty: bool = True
    scope: str = ""

    def read(self, path: str) -> bytes:
        """Return the bytes of a file. Raises KeyError for a path that is not in `files`."""
        return self._contents[path]

    def text(self, path: str) -> str:
        """Return the decoded text of a file with newlines as line ends."""
        return decode(self._contents[path], cookie=self.files[path].language == "python").text

    def exists(self, path: str) -> bool:
        """Whether the folder contains this path, including skipped files."""
        return path in self.files or any(one.path == path for one in self.skipped)

    def overlay(self) -> Mapping[str, bytes | None]:
        """Return an empty mapping, because there is no commit to compare with."""
        return {}


def read_folder(root: Path) -> FolderSnapshot:
    """Read the usable files of a folder without following links.

    Raises RepositoryError if no file is usable.
    """
    real = root.resolve()
    paths = list(_walk(real))
    selection = Selection(MAX_FILE_BYTES)
    for raw, file in sorted(read_files(real, paths, limit=MAX_FILE_BYTES).items()):
        if file.kind is not Kind.FILE:
            selection.skip(raw, "unreadable")
        elif file.data is None:
            selection.skip(raw, "too-large")
        else:
            selection.add(raw, file.data, blob=file.blob, executable=file.executable)
    if not selection.files:
        raise RepositoryError(f"{root}: no usable text file in this folder; give another --repo")
    notes = (f"{root} is no git repository: searched as it is, without history",)
    return FolderSnapshot(
        real,
        MappingProxyType(dict(sorted(selection.files.items()))),
        tuple(selection.skipped),
        notes,
        selection.contents,
    )


def _walk(root: Path) -> Iterator[bytes]:
    """Yield the paths below the root except hidden and build folders. Raises RepositoryError."""
    count = 0
    for folder, inner, names in os.walk(root):
        base = Path(folder).relative_to(root)
        inner[:] = sorted(n for n in inner if not n.startswith(".") and n not in _NOT_SOURCES)
        for name in sorted(names):
            path = (base / name).as_posix()
            if is_vendored_path(path) or (Path(folder) / name).is_symlink():
                continue
            count += 1
            if count > MAX_FILES:
                raise RepositoryError(f"{root}: more than {MAX_FILES:,} files; name a project")
            yield os.fsencode(path)
