"""Join a Ray cluster and talk to its nodes. This is the only module that uses Ray.

One actor of `agent.batch.ray.node.Node` runs on each node. Ray only carries bytes between it and
the driver: it schedules, retries and stores nothing. Keys are arguments of a method of a living
actor, so they go from process to process and not into Ray's global store, logs or task names.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import re
import socket
import threading
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from agent.batch.messages import Answer, SolveJob
from agent.batch.ray.node import Node, NodeSetup, program_version
from agent.batch.ray.repository_transfer import Pack
from agent.errors import ConfigurationError

JOIN_SECONDS = 20.0
"""A cluster that does not answer for so long counts as absent."""

# The process of an actor starts and imports this package, which takes long on a busy machine.
_START_SECONDS = 120.0

_CALL_SECONDS = 60.0  # until a silent node counts as lost
_PACK_SECONDS = 3600.0  # for gigabytes over a network

# Concurrent calls of one actor: two for each worker, and some more.
_CONCURRENT_CALLS = 4096

_T = TypeVar("_T")

# Otherwise Ray prints warnings to stderr and sends usage statistics.
_QUIET = {
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
}

# What Ray says if "auto" finds no cluster and nothing else is wrong.
_NONE_FOUND = "Could not find any running Ray instance"


class NodeLost(Exception):
    """The node or its actor has died or does not answer."""


class UnusableNode(Exception):
    """The node cannot be used: it has another version, or no worker starts there."""


class ClusterNode:
    """A node with a living actor. Every method raises NodeLost. `gone` is done when it dies."""

    def __init__(self, identity: str, address: str, cores: float, actor: Any) -> None:
        self.identity = identity
        self.address = address
        self.cores = cores
        self.running = 0
        self.projects: set[str] = set()  # projects of the jobs that it was given
        self._actor = actor
        self.gone: asyncio.Future[None] = asyncio.ensure_future(self._last())

    async def _last(self) -> None:
        with contextlib.suppress(NodeLost):
            await _ended(self._actor.stay.remote(), None)

    async def find(self, job: SolveJob, commit: str) -> tuple[str, list[str]]:
        """See `Node.find`."""
        found = await _ended(self._actor.find.remote(job.repository, job.task.repo, commit))
        return found[0], list(found[1])

    async def receive(self, project: str, commit: str, pack: Pack) -> tuple[str, str]:
        """See `Node.receive`. Large packs go through Ray's object store."""
        reference = self._actor.receive.remote(project, commit, pack.data, list(pack.shallow))
        found = await _ended(reference, _PACK_SECONDS)
        return found[0], found[1]

    async def left_behind(self, seconds: float) -> list[tuple[str, bytes]]:
        """See `Node.left_behind`, which takes at most `seconds`."""
        return list(await _ended(self._actor.left_behind.remote(), seconds + _CALL_SECONDS))

    async def run(self, job: SolveJob, recording: bytes) -> AsyncIterator[bytes]:
        """See `Node.run`."""
        with _errors_as_node_lost():
            stream = self._actor.run.options(num_returns="streaming").remote(
                job.model_dump_json(), recording
            )
            async for reference in stream:
                yield await reference

    def answer(self, job: SolveJob, answer: Answer) -> None:
        """Send an answer without waiting; see `Node.answer`."""
        with contextlib.suppress(NodeLost), _errors_as_node_lost():
            self._actor.answer.remote(job.task.instance_id, job.attempt, answer.model_dump_json())

    async def cancel(self, seconds: float) -> None:
        """See `Node.cancel`, which takes at most `seconds`."""
        await _ended(self._actor.cancel.remote(), seconds + _CALL_SECONDS)

    async def close(self, seconds: float) -> None:
        """See `Node.close`, which takes at most `seconds`."""
        await _ended(self._actor.close.remote(), seconds + _CALL_SECONDS)

    async def clear(self) -> None:
        """See `Node.clear`."""
        await _ended(self._actor.clear.remote())

    def kill(self) -> None:
        """Kill the actor; its workers see that their driver is gone."""
        with contextlib.suppress(NodeLost), _errors_as_node_lost():
            _ray().kill(self._actor)
        self.gone.cancel()


