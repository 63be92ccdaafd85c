"""Applies a patch to the files of a commit, with the strictness of `git apply`.

Every line of context and every removed line must be there, byte for byte; a hunk may stand at
another line than its header says (the nearest place counts), and all is applied or nothing is. A
hunk without context before its change, or after it, must stand at that end of the file. Source of
these rules: git's documentation of `git apply`, and its behaviour, which the tests compare with.

Two differences: a patch without a line end at its end is taken, since tools strip it (the harness
takes it, by patch(1)); a line of context without an end stands for no line that has one (git takes
it for one, and joins it with what it adds).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agent.repository.listings import EXECUTABLE_MODE, SUBMODULE_MODE, SYMLINK_MODE
from agent.scoring.binary import BinaryError
from agent.scoring.unidiff import FilePatch, Hunk, PatchError, read_patch
from agent.types import FileChange

_PLAIN_MODE = "100644"
_MODES = (_PLAIN_MODE, EXECUTABLE_MODE, "100664")


@dataclass(frozen=True, slots=True)
class TreeFile:
    """A file of a tree: `mode` as git writes it."""

    data: bytes
    mode: str = _PLAIN_MODE


class Tree(Protocol):
    """The files that a patch is applied to."""

    def get(self, path: str) -> TreeFile | None:
        """The file, None where there is none. Raises PatchError for what is no plain file."""
        ...

    def is_folder(self, path: str) -> bool:
        """Whether the tree has files below the path."""
        ...


@dataclass(frozen=True, slots=True)
class Patched:
    """`changes` in order of path. `left_out` names what has no place in a tree of files."""

    changes: tuple[FileChange, ...]
    left_out: tuple[str, ...] = ()


def apply_patch(data: bytes, tree: Tree) -> Patched:
    """Apply a whole patch. Raises PatchError: nothing is applied then."""
    try:
        state = _State(tree)
        for patch in read_patch(data):
            _apply_file(patch, state)
    except BinaryError as error:
        raise PatchError(str(error)) from None
    return Patched(state.changes(), tuple(state.left_out))


@dataclass(slots=True)
class _State:
    """The tree with what was applied so far."""

    tree: Tree
    now: dict[str, TreeFile | None] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    def get(self, path: str) -> TreeFile | None:
        return self.now[path] if path in self.now else self.tree.get(path)

    def changes(self) -> tuple[FileChange, ...]:
        found = []
        for path, after in sorted(self.now.items()):
            before = self.tree.get(path)
            if before == after:
                continue
            found.append(
                FileChange(
                    path,
                    before.data if before else None,
                    after.data if after else None,
                    executable=after is not None and after.mode == EXECUTABLE_MODE,
                )
            )
        return tuple(found)


def _apply_file(patch: FilePatch, state: _State) -> None:
    for path in {patch.old, patch.new} - {None}:
        _check(path or "")
    if SUBMODULE_MODE in (patch.new_mode, patch.old_mode):
        state.left_out.append(f"{patch.new or patch.old}: a submodule")
        return
    before = _before(patch, state)
    if patch.new_mode not in (None, *_MODES):
        what = "a symbolic link" if patch.new_mode == SYMLINK_MODE else f"mode {patch.new_mode}"
        raise PatchError(f"{patch.new}: {what} cannot be put into the private copy")
    data = _content(patch, before.data if before else b"")
    if patch.deletes:
        if data:
            raise PatchError(f"{patch.old}: removal patch leaves file contents")
        state.now[patch.old or ""] = None
        return
    assert patch.new is not None
    if patch.new != patch.old:
        _check_free(patch.new, state)
    if patch.renames and not patch.kept and patch.old:
        state.now[patch.old] = None
    mode = patch.new_mode or (before.mode if before else _PLAIN_MODE)
    state.now[patch.new] = TreeFile(data, mode)


def _check_free(path: str, state: _State) -> None:
    """A new file needs its place. Raises PatchError."""
    if state.get(path) is not None or state.tree.is_folder(path):
        raise PatchError(f"{path}: already exists in working directory")
    parent = path.rpartition("/")[0]
    while parent:
        if state.get(parent) is not None:
            raise PatchError(f"{path}: {parent} is a file, not a folder")
        parent = parent.rpartition("/")[0]


def _before(patch: FilePatch, state: _State) -> TreeFile | None:
    if patch.old is None:
        return None
    found = state.get(patch.old)
    if found is None:
        raise PatchError(f"{patch.old}: No such file or directory")
    return found


def _content(patch: FilePatch, before: bytes) -> bytes:
    if patch.opaque and not patch.hunks:
        raise PatchError(f"{patch.new or patch.old}: cannot apply binary patch without its data")
    if patch.binary is not None:
        return patch.binary.apply(before)
    image = [(line, False) for line in _lines(before)]
    for hunk in patch.hunks:
        _apply_hunk(hunk, image, patch.new or patch.old or "")
    return b"".join(line for line, _ in image)


def _apply_hunk(hunk: Hunk, image: list[tuple[bytes, bool]], path: str) -> None:
    """Put the hunk's new lines in the place of its old ones; patched lines match no later hunk."""
    place = _find(hunk, image)
    if place is None:
        raise PatchError(f"patch failed: {path}:{hunk.old} (hunk at line {hunk.line})")
    image[place : place + len(hunk.before)] = [(line, True) for line in hunk.after]


def _find(hunk: Hunk, image: Sequence[tuple[bytes, bool]]) -> int | None:
    """The place of a hunk: the nearest to where its header says, forward before backward."""
    size = len(hunk.before)
    at_begin, at_end = hunk.old <= 1, not hunk.trailing
    if size > len(image):
        return None
    last = len(image) - size
    if at_begin:
        start = 0
    elif at_end:
        start = last
    else:
        start = min(max(hunk.new - 1, 0), len(image))
    for place in _outward(start, len(image)):
        fits_ends = (not at_begin or place == 0) and (not at_end or place == last)
        if place <= last and fits_ends and _matches(hunk.before, image, place):
            return place
    return None


def _outward(start: int, end: int) -> Sequence[int]:
    """`start`, then one forward, one backward, two forward, ... within 0..end."""
    steps = (place for step in range(1, end + 1) for place in (start + step, start - step))
    return [start, *(place for place in steps if 0 <= place <= end)]


def _matches(before: Sequence[bytes], image: Sequence[tuple[bytes, bool]], place: int) -> bool:
    there = image[place : place + len(before)]
    return all(
        line == wanted and not patched
        for wanted, (line, patched) in zip(before, there, strict=True)
    )


def _lines(data: bytes) -> list[bytes]:
    """Split at `\\n` alone: a carriage return belongs to its line."""
    *whole, last = data.split(b"\n")
    return [*(line + b"\n" for line in whole), *([last] if last else [])]


def _check(path: str) -> None:
    """Paths that leave the tree or reach into git's own files. Raises PatchError."""
    parts = path.split("/")
    if path.startswith("/") or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise PatchError(f"invalid path {path!r}")
    if any(part.lower() == ".git" for part in parts):
        raise PatchError(f"invalid path {path!r}: git's own files")


def merged(first: Sequence[FileChange], second: Sequence[FileChange]) -> tuple[FileChange, ...]:
    """Both, in order of path; where both change a file, `second` wins."""
    both: Mapping[str, FileChange] = {c.path: c for c in (*first, *second)}
    return tuple(both[path] for path in sorted(both))
