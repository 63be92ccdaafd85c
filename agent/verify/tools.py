"""Finds the tools that run a target's tests: its Python and the programs that a runner needs.

They are found by reading files and links; what an interpreter can import is asked inside the
sandbox only, because a repository's `.venv` may be anything. The sandbox sees a program's folder
and its package store, never the whole home folder or settings files, because they hold tokens.
"""

from __future__ import annotations

import math
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path, PurePosixPath

from pydantic import TypeAdapter, ValidationError

from agent.errors import ConfigurationError
from agent.types.protocols import Snapshot
from agent.verify.runners.base import (
    PYTHON,
    Interpreter,
    Runner,
    Toolchain,
    Tools,
    joined,
    parsed_toml,
    probe_command,
)
from sandbox import (
    SYSTEM,
    TESTBED,
    Limits,
    Sandbox,
    SandboxError,
    candidate_interpreters,
    empty_workspace,
    find_interpreter,
    read_small_file,
)

_FOLDERS = (".venv", "venv")

# The folder of the scripts of a version manager, each of which starts a program of some version.
_SHIMS = "shims"

# The name of a version is one folder: `..` would lead out of that of its manager.
_VERSION = re.compile(r"\w[\w.+-]*")

# Starting an interpreter and importing pytest, on a machine under load.
PROBE_SECONDS = 60.0

# The runners in agent/verify/inside need it.
_OLDEST_PYTHON = (3, 7)

_NO_PYTHON = "there is no Python in the image"

# Its version, that of pytest, and its top-level modules.
_PROBED = TypeAdapter(tuple[str, str | None, tuple[str, ...]])


@dataclass(slots=True)
class ToolFinder:
    """Finds the tools of suites, and remembers them. It may be used by one thread at a time.

    `explicit` is `--python`, `virtual_env` VIRTUAL_ENV, and `search_path` PATH.
    """

    snapshot: Snapshot
    sandbox: Sandbox
    explicit: Path | None
    virtual_env: str | None
    search_path: str | None
    _found: Tools | None = None

    def tools(self, runner: Runner, cancel: threading.Event) -> Tools:
        """Return the programs and interpreter. Raises ConfigurationError, SandboxError."""
        python = self.python(cancel) if PYTHON in runner.needs else Tools(None)
        if self.sandbox.foreign_root:
            return python  # an image brings its own programs, on its own PATH
        found = find_programs(
            [name for name in runner.needs if name != PYTHON],
            self.snapshot,
            optional=runner.optional,
            search_path=self.search_path,
        )
        return replace(python, toolchain=found)

    def python(self, cancel: threading.Event) -> Tools:
        """Return the target's Python, which is found once. Raises as `tools`."""
        if self._found is not None:
            return self._found
        tools = self._find_python(cancel)
        if not cancel.is_set():  # a cancelled probe says nothing about the interpreter
            self._found = tools
        return tools

    def _find_python(self, cancel: threading.Event) -> Tools:
        found: list[Tools] = []
        for candidate in self._candidates():
            tools = self._probe(candidate, cancel)
            if tools.interpreter and (candidate.certain or tools.pytest):
                return tools
            found.append(tools)
        if self.explicit is not None:
            raise ConfigurationError(f"--python {self.explicit}: {found[0].problem}")
        usable = [tools for tools in found if tools.interpreter]
        return (*usable, *found, Tools(None, problem=_NO_PYTHON))[0]

    def _candidates(self) -> Sequence[Interpreter]:
        if not self.sandbox.foreign_root:
            overlay = self.snapshot.overlay()
            return candidates(
                self.snapshot.root,
                self.explicit,
                self.virtual_env,
                scope=self.snapshot.scope,
                tracked=lambda path: self.snapshot.exists(path) and path not in overlay,
                search_path=self.search_path,
            )
        if self.explicit is not None:
            return [Interpreter(self.explicit, "chosen with --python, in the image")]
        return [
            Interpreter(Path(path), "found in the image", certain=certain)
            for path, certain in candidate_interpreters(self.sandbox).items()
        ]

    def _probe(self, interpreter: Interpreter, cancel: threading.Event) -> Tools:
        """Run a candidate inside the sandbox to learn its version and whether it has pytest."""
        if not self.sandbox.foreign_root:
            try:
                real = find_interpreter(interpreter.path, work_tree=self.snapshot.root)
            except SandboxError as error:
                return Tools(None, problem=str(error))
            interpreter = replace(interpreter, path=real.executable, read_only=real.paths)
        command = probe_command(interpreter, limits_of(PROBE_SECONDS))
        with closing(empty_workspace(mount=mount_of(self.snapshot, self.sandbox))) as tree:
            output = self.sandbox.run(command, tree, cancel=cancel).stdout
        try:
            version, pytest, modules = _PROBED.validate_json((output.splitlines() or [b""])[-1])
        except ValidationError:
            problem = f"{interpreter.path} does not start inside the sandbox"
            if self.sandbox.name == "landlock" and os.geteuid() == 0:
                problem += "; root's Landlock runs it as another user, who must pass its folders"
            return Tools(None, problem=problem)
        if tuple(int(n) for n in version.split(".")[:2] if n.isdigit()) < _OLDEST_PYTHON:
            return Tools(None, problem=f"{interpreter.path} is Python {version}; 3.7 is needed")
        return Tools(replace(interpreter, version=version), pytest, modules=modules)


