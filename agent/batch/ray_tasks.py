"""The engine of a Ray cluster: each attempt is a task, everything else stays with the driver.

A task gets the repository (once a node, as a pack of the commits that the run needs) and the paid
replies of its instance, runs the worker of this machine's engine in a private folder, and streams
each new reply to the driver, then the files. If a node dies, the calls under way there and the
replies of its last `_LOOK_SECONDS` are lost. This is the only module that uses Ray. Keys are
arguments of tasks, so they go from process to process and not into Ray's global store, logs or task
names.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import logging
import os
import platform
import re
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

import agent
from agent import __version__
from agent.batch.worker import ENDED, STOPPED, AttemptEnded, LocalEngine, SolveJob
from agent.errors import ConfigurationError, RepositoryError, Status
from agent.repository import open_repository
from agent.results import kept as files
from agent.settings import Settings
from agent.shared.files import AppendFile, locked, replace_file
from agent.shared.terminal import install_command
from sandbox import WorkspaceError, git_environment, git_options, objects_directory

JOIN_SECONDS = 20.0
"""A cluster that does not answer for so long counts as absent."""

_START_SECONDS = 120.0  # a process that imports this package, on a busy machine
_GIT_SECONDS = 1800.0  # packing gigabytes takes minutes; a longer run of git hangs
_LOOK_SECONDS = 0.2  # between two looks for new replies
_CPUS = 0.25  # of a task: workers wait for the model most of the time

# Settings that are not sent: paths of this machine, and keys, which are sent in `NodeSetup`.
_HERE_ONLY = frozenset({"api_key", "embed_api_key", "cache_dir", "log_file", "python"})
# Environment variables that stay those of the node, because they name its own paths.
_OWN_PATHS = ("PATCHSHOT_CACHE_DIR", "PATCHSHOT_LOG_FILE", "PATCHSHOT_PYTHON")
_RETURNED = (files.LOG, files.PATCH, files.RESULT)

# Otherwise Ray prints warnings to stderr and sends usage statistics.
_QUIET = {
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
}


class NodeSetup(BaseModel):
    """Settings of a run, sent to each task. It holds secrets: do not store it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: str
    environment: dict[str, str]
    unset: tuple[str, ...]


# --- on a node


def solve_on_node(
    setup_json: str, job_json: str, name: str, packed: list[Any], recording: bytes
) -> Iterator[tuple[str, bytes]]:
    """Run one attempt. Yield (file name, content): each new reply, the files, how it ended.

    `name` is that of the repository on the node, and `packed` holds the reference to its pack.
    """
    setup, job = NodeSetup.model_validate_json(setup_json), SolveJob.model_validate_json(job_json)
    if setup.version != program_version():
        raise RuntimeError(f"it has {program_version()}, the driver {setup.version}")
    environment = {
        key: value
        for key, value in os.environ.items()
        if key not in setup.unset and (not key.startswith("PATCHSHOT_") or key in _OWN_PATHS)
    }
    engine = LocalEngine({**environment, **setup.environment})
    with tempfile.TemporaryDirectory(prefix="patchshot-batch-") as private:
        folder = Path(private)
        replies = folder / files.EXCHANGES
        replies.write_bytes(recording)
        repository = _unpacked(name, packed)
        here = job.model_copy(update={"folder": private, "repository": str(repository)})
        ended: list[AttemptEnded] = []
        thread = threading.Thread(target=lambda: ended.append(engine.attempt(here)), daemon=True)
        thread.start()
        try:
            sent = len(recording)
            while True:
                is_running = thread.is_alive()
                data = replies.read_bytes()[sent:]
                if lines := data[: data.rfind(b"\n") + 1]:
                    sent += len(lines)
                    yield files.EXCHANGES, lines
                if not is_running:
                    break
                thread.join(_LOOK_SECONDS)
        finally:
            engine.cancel()
            thread.join()
        for file in _RETURNED:
            if (folder / file).is_file():
                yield file, (folder / file).read_bytes()
        yield ENDED, ended[0].model_dump_json().encode()


def _unpacked(name: str, packed: list[Any]) -> Path:
    """Return the bare copy of a repository, which stays for later tasks of this node.

    It has only the objects of the project: no configuration, hooks or work tree.
    """
    from agent.settings import load

    copy = load({}).cache_dir / "repositories" / name
    copy.mkdir(parents=True, exist_ok=True)
    with locked(copy / "patchshot.lock", wait=True):
        if not (copy / "complete").is_file():
            pack, shallow = _ray().get(packed[0])
            _git(copy, "init", "--quiet", "--bare", str(copy))
            if shallow:
                (copy / "shallow").write_text("".join(f"{end}\n" for end in shallow))
            _git(copy, "index-pack", "--stdin", stdin=pack)
            (copy / "complete").touch()
    return copy


