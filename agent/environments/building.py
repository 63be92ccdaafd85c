"""Builds virtual environments: one for each Python and set of packages, kept in a folder.

FOLDER/KEY.json      which of the folders is the environment; written last, so it is whole
FOLDER/KEY-x1y2z3/   the environment; others of the same key are what a kill has left
FOLDER/KEY.log       what pip said
FOLDER/KEY.lock      held by the builder

Wheels only, unless the spec says `sdist = true`: then nothing of a package is run on this machine.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from agent.durable import locked, replace_file
from agent.environments.pythons import HostPython
from agent.environments.spec import NO_INDEX
from agent.errors import ConfigurationError

# Changes when environments are made in another way than before.
_FORMAT = 1

# A large stack of scientific wheels over a slow line.
_PIP_SECONDS = 1800.0
_VENV_SECONDS = 180.0

_POLL_SECONDS = 0.1
_SHOWN = 300  # characters of what pip said

# pip's and the resolver's words for a network that is not there.
_NO_NETWORK = re.compile(
    r"Failed to establish a new connection|Temporary failure in name resolution|"
    r"Network is unreachable|Name or service not known|Connection refused|ConnectTimeoutError"
)
_ONLY_SOURCE = re.compile(r"No matching distribution|Could not find a version")

# Of the environment: builds of packages, where they are allowed, shall see nothing else.
_KEPT = re.compile(
    r"PATH|HOME|TMPDIR|LANG|NETRC|XDG_\w+|PIP_\w+|SSL_CERT_\w+|REQUESTS_CA_BUNDLE"
    r"|(?i:https?_proxy|all_proxy|no_proxy)"
)

# What pip prints beside the reason.
_NOISE = re.compile(
    r"^\[notice\]|^WARNING: (?:Retrying|Running pip as)|^ERROR: ResolutionImpossible|^\s*$"
)

_PACKAGE_LIST = """
import importlib.metadata as m, json
found = {d.metadata["Name"].lower() + "==" + d.version for d in m.distributions()}
print(json.dumps(sorted(found)))
"""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What an environment is made of. `index`, `find_links`, `sdist` as in the spec."""

    python: HostPython
    packages: tuple[str, ...]
    index: str = ""
    find_links: tuple[str, ...] = ()
    sdist: bool = False

    @property
    def key(self) -> str:
        """Names the environment: the same for the same Python and packages, in any order."""
        parts = {**asdict(self), "python": [str(self.python.path), self.python.version]}
        parts |= {"packages": sorted(set(self.packages)), "format": _FORMAT}
        text = json.dumps(parts, sort_keys=True)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


@dataclass(frozen=True, slots=True)
class Built:
    """An environment that is there. `installed`: `name==version`, in order of the names."""

    python: Path
    installed: tuple[str, ...]


def build(
    recipe: Recipe,
    folder: Path,
    *,
    note: Callable[[str], None] = lambda _: None,
    cancel: threading.Event | None = None,
) -> Built:
    """The environment of a recipe, made where it is not there yet.

    Whoever else needs it waits. `note` is told before something takes long. Raises
    ConfigurationError, with what pip said last, also when `cancel` is set meanwhile.
    """
    folder.mkdir(parents=True, exist_ok=True)
    known = _read(folder, recipe.key)
    if known is not None:
        return known
    with locked(folder / f"{recipe.key}.lock", wait=True):
        return _read(folder, recipe.key) or _make(recipe, folder, note, cancel)


