"""Selects the files of a repository that retrieval sees, and records why others are skipped."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from agent.repository.languages import language_of
from agent.repository.text import is_binary
from agent.types import SkippedFile, SkipReason, SourceFile

# https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md: a pointer begins with this line and is
# smaller than 1,024 bytes.
_LFS_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:.*\n)*?oid sha256:([0-9a-f]{64})\n"
)
_LFS_POINTER_BYTES = 1024

_NAMED = 3  # paths named in a message

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


def some(paths: Sequence[str]) -> str:
    """Return the first few paths and the number of the others: "a, b, c and 4 more"."""
    named = ", ".join(sorted(paths)[:_NAMED])
    return f"{named} and {len(paths) - _NAMED:,} more" if len(paths) > _NAMED else named


def skipped_in_words(skipped: Iterable[SkippedFile]) -> str:
    """Return counts by reason, most frequent first: "4 links, 2 too large"; "" for none."""
    counts = Counter(file.reason for file in skipped)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{n:,} {_IN_WORDS[reason][n != 1]}" for reason, n in ordered)


_IN_WORDS: Mapping[SkipReason, tuple[str, str]] = {
    "binary": ("binary", "binary"),
    "control-in-name": (
        "with control characters in its name",
        "with control characters in their names",
    ),
    "lfs-pointer": ("Git LFS pointer", "Git LFS pointers"),
    "missing": ("not here", "not here"),
    "name-not-utf-8": (
        "with a name that is not UTF-8",
        "with names that are not UTF-8",
    ),
    "name-outside": (
        "with a name that leads out of the repository or into .git",
        "with names that lead out of the repository or into .git",
    ),
    "submodule": ("submodule", "submodules"),
    "symlink": ("link", "links"),
    "too-large": ("too large", "too large"),
    "unreadable": ("that cannot be read", "that cannot be read"),
}
"""Words for each reason, for one file and for several."""


def lfs_content_id(data: bytes) -> str | None:
    """Return the SHA-256 (hex) of the content of a Git LFS pointer; None for other bytes."""
    match = _LFS_POINTER.match(data) if len(data) < _LFS_POINTER_BYTES else None
    return match.group(1).decode("ascii") if match else None


@dataclass(slots=True)
class Selection:
    """Collects usable files, the bytes of those that were read whole, and skipped paths.

    Not thread-safe.
    """

    max_file_bytes: int
    files: dict[str, SourceFile] = field(default_factory=dict)
    contents: dict[str, bytes] = field(default_factory=dict)
    skipped: list[SkippedFile] = field(default_factory=list)

    def skip(self, raw: bytes, reason: SkipReason) -> None:
        """Record that retrieval does not see this path."""
        self.skipped.append(SkippedFile(shown_path(raw), reason))

    def add(
        self, raw: bytes, data: bytes, *, blob: str, executable: bool, size: int | None = None
    ) -> None:
        """Add a regular file, or skip it if its name or its bytes are not fit for retrieval.

        With a `size` above that of `data`, these are only the start of the file and are not kept.
        """
        size = len(data) if size is None else size
        path = checked_path(raw)
        if path is None:
            self.skip(raw, "name-not-utf-8" if is_safe_path(raw) else "name-outside")
        elif _UNSHOWABLE.search(path):
            self.skip(raw, "control-in-name")
        elif size > self.max_file_bytes:
            self.skip(raw, "too-large")
        elif lfs_content_id(data) is not None:
            self.skip(raw, "lfs-pointer")
        elif is_binary(data):
            self.skip(raw, "binary")
        else:
            language = language_of(path, data[:128])
            self.files[path] = SourceFile(path, blob, size, language, executable)
            if size == len(data):
                self.contents[path] = data

    def summary(self) -> str:
        """Return what was skipped in words; "" for nothing."""
        return skipped_in_words(self.skipped)
