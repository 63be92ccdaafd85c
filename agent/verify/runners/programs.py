"""Finds the programs that run tests by searching PATH.

The search only reads files and links. The sandbox is given access to a program's installation
folder and to the package store that it uses offline. It never gets access to the whole home folder,
or to settings files, because they hold tokens. `agent.verify.tools` finds the target's Python.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

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


def find_programs(
    names: Sequence[str],
    snapshot: Snapshot,
    *,
    search_path: str | None = None,
    home: Path | None = None,
) -> Toolchain:
    """Find the programs of `FINDERS`; other names are ignored.

    `search_path` is PATH and `home` the folder of the user's package stores; both default to those
    of this process. A program inside the repository is not taken: the target must not bring its own
    compiler.
    """
    path = os.environ.get("PATH", "") if search_path is None else search_path
    home = Path.home() if home is None else home
    repository = real_path(snapshot.root)
    programs: dict[str, FoundProgram] = {}
    searched = [name for name in names if name in FINDERS]
    for name in searched:
        files = _executables(name, path, repository)
        matches = (FINDERS[name](file, home, snapshot) for file in files)
        match = next((program for program in matches if program is not None), None)
        if match is not None:
            programs[name] = match
    environment = {k: v for one in programs.values() for k, v in one.environment.items()}
    every = {path for one in programs.values() for path in one.read_only}
    shown = tuple(sorted(path for path in every if _may_be_shown(path, home)))
    return Toolchain(
        programs={name: one.path for name, one in sorted(programs.items())},
        read_only=shown,
        environment=dict(sorted(environment.items())),
        missing=tuple(sorted(set(searched) - programs.keys())),
        notes=tuple(_unreadable(shown)) if os.geteuid() == 0 else (),
    )


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
        needed = stat.S_IROTH | (stat.S_IXOTH if path.is_dir() else 0)
        if path.stat().st_mode & needed != needed:
            yield f"{path} is closed to the sandbox's own user; open it with chmod -R o+rX"


# ------------------------------------------------------------------------------------ finders
# Each describes an executable file on PATH, or returns None if it is not the program itself.


def _find_make(file: Path, home: Path, snapshot: Snapshot) -> FoundProgram | None:
    real = real_path(file)
    return FoundProgram(file, (real,)) if real.name in ("make", "gmake") else None


def _find_go(file: Path, home: Path, snapshot: Snapshot) -> FoundProgram | None:
    real = real_path(file)
    root = real.parent.parent
    if real.name != "go" or not (root / "pkg" / "tool").is_dir():
        return None
    modules = home / "go" / "pkg" / "mod"
    environment = {"GOPROXY": "off", "GOSUMDB": "off", "GOTOOLCHAIN": "local", "GOFLAGS": ""}
    if modules.is_dir():
        environment["GOMODCACHE"] = str(modules)
    return FoundProgram(real, (root, modules), environment)


def _find_node(file: Path, home: Path, snapshot: Snapshot) -> FoundProgram | None:
    """Find node, npm's folder beside it, and the packages that the user installed."""
    real = real_path(file)
    if real.name not in ("node", "nodejs"):  # the shim of a version manager
        return None
    packages = real.parent.parent / "lib" / "node_modules"
    return FoundProgram(real, (real, packages, *_node_modules(snapshot)))


def _node_modules(snapshot: Snapshot) -> Iterator[Path]:
    """Yield each `node_modules` beside a package.json that is not part of the repository."""
    for pure in (PurePosixPath(path) for path in snapshot.files if path.endswith("package.json")):
        if pure.name != "package.json" or "node_modules" in pure.parts:
            continue
        inner = pure.parent / "node_modules"
        folder = real_path(snapshot.root) / inner
        is_tracked = snapshot.exists(str(inner)) or any(
            path.startswith(f"{inner}/") for path in snapshot.files
        )
        if not is_tracked and folder.is_dir() and not folder.is_symlink():
            yield folder


def _find_npm(file: Path, home: Path, snapshot: Snapshot) -> FoundProgram | None:
    """Find npm, a script in a package of its own."""
    real = real_path(file)
    package = next((p for p in real.parents if (p / "package.json").is_file()), None)
    return FoundProgram(file, (package, file)) if package is not None else None


def _find_java(file: Path, home: Path, snapshot: Snapshot) -> FoundProgram | None:
    real = real_path(file)
    root = real.parent.parent
    if real.name != "java" or not (root / "lib").is_dir():
        return None
    # Distributions link the configuration to `/etc/java-*`.
    links = (real_path(link).parts for link in sorted((root / "conf").glob("*")))
    settings = (
        Path(*parts[:3])
        for parts in links
        if parts[:2] == ("/", "etc") and len(parts) > 3 and "java" in parts[2]
    )
    return FoundProgram(real, (root, *settings), {"JAVA_HOME": str(root)})


