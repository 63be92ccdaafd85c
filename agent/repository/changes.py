"""How a work tree differs from a commit, by content: git's filters and stat caches play no part.

Whether a file changed is decided by the git id of its bytes. The index's time stamps are not
trusted: a file rewritten within their resolution would look unchanged (git's "racy" problem), and
reading 3,000 files takes a tenth of a second.
"""

from __future__ import annotations

import enum
import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from agent.repository.git import GitRepository
from agent.repository.listings import (
    EXECUTABLE_MODE,
    SUBMODULE_MODE,
    SYMLINK_MODE,
    TreeEntry,
)
from agent.repository.selection import is_safe_path, lfs_content_id
from agent.repository.worktree import DiskFile, Kind, read_files


class State(enum.Enum):
    """What became of a path of the commit, or of a new one. Values are words for people."""

    SAME = "same"
    CONVERTED = "converted"  # CRLF on disk where the commit has LF: a checkout does that
    LFS = "git-lfs"  # the content that the committed pointer stands for
    MODIFIED = "modified"
    MODE = "mode"  # only the executable bit
    NEW = "new"
    DELETED = "deleted"
    LINK = "link"  # a link that is new or points elsewhere; an overlay cannot carry it
    UNKNOWN = "unknown"  # unreadable, or never looked at


CLEAN = frozenset({State.SAME, State.CONVERTED, State.LFS, State.UNKNOWN})


@dataclass(frozen=True, slots=True)
class Candidate:
    """A path to look at on disk. `head` is its entry in the commit, `mode` what git holds it for.

    `mode` is the index's, else the commit's, else "" for an untracked path. `sparse`: left out of
    the work tree on purpose. `nested`: the folder of another repository.
    """

    path: bytes
    head: TreeEntry | None
    mode: str = ""
    sparse: bool = False
    nested: bool = False

    @property
    def readable(self) -> bool:
        """Whether to look on disk. A name with `..` could lead anywhere, a submodule is no file."""
        return not self.nested and is_safe_path(self.path)


@dataclass(frozen=True, slots=True)
class Finding:
    """A candidate, what stands on disk there, and what that means."""

    candidate: Candidate
    disk: DiskFile
    state: State


def candidates(
    git: GitRepository, head: Iterable[TreeEntry], *, exclude: frozenset[bytes]
) -> tuple[Candidate, ...]:
    """Every path of the commit, of the index, and untracked but not ignored; in byte order."""
    found = {
        entry.path: Candidate(entry.path, entry, entry.mode, nested=entry.mode == SUBMODULE_MODE)
        for entry in head
    }
    for staged in git.index():
        known = found.get(staged.path)
        found[staged.path] = Candidate(
            staged.path,
            known.head if known else None,
            staged.mode,
            sparse=staged.skip_worktree,
            nested=staged.mode == SUBMODULE_MODE or (known is not None and known.nested),
        )
    for path in git.untracked():
        name = path.removesuffix(b"/")
        if name not in found and name not in exclude:
            found[name] = Candidate(name, None, nested=path.endswith(b"/"))
    return tuple(found[path] for path in sorted(found))


def survey(git: GitRepository, paths: Sequence[Candidate], *, limit: int) -> tuple[Finding, ...]:
    """Look at every candidate on disk, in their order. Files above `limit` bytes are not kept."""
    readable = [candidate.path for candidate in paths if candidate.readable]
    in_commit = {candidate.path for candidate in paths if candidate.head is not None}
    disk = read_files(git.location.root, readable, limit=limit, hashed=in_commit)
    trusts_mode = git.trusts_file_mode()
    findings = []
    for candidate in paths:
        found = disk.get(candidate.path, DiskFile(Kind.UNREADABLE))
        if not trusts_mode:
            found = replace(found, executable=candidate.mode == EXECUTABLE_MODE)
        findings.append(Finding(candidate, found, _state(candidate, found)))
    return tuple(_recognise_lfs(git, findings))


def _state(candidate: Candidate, disk: DiskFile) -> State:
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
        # Without `core.symlinks` git checks a link out as a file that holds its target.
        return State.SAME if head.oid == disk.blob else State.MODIFIED
    if head.oid not in (disk.blob, disk.blob_lf):
        return State.MODIFIED
    if disk.executable != (head.mode == EXECUTABLE_MODE):
        return State.MODE
    return State.SAME if head.oid == disk.blob else State.CONVERTED


def _recognise_lfs(git: GitRepository, findings: Sequence[Finding]) -> Iterable[Finding]:
    """Tell Git LFS's own checkouts from changes: the commit has a pointer to what is on disk."""
    changed = [finding for finding in findings if finding.state is State.MODIFIED]
    pointers: Mapping[str, bytes] = {}
    if changed and _uses_lfs(findings):
        pointers = git.blobs([f.candidate.head.oid for f in changed if f.candidate.head])
    for finding in findings:
        head = finding.candidate.head
        pointer = pointers.get(head.oid, b"") if head else b""
        content = lfs_content_id(pointer)
        same = content is not None and content == _sha256(finding.disk)
        yield Finding(finding.candidate, finding.disk, State.LFS) if same else finding


def _uses_lfs(findings: Iterable[Finding]) -> bool:
    return any(
        b"filter=lfs" in (finding.disk.data or b"")
        for finding in findings
        if finding.candidate.path.rpartition(b"/")[2] == b".gitattributes"
    )


def _sha256(disk: DiskFile) -> str:
    return disk.sha256 if disk.data is None else hashlib.sha256(disk.data).hexdigest()


def describe(findings: Iterable[Finding]) -> str:
    """The changes in words: "2 modified, 1 new"; "" for a clean work tree."""
    counts = Counter(f.state.value for f in findings if f.state not in CLEAN)
    return ", ".join(f"{count:,} {state}" for state, count in sorted(counts.items()))
