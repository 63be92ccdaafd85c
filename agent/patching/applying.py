"""Applies a proposal to files in memory: all edits or none, and never a byte outside of them.

Edits are applied in order, so that each sees the result of those before it. When one fails the rest
are still tried, against the state without it, so that one answer names everything that is wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from agent.patching.diff import unified_diff
from agent.patching.files import FileSource, NameIndex, OverlayFiles, parents, similar_paths
from agent.patching.filetext import Spliced, open_text
from agent.patching.matching import Miss, locate
from agent.patching.paths import RefusedPath, check_path
from agent.repository.languages import language_of
from agent.types import (
    AppliedEdit,
    AppliedPatch,
    ApplyFailure,
    ApplyKind,
    CreateFile,
    DeleteFile,
    Edit,
    EditFailure,
    FileChange,
    MatchTier,
    PatchProposal,
    SearchReplace,
)

__all__ = ["FileSource", "OverlayFiles", "apply_proposal"]

# What one edit may write, in bytes. No source file that a person wrote comes near.
MAX_WRITTEN = 1024 * 1024


def apply_proposal(
    proposal: PatchProposal,
    files: FileSource,
    *,
    allow: Collection[str] = (),
    include_test: bool = False,
) -> AppliedPatch | ApplyFailure:
    """Apply all edits of a proposal, or name every one that cannot be.

    `allow`: patterns of protected paths that may be edited (see `paths.check_path`).
    `include_test`: the reproduction test is created as one more edit, after the others.
    """
    desk = _Desk(files, allow)
    for index, edit in enumerate(_edits(proposal, include_test=include_test)):
        done = desk.apply(edit)
        if isinstance(done, Miss):
            miss = EditFailure(index, _shown(edit.path), done.kind, done.reason, done.candidates)
            desk.failures.append(miss)
        else:
            desk.applied.append(AppliedEdit(index, done.path, done.tier, done.line))
    changes = desk.changes()
    if not changes and not desk.failures:
        path = proposal.edits[0].path if proposal.edits else ""
        nothing = EditFailure(0, _shown(path), "no-change", "the edits together change nothing")
        desk.failures.append(nothing)
    if desk.failures:
        return ApplyFailure(tuple(desk.failures))
    return AppliedPatch(changes, unified_diff(changes), tuple(desk.applied))


def _edits(proposal: PatchProposal, *, include_test: bool) -> Sequence[Edit]:
    test = proposal.reproduction_test
    if not include_test or test is None:
        return proposal.edits
    return (*proposal.edits, CreateFile(test.path, test.content))


@dataclass(frozen=True, slots=True)
class _Done:
    path: str
    tier: MatchTier
    line: int


@dataclass(slots=True)
class _Desk:
    """The files as they are after the edits so far."""

    files: FileSource
    allow: Collection[str]
    contents: dict[str, bytes | None] = field(default_factory=dict)
    applied: list[AppliedEdit] = field(default_factory=list)
    failures: list[EditFailure] = field(default_factory=list)
    names: NameIndex | None = None

    def apply(self, edit: Edit) -> _Done | Miss:
        path = check_path(edit.path, allow=self.allow)
        if isinstance(path, RefusedPath):
            return Miss("refused-path", path.reason)
        match edit:
            case CreateFile(content=content):
                return self.create(path, content)
            case DeleteFile():
                return self.delete(path)
            case SearchReplace(search="", replace=content) if not self.exists(path):
                return self.create(path, content)  # how SEARCH/REPLACE blocks make a file
            case SearchReplace():
                return self.replace(path, edit)

    def create(self, path: str, content: str) -> _Done | Miss:
        data = _encoded(content)
        if isinstance(data, Miss):
            return data
        refusal = self.no_room(path, data)
        if refusal is not None:
            return refusal
        self.contents[path] = data
        if self.names is not None:
            self.names.add(path)
        return _Done(path, MatchTier.CREATED, 1)

    def delete(self, path: str) -> _Done | Miss:
        content = self.content(path)
        if isinstance(content, Miss):
            return content
        self.contents[path] = None
        self.names = None  # its name is free again
        return _Done(path, MatchTier.DELETED, 1)

    def replace(self, path: str, edit: SearchReplace) -> _Done | Miss:
        content = self.content(path)
        if isinstance(content, Miss):
            return content
        file = open_text(content, python=self.language(path) == "python")
        if file is None:
            return Miss("not-text", "the file is binary or not decodable; it cannot be edited")
        written = _encoded(edit.replace)
        if isinstance(written, Miss):
            return written
        place = locate(file, edit)
        if isinstance(place, Miss):
            return place
        new = file.splice(place.match.start, place.match.end, place.match.replacement)
        if not isinstance(new, Spliced):
            return Miss("not-text", new)
        self.contents[path] = new.data
        return _Done(path, place.tier, new.line)

    # ---------------------------------------------------------------------------------- looking

    def exists(self, path: str) -> bool:
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
        return self.not_usable(path) if self.exists(path) else self.unknown(path)

    def language(self, path: str) -> str:
        file = self.files.files.get(path)
        return file.language if file else language_of(path)

    def not_usable(self, path: str) -> Miss:
        reason = next((f.reason for f in self.files.skipped if f.path == path), "unreadable")
        kind: ApplyKind = "too-large" if reason == "too-large" else "not-text"
        return Miss(kind, f"the path is there, but no editable text file ({reason})")

    def unknown(self, path: str) -> Miss:
        alike = similar_paths(path, self.files.files.keys() - self.deleted())
        hint = f"; did you mean {' or '.join(alike)}?" if alike else ""
        return Miss("unknown-file", f"there is no such file{hint}")

    def deleted(self) -> set[str]:
        return {path for path, content in self.contents.items() if content is None}

    def no_room(self, path: str, data: bytes) -> Miss | None:
        """Why a file cannot be created there, None if it can."""
        checked = check_path(path, allow=self.allow, new=True)
        if isinstance(checked, RefusedPath):
            return Miss("refused-path", checked.reason)
        if self.exists(path):
            same = self.content(path) == data
            already = " with this very content" if same else ""
            return Miss("exists", f"the file exists already{already}; edit it instead")
        for folder in parents(path):
            if self.exists(folder):
                return Miss("refused-path", f"{folder} is no folder (a file, link or submodule)")
        names = self.index()
        if names.is_folder(path):
            return Miss("refused-path", "the path is a folder")
        other = names.collision(path)
        if other is not None:
            return Miss(
                "refused-path", f"{other} exists and differs only in case or look-alike characters"
            )
        return None

    def index(self) -> NameIndex:
        """All names, made on the first file that is created."""
        if self.names is None:
            created = {path for path, content in self.contents.items() if content is not None}
            there = {*self.files.files, *(file.path for file in self.files.skipped)}
            self.names = NameIndex((there | created) - self.deleted())
        return self.names

    # ----------------------------------------------------------------------------------- result

    def changes(self) -> tuple[FileChange, ...]:
        changes = (self.change(path, after) for path, after in sorted(self.contents.items()))
        return tuple(change for change in changes if change.before != change.after)

    def change(self, path: str, after: bytes | None) -> FileChange:
        file = self.files.files.get(path)
        before = self.files.read(path) if file else None
        return FileChange(path, before, after, executable=bool(file and file.executable))


def _shown(path: str) -> str:
    """A path of the model's as it may be printed: hidden characters are spelled out."""
    return path if path.isprintable() else path.encode("unicode_escape").decode()


def _encoded(text: str) -> bytes | Miss:
    """The text as UTF-8, if it may be written into a source file."""
    if "\0" in text:
        return Miss("not-text", "the new text has a NUL character; write an escape sequence")
    try:
        data = text.encode()
    except UnicodeEncodeError:
        return Miss("not-text", "the new text has half of a surrogate pair, which is no character")
    if len(data) > MAX_WRITTEN:
        return Miss("too-large", f"the new text has {len(data)} bytes, at most {MAX_WRITTEN} go")
    return data
