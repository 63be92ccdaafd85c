"""What a command sees of this machine: its user and variables, mounts, and programs."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox.files import read_small_file
from sandbox.types import Command, SandboxError

# The name of the user and of the machine inside.
USER_NAME = "sandbox"

# A fixed search path: the user's own would name directories that are not shown.
PATH = "/usr/local/bin:/usr/bin:/bin"

# "Unused" in systemd's table of uids (systemd.io/UIDS-GIDS): no user, service or container has one.
_SPARE = range(1_879_048_192, 2_147_483_647)

# The traditional `nobody`, for a user namespace that maps only 16 bits (rootless containers).
_NOBODY = 65_534


def command_environment(
    command: Command, *, home: Path, reports: Mapping[str, str]
) -> Mapping[str, str]:
    """Return all variables: a fixed part, the command's own, and those that name its `reports`.

    Raises SandboxError for a variable that cannot be set.
    """
    temporary = str(home.parent)
    # Byte code is never taken from the tree, because a `.pyc` in a patch could hide its source.
    fixed = {
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "LOGNAME": USER_NAME,
        "PATH": PATH,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONPYCACHEPREFIX": f"{temporary}/pycache",
        "TMPDIR": temporary,
        "USER": USER_NAME,
    }
    whole = {**fixed, **command.environment, **reports}
    for name, value in whole.items():
        if not name or "=" in name or "\0" in name + value:
            raise SandboxError(f"not an environment variable: {name!r}")
    return whole


def find_spare_uid() -> int | None:
    """Find a uid (and gid) to drop to, nearly always a new one; None when we may not change it."""
    if os.geteuid() != 0:
        return None
    uids, gids = _mapped_ids("uid_map"), _mapped_ids("gid_map")
    for candidate in (_SPARE.start + secrets.randbelow(len(_SPARE)), _NOBODY):
        if all(any(candidate in ids for ids in ranges) for ranges in (uids, gids)):
            return candidate
    return None


def is_spare(uid: int) -> bool:
    """Whether only a sandbox has this uid."""
    return uid in _SPARE


def _mapped_ids(name: str) -> tuple[range, ...]:
    lines = Path("/proc/self", name).read_text(encoding="ascii").splitlines()
    fields = [[int(field) for field in line.split()] for line in lines]
    return tuple(range(inside, inside + count) for inside, _, count in fields)


# ---- mounts for the system and for interpreters

# Programs and libraries. The last two are the stores of NixOS and Guix.
SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"),
    *("/nix/store", "/gnu/store"),
)

# Public, and read by common libraries. Nothing that identifies the machine or a user.
_ETC = (
    *("alternatives", "fonts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime"),
    *("mime.types", "os-release", "protocols", "services", "timezone"),
)

# Never shown: they are, or hold, people's homes and the kernel's files.
_REFUSED = ("/", "/home", "/root", "/proc", "/sys", "/dev", "/etc", "/run", "/var", "/tmp")  # noqa: S108


@dataclass(frozen=True, slots=True)
class Bind:
    """A host path shown at `target`. Total order: by target, so that parents come first."""

    target: Path
    source: Path
    writable: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link to make inside, as it is on the host."""

    target: Path
    points_to: str


def system_mounts() -> tuple[Bind | Link, ...]:
    """Return mounts for the system's directories and its public configuration."""
    configuration = (f"/etc/{name}" for name in _ETC)
    mounts: list[Bind | Link] = []
    for path in map(Path, (*SYSTEM, *configuration)):
        if path.is_symlink() and not path.is_relative_to("/etc"):
            mounts.append(Link(path, str(path.readlink())))
        elif path.exists():
            mounts.append(Bind(path, path.resolve()))
    return tuple(mounts)


