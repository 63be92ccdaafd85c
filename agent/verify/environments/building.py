"""Builds virtual environments: one for each Python and set of packages, in FOLDER/KEY.

KEY.log has the output of pip, and KEY.lock is held by the builder. Only wheels are installed, so
that no code of a package runs on this machine, unless the spec says `sdist = true`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.errors import ConfigurationError
from agent.shared.files import locked, replace_file
from agent.verify.environments.spec import NO_INDEX, Environment, EnvironmentSpec
from sandbox import SandboxError, run_program

# The folder of environments below the cache folder.
FOLDER = "environments"

# Change it when environments are built in another way.
_FORMAT = 2

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

# Written last into the folder of an environment: the packages, `name==version` in order of names.
_COMPLETE = "patchshot-packages.json"


@dataclass(frozen=True, slots=True)
class HostPython:
    """An installed interpreter, as it describes itself."""

    path: Path
    version: str


def environment_key(python: HostPython, environment: Environment) -> str:
    """Return the folder's name: the same for the same Python and packages in any order."""
    parts = environment.model_dump(include={"index", "find_links", "sdist"})
    parts |= {"python": [str(python.path), python.version], "format": _FORMAT}
    parts |= {"packages": sorted(set(environment.packages))}
    text = json.dumps(parts, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


class Environments:
    """Makes each environment of a spec once. Safe to use from several threads."""

    def __init__(
        self,
        spec: EnvironmentSpec,
        cache: Path,
        *,
        note: Callable[[str], None] = lambda _: None,
        cancel: threading.Event | None = None,
    ) -> None:
        self.environment = spec.environment
        self._folder = cache.absolute() / FOLDER
        self._note = note
        self._cancel = cancel or threading.Event()

    def build(self, environment: Environment) -> tuple[Path, str]:
        """Build what is missing; return Python and a description. Raises ConfigurationError."""
        host = find_python(environment.python)
        key = environment_key(host, environment)
        home = self._folder / key
        self._folder.mkdir(parents=True, exist_ok=True)
        with locked(self._folder / f"{key}.lock", wait=True):
            installed = _read(home)
            if installed is None:
                names = " ".join(dict.fromkeys(environment.packages)) or "no packages"
                self._note(f"environment: Python {host.version} with {names}")
                if environment.sdist:
                    self._note("environment: packages may run their code here (sdist = true)")
                try:
                    installed = _fill(host, environment, home, self._cancel)
                except BaseException:
                    shutil.rmtree(home, ignore_errors=True)
                    raise
        return home / "bin" / "python", f"Python {host.version}, {len(installed)} packages ({key})"


def _read(home: Path) -> tuple[str, ...] | None:
    try:
        installed = tuple(map(str, json.loads((home / _COMPLETE).read_bytes())))
    except (OSError, ValueError, TypeError):
        return None
    return installed if os.access(home / "bin" / "python", os.X_OK) else None


def _fill(
    host: HostPython, environment: Environment, home: Path, cancel: threading.Event
) -> tuple[str, ...]:
    shutil.rmtree(home, ignore_errors=True)  # what a killed build has left
    log = home.with_suffix(".log")
    log.write_bytes(b"")
    venv = ("-m", "venv", str(home))
    _run(host.path, venv, "making the virtual environment", log, cancel)
    home.chmod(0o755)  # the user of the sandbox has to enter it
    python = home / "bin" / "python"
    if environment.packages:
        _run(python, _pip_arguments(environment), "pip install", log, cancel)
    listing = _run(python, ("-c", _PACKAGE_LIST), "listing packages", log, cancel)
    line = listing.strip().splitlines()[-1]
    replace_file(home / _COMPLETE, [line.encode()])
    return tuple(json.loads(line))


def _pip_arguments(environment: Environment) -> tuple[str, ...]:
    arguments = list(_PIP_INSTALL)
    if not environment.sdist:
        arguments.append("--only-binary=:all:")
    if environment.index == NO_INDEX:
        arguments.append("--no-index")
    elif environment.index:
        arguments.append(f"--index-url={environment.index}")
    links = (f"--find-links={link}" for link in environment.find_links)
    return (*arguments, *links, "--", *dict.fromkeys(environment.packages))


def _run(
    python: Path, arguments: tuple[str, ...], what: str, log: Path, cancel: threading.Event
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
                if cancel.wait(_POLL_SECONDS):
                    raise ConfigurationError("the environment was not built: stopped")
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
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    reason = (errors or lines or ["it printed nothing"])[-1][:_MOST_CHARACTERS]
    raise ConfigurationError(f"{what} {ended}: {reason}; correct the spec (output: {log})")


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
        answer = run_program(str(path), "-I", "-S", "-c", _QUESTION, seconds=_ANSWER_SECONDS)
        version, executable = answer.decode("utf-8", "surrogateescape").splitlines()
    except (SandboxError, ValueError):
        return None
    return HostPython(Path(executable), version)
