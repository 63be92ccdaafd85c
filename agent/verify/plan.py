"""What is run for one patch, and on which trees. Pure.

run         tree                                        tests               shows
before      the base                                    selected            what was red before
new_before  the base with the reply's tests             the reply's         that they fail before
after       the patch's source; tests and their         selected            what the fix does
            configuration as on the base
new_after   the same with the reply's tests             the reply's         that they pass after
whole       the whole patch, if it changes tests        selected, as far    that no test is deleted,
            or their configuration                      as they are left    skipped or weakened

`before` runs once for all attempts and is cached on disk (`agent.verify.cache`). Files whose
tests decide something are run once more (`agent.verify.runs`). No tree has the excluded changes
of a patch: start-up files, package metadata (which names plugins), byte code, and new modules that
would hide the standard library's or the test runner's.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from agent.patching import check_syntax, is_allowed
from agent.types import AppliedPatch, FileChange, ReproductionTest, SelectedTest
from agent.types.protocols import Snapshot
from agent.verify.path_rules import (
    free_path,
    import_root,
    is_test_change,
    is_test_file,
    is_test_side,
    rename_class,
    unsafe,
)
from agent.verify.runners.base import joined
from agent.verify.steering import SteeringFiles

# Limit of new test files of a patch that are run in addition to the reproduction test.
_MOST_NEW_FILES = 4

_STARTUP = frozenset({"sitecustomize", "usercustomize"})
_SUFFIXES = (".pyc", ".pyo", ".pth", ".egg-link")
_METADATA = (".egg-info", ".dist-info")

# The modules that the runners import beside the standard library.
_RUNNER = frozenset(
    {"pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments", "exceptiongroup"}
    | {"tomli", "colorama", "xdist", "execnet"}
)
_OURS = "patchshot_"

# Folders that are on the import path of many projects. A new module in one may hide another's.
_ROOTS = frozenset({".", "src", "lib", "python"})


@dataclass(frozen=True, slots=True)
class Plan:
    """The trees and tests of the runs for one patch (see the module's table).

    `new_tests` are the reply's tests and their helpers, and `new_paths` the files of them to run.
    `whole` is None where the patch changes neither tests nor configuration. `configuration` is only
    in the whole tree. `edited_tests` are the existing tests that the patch changes. `only_tests`
    means that the patch changes nothing but tests and their configuration. `tests` are all changes
    to tests. `held` says by path why the deciding runs take a file of `configuration` from the
    base. `hiding` says which modules new files would hide. `earlier_tests` are the paths of
    `new_paths` that earlier replies brought. `allowed` are paths of `source` that configure the
    tests and that the user allows.
    """

    selected: tuple[SelectedTest, ...]
    source: tuple[FileChange, ...]
    whole: tuple[FileChange, ...] | None
    configuration: tuple[FileChange, ...]
    new_tests: tuple[FileChange, ...]
    new_paths: tuple[str, ...]
    import_roots: tuple[str, ...]
    notes: tuple[str, ...]
    tests: tuple[FileChange, ...] = ()
    held: Mapping[str, str] = field(default_factory=dict)
    hiding: tuple[str, ...] = ()
    edited_tests: tuple[str, ...] = ()
    only_tests: bool = False
    earlier_tests: tuple[str, ...] = ()
    allowed: frozenset[str] = frozenset()


def make_plan(
    snapshot: Snapshot,
    patch: AppliedPatch,
    test: ReproductionTest | None,
    selected: Sequence[SelectedTest],
    *,
    earlier: Sequence[ReproductionTest] = (),
    own_tests: bool = True,
    allow: Collection[str] = (),
    installed: Collection[str] = (),
    issue: str = "",
) -> Plan:
    """Plan the runs for one patch and the reply's reproduction test, if it has one.

    The tests of `earlier` replies are run with it: what they show does not end with their reply.

    `selected` are the project's tests. Without `own_tests` the reply's tests are not run: they
    decide nothing where the deciding tests are given. `allow`, `installed` and `issue` are as for
    `group_changes`.
    """
    notes: list[str] = []
    roots = import_roots(snapshot, patch.changes)
    texts = (test.content,) if test is not None else ()
    groups = group_changes(
        patch.changes,
        snapshot,
        roots,
        new_tests=texts,
        allow=allow,
        installed=installed,
        issue=issue,
    )
    notes.extend(_notes_about(groups))
    new_tests, new_paths = groups.tests, _new_files(groups)
    earlier_tests: tuple[str, ...] = ()
    if not own_tests:
        new_paths = ()
    else:
        brought = _reproductions(snapshot, patch, (test, *earlier), notes)
        paths = tuple(change.path for change in brought)
        new_tests = merged(groups.tests, brought)
        new_paths = (*(path for path in new_paths if path not in paths), *paths)
        theirs = {_content(one) for one in earlier} - ({_content(test)} if test else set())
        earlier_tests = tuple(change.path for change in brought if change.after in theirs)
    return Plan(
        selected=tuple(selected),
        source=groups.source,
        whole=groups.whole if groups.reaches_tests else None,
        configuration=groups.configuration,
        new_tests=new_tests if new_paths else (),
        new_paths=new_paths,
        import_roots=roots,
        notes=tuple(notes),
        tests=groups.tests,
        held=groups.held,
        hiding=tuple(f"{path}: {why}" for path, why in sorted(groups.hiding.items())),
        edited_tests=tuple(c.path for c in groups.tests if c.before is not None),
        only_tests=bool(patch.changes) and not (groups.source or groups.excluded),
        earlier_tests=earlier_tests,
        allowed=frozenset(path for path, _ in groups.lifted),
    )


def import_roots(snapshot: Snapshot, changes: Sequence[FileChange]) -> tuple[str, ...]:
    """Return the import path: the scope, its `src`, and the folders that hold an edited package.

    A folder that holds a module named like one of the standard library is left out, because no
    program would start with it on the path. Folders of namespace packages may be like that.
    """
    roots = {import_root(c.path, snapshot.exists) for c in changes if _in_package(snapshot, c.path)}
    scope = snapshot.scope or "."
    sources = joined(scope, "src")
    if any(path.startswith(f"{sources}/") for path in snapshot.files):
        roots.add(sources)
    return (scope, *(root for root in sorted(roots - {scope}) if not _hides(snapshot, root)))


def _hides(snapshot: Snapshot, root: str) -> bool:
    """Whether a module of the folder would hide one of the standard library."""
    inside = [
        path.removeprefix(f"{root}/") for path in snapshot.files if path.startswith(f"{root}/")
    ]
    names = {path.partition("/")[0].removesuffix(".py") for path in inside if path.endswith(".py")}
    return not names.isdisjoint(sys.stdlib_module_names)


def merged(changes: Sequence[FileChange], more: Sequence[FileChange]) -> tuple[FileChange, ...]:
    """Merge the changes, sorted by path; where both change a file, `more` wins."""
    by_path = {change.path: change for change in (*changes, *more)}
    return tuple(by_path[path] for path in sorted(by_path))


def _notes_about(groups: ChangeGroups) -> list[str]:
    notes = []
    if groups.configuration:
        notes.append(f"tests were run with {_paths(groups.configuration)} as on the base")
    notes += [f"{path} is as in the patch, as --allow says: {why}" for path, why in groups.lifted]
    if groups.excluded:
        notes.append(f"left out of every run: {_paths(groups.excluded)} would run by itself")
    touched = [change for change in groups.tests if change.before is not None]
    if touched:
        notes.append(f"tests were run with {_paths(touched)} as on the base, then as changed")
    return notes


def _paths(changes: Sequence[FileChange]) -> str:
    return ", ".join(change.path for change in changes)


def _new_files(groups: ChangeGroups) -> tuple[str, ...]:
    new = [c.path for c in groups.tests if c.before is None and c.after is not None]
    return tuple(filter(is_test_file, new))[:_MOST_NEW_FILES]


def _in_package(snapshot: Snapshot, path: str) -> bool:
    folder, _, name = path.rpartition("/")
    return name.endswith(".py") and bool(folder) and snapshot.exists(f"{folder}/__init__.py")


def _reproductions(
    snapshot: Snapshot,
    patch: AppliedPatch,
    tests: Sequence[ReproductionTest | None],
    notes: list[str],
) -> tuple[FileChange, ...]:
    """Return the tests as new files under free names, without repeats and unusable ones."""
    found: list[FileChange] = []
    for test in tests:
        known = {change.after for change in found}
        if test is not None and test.content.strip() and _content(test) not in known:
            written = _reproduction(snapshot, patch, test, notes, found)
            found.extend([written] if written is not None else [])
    return tuple(found)


def _content(test: ReproductionTest) -> bytes:
    return test.content.encode("utf-8", "surrogateescape")


def _reproduction(
    snapshot: Snapshot,
    patch: AppliedPatch,
    test: ReproductionTest,
    notes: list[str],
    others: Sequence[FileChange],
) -> FileChange | None:
    """Return a reply's test as a new file under a free name; None when it cannot be used."""
    refusal = unsafe(test.path)
    if refusal:
        notes.append(f"the reproduction test was not run: {test.path!r}: {refusal}")
        return None
    content = _content(test)
    same = {change.path for change in patch.changes if change.after == content}
    taken = {change.path for change in (*patch.changes, *others)} - same
    path = free_path(test.path, lambda p: snapshot.exists(p) or p in taken)
    written = FileChange(path, None, rename_class(content, test.path, path))
    broken = check_syntax([written])
    if broken:
        notes.append(
            f"the reproduction test was not run: line {broken[0].line}: {broken[0].message}"
        )
        return None
    if path != test.path:
        notes.append(f"{test.path} exists; the reproduction test was run as {path}")
    return written


# ------------------------------------------------------------------------- groups of changes


@dataclass(frozen=True, slots=True)
class ChangeGroups:
    """The changes of a patch by what they may do in the runs, each sorted by path.

    `configuration` steers the tests, and is as on the base except in the run of the whole patch;
    `held` says why, by path. `excluded` changes are in no run: Python or pytest would run them
    without anybody importing them. Those of `hiding` would hide a module, by path. `lifted` are
    changes of `source` that steer the tests and that the user allows, with the reason.
    """

    source: tuple[FileChange, ...] = ()
    tests: tuple[FileChange, ...] = ()
    configuration: tuple[FileChange, ...] = ()
    excluded: tuple[FileChange, ...] = ()
    held: Mapping[str, str] = field(default_factory=dict)
    hiding: Mapping[str, str] = field(default_factory=dict)
    lifted: tuple[tuple[str, str], ...] = ()

    @property
    def whole(self) -> tuple[FileChange, ...]:
        """Return every change but the excluded ones."""
        return _by_path((*self.source, *self.tests, *self.configuration))

    @property
    def reaches_tests(self) -> bool:
        """Whether the patch changes existing tests or how tests are run."""
        return bool(self.configuration) or any(change.before is not None for change in self.tests)


def group_changes(
    changes: Sequence[FileChange],
    snapshot: Snapshot,
    roots: Iterable[str] = (".",),
    *,
    new_tests: Sequence[str] = (),
    allow: Collection[str] = (),
    installed: Collection[str] = (),
    issue: str = "",
) -> ChangeGroups:
    """Group the changes. `roots` are the folders of the tree on the import path.

    `new_tests` are texts of further tests. `allow` are patterns of paths that may steer the tests.
    `installed` are the top-level modules of the target's interpreter. `issue` is the issue's text.
    """
    hiding, held = dict[str, str](), dict[str, str]()
    texts = [_text(c) for c in changes if is_test_change(c) and c.path.endswith(".py")]
    steering = SteeringFiles(snapshot, (*new_tests, *texts), issue)
    folders = tuple(dict.fromkeys((*roots, *steering.script_folders)))
    gone = {change.path for change in changes if change.after is None}
    parts: dict[str, list[FileChange]] = {"source": [], "tests": [], "excluded": []}
    for change in changes:
        hidden = _hidden_module(change, snapshot, folders, frozenset(installed), gone)
        if hidden:
            hiding[change.path] = f"takes the place of the module {hidden} in the test run"
        if hidden or _runs_by_itself(change.path):
            parts["excluded"].append(change)
        elif why := steering.why(change):
            held[change.path] = why
        else:
            parts["tests" if is_test_change(change) else "source"].append(change)
    lifted = {path for path in held if is_allowed(path, allow)}
    parts["source"] += [change for change in changes if change.path in lifted]
    parts["configuration"] = [c for c in changes if c.path in held and c.path not in lifted]
    return ChangeGroups(
        **{name: _by_path(found) for name, found in parts.items()},
        held={path: held[path] for path in sorted(held) if path not in lifted},
        hiding=hiding,
        lifted=tuple((path, held[path]) for path in sorted(lifted)),
    )


def _text(change: FileChange) -> str:
    return (change.after or b"").decode("utf-8", "replace")


def _runs_by_itself(path: str) -> bool:
    pure = PurePosixPath(path)
    return (
        any(part.partition(".")[0] in _STARTUP for part in pure.parts)
        or pure.name.endswith(_SUFFIXES)
        or any(part.endswith(_METADATA) for part in pure.parts)
    )


def _hidden_module(
    change: FileChange,
    snapshot: Snapshot,
    roots: tuple[str, ...],
    installed: Collection[str],
    gone: Collection[str],
) -> str:
    """Return the module that a new top-level module would hide from the test run, or ""."""
    if change.before is not None or change.after is None:
        return ""
    for root in roots:
        inside = _below(change.path, root)
        name = inside.partition("/")[0]
        top = name.partition(".")[0] if name == inside else name
        if not inside.endswith((".py", ".so")) or any(map(snapshot.exists, _places(root, top))):
            continue
        if top in _RUNNER or top in sys.stdlib_module_names or top.startswith(_OURS):
            return top
        provides = name == inside or inside == f"{top}/__init__.py"
        place = _below_root(root, top)
        new = not any(path.startswith(f"{place}/") for path in snapshot.files)
        if is_test_side(change.path):
            continue
        others = (other for other in {*roots, *_ROOTS} if other != root)
        if (top in installed and provides and new) or any(
            snapshot.exists(path) and path not in gone
            for other in others
            for path in (*_places(other, top), _below_root(other, inside))
        ):
            return top
    return ""


def _places(root: str, module: str) -> tuple[str, str]:
    """Return the files that may be a top-level module of a folder on the import path."""
    place = _below_root(root, module)
    return f"{place}.py", f"{place}/__init__.py"


def _below_root(root: str, name: str) -> str:
    return name if root == "." else f"{root}/{name}"


def _below(path: str, root: str) -> str:
    """Return the path relative to a folder, or "" where it lies outside."""
    if root == ".":
        return path
    return path[len(root) + 1 :] if path.startswith(f"{root}/") else ""


def _by_path(changes: Iterable[FileChange]) -> tuple[FileChange, ...]:
    return tuple(sorted(changes, key=lambda change: change.path))
