"""A Ray cluster: joining it, and its nodes as the engine sees them. The one module that uses Ray.

On each node one actor of `agent.batch.node.Node` runs. Ray carries bytes between it and the driver;
it places nothing, tries nothing again, and keeps nothing. Keys pass as arguments of a method of a
living actor: from process to process, not through Ray's global store, its logs or its task names.
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

from agent.batch.messages import Answer, Job
from agent.batch.node import Node, Setup
from agent.batch.shipping import Pack
from agent.batch.version import here
from agent.errors import ConfigurationError

JOIN_SECONDS = 20.0
"""Until a cluster that does not answer is taken for one that is not there."""

# An actor's process is started, and imports this package; on a busy machine that takes long.
_START_SECONDS = 120.0

_CALL_SECONDS = 60.0  # of a node that is there and says nothing
_PACK_SECONDS = 3600.0  # gigabytes over a network

# Calls of one actor that may be under way: two a worker, and some more.
_AT_ONCE = 4096

_T = TypeVar("_T")

# Ray would say so on stderr, or ask home.
_QUIET = {
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
}


# What Ray says where "auto" finds no cluster, and nothing else is wrong.
_NONE_FOUND = "Could not find any running Ray instance"


class NodeLost(Exception):
    """The node, or its actor, is there no more."""


class Other(Exception):
    """The node is no place to work: another version, or nothing that can be started."""


class ClusterNode:
    """A node with a living actor. Every method raises NodeLost. `gone` is done when it has died."""

    def __init__(self, identity: str, address: str, cores: float, actor: Any) -> None:
        self.identity = identity
        self.address = address
        self.cores = cores
        self.running = 0
        self.projects: set[str] = set()  # those of jobs that it was given
        self._actor = actor
        self.gone: asyncio.Future[None] = asyncio.ensure_future(self._last())

    async def _last(self) -> None:
        with contextlib.suppress(NodeLost):
            await _ended(self._actor.stay.remote(), None)

    async def find(self, job: Job, commit: str) -> tuple[str, list[str]]:
        """See `Node.find`."""
        found = await _ended(self._actor.find.remote(job.repository, job.task.repo, commit))
        return found[0], list(found[1])

    async def receive(self, project: str, commit: str, pack: Pack) -> tuple[str, str]:
        """See `Node.receive`. The objects go through Ray's store, where they are large."""
        reference = self._actor.receive.remote(project, commit, pack.data, list(pack.shallow))
        found = await _ended(reference, _PACK_SECONDS)
        return found[0], found[1]

    async def left_behind(self, seconds: float) -> list[tuple[str, bytes]]:
        """See `Node.left_behind`, which takes so long at most."""
        return list(await _ended(self._actor.left_behind.remote(), seconds + _CALL_SECONDS))

    async def run(self, job: Job, tape: bytes) -> AsyncIterator[bytes]:
        """See `Node.run`."""
        with _translated():
            stream = self._actor.run.options(num_returns="streaming").remote(
                job.model_dump_json(), tape
            )
            async for reference in stream:
                yield await reference

    def answer(self, job: Job, answer: Answer) -> None:
        """See `Node.answer`. Not waited for."""
        with contextlib.suppress(NodeLost), _translated():
            self._actor.answer.remote(job.task.instance_id, job.attempt, answer.model_dump_json())

    async def cancel(self, seconds: float) -> None:
        """See `Node.cancel`, which takes so long at most."""
        await _ended(self._actor.cancel.remote(), seconds + _CALL_SECONDS)

    async def close(self, seconds: float) -> None:
        """See `Node.close`, which takes so long at most."""
        await _ended(self._actor.close.remote(), seconds + _CALL_SECONDS)

    async def clear(self) -> None:
        """See `Node.clear`."""
        await _ended(self._actor.clear.remote())

    def kill(self) -> None:
        """End the actor; the workers see that their driver is gone."""
        with contextlib.suppress(NodeLost), _translated():
            _ray().kill(self._actor)
        self.gone.cancel()


class Cluster:
    """The connection. One a process; `leave` it."""

    def alive(self) -> list[tuple[str, str, float]]:
        """Nodes that have processors to offer: identity, address, cores, by address.

        The answer of the head node, which learns of a death within seconds.
        """
        with _translated():
            living = [node for node in _ray().nodes() if node["Alive"]]
        found = (
            (str(n["NodeID"]), str(n["NodeManagerAddress"]), float(n["Resources"].get("CPU", 0)))
            for n in living
        )
        return sorted((n for n in found if n[2] > 0), key=lambda n: (_numbers(n[1]), n[0]))

    async def start(self, identity: str, address: str, cores: float, setup: Setup) -> ClusterNode:
        """Start an actor on a node. Raises Other, NodeLost."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        with _translated():
            actor: Any = (
                _ray()
                .remote(Node)
                .options(
                    num_cpus=0,
                    max_restarts=0,
                    max_task_retries=0,
                    max_concurrency=_AT_ONCE,
                    scheduling_strategy=NodeAffinitySchedulingStrategy(identity, soft=False),
                )
                .remote()
            )
        try:
            there = await _ended(actor.version.remote(), _START_SECONDS)
        except NodeLost as error:
            raise Other(
                f"node {address}: no worker starts there ({error}): install {here()} on it"
            ) from None
        if there != here():
            raise Other(
                f"node {address} has {there}, here is {here()}: install the same on all nodes"
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

    Raises ConfigurationError: no Ray here, no cluster there, or one of another version.
    """
    if address != "auto":
        await asyncio.to_thread(_check_address, address)
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        with _hushed(verbose=verbose):
            await _in_thread(lambda: _init(address, verbose=verbose), JOIN_SECONDS)
    except TimeoutError:
        raise ConfigurationError(
            f"--address {address}: no Ray cluster answers within {JOIN_SECONDS:g} s; see `ray "
            f"status --address {address}`"
        ) from None
    return Cluster()


@contextlib.contextmanager
def _hushed(*, verbose: bool) -> Iterator[None]:
    """Without standard error: the part of Ray that is no Python warns there of each slow answer."""
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
    """Whether anything listens there: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if not re.fullmatch(r"[A-Za-z0-9._-]+|\[[0-9a-fA-F:]+\]", host) or not port.isdecimal():
        raise ConfigurationError(
            f"--address {address}: give the HOST:PORT that `ray start --head` has named, or auto"
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
    """Run `call` in a thread that nobody waits for at the end. Raises TimeoutError."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def settle(error: BaseException | None) -> None:
        if not done.done():
            done.set_exception(error) if error else done.set_result(None)

    def work() -> None:
        error: BaseException | None = None
        try:
            call()
        except BaseException as raised:  # noqa: BLE001  (raised again by who waits)
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, error)

    threading.Thread(target=work, daemon=True).start()
    await asyncio.wait_for(done, seconds)


async def _ended(reference: Awaitable[_T], seconds: float | None = _CALL_SECONDS) -> _T:
    """The value of a reference. Raises NodeLost."""
    with _translated():
        return await asyncio.wait_for(_value(reference), seconds)


async def _value(reference: Awaitable[_T]) -> _T:
    return await reference


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Ray's errors, and a node's silence, as NodeLost."""
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
