"""Parses the listings of git: `-z` output and the output of `cat-file --batch`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

SYMLINK_MODE = "120000"
SUBMODULE_MODE = "160000"
EXECUTABLE_MODE = "100755"


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """A file of a commit. `path` is bytes of any encoding, `oid` 40 hexadecimal digits.

    `size` is in bytes, None for a submodule or if sizes were not requested.
    """

    path: bytes
    mode: str
    oid: str
    size: int | None = None


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """A file of the index. `skip_worktree`: a sparse checkout leaves it out of the work tree."""

    path: bytes
    mode: str
    skip_worktree: bool


def records(listing: bytes) -> Iterator[bytes]:
    """Return the NUL-terminated records of a `-z` listing."""
    return (record for record in listing.split(b"\0") if record)


def tree_entries(listing: bytes) -> tuple[TreeEntry, ...]:
    """Parse `<mode> <type> <oid><TAB><path>` (git-ls-tree, OUTPUT FORMAT)."""
    return tuple(_tree_entry(record) for record in records(listing))


def _tree_entry(record: bytes) -> TreeEntry:
    head, _, path = record.partition(b"\t")
    mode, _kind, oid = head.decode("ascii").split()
    return TreeEntry(path, mode, oid)


def sizes_by_id(listing: bytes) -> dict[str, int]:
    """Parse `<oid> <type> <size>`, or `<oid> missing` (git-cat-file, BATCH OUTPUT)."""
    lines = (line.split() for line in listing.decode("ascii").splitlines())
    return {line[0]: int(line[2]) for line in lines if len(line) == 3}


def index_entries(listing: bytes) -> tuple[IndexEntry, ...]:
    """Parse `<tag> <mode> <oid> <stage><TAB><path>` (git-ls-files, OUTPUT), each path once."""
    found: dict[bytes, IndexEntry] = {}
    for record in records(listing):
        head, _, path = record.partition(b"\t")
        tag, mode, _oid, _stage = head.decode("ascii").split()
        found.setdefault(path, IndexEntry(path, mode, skip_worktree=tag == "S"))
    return tuple(found.values())


def batch_contents(output: bytes) -> Iterator[tuple[str, bytes]]:
    """Return the blobs in the output of `cat-file --batch` by id, without missing ones.

    The format is `<oid> <type> <size>\\n<content>\\n`, or `<oid> missing\\n` (git-cat-file, BATCH
    OUTPUT).
    """
    at = 0
    while at < len(output):
        end = output.index(b"\n", at)
        oid, kind, *size = output[at:end].decode("ascii").split()
        at = end + 1
        if not size:
            continue
        start, at = at, at + int(size[0]) + 1
        if kind == "blob":
            yield oid, output[start : at - 1]
