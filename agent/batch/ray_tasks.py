"""The engine of a Ray cluster: each attempt is a task that runs a worker process on its node.

All nodes share the folders of the repositories and of the run, at the same paths, so that paid
replies outlive a node. This is the only module that uses Ray. Keys are arguments of tasks, so they
go from process to process and not into Ray's global store, logs or task names.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import logging
import os
import platform
import socket
import threading
import warnings
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import agent
from agent import __version__
from agent.batch.driver import BatchPlan
from agent.batch.worker import STOPPED, AttemptEnded, LocalEngine, SolveJob
from agent.errors import ConfigurationError, Status
from agent.settings import Settings
from agent.shared.terminal import install_command

_START_SECONDS = 120.0  # a process that imports this package, on a busy machine
_CPUS = 0.25  # of a task: workers wait for the model most of the time

# Settings that are not sent: paths of this machine, and keys, which are sent in the environment.
_HERE_ONLY = frozenset({"api_key", "embed_api_key", "cache_dir", "python"})
# Environment variables that stay those of the node, because they name its own paths.
_OWN_PATHS = ("PATCHSHOT_CACHE_DIR", "PATCHSHOT_PYTHON")

# Otherwise Ray prints warnings to stderr and sends usage statistics.
_QUIET = {
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
}


# --- on a node


def solve_on_node(job_json: str, given: dict[str, str]) -> str:
    """Run one attempt with the environment `given`, and return how it ended, both as JSON."""
    job = SolveJob.model_validate_json(job_json)
    for place, option in ((job.repository, "--repos"), (job.folder, "--run or --output")):
        if not Path(place).is_dir():
            message = f"{place} is not on {platform.node()}: {option} has to be in a shared folder"
            ended = AttemptEnded(status=Status.USAGE, blame="environment", message=message)
            return ended.model_dump_json()
    names = _environment_names()
    own = {
        name: value
        for name, value in os.environ.items()
        if name in _OWN_PATHS or not (name in names or name.startswith("PATCHSHOT_"))
    }
    return LocalEngine({**own, **given}).attempt(job).model_dump_json()


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


def _environment_names() -> tuple[str, ...]:
    from agent.llm import ENVIRONMENT_NAMES

    return (*ENVIRONMENT_NAMES, "EMBED_CONCURRENCY")


# --- on the driver's machine


class RayEngine:
    """A `BatchEngine`. The workers get `flags` in the place of those of the job."""

    def __init__(self, flags: Mapping[str, Any], environment: Mapping[str, str]) -> None:
        self._flags, self._environment = dict(flags), dict(environment)
        self._references: set[Any] = set()
        self._stopping = threading.Event()
        self._task = _ray().remote(solve_on_node)

    def attempt(self, job: SolveJob) -> AttemptEnded:
        """Run a task to its end."""
        from ray.exceptions import RayError

        if self._stopping.is_set():
            return STOPPED
        Path(job.folder).mkdir(parents=True, exist_ok=True)
        sent = job.model_copy(update={"flags": self._flags}).model_dump_json()
        task = self._task.options(num_cpus=_CPUS, max_retries=0, scheduling_strategy="SPREAD")
        reference = task.remote(sent, self._environment)
        self._references.add(reference)
        try:
            return AttemptEnded.model_validate_json(_ray().get(reference))
        except (RayError, OSError) as error:
            if self._stopping.is_set():
                return STOPPED
            message = f"a node of the cluster has failed: {_line(error)}"
            return AttemptEnded(status=Status.SANDBOX, blame="environment", message=message)
        finally:
            self._references.discard(reference)

    def cancel(self) -> None:
        """Interrupt all tasks, which stop their workers."""
        self._stopping.set()
        for reference in list(self._references):
            with contextlib.suppress(Exception):  # it has just ended
                _ray().cancel(reference)


@contextlib.contextmanager
def open_cluster(plan: BatchPlan, settings: Settings) -> Iterator[RayEngine]:
    """Join the cluster of the plan's address, or that of this machine ("auto"), for the block.

    Raises ConfigurationError without Ray or a cluster, or if the versions of a node differ.
    """
    from agent.settings import environment

    with contextlib.ExitStack() as stack:
        nothing = stack.enter_context(Path(os.devnull).open("w"))
        # Ray prints to stdout that a node has died.
        stack.enter_context(contextlib.redirect_stdout(nothing))
        _join(plan.address)
        stack.callback(_ray().shutdown)
        _check_nodes()
        # The settings of this machine become flags, so that a node uses none of its own.
        values = settings.model_dump(mode="json", exclude=set(_HERE_ONLY), exclude_none=True)
        sent = dict(environment(_environment_names()))
        for name, key in (
            ("PATCHSHOT_API_KEY", settings.api_key),
            ("PATCHSHOT_EMBED_API_KEY", settings.embed_api_key),
        ):
            if key is not None:
                sent[name] = key.get_secret_value()
        yield RayEngine({**values, **plan.flags}, sent)


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


def _join(address: str) -> None:
    """Join the cluster. Raises ConfigurationError."""
    if address != "auto":
        host, _, port = address.rpartition(":")
        try:  # Ray itself would try for minutes
            socket.create_connection((host.strip("[]"), int(port)), timeout=5.0).close()
        except (OSError, OverflowError, ValueError) as error:
            raise ConfigurationError(
                f"--address {address}: no Ray cluster there ({error}); give the HOST:PORT that "
                "`ray start --head` prints, or auto"
            ) from None
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    with _silent_stderr(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ray = _ray()
            from ray.exceptions import RayError
        except ImportError:
            raise ConfigurationError(
                f"--engine ray needs Ray: {install_command('ray')}, the same on all nodes"
            ) from None
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL)
        except (RayError, ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise ConfigurationError(
                f"--address {address}: cannot join this Ray cluster ({_line(error)}): it has to "
                "run (`ray start --head`), and RAY_AUTH_MODE, its token, and the versions of Ray "
                "and Python have to be the same here and there"
            ) from None


@contextlib.contextmanager
def _silent_stderr() -> Iterator[None]:
    """Close the descriptor for a while, as the C++ part of Ray warns of each slow answer."""
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


def _line(error: BaseException) -> str:
    return (" ".join(str(error).split()) or type(error).__name__)[:300]