def _read(folder: Path, key: str) -> Built | None:
    """What the note of a finished environment says, if that is still there and starts."""
    try:
        data = json.loads((folder / f"{key}.json").read_bytes())
        home = folder / str(data["folder"])
        installed = tuple(map(str, data["installed"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    python = home / "bin" / "python"
    whole = home.parent == folder and os.access(python, os.X_OK)
    return Built(python, installed) if whole else None


def _make(
    recipe: Recipe,
    folder: Path,
    note: Callable[[str], None],
    cancel: threading.Event | None,
) -> Built:
    key = recipe.key
    for left in sorted(folder.glob(f"{key}-*")):
        shutil.rmtree(left, ignore_errors=True)
    home = folder / f"{key}-{secrets.token_hex(4)}"
    packages = " ".join(recipe.packages) or "no packages"
    note(f"environment: Python {recipe.python.version} with {packages}")
    if recipe.sdist:
        note("environment: sdist = true, so builds of packages may run their code on this machine")
    try:
        with (folder / f"{key}.log").open("w+b") as log:
            _create(recipe, home, log, cancel)
            _install(recipe, home, log, cancel)
            listed = _checked(_list_command(home), log, _VENV_SECONDS, cancel, "listing packages")
    except BaseException:
        shutil.rmtree(home, ignore_errors=True)
        raise
    installed = json.loads(listed.strip().splitlines()[-1])
    _keep(folder / f"{key}.json", {"folder": home.name, "installed": installed, **_shown(recipe)})
    return Built(home / "bin" / "python", tuple(installed))


def _shown(recipe: Recipe) -> Mapping[str, object]:
    """For people who look at the file."""
    return {"python": str(recipe.python.path), "packages": sorted(set(recipe.packages))}


def _create(recipe: Recipe, home: Path, log: IO[bytes], cancel: threading.Event | None) -> None:
    argv = [str(recipe.python.path), "-I", "-m", "venv", str(home)]
    _checked(
        argv, log, _VENV_SECONDS, cancel, "making the virtual environment (Debian: python3-venv)"
    )
    home.chmod(0o755)  # the sandbox's own user has to enter it


def _install(recipe: Recipe, home: Path, log: IO[bytes], cancel: threading.Event | None) -> None:
    if not recipe.packages:
        return
    argv = [str(home / "bin" / "python"), "-I", "-m", "pip", "install", "--no-input"]
    argv += ["--disable-pip-version-check", "--progress-bar=off", "--no-warn-script-location"]
    argv += [] if recipe.sdist else ["--only-binary=:all:"]
    if recipe.index == NO_INDEX:
        argv.append("--no-index")
    elif recipe.index:
        argv.append(f"--index-url={recipe.index}")
    argv += [f"--find-links={link}" for link in recipe.find_links]
    argv += ["--", *dict.fromkeys(recipe.packages)]
    _checked(argv, log, _PIP_SECONDS, cancel, "pip install", _advice(recipe))


def _advice(recipe: Recipe) -> Callable[[str], str]:
    def advise(said: str) -> str:
        if _NO_NETWORK.search(said):
            return (
                "; the package index cannot be reached from here: go on line once, or name a "
                'folder of wheels with find_links and index = "none"'
            )
        if _ONLY_SOURCE.search(said) and not recipe.sdist:
            return (
                "; only wheels are taken: choose a version or Python that has one, or allow "
                "builds with sdist = true"
            )
        return "; correct packages in the spec"

    return advise


def _list_command(home: Path) -> list[str]:
    return [str(home / "bin" / "python"), "-I", "-c", _PACKAGE_LIST]


def _checked(
    argv: Sequence[str],
    log: IO[bytes],
    seconds: float,
    cancel: threading.Event | None,
    what: str,
    advise: Callable[[str], str] = lambda _: "",
) -> str:
    """What a command printed. Raises ConfigurationError when it fails or takes too long."""
    begin = log.seek(0, os.SEEK_END)
    code = _run(argv, log, seconds, cancel)
    log.seek(begin)
    said = log.read().decode("utf-8", "replace")
    if code == 0:
        return said
    ended = "took too long" if code is None else f"failed ({code})"
    raise ConfigurationError(f"{what} {ended}: {_reason(said)}{advise(said)}")


def _reason(said: str) -> str:
    """The last line that says why, not longer than a person reads; the rest is in the log."""
    lines = [line.strip() for line in said.splitlines() if not _NOISE.search(line)]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    why = (errors or lines or ["it said nothing"])[-1]
    return why if len(why) <= _SHOWN else f"{why[: _SHOWN - 1]}…"


def _run(
    argv: Sequence[str], log: IO[bytes], seconds: float, cancel: threading.Event | None
) -> int | None:
    """The exit code; None where the time was over. Its process group ends with it."""
    deadline = time.monotonic() + seconds
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=_environment(),
            cwd="/",
            start_new_session=True,
            umask=0o022,
        )
    except OSError as error:
        raise ConfigurationError(f"{argv[0]}: {error.strerror or error}") from None
    try:
        while process.poll() is None:
            if time.monotonic() > deadline:
                return None
            if cancel is not None and cancel.is_set():
                raise ConfigurationError("the environment was not built: stopped")
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_POLL_SECONDS)
        return process.returncode
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _environment() -> dict[str, str]:
    """What pip needs of the user's: settings, proxies, certificates, a home. No keys of ours."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if _KEPT.fullmatch(name) and name not in ("PIP_TARGET", "PIP_PREFIX", "PIP_USER")
    }
    return {**kept, "PIP_REQUIRE_VIRTUALENV": "0", "LC_ALL": "C.UTF-8"}


def _keep(path: Path, value: Mapping[str, object]) -> None:
    """Whole or not there."""
    replace_file(path, [f"{json.dumps(value, indent=2, sort_keys=True)}\n".encode()])
