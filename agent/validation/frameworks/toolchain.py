"""Finds the programs other than Python that a suite needs: node, cargo, go, java, mvn, make.

Reads files and links only; nothing is run. A program is shown to the sandbox with the folder that
it is installed in, and with the store of packages that it works from offline: never a home as a
whole, and no settings file of the user's (those hold tokens).
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from agent.protocols import Snapshot
from sandbox.mounts import SYSTEM

_CHANNEL = re.compile(r"[\w.+-]+")

# Of a file that another program wrote: a rustup setting has some hundred bytes.
_MOST_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Toolchain:
    """Programs by name, what the sandbox has to show for them, and their environment.

    Where it is empty (a container image brings its own programs) names are left to PATH. `notes`
    say in words what will be missed.
    """

    programs: Mapping[str, Path] = field(default_factory=dict)
    read_only: tuple[Path, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def program(self, name: str) -> str:
        """What to call it on a command line."""
        return str(self.programs.get(name, name))

    def folders(self) -> tuple[str, ...]:
        """The folders of the programs, for PATH."""
        return tuple(dict.fromkeys(str(path.parent) for _, path in sorted(self.programs.items())))


@dataclass(frozen=True, slots=True)
class _Found:
    """One program: how it is called, what it needs to see, and what it needs to be told."""

    program: Path
    read_only: tuple[Path, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Surroundings:
    snapshot: Snapshot
    home: Path


def find(
    names: Sequence[str],
    snapshot: Snapshot,
    *,
    search_path: str | None = None,
    home: Path | None = None,
) -> Toolchain:
    """The programs of these names (`python` is passed over: it is found elsewhere).

    `search_path` is PATH, `home` the folder of the user's package stores (default: the process's
    own). Programs below the repository are not taken: the target does not bring its own compiler.
    """
    path = os.environ.get("PATH", "") if search_path is None else search_path
    around = _Surroundings(snapshot, Path.home() if home is None else home)
    repository = _real(snapshot.root)
    found: dict[str, _Found] = {}
    for name in dict.fromkeys(name for name in names if name in _FINDERS):
        candidates = (_FINDERS[name](file, around) for file in _on_path(name, path, repository))
        one = next((candidate for candidate in candidates if candidate is not None), None)
        if one is not None:
            found[name] = one
    environment = {k: v for one in found.values() for k, v in one.environment.items()}
    every = {path for one in found.values() for path in one.read_only}
    shown = tuple(sorted(path for path in every if _may_be_shown(path, around.home)))
    return Toolchain(
        programs={name: one.program for name, one in sorted(found.items())},
        read_only=shown,
        environment=dict(sorted(environment.items())),
        missing=tuple(name for name in _FINDERS if name in names and name not in found),
        notes=tuple(_unreadable(shown)) if os.geteuid() == 0 else (),
    )


def _unreadable(paths: Sequence[Path]) -> Iterator[str]:
    """As root, commands run as a user of their own, who must be able to read what is shown."""
    for path in paths:
        wanted = stat.S_IROTH | (stat.S_IXOTH if path.is_dir() else 0)
        if path.stat().st_mode & wanted != wanted:
            yield f"{path} is closed to the sandbox's own user; open it with chmod -R o+rX"


def _on_path(name: str, search_path: str, repository: Path) -> Iterator[Path]:
    """Executable files of that name, in the order of PATH."""
    for folder in map(Path, search_path.split(":")):
        file = folder / name
        inside = _real(file).is_relative_to(repository)
        if folder.is_absolute() and not inside and file.is_file() and os.access(file, os.X_OK):
            yield file


def _may_be_shown(path: Path, home: Path) -> bool:
    """Whether it is there, the sandbox lacks it, and it is no home: `mounts` refuses those too."""
    real = _real(path)
    return real.exists() and not _in_system(real) and not _real(home).is_relative_to(real)


def _in_system(path: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in SYSTEM)


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


# -------------------------------------------------------------------------------------- JavaScript


def _node(file: Path, around: _Surroundings) -> _Found | None:
    """Node itself, npm's folder beside it, and the packages that the user installed."""
    real = _real(file)
    if real.name not in ("node", "nodejs"):  # the shim of a version manager
        return None
    packages = real.parent.parent / "lib" / "node_modules"
    return _Found(real, (real, packages, *_node_modules(around.snapshot)))


def _node_modules(snapshot: Snapshot) -> Iterator[Path]:
    """The `node_modules` beside each package.json that is not part of the repository."""
    packages = [path for path in snapshot.files if path.endswith("package.json")]
    for pure in map(PurePosixPath, packages):
        if pure.name != "package.json" or "node_modules" in pure.parts:
            continue
        folder = _real(snapshot.root) / pure.parent / "node_modules"
        tracked = snapshot.exists(str(pure.parent / "node_modules"))
        if not tracked and not _has_tracked(snapshot, pure.parent / "node_modules"):
            yield from (folder,) if folder.is_dir() and not folder.is_symlink() else ()


def _has_tracked(snapshot: Snapshot, folder: PurePosixPath) -> bool:
    return any(path.startswith(f"{folder}/") for path in snapshot.files)


def _script_of_node(file: Path, around: _Surroundings) -> _Found | None:
    """npm, yarn, pnpm: a script in a package of its own."""
    real = _real(file)
    package = next((p for p in real.parents if (p / "package.json").is_file()), None)
    return _Found(file, (package, file)) if package is not None else None


# -------------------------------------------------------------------------------------------- Rust


