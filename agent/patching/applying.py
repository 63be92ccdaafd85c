"""Applies a proposal to files in memory: all edits or none, and no byte outside of them changes.
When an edit fails, the others are still tried, so that one answer names everything that is wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from agent.patching.diff import unified_diff
from agent.patching.edit_session import EditSession
from agent.patching.file_tree import FileSource, Tree
from agent.patching.paths import RefusedPath, check_path, is_allowed
from agent.patching.refusals import Miss
from agent.shared.secrets import MASK, find_secrets, is_placeholder
from agent.types import (
    AppliedEdit,
    AppliedPatch,
    ApplyFailure,
    CreateFile,
    EditFailure,
    FileChange,
    MatchTier,
    PatchProposal,
    SearchReplace,
)


def apply_proposal(
    proposal: PatchProposal,
    files: FileSource,
    *,
    allow: Collection[str] = (),
    include_test: bool = False,
    shown: Mapping[str, Sequence[tuple[int, int]]] | None = None,
) -> AppliedPatch | ApplyFailure:
    """Apply all edits of a proposal in order, or name every edit that cannot be applied. `allow`:
    patterns of protected paths that may be edited and gain keys (see `paths.check_path`).
    `include_test`: also create the reproduction test, after the other edits. `shown`: inclusive
    line ranges that the model was shown, by path. They decide between several matches of one search
    text.
    """
    session = EditSession(Tree(files), allow, shown or {})
    applied: list[AppliedEdit] = []
    failures: list[EditFailure] = []
    test = proposal.reproduction_test if include_test else None
    edits = (*proposal.edits, CreateFile(test.path, test.content)) if test else proposal.edits
    for index, edit in enumerate(edits):
        done = session.apply(index, edit)
        if isinstance(done, Miss):
            path = _shown(edit.path)
            failures.append(
                EditFailure(index, path, done.kind, done.reason, done.candidates, done.advice)
            )
        else:
            written = "" if edit.path.removeprefix("./") == done.path else _shown(edit.path)
            applied.append(replace(done, index=index, path_as_written=written))
    changes = session.tree.changes()
    if not changes and not failures:
        failures.append(_nothing(proposal, applied))
    for path, reason in _leaks(changes, allow).items():
        index = next((edit.index for edit in applied if edit.path == path), 0)
        failures.append(EditFailure(index, path, "secret", reason))
    if failures:
        return ApplyFailure(tuple(failures))
    return AppliedPatch(changes, unified_diff(changes), tuple(applied), tuple(session.repairs))


def _nothing(proposal: PatchProposal, applied: Sequence[AppliedEdit]) -> EditFailure:
    path, advice = _shown(proposal.edits[0].path) if proposal.edits else "", ""
    if applied and all(edit.tier is MatchTier.ALREADY_APPLIED for edit in applied):
        advice = "say what else has to change"
        if all(isinstance(e, SearchReplace) and e.search != e.replace for e in proposal.edits):
            reason = f"the replacement is in the file already, at line {applied[0].line}"
            return EditFailure(0, path, "already-applied", reason, advice=advice)
    return EditFailure(0, path, "no-change", "the edits change nothing", advice=advice)


def _shown(path: str) -> str:
    """Return a path of the model with hidden characters escaped."""
    return path if path.isprintable() else path.encode("unicode_escape").decode()


def _leaks(changes: Sequence[FileChange], allow: Collection[str] = ()) -> dict[str, str]:
    before = (_text(change.before) for change in changes)
    had = {text[secret.start : secret.end] for text in before for secret in find_secrets(text)}
    written = (change for change in changes if not is_allowed(change.path, allow))
    problems = {change.path: _problem(change, had) for change in written}
    return {path: problem for path, problem in problems.items() if problem}


def _problem(change: FileChange, had: Collection[str]) -> str:
    before, after = _text(change.before), _text(change.after)
    if after.count(MASK) > before.count(MASK):
        return (
            f'line {_line(after, after.index(MASK))} would hold "{MASK}", which stands for a value '
            "that is not shown: the value would be lost. Quote and change other lines only"
        )
    for secret in find_secrets(after):
        value = after[secret.start : secret.end]
        if secret.known_form and value not in had and not is_placeholder(value):
            return (
                f"line {_line(after, secret.start)} would add what looks like a secret "
                f"({secret.what}); read it from the environment or a file, or write a value that "
                f"says that it is made up (a user's --allow {change.path} lets it pass)"
            )
    return ""


def _text(data: bytes | None) -> str:
    return (data or b"").decode("utf-8", "replace")


def _line(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


@dataclass(frozen=True, slots=True)
class Adopted:
    """`patch` has what is taken over. `refused` has a reason for each other path."""

    patch: AppliedPatch
    refused: Mapping[str, str]


def adopt_files(
    written: Mapping[str, bytes | None], files: FileSource, *, allow: Collection[str] = ()
) -> Adopted:
    """Take over each changed file by itself; None deletes. `allow` as in `apply_proposal`."""
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
    refused |= _leaks(tree.changes(), allow)
    changes = tuple(change for change in tree.changes() if change.path not in refused)
    edits = tuple(
        AppliedEdit(i, change.path, tiers[change.path], 1) for i, change in enumerate(changes)
    )
    return Adopted(AppliedPatch(changes, unified_diff(changes), edits), refused)


def _put(
    tree: Tree, path: str, data: bytes | None, allow: Collection[str]
) -> MatchTier | RefusedPath:
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
