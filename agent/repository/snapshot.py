"""An immutable view of a repository at one moment: of a commit, or of the work tree as it is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from agent.errors import RepositoryError
from agent.repository.changes import Finding, State, candidates, describe, survey
from agent.repository.git import GitRepository, open_repository
from agent.repository.listings import (
    EXECUTABLE_MODE,
    SUBMODULE_MODE,
    SYMLINK_MODE,
    TreeEntry,
)
from agent.repository.location import Location
from agent.repository.overlay import build_overlay
from agent.repository.selection import Selection, is_safe_path, some
from agent.repository.text import decode
from agent.repository.worktree import Kind
from agent.types import SkippedFile, SkipReason, SourceFile

Dirty = Literal["include", "ignore", "refuse"]

# Hand-written sources stay far below; data, dumps and bundles lie above and only cost time.
MAX_FILE_BYTES = 1_000_000
# Blobs asked of git at once: bounds what is held twice while a reply is cut into files.
_BATCH_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True, repr=False)
class RepositorySnapshot:
    """The real `agent.protocols.Snapshot`. Made by `take_snapshot`.

    Work-tree bytes are as on disk. `dirty` ignores a conversion of line ends that a checkout makes,
    while `overlay()` carries such files too, since their bytes differ from the commit's. It holds
    regular files only: a link that became a file is there with the file's bytes, a file that became
    a link is there as deleted. `notes` are sentences for the user.
    """

    root: Path
    commit: str
    dirty: bool
    files: Mapping[str, SourceFile]
    skipped: Sequence[SkippedFile]
    notes: tuple[str, ...]
    _contents: Mapping[str, bytes]
    _overlay: Mapping[str, bytes | None]
    _skipped_paths: frozenset[str]

    def read(self, path: str) -> bytes:
        """The file's bytes. Raises KeyError for a path that is not in `files`."""
        return self._contents[path]

    def text(self, path: str) -> str:
        """The file decoded, with `\\n` line ends. Raises KeyError for a path not in `files`."""
        python = self.files[path].language == "python"
        return decode(self._contents[path], cookie=python).text

    def exists(self, path: str) -> bool:
        """Whether the repository has this path, usable or skipped."""
        return path in self.files or path in self._skipped_paths

    def overlay(self) -> Mapping[str, bytes | None]:
        """How the work tree differs from `commit`: path -> bytes, None for deleted."""
        return self._overlay


def take_snapshot(
    repo: Path,
    *,
    commit: str | None = None,
    dirty: Dirty = "include",
    max_file_bytes: int = MAX_FILE_BYTES,
    exclude: Collection[Path] = (),
) -> RepositorySnapshot:
    """Read the repository that `repo` is in, once, without writing to it or running anything of it.

    With `commit` (any revision name) the files are those of that commit and the work tree plays no
    part; a bare repository can be read in this way only. Otherwise `dirty` decides: "include" takes
    tracked and untracked, not ignored, files as they are on disk; "ignore" takes HEAD; "refuse"
    raises where they differ. `exclude` names untracked files to leave out: the problem file itself,
    if it lies in the repository. Files above `max_file_bytes` are skipped.

    Raises RepositoryError, also when no usable file is left.
    """
    with open_repository(repo) as git:
        if git.bare and commit is None:
            raise RepositoryError(
                f"{git.location.root}: a bare repository has no work tree; name a commit "
                "(--commit HEAD) or give a clone of it"
            )
        base = git.resolve("HEAD" if commit is None else commit)
        if commit is not None or dirty == "ignore":
            snapshot = _of_commit(git, base, max_file_bytes)
        else:
            left_out = _relative(git.location.root, exclude)
            snapshot = _of_work_tree(git, base, max_file_bytes, left_out, refuse=dirty == "refuse")
    return snapshot


def _relative(root: Path, paths: Collection[Path]) -> frozenset[bytes]:
    real = (path.resolve() for path in paths)
    return frozenset(
        path.relative_to(root).as_posix().encode("utf-8", "surrogateescape")
        for path in real
        if path.is_relative_to(root)
    )


# ------------------------------------------------------------------------------------- of a commit


def _of_commit(git: GitRepository, commit: str, limit: int) -> RepositorySnapshot:
    entries = git.tree(commit, sizes=True)
    _check_inside(git.location, (entry.path for entry in entries))
    selection = Selection(limit)
    wanted = [entry for entry in entries if _is_wanted(entry, selection)]
    for batch in _batches(wanted):
        contents = git.blobs(sorted({entry.oid for entry in batch}))
        for entry in batch:
            data = contents.get(entry.oid)
            if data is None:
                selection.skip(entry.path, "missing")
                continue
            executable = entry.mode == EXECUTABLE_MODE
            selection.add(entry.path, data, blob=entry.oid, executable=executable)
    return _build(git.location, commit, selection)


def _is_wanted(entry: TreeEntry, selection: Selection) -> bool:
    """Whether to read the blob; notes the reason where not."""
    if entry.mode == SUBMODULE_MODE:
        selection.skip(entry.path, "submodule")
    elif entry.mode == SYMLINK_MODE:
        selection.skip(entry.path, "symlink")
    elif entry.size is None:
        selection.skip(entry.path, "missing")
    elif entry.size > selection.max_file_bytes:
        selection.skip(entry.path, "too-large")
    else:
        return True
    return False