def program_version() -> str:
    """Return the versions of this package (with a hash of its source), of Python and of Ray."""
    digest = hashlib.sha256()
    for place in agent.__path__:
        for path in sorted(Path(place).rglob("*.py")):
            data = path.read_bytes()
            digest.update(f"{path.relative_to(place).as_posix()}\0{len(data)}\0".encode() + data)
    return (
        f"patchshot {__version__} ({digest.hexdigest()[:12]}), Python {platform.python_version()}, "
        f"Ray {metadata.version('ray')}"
    )


# --- on the driver's machine


def make_pack(repository: Path, commits: Sequence[str]) -> tuple[bytes, tuple[str, ...]]:
    """Pack the commits that are there, with their history, and say where a shallow one ends.

    Raises RepositoryError.
    """
    present = []
    with open_repository(repository) as git:
        shallow = tuple(sorted(git.shallow_ends()))
        for commit in commits:
            with contextlib.suppress(RepositoryError):
                present.append(git.resolve(commit))
    try:
        objects = objects_directory(repository)
    except WorkspaceError as error:
        raise RepositoryError(str(error)) from None
    with tempfile.TemporaryDirectory(prefix="patchshot-pack-") as private:
        folder = Path(private)
        _git(folder, "init", "--quiet", "--bare", private)
        (folder / "objects/info").mkdir(exist_ok=True)
        (folder / "objects/info/alternates").write_text(f"{objects}\n")
        if shallow:
            (folder / "shallow").write_text("".join(f"{end}\n" for end in shallow))
        arguments = ("pack-objects", "--quiet", "--revs", "--delta-base-offset", "--stdout")
        revisions = "".join(f"{commit}\n" for commit in sorted(set(present)))
        return _git(folder, *arguments, stdin=revisions.encode()), shallow


def _git(folder: Path, *arguments: str, stdin: bytes = b"") -> bytes:
    try:
        done = subprocess.run(
            ["git", *git_options(), f"--git-dir={folder}", *arguments],
            input=stdin,
            capture_output=True,
            cwd=folder,
            env=dict(git_environment()),
            timeout=_GIT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RepositoryError(f"git {arguments[0]} took over {_GIT_SECONDS:.0f} s") from None
    except OSError as error:
        raise RepositoryError(f"git cannot be started ({error}); install it") from None
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["silently"]
        raise RepositoryError(f"git {arguments[0]} has failed ({lines[-1]})")
    return done.stdout


class RayEngine:
    """A `BatchEngine`. `commits` are those of the run, by project."""

    def __init__(
        self, setup: NodeSetup, flags: Mapping[str, Any], commits: Mapping[str, Sequence[str]]
    ) -> None:
        self._setup = setup.model_dump_json()
        self._flags = dict(flags)
        self._commits = commits
        self._locks = defaultdict[str, threading.Lock](threading.Lock)
        self._packs: dict[str, tuple[str, list[Any]]] = {}  # by project
        self._streams: set[Any] = set()
        self._stopping = threading.Event()
        self._task = _ray().remote(solve_on_node)

    def attempt(self, job: SolveJob) -> AttemptEnded:
        """Run a task to its end. Raises OSError."""
        from ray.exceptions import RayError

        if self._stopping.is_set():
            return STOPPED
        folder = Path(job.folder)
        folder.mkdir(parents=True, exist_ok=True)
        replies = folder / files.EXCHANGES
        recording = replies.read_bytes() if replies.is_file() else b""
        try:
            name, packed = self._packed(job)
            sent = job.model_copy(update={"flags": self._flags})
            stream = self._task.options(
                num_cpus=_CPUS, max_retries=0, scheduling_strategy="SPREAD", num_returns="streaming"
            ).remote(self._setup, sent.model_dump_json(), name, packed, recording)
            self._streams.add(stream)
            try:
                return self._received(stream, folder)
            finally:
                self._streams.discard(stream)
        except RepositoryError as error:
            return AttemptEnded(status=error.status, blame="row", message=str(error))
        except RayError as error:
            if self._stopping.is_set():
                return STOPPED
            return AttemptEnded(
                status=Status.SANDBOX,
                blame="environment",
                message=f"a node of the cluster has failed: {_line(error)}",
            )

    def _received(self, stream: Any, folder: Path) -> AttemptEnded:
        """Write what a task sends to the folder of the instance, and return how it ended."""
        for reference in stream:
            name, data = _ray().get(reference)
            if name == ENDED:
                return AttemptEnded.model_validate_json(data)
            if name in (files.EXCHANGES, files.LOG):
                with contextlib.closing(AppendFile(folder / name)) as file:
                    file.append(data, sync=name == files.EXCHANGES)
            elif name in _RETURNED:
                replace_file(folder / name, [data])
        return STOPPED

    def _packed(self, job: SolveJob) -> tuple[str, list[Any]]:
        """Return the name of a project's pack, and a list with the reference to it."""
        project = job.task.repo
        with self._locks[project]:
            if project not in self._packs:
                pack, shallow = make_pack(Path(job.repository), self._commits[project])
                name = hashlib.sha256(pack).hexdigest()[:32]
                self._packs[project] = name, [_ray().put((pack, shallow))]
            return self._packs[project]

    def cancel(self) -> None:
        """Interrupt all tasks, which stop their workers."""
        self._stopping.set()
        for stream in list(self._streams):
            with contextlib.suppress(Exception):  # it has just ended
                _ray().cancel(stream)


@contextlib.contextmanager
def open_cluster(
    address: str,
    settings: Settings,
    flags: Mapping[str, Any],
    commits: Mapping[str, Sequence[str]],
    *,
    verbose: bool = False,
) -> Iterator[RayEngine]:
    """Join the cluster at HOST:PORT, or that of this machine ("auto"), and open an engine on it.

    Raises ConfigurationError without Ray or a cluster, or if the versions of a node differ.
    """
    _join(address, verbose=verbose)
    try:
        _check_nodes()
        # The settings of this machine become flags, so that a node uses none of its own.
        values = settings.model_dump(mode="json", exclude=set(_HERE_ONLY), exclude_none=True)
        # Ray prints to stdout that a node has died.
        with (
            Path(os.devnull).open("w") as nothing,
            contextlib.redirect_stdout(sys.stderr if verbose else nothing),
        ):
            yield RayEngine(_make_setup(settings), {**values, **flags}, commits)
    finally:
        _within(JOIN_SECONDS, _ray().shutdown)


def _make_setup(settings: Settings) -> NodeSetup:
    from agent.llm import ENVIRONMENT_NAMES
    from agent.settings import environment

    names = (*ENVIRONMENT_NAMES, "EMBED_CONCURRENCY")
    values = dict(environment(names))
    for name, key in (
        ("PATCHSHOT_API_KEY", settings.api_key),
        ("PATCHSHOT_EMBED_API_KEY", settings.embed_api_key),
    ):
        if key is not None:
            values[name] = key.get_secret_value()
    unset = tuple(name for name in names if name not in values)
    return NodeSetup(version=program_version(), environment=values, unset=unset)


def _check_nodes() -> None:
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ray, here = _ray(), program_version()
    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) > 0]
    if not nodes:
        raise ConfigurationError("the cluster has no node with a CPU; see `ray status`")
    for node in sorted(nodes, key=lambda node: str(node["NodeManagerAddress"])):
        address = node["NodeManagerAddress"]
        place = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        task = ray.remote(program_version).options(num_cpus=0, scheduling_strategy=place)
        try:
            version = ray.get(task.remote(), timeout=_START_SECONDS)
        except (RayError, TimeoutError) as error:
            raise ConfigurationError(
                f"node {address}: no worker starts there ({_line(error)}): install {here} on it"
            ) from None
        if version != here:
            raise ConfigurationError(
                f"node {address} has {version}, here is {here}: install the same on all nodes"
            )