def mount_of(snapshot: Snapshot, sandbox: Sandbox) -> Path:
    """Return where the tests see the target: at its own path, or where images have it."""
    return Path(TESTBED) if sandbox.foreign_root else snapshot.root.resolve()


def limits_of(seconds: float) -> Limits:
    """Return the limits of a run: processor time is summed over all cores."""
    cores = len(os.sched_getaffinity(0))
    return Limits(wall_seconds=seconds, cpu_seconds=math.ceil(seconds * cores))


# ----------------------------------------- candidates, found by reading files


def candidates(
    repo_root: Path,
    explicit: Path | None,
    virtual_env: str | None,
    *,
    scope: str = "",
    tracked: Callable[[str], bool] = lambda _: False,
    search_path: str | None = None,
) -> tuple[Interpreter, ...]:
    """Return existing interpreters, best first. Raises ConfigurationError for a bad `explicit`."""
    if explicit is not None:
        return (_explicit(explicit, repo_root / scope),)
    possible: list[Interpreter] = []
    active = _environment_python(Path(virtual_env).absolute()) if virtual_env else None
    if active and real_path(active.parent.parent) != real_path(Path(sys.prefix)):
        possible.append(Interpreter(active, "the active virtual environment"))
    folders = (scope, *(str(up) for up in PurePosixPath(scope).parents)) if scope else (".",)
    for name in (joined(folder, name) for folder in folders for name in _FOLDERS):
        path = _environment_python(repo_root / name)
        parts = (name, f"{name}/pyvenv.cfg", f"{name}/bin", f"{name}/bin/{path and path.name}")
        if path and not any(map(tracked, parts)):
            possible.append(Interpreter(path, f"the repository's {name}"))
    programs = _executables("python3", search_path, real_path(repo_root))
    real = (_resolve_shim(path, repo_root / scope) for path in programs)
    for path in islice(filter(None, real), 1):
        possible.append(Interpreter(path, "python3 on PATH", certain=False))
    last = Interpreter(Path(sys.executable), "the Python that runs Patchshot", certain=False)
    found: dict[Path, Interpreter] = {}
    for one in (*possible, last):
        # An interpreter that is found twice keeps its first and strongest reason.
        found.setdefault(one.path, one)
    return tuple(found.values())


def _explicit(path: Path, repo_root: Path) -> Interpreter:
    file = path.expanduser().absolute()
    if file.is_dir():
        file = _environment_python(file) or file
    real = _resolve_shim(file, repo_root) if _is_executable(file) else None
    if real is None:
        raise ConfigurationError(f"--python {path}: not an interpreter; name an executable file")
    return Interpreter(real, "chosen with --python")