def _batches(entries: Iterable[TreeEntry]) -> Iterator[list[TreeEntry]]:
    batch: list[TreeEntry] = []
    size = 0
    for entry in entries:
        batch.append(entry)
        size += entry.size or 0
        if size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


# ----------------------------------------------------------------------------------- of a work tree


def _of_work_tree(
    git: GitRepository, head: str, limit: int, exclude: frozenset[bytes], *, refuse: bool
) -> RepositorySnapshot:
    root = git.location.root
    paths = candidates(git, git.tree(head, sizes=False), exclude=exclude)
    _check_inside(git.location, (path.path for path in paths if path.mode))
    findings = survey(git, paths, limit=limit)
    changes = describe(findings)
    if refuse and changes:
        raise RepositoryError(
            f"{root}: uncommitted changes ({changes}); commit or stash them, or take the work tree "
            "with --dirty include or HEAD with --dirty ignore"
        )
    selection = Selection(limit)
    for finding in findings:
        _select(finding, selection)
    overlay, notes = build_overlay(root, findings)
    if changes:
        notes = (f"the work tree differs from HEAD: {changes}", *notes)
    return _build(git.location, head, selection, bool(changes), overlay, notes)


def _select(finding: Finding, selection: Selection) -> None:
    """Take the file, or note why not. What is simply not there is not worth a note."""
    candidate, disk = finding.candidate, finding.disk
    reason = _skip_reason(finding)
    if reason is not None:
        selection.skip(candidate.path, reason)
    elif disk.data is not None:
        selection.add(candidate.path, disk.data, blob=disk.blob, executable=disk.executable)


def _skip_reason(finding: Finding) -> SkipReason | None:
    candidate, disk = finding.candidate, finding.disk
    if candidate.nested:
        return "submodule"
    if disk.kind is Kind.ABSENT and candidate.sparse:
        return "missing"
    if disk.kind is Kind.FILE:
        return _file_skip_reason(finding)
    if disk.kind is Kind.UNREADABLE and not is_safe_path(candidate.path):
        return "name-outside"  # it was not even looked at
    return _SKIPPED_KINDS.get(disk.kind)


def _file_skip_reason(finding: Finding) -> SkipReason | None:
    if finding.state is State.LFS:
        return "lfs-pointer"
    if finding.candidate.mode == SYMLINK_MODE and finding.state is State.SAME:
        return "symlink"
    return "too-large" if finding.disk.data is None else None


_SKIPPED_KINDS: Mapping[Kind, SkipReason] = {
    Kind.SYMLINK: "symlink",
    Kind.BEHIND_SYMLINK: "symlink",
    Kind.SPECIAL: "unreadable",
    Kind.UNREADABLE: "unreadable",
}


# ------------------------------------------------------------------------------------------- common


def _check_inside(location: Location, tracked: Iterable[bytes]) -> None:
    """Refuse a folder that only happens to lie below some repository (a home under git, say)."""
    prefix = f"{location.inside}/".encode("utf-8", "surrogateescape")
    if location.inside and not any(path.startswith(prefix) for path in tracked):
        raise RepositoryError(
            f"{location.root / location.inside}: not a git repository, and {location.root} above "
            "it tracks nothing in it; run `git init` and commit there, or name the one above"
        )


def _build(
    location: Location,
    commit: str,
    selection: Selection,
    dirty: bool = False,
    overlay: Mapping[str, bytes | None] = MappingProxyType({}),
    notes: tuple[str, ...] = (),
) -> RepositorySnapshot:
    if not selection.files:
        skipped = selection.summary() or "none at all"
        raise RepositoryError(
            f"{location.root}: no usable text file at {commit[:12]} (skipped: {skipped}); "
            "commit source files, or name another commit with --commit"
        )
    skipped_files = tuple(sorted(set(selection.skipped), key=lambda file: (file.path, file.reason)))
    if location.inside:
        notes = (f"{location.inside} lies inside {location.root}, which is used as a whole", *notes)
    return RepositorySnapshot(
        root=location.root,
        commit=commit,
        dirty=dirty,
        files=MappingProxyType(dict(sorted(selection.files.items()))),
        skipped=skipped_files,
        notes=(*notes, *_skip_notes(skipped_files)),
        _contents=MappingProxyType(selection.contents),
        _overlay=MappingProxyType(dict(sorted(overlay.items()))),
        _skipped_paths=frozenset(file.path for file in skipped_files),
    )


def _skip_notes(skipped: Iterable[SkippedFile]) -> Iterator[str]:
    """What the user can do something about, by name; a binary file is nothing to report."""
    names = defaultdict[SkipReason, list[str]](list)
    for file in skipped:
        names[file.reason].append(file.path)
    if names["missing"]:
        yield f"{some(names['missing'])}: not here (a partial clone or a sparse checkout)"
    unfit = [f"{some(names[reason])}: {why}" for reason, why in _UNFIT.items() if names[reason]]
    if unfit:
        yield f"skipped {'; '.join(unfit)}"


_UNFIT: Mapping[SkipReason, str] = {
    "unreadable": "cannot be read, or no regular file",
    "control-in-name": "control characters in the name",
    "name-not-utf-8": "a name that is not UTF-8",
    "name-outside": "a name that leads out of the repository or into .git",
}
