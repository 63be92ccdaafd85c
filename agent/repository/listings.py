"""What git's listings say, as values. Pure parsing of `-z` output and of `cat-file --batch`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

SYMLINK_MODE = "120000"
SUBMODULE_MODE = "160000"
EXECUTABLE_MODE = "100755"


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """A file of a commit. `path` is as git has it: bytes of any encoding. `oid` is 40 hex digits.

    `size` in bytes; None for a submodule and where sizes were not asked for.
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
    """The NUL-terminated records of a `-z` listing."""
    return (record for record in listing.split(b"\0") if record)


def tree_entries(listing: bytes) -> tuple[TreeEntry, ...]:
    """`<mode> <type> <oid>[ <size>]<TAB><path>` (git-ls-tree, OUTPUT FORMAT)."""
    return tuple(_tree_entry(record) for record in records(listing))


def _tree_entry(record: bytes) -> TreeEntry:
    head, _, path = record.partition(b"\t")
    mode, _kind, oid, *size = head.decode("ascii").split()
    return TreeEntry(path, mode, oid, int(size[0]) if size and size[0].isdigit() else None)


def index_entries(listing: bytes) -> tuple[IndexEntry, ...]:
    """`<tag> <mode> <oid> <stage><TAB><path>` (git-ls-files, OUTPUT), each path once."""
    found: dict[bytes, IndexEntry] = {}
    for record in records(listing):
        head, _, path = record.partition(b"\t")
        tag, mode, _oid, _stage = head.decode("ascii").split()
        found.setdefault(path, IndexEntry(path, mode, skip_worktree=tag == "S"))
    return tuple(found.values())


def batch_contents(output: bytes) -> Iterator[tuple[str, bytes]]:
    """The blobs in `cat-file --batch` output, by id; ids that git calls missing are left out.

    `<oid> <type> <size>\\n<content>\\n`, or `<oid> missing\\n` (git-cat-file, BATCH OUTPUT).
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
