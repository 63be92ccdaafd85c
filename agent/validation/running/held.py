"""Which changes of a patch take part in which run. Pure path rules.

never     what Python or pytest would run by itself, without anybody importing it: start-up
          files, package metadata (it names plugins), byte code, and new modules that would be
          imported in place of the standard library's or the test runner's
held      configuration of the tests: as on the base, but for the run of the whole patch
tests     test files and what belongs to them: the reply's own words about its patch
source    everything else: what can fix an issue
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from agent.types import FileChange
from agent.validation.layout import is_test_side, steers_tests

_STARTUP = frozenset({"sitecustomize", "usercustomize"})
_SUFFIXES = (".pyc", ".pyo", ".pth", ".egg-link")
_METADATA = (".egg-info", ".dist-info")

# What the runners import beside the standard library.
_RUNNER = frozenset(
    {"pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments", "exceptiongroup"}
    | {"tomli", "colorama", "xdist", "execnet"}
)
_OURS = "patchshot_"


@dataclass(frozen=True, slots=True)
class Shares:
    """The changes of a patch by their part in the runs, each in order of path."""

    source: tuple[FileChange, ...] = ()
    tests: tuple[FileChange, ...] = ()
    held: tuple[FileChange, ...] = ()
    never: tuple[FileChange, ...] = ()

    @property
    def whole(self) -> tuple[FileChange, ...]:
        """All that is ever run."""
        return _by_path((*self.source, *self.tests, *self.held))

    @property
    def reaches_tests(self) -> bool:
        """Whether the patch changes tests that there were, or how they are run."""
        return bool(self.held) or any(change.before is not None for change in self.tests)


def share_out(
    changes: Sequence[FileChange], exists: Callable[[str], bool], roots: Iterable[str] = (".",)
) -> Shares:
    """Sort the changes. `roots` are the folders of the tree that stand on the import path."""
    parts: dict[str, list[FileChange]] = {"source": [], "tests": [], "held": [], "never": []}
    folders = tuple(roots)
    for change in changes:
        parts[_share(change, exists, folders)].append(change)
    return Shares(**{name: _by_path(found) for name, found in parts.items()})


def _share(change: FileChange, exists: Callable[[str], bool], roots: tuple[str, ...]) -> str:
    path = PurePosixPath(change.path)
    if (
        any(part.partition(".")[0] in _STARTUP for part in path.parts)
        or path.name.endswith(_SUFFIXES)
        or any(part.endswith(_METADATA) for part in path.parts)
        or _hides_another(change, exists, roots)
    ):
        return "never"
    if steers_tests(change.path):
        return "held"
    return "tests" if is_test_side(change.path) else "source"


def _hides_another(
    change: FileChange, exists: Callable[[str], bool], roots: tuple[str, ...]
) -> bool:
    """A new top-level module under a name that the runner imports from elsewhere."""
    if change.before is not None or change.after is None:
        return False
    for root in roots:
        inside = _below(change.path, root)
        name = inside.partition("/")[0]
        top = name.partition(".")[0] if name == inside else name
        known = top in _RUNNER or top in sys.stdlib_module_names or top.startswith(_OURS)
        if not known:
            continue
        place = top if root == "." else f"{root}/{top}"
        files = (f"{place}.py", f"{place}/__init__.py")
        if inside.endswith((".py", ".so")) and not any(map(exists, files)):
            return True
    return False


def _below(path: str, root: str) -> str:
    """The path as seen from a folder, "" when it does not lie in it."""
    if root == ".":
        return path
    return path[len(root) + 1 :] if path.startswith(f"{root}/") else ""


def _by_path(changes: Iterable[FileChange]) -> tuple[FileChange, ...]:
    return tuple(sorted(changes, key=lambda change: change.path))