def _cargo(file: Path, around: _Surroundings) -> _Found | None:
    """Cargo with its toolchain: a proxy of rustup stands for the one that it would choose."""
    real = _real(file)
    store = around.home / ".cargo"
    program: Path | None = real
    if real.name == "rustup":
        store = file.parent.parent
        program = _behind_rustup(store, around.snapshot)
    if program is None or program.name != "cargo":
        return None
    prefix = program.parent.parent
    shown = (prefix,) if (prefix / "lib" / "rustlib").is_dir() else (program,)
    packages = tuple(store / name for name in ("registry", "git") if (store / name).is_dir())
    environment = {"CARGO_NET_OFFLINE": "true", "CARGO_TERM_COLOR": "never"}
    if packages:
        environment["CARGO_HOME"] = str(store)
    return _Found(program, (*shown, *packages), environment)


def _behind_rustup(store: Path, snapshot: Snapshot) -> Path | None:
    """`~/.cargo` and `~/.rustup` lie side by side; so do `cargo` and `rustup` in images."""
    rustup = store.parent / store.name.replace("cargo", "rustup")
    default = _toml(rustup / "settings.toml").get("default_toolchain")
    for wanted in (*_pinned_toolchain(snapshot), default):
        if not isinstance(wanted, str) or not _CHANNEL.fullmatch(wanted) or wanted[0] == ".":
            continue
        for folder in sorted((rustup / "toolchains").glob(f"{wanted}*")):
            exact = folder.name == wanted or folder.name.startswith(f"{wanted}-")
            if exact and os.access(folder / "bin" / "cargo", os.X_OK):
                return folder / "bin" / "cargo"
    return None


def _pinned_toolchain(snapshot: Snapshot) -> Iterator[object]:
    """What the repository pins: `rust-toolchain.toml`, or `rust-toolchain` in either form."""
    for name in ("rust-toolchain.toml", "rust-toolchain"):
        if name not in snapshot.files:
            continue
        text = snapshot.text(name)[:_MOST_BYTES]
        if "[" not in text:
            yield text.strip()
            continue
        table = _parsed(text).get("toolchain")
        yield table.get("channel") if isinstance(table, dict) else None


def _toml(file: Path) -> Mapping[str, object]:
    try:
        with file.open(encoding="utf-8", errors="replace") as stream:
            return _parsed(stream.read(_MOST_BYTES))
    except OSError:
        return {}


def _parsed(text: str) -> Mapping[str, object]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return {}


# ---------------------------------------------------------------------------------------------- Go


def _go(file: Path, around: _Surroundings) -> _Found | None:
    real = _real(file)
    root = real.parent.parent
    if real.name != "go" or not (root / "pkg" / "tool").is_dir():
        return None
    modules = around.home / "go" / "pkg" / "mod"
    environment = {"GOPROXY": "off", "GOSUMDB": "off", "GOTOOLCHAIN": "local", "GOFLAGS": ""}
    if modules.is_dir():
        environment["GOMODCACHE"] = str(modules)
    return _Found(real, (root, modules), environment)


# -------------------------------------------------------------------------------------------- Java


def _java(file: Path, around: _Surroundings) -> _Found | None:
    real = _real(file)
    home = real.parent.parent
    if real.name != "java" or not (home / "lib").is_dir():
        return None
    settings = tuple(_settings_of_java(home))
    return _Found(real, (home, *settings), {"JAVA_HOME": str(home)})


def _settings_of_java(home: Path) -> Iterator[Path]:
    """Distributions keep the configuration in `/etc/java-*`, where links of the home lead."""
    for link in sorted((home / "conf").glob("*")):
        real = _real(link)
        if real.parts[:2] == ("/", "etc") and len(real.parts) > 3 and "java" in real.parts[2]:
            yield Path(*real.parts[:3])


# Packages in the store remember the mirror that they came from, which a settings.xml named: they
# are taken all the same. The first is for Maven 3, the second for Maven 3.9 and later.
_ANY_ORIGIN = (
    "-Dmaven.legacyLocalRepo=true -Daether.enhancedLocalRepository.trackingFilename=.no-origin"
)


def _maven(file: Path, around: _Surroundings) -> _Found | None:
    """Maven with its own configuration, never a `settings.xml`: those hold passwords."""
    real = _real(file)
    home = real.parent.parent
    if real.name != "mvn" or not (home / "boot").is_dir():
        return None
    own = (home, home / "bin" / "m2.conf", home / "conf" / "logging")
    store = around.home / ".m2" / "repository"
    options = f"-Dmaven.repo.local={store} {_ANY_ORIGIN}" if store.is_dir() else ""
    shown = tuple(path if path == home else _real(path) for path in own)
    return _Found(real, (*shown, store), {"MAVEN_OPTS": options} if options else {})


# ------------------------------------------------------------------------------------------- Make


def _plain(file: Path, around: _Surroundings) -> _Found | None:
    """A single program."""
    real = _real(file)
    return _Found(file, (real,)) if real.name in ("make", "gmake", file.name) else None


_FINDERS: Mapping[str, Callable[[Path, _Surroundings], _Found | None]] = MappingProxyType(
    {
        "cargo": _cargo,
        "go": _go,
        "java": _java,
        "make": _plain,
        "mvn": _maven,
        "node": _node,
        "npm": _script_of_node,
        "npx": _script_of_node,
        "pnpm": _script_of_node,
        "yarn": _script_of_node,
    }
)
