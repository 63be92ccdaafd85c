"""Takes an immutable snapshot of a commit or of the work tree."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from agent.errors import RepositoryError
from agent.repository.changes import Finding, State, build_overlay, candidates, describe, survey
from agent.repository.git import GitRepository, open_repository
from agent.repository.git_process import (
    EXECUTABLE_MODE,
    SUBMODULE_MODE,
    SYMLINK_MODE,
    TreeEntry,
)
from agent.repository.scope import (
    PATHS_NAMED,
    Location,
    Selection,
    find_scope,
    is_safe_path,
    shown_path,
)
from agent.repository.text import decode
from agent.repository.worktree import Kind
from agent.shared.terminal import listed
from agent.types import Dirty, SkippedFile, SkipReason, SourceFile

# Hand-written sources are far smaller. Larger files are data, dumps and bundles.
MAX_FILE_BYTES = 1_000_000
# Bytes of blobs that are read at once, which bounds the memory for the reply of git.
_BATCH_BYTES = 32 * 1024 * 1024
_WHOLE = Path()


@dataclass(frozen=True, slots=True, repr=False)
class RepositorySnapshot:
    """The `Snapshot` that `take_snapshot` makes. `dirty` ignores line ends that a checkout
    converts, but `overlay()` has such files. `notes` are sentences for the user.
    """

    root: Path
    commit: str
    dirty: bool
    scope: str
    files: Mapping[str, SourceFile]
    skipped: Sequence[SkippedFile]
    notes: tuple[str, ...]
    _contents: Mapping[str, bytes]
    _overlay: Mapping[str, bytes | None]
    _skipped_paths: frozenset[str]

    def read(self, path: str) -> bytes:
        """Return the bytes of a file. Raises KeyError for a path that is not in `files`."""
        return self._contents[path]

    def text(self, path: str) -> str:
        """Return the text with `\\n` line ends. Raises as `read`."""
        return decode(self.read(path), cookie=self.files[path].language == "python").text

    def exists(self, path: str) -> bool:
        """Whether the repository has this path, usable or skipped."""
        return path in self.files or path in self._skipped_paths

    def overlay(self) -> Mapping[str, bytes | None]:
        """Return how the work tree differs from `commit`: path -> bytes, None for deleted."""
        return self._overlay


def take_snapshot(
    repo: Path,
    *,
    commit: str | None = None,
    dirty: Dirty = "include",
    max_file_bytes: int = MAX_FILE_BYTES,
    exclude: Collection[Path] = (),
    scope: Path | None = _WHOLE,
) -> RepositorySnapshot:
    """Read the files of `commit`, or of the work tree as `dirty` says, without untracked files in
    `exclude`. `scope` None: the project around `repo`. Raises RepositoryError, also for no usable
    file.
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
        chosen = find_scope(git.location, scope, snapshot.files)
    return replace(snapshot, scope=chosen, notes=(*_place(git.location, chosen), *snapshot.notes))


def _place(location: Location, scope: str) -> Iterator[str]:
    if scope:
        yield f"scope: {scope}"
    elif location.inside:
        yield f"{location.inside} lies inside {location.root}, which is used as a whole"


def changed_paths(repo: Path) -> tuple[str, ...]:
    """Return the tracked files that differ from HEAD, in order. Raises RepositoryError."""
    with open_repository(repo) as git:
        head = git.tree(git.resolve("HEAD"), sizes=False)
        findings = survey(git, candidates(git, head, exclude=frozenset()), limit=0)
    changed = (State.MODIFIED, State.DELETED, State.LINK)
    return tuple(shown_path(f.candidate.path) for f in findings if f.state in changed)


def _relative(root: Path, paths: Collection[Path]) -> frozenset[bytes]:
    real = (path.resolve() for path in paths)
    return frozenset(
        path.relative_to(root).as_posix().encode("utf-8", "surrogateescape")
        for path in real
        if path.is_relative_to(root)
    )


def _of_commit(git: GitRepository, commit: str, limit: int) -> RepositorySnapshot:
    entries = git.tree(commit, sizes=True)
    _check_inside(git.location, (entry.path for entry in entries))
    selection = Selection(limit)
    batch: list[TreeEntry] = []
    size = 0
    for entry in entries:
        reason = _reason_to_skip(entry, limit)
        if reason is not None:
            selection.skip(entry.path, reason)
            continue
        batch.append(entry)
        size += entry.size or 0
        if size >= _BATCH_BYTES:
            _add_blobs(git, batch, selection)
            batch, size = [], 0
    _add_blobs(git, batch, selection)
    return _build(git.location, commit, selection)


def _reason_to_skip(entry: TreeEntry, limit: int) -> SkipReason | None:
    if entry.mode == SUBMODULE_MODE:
        return "submodule"
    if entry.mode == SYMLINK_MODE:
        return "symlink"
    if entry.size is None:
        return "missing"
    return "too-large" if entry.size > limit else None


def _add_blobs(git: GitRepository, entries: Sequence[TreeEntry], selection: Selection) -> None:
    contents = git.blobs(sorted({entry.oid for entry in entries}))
    for entry in entries:
        data = contents.get(entry.oid)
        if data is None:
            selection.skip(entry.path, "missing")
        else:
            executable = entry.mode == EXECUTABLE_MODE
            selection.add(entry.path, data, blob=entry.oid, executable=executable)


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
    path, disk = finding.candidate.path, finding.disk
    reason = _skip_reason(finding)
    if reason is not None:
        selection.skip(path, reason)
    elif disk.data is not None:
        selection.add(path, disk.data, blob=disk.blob, executable=disk.executable)


def _skip_reason(finding: Finding) -> SkipReason | None:
    candidate, disk = finding.candidate, finding.disk
    match disk.kind:
        case _ if candidate.nested:
            return "submodule"
        case Kind.ABSENT if candidate.sparse:
            return "missing"
        case Kind.FILE if finding.state is State.LFS:
            return "lfs-pointer"
        case Kind.FILE if candidate.mode == SYMLINK_MODE and finding.state is State.SAME:
            return "symlink"
        case Kind.FILE if disk.data is None:
            return "too-large"
        case Kind.UNREADABLE if not is_safe_path(candidate.path):
            return "name-outside"  # it was not read at all
        case Kind.SYMLINK | Kind.BEHIND_SYMLINK:
            return "symlink"
        case Kind.SPECIAL | Kind.UNREADABLE:
            return "unreadable"
    return None


def _check_inside(location: Location, tracked: Iterable[bytes]) -> None:
    """Refuse a folder in which the repository above tracks no file, such as a home under git."""
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
    return RepositorySnapshot(
        root=location.root,
        commit=commit,
        dirty=dirty,
        scope="",
        files=MappingProxyType(dict(sorted(selection.files.items()))),
        skipped=skipped_files,
        notes=(*notes, *_skip_notes(skipped_files)),
        _contents=MappingProxyType(selection.contents),
        _overlay=MappingProxyType(dict(sorted(overlay.items()))),
        _skipped_paths=frozenset(file.path for file in skipped_files),
    )


def _skip_notes(skipped: Iterable[SkippedFile]) -> Iterator[str]:
    for reason in _NOTED:
        if paths := [file.path for file in skipped if file.reason == reason]:
            yield f"skipped {listed(sorted(paths), PATHS_NAMED)}: {reason.replace('-', ' ')}"


# What the user can do something about. "missing": a partial clone or a sparse checkout.
_NOTED: tuple[SkipReason, ...] = (
    "missing", "unreadable", "control-in-name", "name-not-utf-8", "name-outside",
)  # fmt: skip