def _environment_python(folder: Path) -> Path | None:
    """Return the interpreter of a virtual environment or of any prefix, such as conda's."""
    files = (folder / "bin" / name for name in ("python", "python3"))
    return next(filter(_is_executable, files), None)


def _resolve_shim(path: Path, repo_root: Path) -> Path | None:
    """Return the interpreter behind a pyenv shim, or the path itself if it is a program."""
    try:
        with path.open("rb") as file:
            is_script = file.read(2) == b"#!"
    except OSError:
        return None
    if not is_script or path.parent.name != _SHIMS:
        return None if is_script else path
    # pyenv's order: the nearest `.python-version`, then the global one.
    root = path.parent.parent
    files = [folder / ".python-version" for folder in (repo_root, *repo_root.parents)]
    names = (name for file in (*files, root / "version") for name in _small_text(file).split())
    return _installed(root / "versions", names, path.name)


def _installed(folder: Path, versions: Iterable[object], program: str) -> Path | None:
    """Return the program of the first version that a version manager has in its folder."""
    for version in versions:
        if not isinstance(version, str) or not _VERSION.fullmatch(version):
            continue
        for inner in sorted(folder.glob(f"{version}*")):
            exact = inner.name == version or inner.name.startswith(f"{version}-")
            if exact and _is_executable(inner / "bin" / program):
                return inner / "bin" / program
    return None


def _small_text(path: Path) -> str:
    """Return the text of a small regular file, "" for any other."""
    try:
        return (read_small_file(path) or b"").decode("utf-8", "replace")
    except OSError:
        return ""


def _is_executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


# ------------------------------------------------------------- programs, found by reading files


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a program needs beside its own file, which has one of these `names`, links resolved.

    Its installation is shown whole if it has the path `mark`. `parts` are more paths of it and
    `stores` folders of packages below the home. In the `environment`, which is set unless the
    stores are missing, `{prefix}` stands for the installation and `{home}` for the home.
    """

    names: tuple[str, ...]
    mark: str = ""
    parts: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


# Packages in Maven's store record the mirror that they came from. They are used even though the
# settings.xml that names the mirror is missing here. The first option is for Maven 3, the second
# for Maven 3.9 and later.
_ANY_ORIGIN = (
    "-Dmaven.legacyLocalRepo=true -Daether.enhancedLocalRepository.trackingFilename=.no-origin"
)

_KINDS: Mapping[str, _Kind] = {
    "cargo": _Kind(
        ("cargo",),
        mark="lib/rustlib",
        stores=("registry", "git"),  # beside them are keys
        environment={"CARGO_HOME": "{home}"},
    ),
    "go": _Kind(
        ("go",),
        mark="pkg/tool",
        stores=("go/pkg/mod",),
        environment={"GOMODCACHE": "{home}/go/pkg/mod"},
    ),
    "java": _Kind(
        ("java",),
        mark="lib",
        parts=("conf/net.properties/..",),  # Debian links these files to a folder of /etc
        environment={"JAVA_HOME": "{prefix}"},
    ),
    "make": _Kind(("make", "gmake")),
    "mvn": _Kind(
        ("mvn",),
        mark="boot",
        parts=("bin/m2.conf", "conf/logging"),  # not settings.xml, which holds passwords
        stores=(".m2/repository",),
        environment={"MAVEN_OPTS": f"-Dmaven.repo.local={{home}}/.m2/repository {_ANY_ORIGIN}"},
    ),
    "node": _Kind(("node", "nodejs"), parts=("lib/node_modules",)),
    "npm": _Kind(("npm-cli.js",), mark="package.json"),
}


def find_programs(
    names: Sequence[str],
    snapshot: Snapshot,
    *,
    optional: Sequence[str] = (),
    search_path: str | None = None,
    home: Path | None = None,
) -> Toolchain:
    """Find programs outside of the repository. `home` has the user's package stores."""
    home = home or Path.home()
    programs: dict[str, Path] = {}
    environment: dict[str, str] = {}
    shown: set[Path] = set()
    for name in dict.fromkeys((*names, *optional)):
        files = _executables(name, search_path, real_path(snapshot.root))
        found = next(filter(None, (_find(name, file, home, snapshot) for file in files)), None)
        if found is not None:
            programs[name], paths, variables = found
            shown.update(paths)
            environment.update(variables)
    if "node" in programs:
        shown.update(_node_modules(snapshot))
    allowed = {path for path in shown if _may_be_shown(path, home)}
    read_only = tuple(sorted(path for path in allowed if allowed.isdisjoint(path.parents)))
    return Toolchain(
        programs=programs,
        read_only=read_only,
        environment=environment,
        missing=tuple(sorted({*names} - programs.keys())),
    )


