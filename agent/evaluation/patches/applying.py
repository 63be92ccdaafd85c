"""Apply a patch to the files of a commit, with the strictness of `git apply`.

Context and removed lines must match byte for byte. A hunk may apply at another line than its header
says, and the nearest match counts. Either the whole patch applies or nothing does. A hunk without
context before its change, or after it, must match at that end of the file. Source: git's
documentation of `git apply`, and its behaviour, which the tests compare with.

There are two differences. A patch whose last line has no newline is accepted, because tools strip
it (the harness accepts it through patch(1)). A context line without a newline does not match a line
with one (git accepts it, and joins it with the line that it adds).
"""

from __future__ import annotations

import base64
import itertools
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from agent.repository import EXECUTABLE_MODE, SUBMODULE_MODE, SYMLINK_MODE, GitRepository
from agent.repository.unified_diff import DiffError, DiffHunk, FileDiff, read_diff
from agent.types import FileChange

_HEAD = re.compile(rb"(literal|delta) (\d{1,12})\s*$")
_MOST_BYTES = 64 * 1024 * 1024


class BinaryError(ValueError):
    """A binary hunk that cannot be read or applied."""


@dataclass(frozen=True, slots=True)
class BinaryHunk:
    """The forward half of a binary patch; `data` is inflated."""

    kind: Literal["literal", "delta"]
    data: bytes

    def apply(self, before: bytes) -> bytes:
        """Return the content of the file after the hunk. Raises BinaryError."""
        return self.data if self.kind == "literal" else _patched(before, self.data)


def read_binary(lines: Sequence[bytes], number: int) -> BinaryHunk:
    """Read the lines of a binary patch; `number` is the 1-based line of the first in its patch.

    Only the forward half is read. Raises BinaryError.
    """
    head = _HEAD.match(lines[0]) if lines else None
    if head is None:
        raise BinaryError(f"line {number}: a binary patch without data")
    body = itertools.takewhile(bytes.strip, lines[1:])
    encoded = [_line(line.rstrip(b"\r"), at) for at, line in enumerate(body, start=number + 1)]
    kind: Literal["literal", "delta"] = "literal" if head[1] == b"literal" else "delta"
    return BinaryHunk(kind, _inflated(b"".join(encoded), int(head[2]), number))


def _line(line: bytes, number: int) -> bytes:
    first = line[:1]
    length = first[0] - 64 if first.isupper() else first[0] - 70 if first.islower() else 0
    try:
        data = base64.b85decode(line[1:])
    except ValueError:
        data = b""
    if not 0 < length <= len(data):
        raise BinaryError(f"corrupt binary patch at line {number}")
    return data[:length]


def _inflated(data: bytes, size: int, number: int) -> bytes:
    try:
        plain = zlib.decompressobj().decompress(data, min(size, _MOST_BYTES) + 1)
    except zlib.error as error:
        raise BinaryError(f"corrupt binary patch at line {number}: {error}") from None
    if len(plain) != size:
        raise BinaryError(f"corrupt binary patch at line {number}: not {size} bytes")
    return plain


def _patched(before: bytes, delta: bytes) -> bytes:
    at, size = _number(delta, 0)
    at, expected = _number(delta, at)
    if size != len(before):
        raise BinaryError("the binary patch was made for another content of the file")
    parts: list[bytes] = []
    while at < len(delta):
        command = delta[at]
        at += 1
        if command & 0x80:
            at, start, length = _copy(delta, at, command)
            parts.append(before[start : start + length])
        elif command:
            parts.append(delta[at : at + command])
            at += command
        else:
            raise BinaryError("a binary delta with an unknown command")
    after = b"".join(parts)
    if len(after) != expected:
        raise BinaryError("a binary delta whose result has another size than it announces")
    return after


def _copy(delta: bytes, at: int, command: int) -> tuple[int, int, int]:
    values = []
    for bits in ((0, 1, 2, 3), (4, 5, 6)):
        value = 0
        for shift, bit in enumerate(bits):
            if command & (1 << bit):
                if at >= len(delta):
                    raise BinaryError("a binary delta that is cut off")
                value |= delta[at] << (8 * shift)
                at += 1
        values.append(value)
    return at, values[0], values[1] or 0x10000


