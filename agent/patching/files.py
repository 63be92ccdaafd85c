"""The files that a proposal is applied to: a snapshot, or a snapshot with changes on top."""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol

from rapidfuzz import fuzz, process

from agent.patching.paths import folded
from agent.repository.languages import language_of
from agent.types import FileChange, SkippedFile, SourceFile

_MAX_SUGGESTIONS = 3
_SUGGESTION_CUTOFF = 75.0


class FileSource(Protocol):
    """What the applier needs of a `Snapshot`. `read` is only asked for paths in `files`."""

    @property
    def files(self) -> Mapping[str, SourceFile]:
        """Usable files by path."""
        ...

    @property
    def skipped(self) -> Sequence[SkippedFile]:
        """Paths that are there but not usable, and why."""
        ...

    def read(self, path: str) -> bytes | None:
        """The bytes of a path in `files`."""
        ...

    def exists(self, path: str) -> bool:
        """Whether there is such a file, usable or skipped."""
        ...


class OverlayFiles:
    """`base` with `changes` on top (path -> change, or a sequence of changes with distinct paths).

    Immutable. Differs from a snapshot in that `read` gives None for a path that is not there.
    """

    def __init__(
        self, base: FileSource, changes: Mapping[str, FileChange] | Sequence[FileChange]
    ) -> None:
        listed = changes.values() if isinstance(changes, Mapping) else changes
        self._base = base
        self._changes = {change.path: change for change in listed}
        self._files: Mapping[str, SourceFile] | None = None

    @property
    def files(self) -> Mapping[str, SourceFile]:
        """Usable files by path, in path order."""
        if self._files is None:
            files = {p: f for p, f in self._base.files.items() if p not in self._changes}
            for change in self._changes.values():
                if change.after is not None:
                    files[change.path] = self._changed_file(change, change.after)
            self._files = dict(sorted(files.items()))
        return self._files

    @property
    def skipped(self) -> Sequence[SkippedFile]:
        """What the base skips and no change replaces."""
        return tuple(file for file in self._base.skipped if file.path not in self._changes)

    def read(self, path: str) -> bytes | None:
        """The bytes as changed; None for a path that does not exist or is skipped."""
        change = self._changes.get(path)
        if change is not None:
            return change.after
        return self._base.read(path) if path in self._base.files else None

    def exists(self, path: str) -> bool:
        """Whether there is such a file, usable or skipped."""
        change = self._changes.get(path)
        return self._base.exists(path) if change is None else change.after is not None

    def _changed_file(self, change: FileChange, content: bytes) -> SourceFile:
        base = self._base.files.get(change.path)
        header = b"blob %d\0" % len(content)
        return SourceFile(
            path=change.path,
            blob=hashlib.sha1(header + content, usedforsecurity=False).hexdigest(),
            size=len(content),
            language=base.language if base else language_of(change.path, content),
            executable=base.executable if base else change.executable,
        )


class NameIndex:
    """Answers which names collide with a new one on a file system that ignores case."""

    def __init__(self, paths: Collection[str]) -> None:
        self._names: dict[str, str] = {}
        self._folders: set[str] = set()
        for path in sorted(paths):
            self.add(path)

    def add(self, path: str) -> None:
        """Take a file and the folders above it."""
        self._names.setdefault(folded(path), path)
        for folder in parents(path):
            if folder in self._folders:
                break
            self._folders.add(folder)
            self._names.setdefault(folded(folder), folder)

    def is_folder(self, path: str) -> bool:
        """Whether files lie below this path."""
        return path in self._folders

    def collision(self, path: str) -> str | None:
        """A name, of the path itself or of a folder above it, that exists in another spelling."""
        for name in (path, *parents(path)):
            existing = self._names.get(folded(name))
            if existing is not None and existing != name:
                return existing
        return None


def similar_paths(path: str, known: Collection[str]) -> Sequence[str]:
    """Existing paths that an unknown one may have meant: same file name first, then alike."""
    name = posixpath.basename(path)
    same = sorted(other for other in known if posixpath.basename(other) == name)
    hits = process.extract(
        path,
        sorted(known),
        scorer=fuzz.ratio,
        limit=_MAX_SUGGESTIONS,
        score_cutoff=_SUGGESTION_CUTOFF,
    )
    alike = [hit[0] for hit in sorted(hits, key=lambda hit: (-hit[1], hit[0]))]
    closest = sorted(same, key=lambda other: (-fuzz.ratio(path, other), other))
    return list(dict.fromkeys([*closest, *alike]))[:_MAX_SUGGESTIONS]


def parents(path: str) -> Iterator[str]:
    """The folders above a path, innermost first."""
    while "/" in path:
        path = path.rsplit("/", 1)[0]
        yield path