def _find(
    name: str, file: Path, home: Path, snapshot: Snapshot
) -> tuple[Path, tuple[Path, ...], Mapping[str, str]] | None:
    """Return the program, the host paths that it needs to read, and its variables.

    Return None if the file is the shim of a version manager.
    """
    kind, real = _KINDS[name], real_path(file)
    if real.name == "rustup":
        home = file.parent.parent
        real = _chosen_by_rustup(home, snapshot) or real
    elif name == "cargo":
        home /= ".cargo"
    if real.name not in kind.names or file.parent.name == _SHIMS:
        return None
    prefix = real.parent.parent
    is_whole = kind.mark != "" and (prefix / kind.mark).exists()
    program = real if real.name == name else file
    parts = (real_path(prefix / part) for part in kind.parts)
    stores = tuple(home / store for store in kind.stores if (home / store).is_dir())
    variables = kind.environment if stores or not kind.stores else {}
    return (
        program,
        (prefix if is_whole else real, program, *parts, *stores),
        {key: text.format(prefix=prefix, home=home) for key, text in variables.items()},
    )


def _chosen_by_rustup(cargo_home: Path, snapshot: Snapshot) -> Path | None:
    """Return the cargo that rustup would start: of the pinned toolchain, else of the default."""
    # Rustup's folder `.rustup` lies beside `.cargo`.
    rustup = cargo_home.parent / cargo_home.name.replace("cargo", "rustup")
    default = parsed_toml(_small_text(rustup / "settings.toml")).get("default_toolchain")
    return _installed(rustup / "toolchains", [*_pinned(snapshot), default], "cargo")


def real_path(path: Path) -> Path:
    """Return the path with all links resolved."""
    return Path(os.path.realpath(path))


def _executables(name: str, search_path: str | None, repository: Path) -> Iterator[Path]:
    """Yield the executable files of that name outside the repository, in the order of PATH."""
    path = os.environ.get("PATH", "") if search_path is None else search_path
    for folder in map(Path, path.split(":")):
        file = folder / name
        inside = real_path(file).is_relative_to(repository)
        if folder.is_absolute() and not inside and _is_executable(file):
            yield file


def _may_be_shown(path: Path, home: Path) -> bool:
    """Whether the path exists, the sandbox lacks it, and it does not hold the user's home."""
    real = real_path(path)
    in_system = any(real.is_relative_to(folder) for folder in SYSTEM)
    return real.exists() and not in_system and not real_path(home).is_relative_to(real)


def _node_modules(snapshot: Snapshot) -> Iterator[Path]:
    """Yield each `node_modules` beside a package.json that is not part of the repository."""
    for pure in map(PurePosixPath, snapshot.files):
        if pure.name != "package.json" or "node_modules" in pure.parts:
            continue
        inner = pure.parent / "node_modules"
        folder = real_path(snapshot.root) / inner
        tracked = any(path.startswith(f"{inner}/") for path in snapshot.files)
        if folder.is_dir() and not (folder.is_symlink() or tracked or snapshot.exists(str(inner))):
            yield folder


def _pinned(snapshot: Snapshot) -> Iterator[object]:
    """Yield the channel that the repository pins: the file has two names and two formats."""
    for name in ("rust-toolchain.toml", "rust-toolchain"):
        if name in snapshot.files:
            text = snapshot.text(name)
            table = parsed_toml(text).get("toolchain")
            yield table.get("channel") if isinstance(table, dict) else text.strip()
