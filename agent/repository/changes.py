"""Compares a work tree with a commit by content, without git's filters and stat caches: a file that
was rewritten within the resolution of the index's time stamps would look unchanged.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agent.errors import RepositoryError
from agent.repository.git import GitRepository
from agent.repository.git_process import (
    EXECUTABLE_MODE,
    SUBMODULE_MODE,
    SYMLINK_MODE,
    TreeEntry,
)
from agent.repository.scope import (
    PATHS_NAMED,
    checked_path,
    is_lfs_pointer,
    is_safe_path,
    shown_path,
)
from agent.repository.worktree import DiskFile, Kind, read_files
from agent.shared.terminal import listed


class State(enum.Enum):
    """How a path differs from the commit. Values are words for people."""

    SAME = "same"
    CONVERTED = "converted"  # CRLF on disk where the commit has LF: a checkout does that
    LFS = "git-lfs"  # the content that the committed pointer stands for
    MODIFIED = "modified"
    MODE = "mode"  # only the executable bit
    NEW = "new"
    DELETED = "deleted"
    LINK = "link"  # a new or changed link, which an overlay cannot hold
    UNKNOWN = "unknown"  # unreadable, or not checked


CLEAN = frozenset({State.SAME, State.CONVERTED, State.LFS, State.UNKNOWN})


@dataclass(frozen=True, slots=True)
class CandidatePath:
    """A path to compare. `head`: its entry in the commit. `mode`: of the index, else of the commit,
    "" if untracked. `sparse`: a sparse checkout leaves it out. `nested`: another repository.
    """

    path: bytes
    head: TreeEntry | None
    mode: str = ""
    sparse: bool = False
    nested: bool = False

    @property
    def readable(self) -> bool:
        """Whether to read it from disk. A name with `..` is unsafe, and a submodule is no file."""
        return not self.nested and is_safe_path(self.path)


@dataclass(frozen=True, slots=True)
class Finding:
    """A path, the file on disk, and how it differs from the commit."""

    candidate: CandidatePath
    disk: DiskFile
    state: State


def candidates(
    git: GitRepository, head: Iterable[TreeEntry], *, exclude: frozenset[bytes]
) -> tuple[CandidatePath, ...]:
    """Return the paths of the commit, of the index, and untracked ones, in byte order."""
    paths = {
        entry.path: CandidatePath(
            entry.path, entry, entry.mode, nested=entry.mode == SUBMODULE_MODE
        )
        for entry in head
    }
    for staged in git.index():
        committed = paths.get(staged.path)
        paths[staged.path] = CandidatePath(
            staged.path,
            committed.head if committed else None,
            staged.mode,
            sparse=staged.skip_worktree,
            nested=staged.mode == SUBMODULE_MODE or (committed is not None and committed.nested),
        )
    for path in git.untracked():
        name = path.removesuffix(b"/")
        if name not in paths and name not in exclude:
            paths[name] = CandidatePath(name, None, nested=path.endswith(b"/"))
    return tuple(paths[path] for path in sorted(paths))


def survey(
    git: GitRepository, paths: Sequence[CandidatePath], *, limit: int
) -> tuple[Finding, ...]:
    """Compare all paths with the disk, in order. Files above `limit` bytes are not kept."""
    readable = [candidate.path for candidate in paths if candidate.readable]
    heads = {one.path for one in paths if one.head is not None}
    disk = read_files(git.location.root, readable, limit=limit, hashed=heads)
    trusts_mode = git.trusts_file_mode()
    findings = []
    for candidate in paths:
        file = disk.get(candidate.path, DiskFile(Kind.UNREADABLE))
        if not trusts_mode:
            file = replace(file, executable=candidate.mode == EXECUTABLE_MODE)
        findings.append(Finding(candidate, file, _state(candidate, file)))
    return tuple(_recognise_lfs(git, findings))


def _state(candidate: CandidatePath, disk: DiskFile) -> State:
    head = candidate.head
    if disk.kind is Kind.UNREADABLE:
        return State.UNKNOWN
    if disk.kind is Kind.SYMLINK and (head is None or head.mode == SYMLINK_MODE):
        return State.SAME if head is not None and head.oid == disk.blob else State.LINK
    if disk.kind is not Kind.FILE:
        return State.SAME if head is None or candidate.sparse else State.DELETED
    if head is None:
        return State.NEW
    return _file_state(head, disk)


def _file_state(head: TreeEntry, disk: DiskFile) -> State:
    if head.mode == SYMLINK_MODE:
        # Without `core.symlinks`, git checks out a link as a file that holds its target.
        return State.SAME if head.oid == disk.blob else State.MODIFIED
    if head.oid not in (disk.blob, disk.blob_lf):
        return State.MODIFIED
    if disk.executable != (head.mode == EXECUTABLE_MODE):
        return State.MODE
    return State.SAME if head.oid == disk.blob else State.CONVERTED


def _recognise_lfs(git: GitRepository, findings: Sequence[Finding]) -> Iterable[Finding]:
    """Mark changed files for which the commit has a Git LFS pointer: a checkout does that."""
    changed = [
        f.candidate.head.oid for f in findings if f.state is State.MODIFIED and f.candidate.head
    ]
    pointers = git.blobs(changed)
    for finding in findings:
        head = finding.candidate.head
        is_lfs = head is not None and is_lfs_pointer(pointers.get(head.oid, b""))
        yield replace(finding, state=State.LFS) if is_lfs else finding


def describe(findings: Iterable[Finding]) -> str:
    """Return the changes in words: "2 modified, 1 new"; "" for a clean work tree."""
    counts = Counter(f.state.value for f in findings if f.state not in CLEAN)
    return ", ".join(f"{count:,} {state}" for state, count in sorted(counts.items()))


# Bytes of one changed file and of all of them, in memory and in each copy of the repository. A
# forgotten data set or a `node_modules` that nobody ignored is larger.
MAX_OVERLAY_FILE_BYTES = 64 * 1024 * 1024
MAX_OVERLAY_BYTES = 512 * 1024 * 1024
# The private clone has these files as in the work tree, but pointers in place of Git LFS contents,
# which may have many gigabytes.
_NOT_CARRIED = frozenset({State.SAME, State.LFS, State.UNKNOWN})


def build_overlay(
    root: Path,
    findings: Sequence[Finding],
    *,
    file_limit: int = MAX_OVERLAY_FILE_BYTES,
    total_limit: int = MAX_OVERLAY_BYTES,
) -> tuple[Mapping[str, bytes | None], tuple[str, ...]]:
    """Return what turns a checkout into the work tree, and notes. Raises RepositoryError."""
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
        if (
            data is not None or finding.state is State.DELETED
        ):  # otherwise it is gone or has grown meanwhile
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
        names = listed([shown_path(finding.candidate.path) for finding in largest[:3]])
        raise RepositoryError(
            f"{root}: {total / 1e6:,.0f} MB of uncommitted files (limit {limit / 1e6:,.0f} MB; "
            f"the largest: {names}); ignore or commit them, or use --dirty ignore"
        )


def _notes(left_out: Sequence[Finding], findings: Iterable[Finding]) -> tuple[str, ...]:
    notes = []
    if left_out:
        paths = sorted(shown_path(finding.candidate.path) for finding in left_out)
        names = listed(paths, PATHS_NAMED)
        notes.append(f"{names}: changed, but left out of the sandbox's copy (link, size or name)")
    pointers = sum(finding.state is State.LFS for finding in findings)
    if pointers:
        notes.append(f"{pointers:,} Git LFS files are left as pointers in the sandbox's copy")
    return tuple(notes)
