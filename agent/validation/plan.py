"""What is run for one patch, and on which trees. Pure.

tree           holds                                       runs
base           the snapshot                                the selected tests
base + tests   the snapshot and the patch's new tests      the new tests: they should fail
patched        the patch, but the test configuration       the selected tests, the new tests
               (conftest.py, pytest.ini, ...) as on base
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.patching.syntax import check_syntax
from agent.protocols import Snapshot
from agent.types import AppliedPatch, FileChange, ReproductionTest, SelectedTest
from agent.validation.layout import (
    free_path,
    import_root,
    is_test_file,
    is_test_side,
    steers_tests,
    unsafe,
)
from agent.validation.selection import select_tests

# New test files of a patch that are run beside the reply's reproduction test.
_MOST_NEW_FILES = 4


@dataclass(frozen=True, slots=True)
class Plan:
    """`touched` are test files of the base that the patch changes: no evidence comes from them."""

    selected: tuple[SelectedTest, ...]
    patched: tuple[FileChange, ...]
    new_tests: tuple[FileChange, ...]
    new_paths: tuple[str, ...]
    import_roots: tuple[str, ...]
    touched: frozenset[str]
    notes: tuple[str, ...]


def make_plan(
    snapshot: Snapshot,
    patch: AppliedPatch,
    test: ReproductionTest | None,
    problem_text: str,
    limit: int,
) -> Plan:
    """Plan the runs for one patch and the reply's reproduction test, if it has one."""
    notes: list[str] = []
    patched = tuple(change for change in patch.changes if not steers_tests(change.path))
    held = sorted(change.path for change in patch.changes if steers_tests(change.path))
    if held:
        notes.append(f"tests were run with {', '.join(held)} as on the base")
    created = [c for c in patched if c.before is None and is_test_side(c.path)]
    paths = sorted(c.path for c in created if is_test_file(c.path))[:_MOST_NEW_FILES]
    written = _reproduction(snapshot, patch, test, notes)
    if written is not None:
        created = [c for c in created if c.path != written.path] + [written]
        paths = [path for path in paths if path != written.path] + [written.path]
    return Plan(
        selected=select_tests(snapshot, patch.changes, problem_text, limit),
        patched=patched,
        new_tests=tuple(sorted(created, key=lambda change: change.path)),
        new_paths=tuple(paths),
        import_roots=import_roots(snapshot, patched),
        touched=frozenset(c.path for c in patched if c.before is not None and is_test_side(c.path)),
        notes=tuple(notes),
    )


def import_roots(snapshot: Snapshot, changes: Sequence[FileChange]) -> tuple[str, ...]:
    """Folders for the import path: the root, `src`, and what holds an edited package."""
    roots = {import_root(c.path, snapshot.exists) for c in changes if _in_package(snapshot, c.path)}
    if any(path.startswith("src/") for path in snapshot.files):
        roots.add("src")
    return (".", *sorted(roots - {"."}))


def over(changes: Sequence[FileChange], more: Sequence[FileChange]) -> tuple[FileChange, ...]:
    """Both, in order of path; where both change a file, `more` wins."""
    merged = {change.path: change for change in (*changes, *more)}
    return tuple(merged[path] for path in sorted(merged))


def _in_package(snapshot: Snapshot, path: str) -> bool:
    folder, _, name = path.rpartition("/")
    return name.endswith(".py") and bool(folder) and snapshot.exists(f"{folder}/__init__.py")


def _reproduction(
    snapshot: Snapshot, patch: AppliedPatch, test: ReproductionTest | None, notes: list[str]
) -> FileChange | None:
    """The reply's test as a new file, under a free name; None when it cannot be used."""
    if test is None or not test.content.strip():
        return None
    refusal = unsafe(test.path)
    if refusal:
        notes.append(f"the reproduction test was not run: {test.path!r}: {refusal}")
        return None
    content = test.content.encode("utf-8", "surrogateescape")
    same = {change.path for change in patch.changes if change.after == content}
    taken = {change.path for change in patch.changes} - same
    path = free_path(test.path, lambda p: snapshot.exists(p) or p in taken)
    written = FileChange(path, None, content)
    broken = check_syntax([written])
    if broken:
        notes.append(
            f"the reproduction test was not run: line {broken[0].line}: {broken[0].message}"
        )
        return None
    if path != test.path:
        notes.append(f"{test.path} exists; the reproduction test was run as {path}")
    return written