# Packages in the store record the mirror that they came from. They are used even though the
# settings.xml that names the mirror is missing here. The first option is for Maven 3, the second
# for Maven 3.9 and later.
_ANY_ORIGIN = (
    "-Dmaven.legacyLocalRepo=true -Daether.enhancedLocalRepository.trackingFilename=.no-origin"
)


def _find_maven(file: Path, home: Path, snapshot: Snapshot) -> FoundProgram | None:
    """Find Maven with its own configuration, without any `settings.xml`: those hold passwords."""
    real = real_path(file)
    root = real.parent.parent
    if real.name != "mvn" or not (root / "boot").is_dir():
        return None
    own = (real_path(root / "bin" / "m2.conf"), real_path(root / "conf" / "logging"))
    store = home / ".m2" / "repository"
    options = {"MAVEN_OPTS": f"-Dmaven.repo.local={store} {_ANY_ORIGIN}"} if store.is_dir() else {}
    return FoundProgram(real, (root, *own, store), options)


_CHANNEL = re.compile(r"\w[\w.+-]*")

# A file of rustup's settings has some hundred bytes.
_MOST_BYTES = 64 * 1024


def _find_cargo(file: Path, home: Path, snapshot: Snapshot) -> FoundProgram | None:
    """Find cargo with its toolchain. A rustup proxy leads to the one that rustup would use."""
    real: Path | None = real_path(file)
    store = home / ".cargo"
    if real is not None and real.name == "rustup":
        store = file.parent.parent
        real = _cargo_behind_rustup(store, snapshot)
    if real is None or real.name != "cargo":
        return None
    prefix = real.parent.parent
    shown = prefix if (prefix / "lib" / "rustlib").is_dir() else real
    packages = tuple(store / name for name in ("registry", "git") if (store / name).is_dir())
    environment = {"CARGO_NET_OFFLINE": "true", "CARGO_TERM_COLOR": "never"}
    if packages:
        environment["CARGO_HOME"] = str(store)
    return FoundProgram(real, (shown, *packages), environment)


def _cargo_behind_rustup(store: Path, snapshot: Snapshot) -> Path | None:
    """Find the cargo of the pinned or default toolchain: `.rustup` lies beside `.cargo`."""
    rustup = store.parent / store.name.replace("cargo", "rustup")
    try:
        with (rustup / "settings.toml").open(encoding="utf-8", errors="replace") as stream:
            default = parsed_toml(stream.read(_MOST_BYTES)).get("default_toolchain")
    except OSError:
        default = None
    for channel in (*_pinned_channels(snapshot), default):
        if not isinstance(channel, str) or not _CHANNEL.fullmatch(channel):
            continue
        for folder in sorted((rustup / "toolchains").glob(f"{channel}*")):
            exact = folder.name == channel or folder.name.startswith(f"{channel}-")
            if exact and os.access(folder / "bin" / "cargo", os.X_OK):
                return folder / "bin" / "cargo"
    return None


def _pinned_channels(snapshot: Snapshot) -> Iterator[object]:
    """Yield the channel that the repository pins: the file has two names and two formats."""
    for name in ("rust-toolchain.toml", "rust-toolchain"):
        if name in snapshot.files:
            text = snapshot.text(name)[:_MOST_BYTES]
            table = parsed_toml(text).get("toolchain")
            yield table.get("channel") if isinstance(table, dict) else text.strip()


def parsed_toml(text: str) -> Mapping[str, object]:
    """Return the table of a TOML text; an empty one where it is invalid."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return {}


Finder = Callable[[Path, Path, Snapshot], FoundProgram | None]

FINDERS: Mapping[str, Finder] = {
    "cargo": _find_cargo,
    "go": _find_go,
    "java": _find_java,
    "make": _find_make,
    "mvn": _find_maven,
    "node": _find_node,
    "npm": _find_npm,
}
"""For each program its finder: it gets the file, the home folder and the target's snapshot."""

COMMAND_PROGRAMS: Mapping[str, tuple[str, ...]] = {
    "cargo": ("cargo",),
    "go": ("go",),
    "make": ("make",),
    "mvn": ("mvn", "java"),
    "node": ("node",),
    **dict.fromkeys(("npm", "npx", "yarn", "pnpm"), ("npm", "node")),
}
"""The programs that a command line needs, by its first word."""
