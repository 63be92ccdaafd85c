"""Takes over the files that a command has written, by the rules for the edits of a reply."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from agent.patching.applying import leaks
from agent.patching.diff import unified_diff
from agent.patching.file_tree import FileSource, Tree
from agent.patching.paths import RefusedPath, check_path, is_allowed
from agent.types import AppliedEdit, AppliedPatch, MatchTier


@dataclass(frozen=True, slots=True)
class Adopted:
    """`patch` has what is taken over. `refused` has a reason for each other path."""

    patch: AppliedPatch
    refused: Mapping[str, str]


def adopt_files(
    written: Mapping[str, bytes | None], files: FileSource, *, allow: Collection[str] = ()
) -> Adopted:
    """Take over each file by itself; None deletes. `allow` as in `apply_proposal`.

    A path with the content that it has already is neither taken over nor refused.
    """
    tree = Tree(files)
    refused: dict[str, str] = {}
    tiers: dict[str, MatchTier] = {}
    for path, data in sorted(written.items(), key=lambda item: (item[1] is not None, item[0])):
        if path in files.files and files.read(path) == data:
            continue
        tier = _put(tree, path, data, allow)
        if isinstance(tier, RefusedPath):
            refused[path] = tier.reason
        else:
            tiers[path] = tier
    for leak in leaks(tree.changes(), allow):
        refused[leak.path] = leak.reason
    changes = tuple(change for change in tree.changes() if change.path not in refused)
    edits = tuple(
        AppliedEdit(i, change.path, tiers[change.path], 1) for i, change in enumerate(changes)
    )
    return Adopted(AppliedPatch(changes, unified_diff(changes), edits), refused)


def _put(
    tree: Tree, path: str, data: bytes | None, allow: Collection[str]
) -> MatchTier | RefusedPath:
    """Write or delete one file, or say why not."""
    normal = check_path(path, allow=allow, new=not tree.exists(path))
    if isinstance(normal, RefusedPath):
        return normal
    if data is not None and not _is_text(data):
        return RefusedPath("it is no UTF-8 text")
    if not tree.exists(path):
        if data is None:
            return RefusedPath("there is no such file")
        if any(part.startswith(".") for part in path.split("/")):
            return RefusedPath("it is new and hidden, as caches are")
        refusal = tree.no_room(path, data, allow)
        if refusal is not None:
            return RefusedPath(refusal.reason)
        tree.put(path, data)
        return MatchTier.CREATED
    before = tree.content(path)
    if not isinstance(before, bytes):
        return RefusedPath(before.reason)
    limits = tree.off_limits(path)
    if limits is not None and not is_allowed(path, allow):
        return RefusedPath(limits.reason)
    if data is None:
        tree.remove(path)
        return MatchTier.DELETED
    tree.put(path, data)
    return MatchTier.EXACT


def _is_text(data: bytes) -> bool:
    try:
        return "\0" not in data.decode("utf-8")
    except UnicodeDecodeError:
        return False