class Cluster:
    """The connection of this process to the cluster; call `leave` at the end."""

    def alive(self) -> list[tuple[str, str, float]]:
        """Return identity, address and cores of the nodes that have a CPU, by address.

        This is the view of the head node, which learns of a death within seconds.
        """
        with _errors_as_node_lost():
            living = [node for node in _ray().nodes() if node["Alive"]]
        found = (
            (str(n["NodeID"]), str(n["NodeManagerAddress"]), float(n["Resources"].get("CPU", 0)))
            for n in living
        )
        return sorted((n for n in found if n[2] > 0), key=lambda n: (_numbers(n[1]), n[0]))

    async def start(
        self, identity: str, address: str, cores: float, setup: NodeSetup
    ) -> ClusterNode:
        """Start an actor on a node. Raises Other, NodeLost."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        with _errors_as_node_lost():
            actor: Any = (
                _ray()
                .remote(Node)
                .options(
                    num_cpus=0,
                    max_restarts=0,
                    max_task_retries=0,
                    max_concurrency=_CONCURRENT_CALLS,
                    scheduling_strategy=NodeAffinitySchedulingStrategy(identity, soft=False),
                )
                .remote()
            )
        try:
            there = await _ended(actor.version.remote(), _START_SECONDS)
        except NodeLost as error:
            raise UnusableNode(
                f"node {address}: no worker starts there ({error}): install "
                f"{program_version()} on it"
            ) from None
        if there != program_version():
            raise UnusableNode(
                f"node {address} has {there}, here is {program_version()}: install the "
                "same on all nodes"
            )
        told = setup.model_copy(update={"cores": max(1, round(cores))})
        await _ended(actor.begin.remote(told.model_dump_json()))
        return ClusterNode(identity, address, cores, actor)

    async def leave(self) -> None:
        """Disconnect."""
        with contextlib.suppress(TimeoutError):
            await _in_thread(_ray().shutdown, JOIN_SECONDS)


async def join(address: str, *, verbose: bool = False) -> Cluster:
    """Connect to the cluster at HOST:PORT, or to the one of this machine ("auto").

    Raises ConfigurationError without Ray, without a cluster, or if the versions differ.
    """
    if address != "auto":
        await asyncio.to_thread(_check_address, address)
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        with _without_stderr(verbose=verbose):
            await _in_thread(lambda: _init(address, verbose=verbose), JOIN_SECONDS)
    except TimeoutError:
        raise ConfigurationError(
            f"--address {address}: no Ray cluster answers within {JOIN_SECONDS:g} s; see `ray "
            f"status --address {address}`"
        ) from None
    return Cluster()


@contextlib.contextmanager
def _without_stderr(*, verbose: bool) -> Iterator[None]:
    """Discard standard error, where the C++ part of Ray warns of each slow answer."""
    if verbose:
        yield
        return
    kept = os.dup(2)
    with Path(os.devnull).open("wb") as nothing:
        os.dup2(nothing.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


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
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ray = _ray()
            from ray.exceptions import RayError
    except ImportError:
        raise ConfigurationError(
            "--engine ray needs Ray: pip install 'patchshot[ray]', the same on all nodes"
        ) from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ray.init(
                address=address,
                log_to_driver=verbose,
                logging_level=logging.INFO if verbose else logging.CRITICAL,
            )
    except (RayError, ConnectionError, RuntimeError, ValueError, OSError) as error:
        if isinstance(error, ConnectionError) and _NONE_FOUND in str(error):
            raise ConfigurationError(
                f"--address {address}: no Ray cluster was found on this machine; start one: `ray "
                "start --head`, or name one that runs elsewhere: --address HOST:PORT"
            ) from None
        raise ConfigurationError(
            f"--address {address}: cannot join this Ray cluster ({_line(error)}): RAY_AUTH_MODE, "
            "its token, and the versions of Ray and Python have to be the same here and there"
        ) from None


async def _in_thread(call: Callable[[], None], seconds: float) -> None:
    """Run `call` in a daemon thread. Raises TimeoutError after `seconds`."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def settle(error: BaseException | None) -> None:
        if not done.done():
            done.set_exception(error) if error else done.set_result(None)

    def work() -> None:
        error: BaseException | None = None
        try:
            call()
        except BaseException as raised:  # noqa: BLE001  (the waiting task raises it again)
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, error)

    threading.Thread(target=work, daemon=True).start()
    await asyncio.wait_for(done, seconds)


async def _ended(reference: Awaitable[_T], seconds: float | None = _CALL_SECONDS) -> _T:
    """Wait for the value of a reference. Raises NodeLost."""
    with _errors_as_node_lost():
        return await asyncio.wait_for(_value(reference), seconds)


async def _value(reference: Awaitable[_T]) -> _T:
    return await reference


@contextlib.contextmanager
def _errors_as_node_lost() -> Iterator[None]:
    """Translate Ray's errors, and the silence of a node, to NodeLost."""
    from ray.exceptions import RayError

    try:
        yield
    except (RayError, TimeoutError, OSError) as error:
        raise NodeLost(_line(error)) from None


def _line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]


def _numbers(address: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"[0-9]+", address)[:8])