def _join(address: str, *, verbose: bool) -> None:
    if address != "auto":
        _check_address(address)
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    with _without_stderr(verbose=verbose):
        answered = _within(JOIN_SECONDS, lambda: _init(address, verbose=verbose))
    if not answered:
        raise ConfigurationError(
            f"--address {address}: no Ray cluster answers within {JOIN_SECONDS:g} s; see `ray "
            f"status --address {address}`"
        )


def _within(seconds: float, call: Any) -> bool:
    """Call in a daemon thread, and return whether it ended in time. Raises what it raises."""
    raised: list[BaseException] = []

    def work() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001  (raised again below)
            raised.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    return not thread.is_alive()


@contextlib.contextmanager
def _without_stderr(*, verbose: bool) -> Iterator[None]:
    """Discard standard error, where the C++ part of Ray warns of each slow answer."""
    if verbose:
        yield
        return
    saved = os.dup(2)
    with Path(os.devnull).open("wb") as nothing:
        os.dup2(nothing.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def _ray() -> Any:
    return importlib.import_module("ray")


def _check_address(address: str) -> None:
    """Check that something listens at the address; Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if not re.fullmatch(r"[A-Za-z0-9._-]+|\[[0-9a-fA-F:]+\]", host) or not port.isdecimal():
        raise ConfigurationError(
            f"--address {address}: give the HOST:PORT that `ray start --head` prints, or auto"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5.0).close()
    except (OSError, OverflowError) as error:
        raise ConfigurationError(
            f"--address {address}: no Ray cluster there ({error}); start one: `ray start --head`"
        ) from None


def _init(address: str, *, verbose: bool) -> None:
    """Raises ConfigurationError."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ray = _ray()
            from ray.exceptions import RayError
        except ImportError:
            raise ConfigurationError(
                f"--engine ray needs Ray: {install_command('ray')}, the same on all nodes"
            ) from None
        try:
            ray.init(
                address=address,
                log_to_driver=verbose,
                logging_level=logging.INFO if verbose else logging.CRITICAL,
            )
        except (RayError, ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise ConfigurationError(
                f"--address {address}: cannot join this Ray cluster ({_line(error)}): it has to "
                "run (`ray start --head`), and RAY_AUTH_MODE, its token, and the versions of Ray "
                "and Python have to be the same here and there"
            ) from None


def _line(error: BaseException) -> str:
    return (" ".join(str(error).split()) or type(error).__name__)[:300]