def _number(delta: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(delta):
        byte = delta[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return at, value
    raise BinaryError("a binary delta that is cut off")


_PLAIN_MODE = "100644"
_MODES = (_PLAIN_MODE, EXECUTABLE_MODE, "100664")


class PatchError(ValueError):
    """The patch cannot be read or applied. The message is one line with the line or the file."""


@dataclass(frozen=True, slots=True)
class TreeFile:
    """The content of a file, and its mode as git writes it."""

    data: bytes
    mode: str = _PLAIN_MODE


class PatchTree(Protocol):
    """The files to which a patch is applied."""

    def get(self, path: str) -> TreeFile | None:
        """Return the file, None if there is none. Raises PatchError if it is not a plain file."""
        ...

    def is_folder(self, path: str) -> bool:
        """Return whether the tree has files below the path."""
        ...


@dataclass(frozen=True, slots=True)
class Patched:
    """The changes in order of path. `left_out` names submodules, which are not applied."""

    changes: tuple[FileChange, ...]
    left_out: tuple[str, ...] = ()


def apply_patch(data: bytes, tree: PatchTree) -> Patched:
    """Apply a whole patch. Raises PatchError, and then applies nothing."""
    try:
        state = _State(tree)
        for patch in read_diff(data):
            _apply_file(patch, state)
    except (BinaryError, DiffError) as error:
        raise PatchError(str(error)) from None
    return Patched(state.changes(), tuple(state.left_out))


@dataclass(slots=True)
class _State:
    """A tree with the changes applied so far."""

    tree: PatchTree
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


def _apply_file(patch: FileDiff, state: _State) -> None:
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
    """Check that a new file can be created at `path`. Raises PatchError."""
    if state.get(path) is not None or state.tree.is_folder(path):
        raise PatchError(f"{path}: already exists in working directory")
    parent = path.rpartition("/")[0]
    while parent:
        if state.get(parent) is not None:
            raise PatchError(f"{path}: {parent} is a file, not a folder")
        parent = parent.rpartition("/")[0]


def _before(patch: FileDiff, state: _State) -> TreeFile | None:
    if patch.old is None:
        return None
    found = state.get(patch.old)
    if found is None:
        raise PatchError(f"{patch.old}: No such file or directory")
    return found


def _content(patch: FileDiff, before: bytes) -> bytes:
    if patch.opaque and not patch.hunks:
        raise PatchError(f"{patch.new or patch.old}: cannot apply binary patch without its data")
    if patch.binary is not None:
        return read_binary(patch.binary, patch.binary_line).apply(before)
    image = [(line, False) for line in _lines(before)]
    for hunk in patch.hunks:
        _apply_hunk(hunk, image, patch.new or patch.old or "")
    return b"".join(line for line, _ in image)


def _apply_hunk(hunk: DiffHunk, image: list[tuple[bytes, bool]], path: str) -> None:
    """Replace the old lines of a hunk. A later hunk does not match patched lines."""
    before = hunk.before
    place = _find(hunk, before, image)
    if place is None:
        raise PatchError(f"patch failed: {path}:{hunk.old} (hunk at line {hunk.line})")
    image[place : place + len(before)] = [(line, True) for line in hunk.after]


def _find(
    hunk: DiffHunk, before: Sequence[bytes], image: Sequence[tuple[bytes, bool]]
) -> int | None:
    """Return the index where a hunk applies: the nearest to its header, forward first."""
    size = len(before)
    at_begin, at_end = hunk.old <= 1, not hunk.ends_with_context
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
        if place <= last and fits_ends and _matches(before, image, place):
            return place
    return None


def _outward(start: int, end: int) -> Sequence[int]:
    """Return `start`, then one forward, one backward, two forward, ... within 0..end."""
    steps = (place for step in range(1, end + 1) for place in (start + step, start - step))
    return [start, *(place for place in steps if 0 <= place <= end)]


def _matches(before: Sequence[bytes], image: Sequence[tuple[bytes, bool]], place: int) -> bool:
    there = image[place : place + len(before)]
    return all(
        line == wanted and not patched
        for wanted, (line, patched) in zip(before, there, strict=True)
    )


def _lines(data: bytes) -> list[bytes]:
    """Split at `\\n` only: a carriage return belongs to its line."""
    *whole, last = data.split(b"\n")
    return [*(line + b"\n" for line in whole), *([last] if last else [])]


def _check(path: str) -> None:
    """Refuse paths that leave the tree or reach into git's own files. Raises PatchError."""
    parts = path.split("/")
    if path.startswith("/") or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise PatchError(f"invalid path {path!r}")
    if any(part.lower() == ".git" for part in parts):
        raise PatchError(f"invalid path {path!r}: git's own files")


def merged(first: Sequence[FileChange], second: Sequence[FileChange]) -> tuple[FileChange, ...]:
    """Return both in order of path. If both change a file, `second` wins."""
    both: Mapping[str, FileChange] = {c.path: c for c in (*first, *second)}
    return tuple(both[path] for path in sorted(both))


class CommitTree:
    """The files of one commit as a `PatchTree`, read from git's objects while `git` is open."""

    def __init__(self, git: GitRepository, commit: str) -> None:
        """`commit` is a full id. Raises RepositoryError if it cannot be read."""
        self._git = git
        self._entries = {
            entry.path.decode("utf-8", "surrogateescape"): entry
            for entry in git.tree(commit, sizes=False)
        }
        self._folders = {folder for path in self._entries for folder in _parents(path)}
        self._read: dict[str, TreeFile] = {}

    def get(self, path: str) -> TreeFile | None:
        """Return the file, None if there is none.

        Raises PatchError for a link, a submodule, a path beyond a link, or a missing object.
        """
        for parent in _parents(path):
            if self._is_link(parent):
                raise PatchError(f"{path}: is beyond a symbolic link")
        entry = self._entries.get(path)
        if entry is None:
            return None
        if entry.mode in (SYMLINK_MODE, SUBMODULE_MODE):
            what = "a symbolic link" if entry.mode == SYMLINK_MODE else "a submodule"
            raise PatchError(f"{path}: is {what}, which is not patched here")
        if path not in self._read:
            data = self._git.blobs([entry.oid]).get(entry.oid)
            if data is None:
                raise PatchError(f"{path}: its content is missing in the repository")
            self._read[path] = TreeFile(data, entry.mode)
        return self._read[path]

    def is_folder(self, path: str) -> bool:
        """Return whether the commit has files below the path."""
        return path in self._folders

    def has(self, path: str) -> bool:
        """Return whether the commit has a file, link or submodule at this path."""
        return path in self._entries

    def _is_link(self, path: str) -> bool:
        entry = self._entries.get(path)
        return entry is not None and entry.mode == SYMLINK_MODE


def _parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]