def read_only_mounts(paths: Iterable[Path], *, homes: Sequence[Path]) -> tuple[Bind | Link, ...]:
    """Return binds for `paths` at the same paths inside, with the links on the way to them.

    Raises SandboxError for a path that is missing or would show one of the `homes` as a whole.
    """
    refused = {*map(Path, _REFUSED), *homes}
    mounts: dict[Path, Bind | Link] = {}
    for path in paths:
        real, links = follow_links(path)
        if not real.exists():
            raise SandboxError(f"{path} does not exist; name an interpreter that is installed")
        if any(home.is_relative_to(real) for home in refused):
            raise SandboxError(
                f"refused to show {real} in the sandbox: it holds more than programs"
            )
        mounts.update({link.target: link for link in links})
        mounts[real] = Bind(real, real)
    return _visible(mounts.values())


def follow_links(path: Path) -> tuple[Path, tuple[Link, ...]]:
    """Return the real path of `path` and the symbolic links that lead there, one for each step."""
    links: dict[Path, Link] = {}
    pending = list(reversed(path.absolute().parts[1:]))
    current = Path("/")
    while pending:
        step = pending.pop()
        following = current.parent if step == ".." else current / step
        if following in links or len(links) > 40:  # MAXSYMLINKS of the kernel
            raise SandboxError(f"too many links on the way to {path}")
        if not following.is_symlink():
            current = following
            continue
        points_to = following.readlink()
        links[following] = Link(following, str(points_to))
        pending += reversed([part for part in points_to.parts if part != "/"])
        current = Path("/") if points_to.is_absolute() else current
    return current, tuple(links.values())


def _visible(mounts: Iterable[Bind | Link]) -> tuple[Bind | Link, ...]:
    shown: list[Bind | Link] = []
    roots = [Path(path) for path in SYSTEM]
    for mount in sorted(mounts, key=lambda mount: mount.target):
        if not any(mount.target.is_relative_to(root) for root in roots):
            shown.append(mount)
            if isinstance(mount, Bind):
                roots.append(mount.target)
    return tuple(shown)


# ---- which programs may run outside, and what they need inside


def hide_programs(work_tree: Path) -> None:
    """Take relative folders, and those in `work_tree`, off the PATH of this process.

    Else a repository could provide git, bwrap or cp. A work tree that holds the user's home keeps
    its folders, because they are the user's own.
    """
    folders = [f for f in os.environ.get("PATH", os.defpath).split(os.pathsep) if f[:1] == "/"]
    if not Path.home().resolve().is_relative_to(work_tree.resolve()):
        folders = [folder for folder in folders if not _comes_from(work_tree, Path(folder))]
    os.environ["PATH"] = os.pathsep.join(folders)


def _comes_from(work_tree: Path | None, path: Path) -> bool:
    if work_tree is None:
        return False
    try:
        real, links = follow_links(path)
    except SandboxError:  # a loop of links
        return True
    steps = (path.absolute(), real, *(link.target for link in links))
    roots = {work_tree.absolute(), work_tree.resolve()}
    return any(step.is_relative_to(root) for step in steps for root in roots)


