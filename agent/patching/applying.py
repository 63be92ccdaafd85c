"""Applies a proposal to files in memory: all edits or none, and never a byte outside of them.

Edits are applied in order, so that each sees the result of those before it. When one fails the rest
are still tried, against the state without it, so that one answer names everything that is wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from agent.patching.desk import MAX_WRITTEN, Desk, Done
from agent.patching.diff import unified_diff
from agent.patching.files import FileSource, OverlayFiles
from agent.patching.leaks import leaks
from agent.patching.matching import Miss
from agent.patching.repair import switched_off
from agent.patching.tree import Tree
from agent.types import (
    AppliedEdit,
    AppliedPatch,
    ApplyFailure,
    CreateFile,
    Edit,
    EditFailure,
    FileChange,
    MatchTier,
    PatchProposal,
)

__all__ = ["MAX_WRITTEN", "FileSource", "OverlayFiles", "apply_proposal"]


def apply_proposal(
    proposal: PatchProposal,
    files: FileSource,
    *,
    allow: Collection[str] = (),
    include_test: bool = False,
    shown: Mapping[str, Sequence[tuple[int, int]]] | None = None,
    no_repair: Collection[str] = (),
) -> AppliedPatch | ApplyFailure:
    """Apply all edits of a proposal, or name every one that cannot be.

    `allow`: patterns of protected paths that may be edited (see `paths.check_path`), also by keys
    (see `leaks`).
    `include_test`: the reproduction test is created as one more edit, after the others.
    `shown`: inclusive line ranges that the model was shown, by path; they decide between places.
    `no_repair`: repairs and lenient tiers that are switched off (`repair.REPAIRS`, `MatchTier`).
    Raises ConfigurationError for a name in `no_repair` that there is not.
    """
    off = switched_off(no_repair)
    refused = _refused_reader(proposal, off)
    if refused is not None:
        return ApplyFailure((refused,))
    desk = Desk(Tree(files), allow, shown or {}, off)
    applied: list[AppliedEdit] = []
    failures: list[EditFailure] = []
    for index, edit in enumerate(_edits(proposal, include_test=include_test)):
        done = desk.apply(index, edit)
        if isinstance(done, Miss):
            failures.append(_failure(index, edit, done))
        else:
            applied.append(_applied(index, edit, done))
    if not failures:
        desk.add_missing_imports(proposal)
    changes = desk.tree.changes()
    if not changes and not failures:
        failures.append(_nothing(proposal, applied))
    failures.extend(_leaks(changes, applied, allow))
    if failures:
        return ApplyFailure(tuple(failures))
    repairs = (*proposal.repairs, *desk.repairs)
    return AppliedPatch(changes, unified_diff(changes), tuple(applied), repairs)


def _edits(proposal: PatchProposal, *, include_test: bool) -> Sequence[Edit]:
    test = proposal.reproduction_test
    if not include_test or test is None:
        return proposal.edits
    return (*proposal.edits, CreateFile(test.path, test.content))


def _applied(index: int, edit: Edit, done: Done) -> AppliedEdit:
    written = "" if edit.path.removeprefix("./") == done.path else _shown(edit.path)
    return AppliedEdit(index, done.path, done.tier, done.line, written)


def _failure(index: int, edit: Edit, miss: Miss) -> EditFailure:
    return EditFailure(index, _shown(edit.path), miss.kind, miss.reason, miss.candidates)


def _leaks(
    changes: Sequence[FileChange], applied: Sequence[AppliedEdit], allow: Collection[str]
) -> Iterator[EditFailure]:
    """What must not be written, as the failure of the first edit of that file."""
    for leak in leaks(changes, allow):
        index = next((edit.index for edit in applied if edit.path == leak.path), 0)
        yield EditFailure(index, leak.path, "secret", leak.reason)


def _nothing(proposal: PatchProposal, applied: Sequence[AppliedEdit]) -> EditFailure:
    path = _shown(proposal.edits[0].path) if proposal.edits else ""
    if applied and all(edit.tier is MatchTier.ALREADY_APPLIED for edit in applied):
        line = applied[0].line
        reason = (
            f"the replacement already is in the file, at line {line}: every edit seems to be "
            "applied, or asks for no change; say what else has to change"
        )
        return EditFailure(0, path, "no-change", reason)
    return EditFailure(0, path, "no-change", "the edits together change nothing")


def _refused_reader(proposal: PatchProposal, off: Collection[str]) -> EditFailure | None:
    """A repair that the reader made though it is switched off fails the reply."""
    for repair in proposal.repairs:
        if repair.name in off:
            path = _shown(proposal.edits[0].path) if proposal.edits else ""
            reason = f"the reply needs the repair {repair.name!r}, which is off: {repair.note}"
            return EditFailure(0, path, "no-change", reason)
    return None


def _shown(path: str) -> str:
    """A path of the model's as it may be printed: hidden characters are spelled out."""
    return path if path.isprintable() else path.encode("unicode_escape").decode()
