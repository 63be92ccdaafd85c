"""Builds virtual environments: one for each Python and set of packages, kept in a folder.

FOLDER/KEY.json      names the folder of the environment; written last, so it is complete
FOLDER/KEY-x1y2z3/   the environment; killed builds left other folders of the same key
FOLDER/KEY.log       the output of pip
FOLDER/KEY.lock      held by the builder

Only wheels are installed, so that no code of a package runs on this machine, unless the spec says
`sdist = true`.
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
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from agent.errors import ConfigurationError
from agent.shared.files import locked, replace_file
from agent.verify.environments.spec import NO_INDEX

# Change it when environments are built in another way.
_FORMAT = 1

# Time for a large stack of scientific wheels over a slow line.
_SECONDS = 1800.0
_POLL_SECONDS = 0.1
_MOST_CHARACTERS = 300  # of pip's reason in a message

# The environment variables that builds of packages may see: no keys.
_PASSED_ON = re.compile(
    r"PATH|HOME|TMPDIR|LANG|NETRC|XDG_\w+|PIP_(?!TARGET$|PREFIX$|USER$)\w+|SSL_CERT_\w+"
    r"|REQUESTS_CA_BUNDLE|(?i:https?_proxy|all_proxy|no_proxy)"
)

_PIP_INSTALL = (
    *("-m", "pip", "install", "--no-input", "--disable-pip-version-check"),
    *("--progress-bar=off", "--no-warn-script-location"),
)

_PACKAGE_LIST = """
import importlib.metadata as m, json
found = {d.metadata["Name"].lower() + "==" + d.version for d in m.distributions()}
print(json.dumps(sorted(found)))
"""


@dataclass(frozen=True, slots=True)
class HostPython:
    """An installed interpreter, as it describes itself."""

    path: Path
    version: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """What an environment is made of. `index`, `find_links` and `sdist` are as in the spec."""

    python: HostPython
    packages: tuple[str, ...]
    index: str = ""
    find_links: tuple[str, ...] = ()
    sdist: bool = False

    @property
    def key(self) -> str:
        """The key of the environment, the same for the same Python and packages in any order."""
        parts = {**asdict(self), "python": [str(self.python.path), self.python.version]}
        parts |= {"packages": sorted(set(self.packages)), "format": _FORMAT}
        text = json.dumps(parts, sort_keys=True)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]

    @property
    def pip_arguments(self) -> tuple[str, ...]:
        """Return the arguments of the interpreter that install the packages."""
        arguments = list(_PIP_INSTALL)
        if not self.sdist:
            arguments.append("--only-binary=:all:")
        if self.index:
            arguments.append(
                "--no-index" if self.index == NO_INDEX else f"--index-url={self.index}"
            )
        links = (f"--find-links={link}" for link in self.find_links)
        return (*arguments, *links, "--", *dict.fromkeys(self.packages))


@dataclass(frozen=True, slots=True)
class BuiltEnvironment:
    """A finished environment. `installed` are `name==version` in order of names."""

    python: Path
    installed: tuple[str, ...]


def build_environment(
    recipe: Recipe,
    folder: Path,
    *,
    note: Callable[[str], None] = lambda _: None,
    cancel: threading.Event | None = None,
) -> BuiltEnvironment:
    """Return the environment of a recipe, built if it is missing. Raises ConfigurationError."""
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / f"{recipe.key}.lock", wait=True):
        return _read(folder, recipe.key) or _build(recipe, folder, note, cancel)


def _read(folder: Path, key: str) -> BuiltEnvironment | None:
    try:
        data = json.loads((folder / f"{key}.json").read_bytes())
        home = folder / str(data["folder"])
        installed = tuple(map(str, data["installed"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    python = home / "bin" / "python"
    whole = home.parent == folder and os.access(python, os.X_OK)
    return BuiltEnvironment(python, installed) if whole else None


def _build(
    recipe: Recipe, folder: Path, note: Callable[[str], None], cancel: threading.Event | None
) -> BuiltEnvironment:
    key = recipe.key
    for left in sorted(folder.glob(f"{key}-*")):
        shutil.rmtree(left, ignore_errors=True)
    home = folder / f"{key}-{secrets.token_hex(4)}"
    packages = " ".join(recipe.packages) or "no packages"
    note(f"environment: Python {recipe.python.version} with {packages}")
    if recipe.sdist:
        note("environment: sdist = true, so builds of packages may run their code on this machine")
    try:
        installed = _fill(recipe, home, folder / f"{key}.log", cancel)
    except BaseException:
        shutil.rmtree(home, ignore_errors=True)
        raise
    # `python` and `packages` are for people who look at the file.
    entry = {
        "folder": home.name,
        "installed": installed,
        "python": str(recipe.python.path),
        "packages": sorted(set(recipe.packages)),
    }
    text = f"{json.dumps(entry, indent=2, sort_keys=True)}\n"
    replace_file(folder / f"{key}.json", [text.encode()])
    return BuiltEnvironment(home / "bin" / "python", tuple(installed))


def _fill(recipe: Recipe, home: Path, log: Path, cancel: threading.Event | None) -> list[str]:
    log.write_bytes(b"")
    venv = ("-m", "venv", str(home))
    _run(recipe.python.path, venv, "making the virtual environment", log, cancel)
    home.chmod(0o755)  # the user of the sandbox has to enter it
    python = home / "bin" / "python"
    if recipe.packages:
        _run(python, recipe.pip_arguments, "pip install", log, cancel)
    listing = _run(python, ("-c", _PACKAGE_LIST), "listing packages", log, cancel)
    return list(json.loads(listing.strip().splitlines()[-1]))


def _run(
    python: Path, arguments: tuple[str, ...], what: str, log: Path, cancel: threading.Event | None
) -> str:
    """Run an interpreter, add its output to the log and return it; then kill its process group."""
    passed_on = {name: text for name, text in os.environ.items() if _PASSED_ON.fullmatch(name)}
    deadline = time.monotonic() + _SECONDS
    with log.open("a+b") as file:
        begin = file.seek(0, os.SEEK_END)
        try:
            process = subprocess.Popen(
                [str(python), "-I", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**passed_on, "PIP_REQUIRE_VIRTUALENV": "0", "LC_ALL": "C.UTF-8"},
                cwd="/",
                start_new_session=True,
                umask=0o022,
            )
        except OSError as error:
            raise ConfigurationError(f"{python}: {error.strerror or error}") from None
        try:
            while process.poll() is None and time.monotonic() < deadline:
                if cancel is not None and cancel.is_set():
                    raise ConfigurationError("the environment was not built: stopped")
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_SECONDS)
            code = process.returncode
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        file.seek(begin)
        output = file.read().decode("utf-8", "replace")
    if code == 0:
        return output
    ended = "took too long" if code is None else f"failed ({code})"
    raise ConfigurationError(f"{what} {ended}: {_reason(output)}; correct the spec (output: {log})")


def _reason(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["it printed nothing"])[-1][:_MOST_CHARACTERS]


# ------------------------------------------------------------------- interpreters of the host

_VERSION = re.compile(r"\d+(?:\.\d+){0,2}")
_ANSWER_SECONDS = 20.0

# Asks for the base installation, because another environment may be removed.
_QUESTION = (
    "import sys; print(sys.version.split()[0]); "
    "print(getattr(sys, '_base_executable', '') or sys.executable)"
)


def find_python(name: str) -> HostPython:
    """Find a version, a name on PATH, an absolute path; "" is ours. Raises ConfigurationError."""
    numbers = name.split(".") if _VERSION.fullmatch(name) else []
    for path in _candidates(name, ".".join(numbers[:2])):
        python = _ask_python(path)
        if python is not None and python.version.split(".")[: len(numbers)] == numbers:
            return python
    raise ConfigurationError(
        f"python = {name!r}: no such Python here; install it, or name the path of one"
    )


def _candidates(name: str, short: str) -> Iterator[Path]:
    if name.startswith(("/", "~")):
        yield Path(name).expanduser()
    elif name and (file := shutil.which(f"python{short}" if short else name)):
        yield Path(file).absolute()
    if short:
        root = Path(os.environ.get("PYENV_ROOT") or "~/.pyenv").expanduser()
        yield from sorted(root.glob(f"versions/{short}*/bin/python{short}"), reverse=True)
    if short or not name:
        yield Path(sys.executable)


def _ask_python(path: Path) -> HostPython | None:
    """Ask an interpreter; None when it does not start (a shim without a version, say)."""
    try:
        answer = subprocess.run(
            [str(path), "-I", "-S", "-c", _QUESTION],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd="/",
            timeout=_ANSWER_SECONDS,
            check=True,
        )
        version, executable = answer.stdout.decode("utf-8", "surrogateescape").splitlines()
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return HostPython(Path(executable), version)
