"""Finds the programs that run tests by searching PATH.

The search only reads files and links. The sandbox is given access to a program's installation
folder and to the package store that it uses offline. It never gets access to the whole home folder,
or to settings files, because they hold tokens.

Each runner declares a `Finder` for every program that it needs (see `runners.registry`).
`agent.verify.tools` finds the target's Python.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent.types.protocols import Snapshot
from sandbox import SYSTEM, SandboxError


@dataclass(frozen=True, slots=True)
class Toolchain:
    """Programs by name, the host paths that they need to see, and their environment.

    A container image brings its own programs: the toolchain is empty then, and names are left to
    PATH. `missing` are the names that were not found; `notes` are warnings for the user.
    """

    programs: Mapping[str, Path] = field(default_factory=dict)
    read_only: tuple[Path, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def program(self, name: str) -> str:
        """Return the path of a program, or its bare name where it was not found."""
        return str(self.programs.get(name, name))

    def folders(self) -> tuple[str, ...]:
        """Return the folders of the programs, for PATH."""
        return tuple(dict.fromkeys(str(path.parent) for _, path in sorted(self.programs.items())))


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python of the target. `path` is what is run; a virtual environment's link is kept.

    `read_only` are the host paths that it needs to see. `version` is "" until it is known.
    `certain` means that the user or the project chose it, so that it is not a guess.
    """

    path: Path
    why: str
    read_only: tuple[Path, ...] = ()
    version: str = ""
    certain: bool = True


@dataclass(frozen=True, slots=True)
class Tools:
    """What runs the tests of a suite. `pytest` is its version, None where it cannot be imported.

    `interpreter` is None where no Python works inside the sandbox; `problem` then says why.
    `modules` are the top-level modules that the interpreter can import, sorted.
    `toolchain` holds the other programs that the runner needs.
    """

    interpreter: Interpreter | None
    pytest: str | None = None
    problem: str = ""
    modules: tuple[str, ...] = ()
    toolchain: Toolchain = field(default_factory=Toolchain)

    def needed(self) -> Interpreter:
        """Return the interpreter. Raises SandboxError with the `problem` where none works."""
        if self.interpreter is None:
            raise SandboxError(self.problem)
        return self.interpreter


@dataclass(frozen=True, slots=True)
class FoundProgram:
    """One program: its path, the host paths that it needs to read, and its environment."""

    path: Path
    read_only: tuple[Path, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SearchScope:
    """The folders and files that a finder may read in addition to the program's own file."""

    snapshot: Snapshot
    home: Path


Finder = Callable[[Path, SearchScope], FoundProgram | None]
"""Describes an executable file on PATH, or returns None if it is not the program (a shim, say)."""


def find_programs(
    finders: Mapping[str, Finder],
    snapshot: Snapshot,
    *,
    search_path: str | None = None,
    home: Path | None = None,
) -> Toolchain:
    """Find a program for each name of `finders`.

    `search_path` is PATH and `home` the folder of the user's package stores; both default to those
    of this process. A program inside the repository is not taken: the target must not bring its own
    compiler.
    """
    path = os.environ.get("PATH", "") if search_path is None else search_path
    scope = SearchScope(snapshot, Path.home() if home is None else home)
    repository = real_path(snapshot.root)
    found: dict[str, FoundProgram] = {}
    for name, finder in finders.items():
        candidates = (finder(file, scope) for file in _executables(name, path, repository))
        one = next((candidate for candidate in candidates if candidate is not None), None)
        if one is not None:
            found[name] = one
    environment = {k: v for one in found.values() for k, v in one.environment.items()}
    every = {path for one in found.values() for path in one.read_only}
    shown = tuple(sorted(path for path in every if _may_be_shown(path, scope.home)))
    return Toolchain(
        programs={name: one.path for name, one in sorted(found.items())},
        read_only=shown,
        environment=dict(sorted(environment.items())),
        missing=tuple(sorted(finders.keys() - found.keys())),
        notes=tuple(_unreadable(shown)) if os.geteuid() == 0 else (),
    )


def find_single_file(file: Path, scope: SearchScope) -> FoundProgram | None:
    """Find a program that consists of one file, such as make."""
    real = real_path(file)
    return FoundProgram(file, (real,)) if real.name in (file.name, f"g{file.name}") else None


def real_path(path: Path) -> Path:
    """Return the path with all links resolved."""
    return Path(os.path.realpath(path))


def _executables(name: str, search_path: str, repository: Path) -> Iterator[Path]:
    """Yield the executable files of that name outside the repository, in the order of PATH."""
    for folder in map(Path, search_path.split(":")):
        file = folder / name
        inside = real_path(file).is_relative_to(repository)
        if folder.is_absolute() and not inside and file.is_file() and os.access(file, os.X_OK):
            yield file


def _may_be_shown(path: Path, home: Path) -> bool:
    """Whether the path exists, the sandbox lacks it, and it does not hold the user's home."""
    real = real_path(path)
    in_system = any(real.is_relative_to(folder) for folder in SYSTEM)
    return real.exists() and not in_system and not real_path(home).is_relative_to(real)


def _unreadable(paths: Sequence[Path]) -> Iterator[str]:
    """Yield a note for each path that the sandbox's own user cannot read (Patchshot is root)."""
    for path in paths:
        wanted = stat.S_IROTH | (stat.S_IXOTH if path.is_dir() else 0)
        if path.stat().st_mode & wanted != wanted:
            yield f"{path} is closed to the sandbox's own user; open it with chmod -R o+rX"
