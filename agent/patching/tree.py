"""The files as they are after the edits so far: what is there, and what has room."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from agent.patching.files import FileSource, NameIndex, parents, similar_paths
from agent.patching.paths import RefusedPath, check_path
from agent.patching.refusing import Miss
from agent.repository.languages import language_of
from agent.types import ApplyKind, FileChange


@dataclass(slots=True)
class Tree:
    """A file source with changes on top. `modes`: whether renamed files are executable."""

    files: FileSource
    contents: dict[str, bytes | None] = field(default_factory=dict)
    modes: dict[str, bool] = field(default_factory=dict)
    _names: NameIndex | None = None

    @property
    def known(self) -> set[str]:
        """Usable files that are there now."""
        return {*self.files.files, *self.contents} - self.deleted()

    def exists(self, path: str) -> bool:
        """Whether there is such a file now, usable or not."""
        if path in self.contents:
            return self.contents[path] is not None
        return self.files.exists(path) or path in self.files.files

    def content(self, path: str) -> bytes | Miss:
        """The bytes of an existing text file, as they are now."""
        if path in self.contents:
            content = self.contents[path]
            return (
                Miss("unknown-file", "an earlier edit deletes it") if content is None else content
            )
        content = self.files.read(path) if path in self.files.files else None
        if content is not None:
            return content
        return self._not_usable(path) if self.exists(path) else self._unknown(path)

    def language(self, path: str) -> str:
        """The file's language, by its name where it is new."""
        file = self.files.files.get(path)
        return file.language if file else language_of(path)

    def executable(self, path: str) -> bool:
        """Whether the file has, or takes along, an executable bit."""
        file = self.files.files.get(path)
        return self.modes.get(path, bool(file and file.executable))

    def _not_usable(self, path: str) -> Miss:
        reason = next((f.reason for f in self.files.skipped if f.path == path), "unreadable")
        kind: ApplyKind = "too-large" if reason == "too-large" else "not-text"
        return Miss(kind, f"the path is there, but no editable text file ({reason})")

    def _unknown(self, path: str) -> Miss:
        alike = similar_paths(path, self.files.files.keys() - self.deleted())
        hint = f"; did you mean {' or '.join(alike)}?" if alike else ""
        return Miss("unknown-file", f"there is no such file{hint}")

    def deleted(self) -> set[str]:
        """Paths that earlier edits have removed."""
        return {path for path, content in self.contents.items() if content is None}

    def put(self, path: str, data: bytes) -> None:
        """Give a file new bytes, be it there or not."""
        self.contents[path] = data
        if self._names is not None:
            self._names.add(path)

    def move(self, path: str, to: str, data: bytes, allow: Collection[str]) -> Miss | None:
        """Give a file another path, or say why it cannot have it."""
        executable, before = self.executable(path), self.contents.get(path, data)
        untouched = path not in self.contents
        self.remove(path)
        refusal = self.no_room(to, data, allow)
        if refusal is not None:
            self._names = None
            self.contents[path] = before
            if untouched:
                del self.contents[path]
            return refusal
        self.put(to, data)
        self.modes[to] = executable
        return None

    def remove(self, path: str) -> None:
        """Take a file away."""
        self.contents[path] = None
        self._names = None  # its name is free again

    def no_room(self, path: str, data: bytes, allow: Collection[str]) -> Miss | None:
        """Why a file cannot be created there, None if it can."""
        checked = check_path(path, allow=allow, new=True)
        if isinstance(checked, RefusedPath):
            return Miss("refused-path", checked.reason)
        if self.exists(path):
            same = self.content(path) == data
            already = " with this very content" if same else ""
            return Miss("exists", f"the file exists already{already}; edit it instead")
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

    def _index(self) -> NameIndex:
        """All names, made on the first file that is created."""
        if self._names is None:
            created = {path for path, content in self.contents.items() if content is not None}
            there = {*self.files.files, *(file.path for file in self.files.skipped)}
            self._names = NameIndex((there | created) - self.deleted())
        return self._names

    def changes(self) -> tuple[FileChange, ...]:
        """What differs from the files at the start, by path."""
        changes = (self._change(path, after) for path, after in sorted(self.contents.items()))
        return tuple(change for change in changes if change.before != change.after)

    def _change(self, path: str, after: bytes | None) -> FileChange:
        before = self.files.read(path) if path in self.files.files else None
        return FileChange(path, before, after, executable=self.executable(path))
