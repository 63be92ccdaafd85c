"""What is run for one patch, and on which trees. Pure.

run  tree                                             tests                     says
A    base                                             selected                  what was red before
B    base, the reply's tests                          the reply's               they fail before
C    source of the patch; tests, conftest.py and      selected                  what the fix does
     configuration as on the base
C'   the same, and the reply's tests                  the reply's               they pass after
D    the whole patch, where it changes tests or       selected, as far as       nothing is deleted,
     their configuration                              they are left             skipped or weakened

A is run once for all attempts, and kept on disk between runs (`running.run_cache`). It is run a
second time only for files whose tests would decide something: those that fail newly (with C, too)
and those that pass newly. A test that does not do the same twice is a flake and decides nothing.
Nothing of `held.Shares.never` is in any tree.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from agent.patching.syntax import check_syntax
from agent.protocols import Snapshot
from agent.types import AppliedPatch, FileChange, ReproductionTest, SelectedTest
from agent.validation.layout import free_path, import_root, is_test_file, unsafe
from agent.validation.running.held import Shares, share_out

# New test files of a patch that are run beside the reply's reproduction test.
_MOST_NEW_FILES = 4


@dataclass(frozen=True, slots=True)
class Plan:
    """`held` is configuration that only D has.

    `new_tests` are the reply's tests and their helpers, `new_paths` the files to run of them.

    `edited_tests` are paths of tests that there were before, and that the patch changes.
    `only_tests`: it changes nothing but tests and their configuration.

    `whole` is None where the patch leaves tests and configuration alone: D would be C.
    """

    selected: tuple[SelectedTest, ...]
    source: tuple[FileChange, ...]
    whole: tuple[FileChange, ...] | None
    held: tuple[FileChange, ...]
    new_tests: tuple[FileChange, ...]
    new_paths: tuple[str, ...]
    import_roots: tuple[str, ...]
    notes: tuple[str, ...]
    edited_tests: tuple[str, ...] = ()
    only_tests: bool = False


def make_plan(
    snapshot: Snapshot,
    patch: AppliedPatch,
    test: ReproductionTest | None,
    selected: Sequence[SelectedTest],
    *,
    own_tests: bool = True,
) -> Plan:
    """Plan the runs for one patch and the reply's reproduction test, if it has one.

    `selected` are the project's tests. Without `own_tests` those of the reply are not run: where
    the deciding tests are known they would decide nothing.
    """
    notes: list[str] = []
    roots = import_roots(snapshot, patch.changes)
    shares = share_out(patch.changes, snapshot.exists, roots)
    notes.extend(_about(shares))
    new_tests, new_paths = shares.tests, _new_files(shares)
    if not own_tests:
        new_paths = ()
    else:
        written = _reproduction(snapshot, patch, test, notes)
        if written is not None:
            new_tests = over(shares.tests, (written,))
            new_paths = (*(path for path in new_paths if path != written.path), written.path)
    return Plan(
        selected=tuple(selected),
        source=shares.source,
        whole=shares.whole if shares.reaches_tests else None,
        held=shares.held,
        new_tests=new_tests if new_paths else (),
        new_paths=new_paths,
        import_roots=roots,
        notes=tuple(notes),
        edited_tests=tuple(c.path for c in shares.tests if c.before is not None),
        only_tests=bool(patch.changes) and not (shares.source or shares.never),
    )


def import_roots(snapshot: Snapshot, changes: Sequence[FileChange]) -> tuple[str, ...]:
    """Folders for the import path: the root, `src`, and what holds an edited package.

    A folder of a namespace package holds packages too, but is imported by its own name: where it
    holds one that is named as the standard library's, nothing would start with it on the path.
    """
    roots = {import_root(c.path, snapshot.exists) for c in changes if _in_package(snapshot, c.path)}
    if any(path.startswith("src/") for path in snapshot.files):
        roots.add("src")
    return (".", *(root for root in sorted(roots - {"."}) if not _hides(snapshot, root)))


def _hides(snapshot: Snapshot, root: str) -> bool:
    """Whether a module of the folder would be imported in place of one of the standard library."""
    inside = [
        path.removeprefix(f"{root}/") for path in snapshot.files if path.startswith(f"{root}/")
    ]
    names = {path.partition("/")[0].removesuffix(".py") for path in inside if path.endswith(".py")}
    return not names.isdisjoint(sys.stdlib_module_names)


def over(changes: Sequence[FileChange], more: Sequence[FileChange]) -> tuple[FileChange, ...]:
    """Both, in order of path; where both change a file, `more` wins."""
    merged = {change.path: change for change in (*changes, *more)}
    return tuple(merged[path] for path in sorted(merged))


def _about(shares: Shares) -> list[str]:
    notes = []
    if shares.held:
        notes.append(f"tests were run with {_paths(shares.held)} as on the base")
    if shares.never:
        notes.append(f"left out of every run: {_paths(shares.never)} would run by itself")
    touched = [change for change in shares.tests if change.before is not None]
    if touched:
        notes.append(f"tests were run with {_paths(touched)} as on the base, then as changed")
    return notes


def _paths(changes: Sequence[FileChange]) -> str:
    return ", ".join(change.path for change in changes)


def _new_files(shares: Shares) -> tuple[str, ...]:
    new = [c.path for c in shares.tests if c.before is None and c.after is not None]
    return tuple(filter(is_test_file, new))[:_MOST_NEW_FILES]


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
