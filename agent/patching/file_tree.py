"""The files that a proposal is applied to, with the changes made so far."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from rapidfuzz import fuzz

from agent.patching.paths import RefusedPath, check_path, folded, is_allowed, parents
from agent.patching.protected import ignoring_rule, is_generated
from agent.patching.refusals import Miss
from agent.repository import blob_id, language_of
from agent.types import ApplyKind, FileChange, SkippedFile, SourceFile

_MAX_SUGGESTIONS = 3
_SUGGESTION_CUTOFF = 75.0


class FileSource(Protocol):
    """The part of a `Snapshot` that the applier needs."""

    @property
    def files(self) -> Mapping[str, SourceFile]:
        """Usable files by path."""

    @property
    def skipped(self) -> Sequence[SkippedFile]:
        """Existing paths that are not usable, and why."""

    def read(self, path: str) -> bytes | None:
        """The bytes of a path in `files`."""

    def exists(self, path: str) -> bool:
        """Whether there is such a file, usable or skipped."""


class OverlayFiles:
    """A file source with changes on top. Immutable. `read` gives None for an absent path."""

    def __init__(self, base: FileSource, changes: Iterable[FileChange]) -> None:
        self.base = base
        self._changes = {change.path: change for change in changes}

    @cached_property
    def files(self) -> Mapping[str, SourceFile]:
        """Usable files by path, in path order."""
        files = {p: f for p, f in self.base.files.items() if p not in self._changes}
        for change in self._changes.values():
            if change.after is not None:
                files[change.path] = self._changed_file(change, change.after)
        return dict(sorted(files.items()))

    @property
    def skipped(self) -> Sequence[SkippedFile]:
        """Skipped paths of the base that no change replaces."""
        return tuple(file for file in self.base.skipped if file.path not in self._changes)

    def read(self, path: str) -> bytes | None:
        """Return the present bytes of a usable file."""
        change = self._changes.get(path)
        if change is not None:
            return change.after
        return self.base.read(path) if path in self.base.files else None

    def exists(self, path: str) -> bool:
        """Whether there is such a file, usable or skipped."""
        change = self._changes.get(path)
        return self.base.exists(path) if change is None else change.after is not None

    def _changed_file(self, change: FileChange, content: bytes) -> SourceFile:
        base = self.base.files.get(change.path)
        return SourceFile(
            path=change.path,
            blob=blob_id(content),
            size=len(content),
            language=base.language if base else language_of(change.path, content),
            executable=base.executable if base else change.executable,
        )


def _base_of(files: FileSource) -> FileSource:
    return files.base if isinstance(files, OverlayFiles) else files


class NameIndex:
    """Finds names that collide with a new one on a file system that ignores case."""

    def __init__(self, paths: Collection[str]) -> None:
        self._names: dict[str, str] = {}
        self._folders: set[str] = set()
        for path in sorted(paths):
            self.add(path)

    def add(self, path: str) -> None:
        """Add a file and the folders above it."""
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
        """Return an existing name that differs from the path or a folder of it in spelling only."""
        for name in (path, *parents(path)):
            existing = self._names.get(folded(name))
            if existing is not None and existing != name:
                return existing
        return None


def similar_paths(path: str, known: Collection[str]) -> Sequence[str]:
    """Return existing paths that an unknown one may mean, those with the same file name first."""
    name = posixpath.basename(path)
    scores = {
        other: fuzz.ratio(path, other) + 100 * (posixpath.basename(other) == name)
        for other in known
    }
    alike = [other for other, score in scores.items() if score >= _SUGGESTION_CUTOFF]
    return sorted(alike, key=lambda other: (-scores[other], other))[:_MAX_SUGGESTIONS]


@dataclass(slots=True)
class Tree:
    """A file source with the changes of earlier edits on top."""

    files: FileSource
    contents: dict[str, bytes | None] = field(default_factory=dict)  # None: deleted
    modes: dict[str, bool] = field(default_factory=dict)  # whether a renamed file is executable
    _names: NameIndex | None = None

    @property
    def known(self) -> set[str]:
        """Usable files that exist now."""
        return {*self.files.files, *self.contents} - self.deleted()

    def exists(self, path: str) -> bool:
        """Whether the file exists now, usable or not."""
        if path in self.contents:
            return self.contents[path] is not None
        return self.files.exists(path) or path in self.files.files

    def content(self, path: str) -> bytes | Miss:
        """Return the present bytes of an existing text file, or why they cannot be edited."""
        if path in self.contents:
            content = self.contents[path]
            missing = Miss("unknown-file", "an earlier edit deletes it")
            return missing if content is None else content
        content = self.files.read(path) if path in self.files.files else None
        if content is not None:
            return content
        if self.exists(path):
            reason = next((f.reason for f in self.files.skipped if f.path == path), "unreadable")
            kind: ApplyKind = "too-large" if reason == "too-large" else "not-text"
            return Miss(kind, f"the path exists, but is not an editable text file ({reason})")
        alike = similar_paths(path, self.files.files.keys() - self.deleted())
        hint = f"; did you mean {' or '.join(alike)}?" if alike else ""
        return Miss("unknown-file", f"there is no such file{hint}")

    def language(self, path: str) -> str:
        """Return the language of a file; the name decides for a new one."""
        file = self.files.files.get(path)
        return file.language if file else language_of(path)

    def executable(self, path: str) -> bool:
        """Whether the file is executable, also after it was renamed; a new one if it has a `#!`."""
        file, data = self.files.files.get(path), self.contents.get(path) or b""
        return self.modes.get(path, file.executable if file else data.startswith(b"#!"))

    def deleted(self) -> set[str]:
        """Return the paths that earlier edits have removed."""
        return {path for path, content in self.contents.items() if content is None}

    def put(self, path: str, data: bytes) -> None:
        """Write a file, new or not."""
        self.contents[path] = data
        if self._names is not None:
            self._names.add(path)

    def move(self, path: str, to: str, data: bytes, allow: Collection[str]) -> Miss | None:
        """Rename a file, or return why the new path cannot be used."""
        executable, contents = self.executable(path), dict(self.contents)
        self.remove(path)
        refusal = self.no_room(to, data, allow)
        if refusal is not None:
            self.contents, self._names = contents, None
            return refusal
        self.put(to, data)
        self.modes[to] = executable
        return None

    def remove(self, path: str) -> None:
        """Delete a file."""
        self.contents[path] = None
        self._names = None  # its name is free again

    def no_room(self, path: str, data: bytes, allow: Collection[str]) -> Miss | None:
        """Return why a file cannot be created at this path, or None if it can."""
        checked = check_path(path, allow=allow, new=True)
        if isinstance(checked, RefusedPath):
            return Miss("refused-path", checked.reason)
        if self.exists(path):
            same = self.content(path) == data
            already = " with this very content" if same else ""
            return Miss("exists", f"the file exists already{already}", advice="edit it instead")
        refused = self.off_limits(path) or self._ignored(path)
        if refused is not None and not is_allowed(path, allow):
            return refused
        for folder in parents(path):
            if self.exists(folder):
                return Miss("refused-path", f"{folder} is no folder (a file, link or submodule)")
        names = self._index()
        if names.is_folder(path):
            return Miss("refused-path", "the path is a folder")
        other = names.collision(path)
        if other is not None:
            return Miss(
                "refused-path", f"{other} exists and differs only in case or look-alike characters"
            )
        return None

    def off_limits(self, path: str) -> Miss | None:
        """Return why a path below a repository of git, or a generated file, is not edited. Only the
        base counts, so that no edit makes or hides one.
        """
        base = _base_of(self.files)
        if path in self.files.files and is_generated(self.files.read(path) or b""):
            reason = "the file says that it is generated, so that the edit would be lost"
            return Miss("generated", reason, advice="edit what it is generated from")
        for folder in parents(path):
            if base.exists(f"{folder}/HEAD"):
                return Miss("refused-path", f"{folder} can be read as a repository of git")
        return None

    def _ignored(self, path: str) -> Miss | None:
        base = _base_of(self.files)
        rule = ignoring_rule(path, lambda name: base.read(name) if name in base.files else None)
        if rule is None:
            return None
        reason = f"git ignores this path (the rule {rule}), so nobody would see the file in a diff"
        return Miss("refused-path", reason)

    def _index(self) -> NameIndex:
        if self._names is None:
            created = {path for path, content in self.contents.items() if content is not None}
            there = {*self.files.files, *(file.path for file in self.files.skipped)}
            self._names = NameIndex((there | created) - self.deleted())
        return self._names

    def changes(self) -> tuple[FileChange, ...]:
        """Return the differences from the original files, in order of path."""
        changes = []
        for path, after in sorted(self.contents.items()):
            before = self.files.read(path) if path in self.files.files else None
            if before != after:
                changes.append(FileChange(path, before, after, self.executable(path)))
        return tuple(changes)
