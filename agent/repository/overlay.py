"""The bytes that turn a checkout of the commit into what the user sees on disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from agent.errors import RepositoryError
from agent.repository.changes import Finding, State
from agent.repository.selection import checked_path, shown_path, some
from agent.repository.worktree import read_files

# What one changed file, and all of them, may take in memory and in each copy of the repository.
# A forgotten data set or `node_modules` that nobody ignored lies above.
MAX_FILE_BYTES = 64 * 1024 * 1024
MAX_TOTAL_BYTES = 512 * 1024 * 1024

# The private clone holds these as the work tree does. For Git LFS it holds the pointers: the
# contents may be many gigabytes.
_NOT_CARRIED = frozenset({State.SAME, State.LFS, State.UNKNOWN})


def build_overlay(
    root: Path,
    findings: Sequence[Finding],
    *,
    file_limit: int = MAX_FILE_BYTES,
    total_limit: int = MAX_TOTAL_BYTES,
) -> tuple[Mapping[str, bytes | None], tuple[str, ...]]:
    """Path -> bytes, None for deleted; and notes on what could not be carried, for the user.

    Left out: links, names that are not UTF-8, files above `file_limit` bytes. Raises
    RepositoryError when the whole would be above `total_limit` bytes.
    """
    changed = [finding for finding in findings if finding.state not in _NOT_CARRIED]
    left_out = [finding for finding in changed if not _is_carried(finding, file_limit)]
    carried = [finding for finding in changed if _is_carried(finding, file_limit)]
    _check_total(root, carried, total_limit)
    unread = [finding.candidate.path for finding in carried if _is_unread(finding)]
    read = read_files(root, unread, limit=file_limit)
    overlay: dict[str, bytes | None] = {}
    for finding in carried:
        path = finding.candidate.path
        data = read[path].data if path in read else finding.disk.data
        if data is not None or finding.state is State.DELETED:  # not: gone or grown meanwhile
            overlay[path.decode("utf-8")] = data
    return overlay, _notes(left_out, findings)


def _is_carried(finding: Finding, file_limit: int) -> bool:
    named = checked_path(finding.candidate.path) is not None
    return named and finding.state is not State.LINK and finding.disk.size <= file_limit


def _is_unread(finding: Finding) -> bool:
    return finding.state is not State.DELETED and finding.disk.data is None


def _check_total(root: Path, carried: Iterable[Finding], limit: int) -> None:
    total = sum(finding.disk.size for finding in carried)
    if total > limit:
        largest = sorted(carried, key=lambda f: (-f.disk.size, f.candidate.path))
        names = some([shown_path(finding.candidate.path) for finding in largest[:3]])
        raise RepositoryError(
            f"{root}: {total / 1e6:,.0f} MB of uncommitted files (limit {limit / 1e6:,.0f} MB; "
            f"the largest: {names}); ignore or commit them, or use --dirty ignore"
        )


def _notes(left_out: Sequence[Finding], findings: Iterable[Finding]) -> tuple[str, ...]:
    notes = []
    if left_out:
        names = some([shown_path(finding.candidate.path) for finding in left_out])
        notes.append(f"{names}: changed, but left out of the sandbox's copy (link, size or name)")
    pointers = sum(finding.state is State.LFS for finding in findings)
    if pointers:
        notes.append(f"{pointers:,} Git LFS files are left as pointers in the sandbox's copy")
    return tuple(notes)