def run_program(
    *argv: str, seconds: float, environment: Mapping[str, str] | None = None, text: str = ""
) -> bytes:
    """Return what a program prints when it reads `text`.

    Raises SandboxError with the last line of its errors.
    """
    try:
        done = subprocess.run(
            argv,
            input=text.encode(),
            capture_output=True,
            cwd="/",
            env=environment,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise SandboxError(f"{argv[0]} took over {seconds:.0f} s") from error
    except (OSError, ValueError) as error:
        raise SandboxError(f"cannot start {argv[0]}: {error}") from error
    if done.returncode != 0:
        raise SandboxError(last_line(done.stderr) or f"{argv[0]} failed")
    return done.stdout


def last_line(stderr: bytes) -> str:
    """Return the last line of what a program said, without its prefix."""
    lines = stderr.decode("utf-8", errors="replace").strip().splitlines() or [""]
    return lines[-1].removeprefix("Error: ").removeprefix("fatal: ").strip()


# Asked with -I -S, so that no code of the environment, of .pth files or of the directory runs.
_QUESTION = (
    "import json,sys; print(json.dumps([sys.executable, sys.base_prefix, sys.base_exec_prefix]))"
)

_CONFIGURATION = "pyvenv.cfg"

# The module that Python itself looks for to find its prefix (getpath.py), and its place in PyPy.
_STANDARD_LIBRARY = ("lib*/python3*/os.py", "lib*/pypy3*/os.py", "lib-python/3/os.py")


@dataclass(frozen=True, slots=True)
class InterpreterPaths:
    """An interpreter: `executable` starts it in a sandbox that shows `paths` read-only."""

    executable: Path
    paths: tuple[Path, ...]


def find_interpreter(python: Path, *, work_tree: Path | None = None) -> InterpreterPaths:
    """Find the environment of `python`, its installation, and the links between them.

    A virtual environment, and whatever lies in `work_tree` or is reached through it, is described
    by its files and is not run. Any other runs once on the host, isolated and without site. Raises
    SandboxError when it is missing, belongs to somebody else, or does not answer.
    """
    _check_owner(python)
    if _is_environment(python) or _comes_from(work_tree, python):
        return _described(python.absolute(), work_tree)
    executable, *prefixes = _ask(python)
    if _is_environment(executable) or _comes_from(work_tree, executable):
        return _described(executable, work_tree)
    # A prefix may be /usr with the rest of the system, or lie below another one.
    paths = {executable, *prefixes}
    return InterpreterPaths(executable, tuple(sorted(path for path in paths if path.exists())))


def _is_environment(python: Path) -> bool:
    return (python.absolute().parent.parent / _CONFIGURATION).is_file()


def _described(python: Path, work_tree: Path | None) -> InterpreterPaths:
    """Describe an interpreter by its place, its links and its pyvenv.cfg (PEP 405).

    No other folder of the user is shown: one must hold a Python installation.
    """
    environment = python.parent.parent
    real, _ = follow_links(python)
    prefixes = {real.parent.parent, environment}
    paths = {python}
    if _is_environment(python):
        whole = follow_links(environment)[0]
        if work_tree is not None and work_tree.resolve().is_relative_to(whole):
            raise SandboxError(f"{environment} is no virtual environment: it holds the repository")
        paths.add(environment)
        prefixes.update(_find_homes(environment / _CONFIGURATION))
    paths |= {prefix for prefix in prefixes if _is_installation(prefix)}
    return InterpreterPaths(python, tuple(sorted(paths)))


def _is_installation(prefix: Path) -> bool:
    return prefix != Path("/") and any(
        next(prefix.glob(pattern), None) is not None for pattern in _STANDARD_LIBRARY
    )


def _check_owner(python: Path) -> None:
    try:
        owner = python.stat().st_uid
    except OSError as error:
        raise SandboxError(f"no interpreter at {python}: {error.strerror}") from error
    if owner not in (0, os.geteuid()):
        raise SandboxError(f"{python} belongs to another user (uid {owner}); it is not run")


def _ask(python: Path) -> tuple[Path, ...]:
    argv = (str(python.absolute()), "-I", "-S", "-c", _QUESTION)
    try:
        answer = json.loads(run_program(*argv, seconds=20.0))
        return tuple(Path(place).absolute() for place in answer)
    except (SandboxError, ValueError, TypeError) as error:
        raise SandboxError(f"{python} does not work as a Python interpreter: {error}") from error


def _find_homes(configuration: Path) -> tuple[Path, ...]:
    try:
        text = (read_small_file(configuration) or b"").decode("utf-8", "replace")
    except OSError as error:
        raise SandboxError(f"{configuration} cannot be read: {error.strerror}") from None
    entries = (line.partition("=") for line in text.splitlines())
    homes = (Path(value.strip()) for key, _, value in entries if key.strip() == "home")
    return tuple(home.parent for home in homes if home.is_absolute())
