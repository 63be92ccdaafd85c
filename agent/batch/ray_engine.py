"""The engine of a Ray cluster: a job goes to the node with the most room; all else stays here.

The journal, the budget, the pace and the folders of the instances are the driver's. A reply that
was paid on a node is on the driver's disk before the worker there sees it. A node that goes costs
what was under way on it; nodes that come, or come back, are used.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.batch import folder as files
from agent.batch.cluster import Cluster, ClusterNode, NodeLost, Other, join
from agent.batch.engine import Broker
from agent.batch.local import STOP_SECONDS
from agent.batch.messages import Answer, Ask, Ended, Job, Pace, Paid, Report
from agent.batch.node import Parcel, Setup, add_replies, parse
from agent.batch.shipping import Pack, full_name, make_pack
from agent.durable import AppendFile, replace_file
from agent.errors import ConfigurationError, RepositoryError, Status

if TYPE_CHECKING:
    from agent.settings import Settings

# How often nodes are looked for that have joined, or whose actor has died.
_TEND_SECONDS = 5.0

# A job waits so long for a node before it is left: one that was restarted needs a minute.
_NODE_SECONDS = 90.0

# Where all cores are busy, a node without the repository counts as busier by half a job a core:
# sending every project to every node is what a large run waits for first (docs/scale.md).
_STRANGE = 0.5

# Of this machine alone: places in it, and keys, which go another way.
_HERE_ONLY = frozenset({"api_key", "embed_api_key", "cache_dir", "log_file", "python"})

_Task = asyncio.Task[tuple[Job, Ended]]


def make_setup(run: Path, settings: Settings, job_seconds: float, turn_seconds: float) -> Setup:
    """What nodes are told of the run in a folder: its name, keys, and limits.

    Raises OSError where the folder cannot be written.
    """
    from agent.llm.sources import ENVIRONMENT_NAMES
    from agent.settings import environment

    names = (*ENVIRONMENT_NAMES, "EMBED_CONCURRENCY")
    given = dict(environment(names))
    for name, key in (
        ("PATCHSHOT_API_KEY", settings.api_key),
        ("PATCHSHOT_EMBED_API_KEY", settings.embed_api_key),
    ):
        if key is not None:
            given[name] = key.get_secret_value()
    return Setup(
        key=_name_of(run),
        environment=given,
        unset=tuple(name for name in names if name not in given),
        job_seconds=job_seconds,
        turn_seconds=turn_seconds,
        call_seconds=settings.request_timeout,
    )


def shipped_flags(settings: Settings, flags: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of this machine as flags: nothing is taken from where a node was started."""
    values = settings.model_dump(mode="json", exclude=set(_HERE_ONLY), exclude_none=True)
    return {**values, **flags}


def _name_of(run: Path) -> str:
    """A name for the run, the same for as long as its folder lives."""
    path = run / "nodes.key"
    if not path.is_file():
        replace_file(path, [hashlib.sha256(os.urandom(32)).hexdigest()[:32].encode(), b"\n"])
    return path.read_text().strip()


@dataclass(slots=True)
class _Copies:
    """What of a repository has been packed: the same pack serves all nodes that lack the same."""

    lock: asyncio.Lock
    wanted: tuple[str, tuple[str, ...]] | None = None
    pack: Pack | None = None


class RayEngine:
    """An `agent.batch.engine.Engine`. Made by `open_engine`."""

    def __init__(
        self,
        broker: Broker,
        cluster: Cluster,
        setup: Setup,
        flags: dict[str, Any],
        note: Callable[[str], None],
    ) -> None:
        self._broker = broker
        self._cluster = cluster
        self._setup = setup
        self._flags = flags
        self._note = note
        self._nodes: dict[str, ClusterNode] = {}
        self._refused: set[str] = set()
        self._changed = asyncio.Condition()
        self._running: set[_Task] = set()
        self._ended: asyncio.Queue[_Task] = asyncio.Queue()
        self._stopping = False
        self._unkept = False  # something that a node has sent
        self._copies: dict[str, _Copies] = defaultdict(lambda: _Copies(asyncio.Lock()))
        self._shipping: dict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)

    # ------------------------------------------------------------------------------------ engine

    def submit(self, job: Job) -> None:
        """Find a node for the job."""
        task = asyncio.create_task(self._run(job))
        self._running.add(task)
        task.add_done_callback(self._ended.put_nowait)

    async def as_completed(self) -> AsyncGenerator[tuple[Job, Ended], None]:
        """Jobs as they end; see `agent.batch.engine.Engine`."""
        try:
            while self._running:
                task = await self._ended.get()
                self._running.discard(task)
                yield task.result()
        finally:
            await self._close()

    async def cancel(self) -> None:
        """Ask all workers to stop; end the actors of nodes where they have not after a while."""
        self._stopping = True
        async with self._changed:
            self._changed.notify_all()
        stopping = [node.cancel(STOP_SECONDS) for node in self._nodes.values()]
        await asyncio.gather(*stopping, return_exceptions=True)
        if self._running:
            await asyncio.wait(self._running, timeout=STOP_SECONDS)
        if self._running and not all(task.done() for task in self._running):
            for node in self._nodes.values():
                node.kill()

    async def _close(self) -> None:
        """Let workers keep what they are paying for; then nothing of the run is left on a node.

        Nothing, unless it could not be kept here: then the next run asks for it.
        """
        self._stopping = True
        nodes = self._living()
        await asyncio.gather(*(node.close(STOP_SECONDS) for node in nodes), return_exceptions=True)
        await asyncio.gather(*self._running, return_exceptions=True)
        if not self._unkept:
            await asyncio.gather(*(node.clear() for node in nodes), return_exceptions=True)
        for node in self._nodes.values():
            node.kill()

    # -------------------------------------------------------------------------------------- jobs

    async def _run(self, job: Job) -> tuple[Job, Ended]:
        node = await self._room(job.task.repo)
        if node is None:
            return job, self._lost("no node of the cluster is there: see `ray status`")
        node.running += 1
        node.projects.add(job.task.repo)
        try:
            ended = await self._on(node, job)
        except NodeLost as error:
            ended = self._lost(f"node {node.address} has failed: {error}")
        except OSError:
            self._unkept = True
            raise
        finally:
            node.running -= 1
            await self._broker.gone(job)
        return job, ended

    def _lost(self, reason: str) -> Ended:
        if self._stopping:
            return Ended(status=Status.INTERRUPTED, blame="stopped", message="stopped")
        return Ended(status=Status.SANDBOX, blame="environment", message=reason)

    async def _room(self, project: str) -> ClusterNode | None:
        """The node whose cores have least to do, one that has the project before one that has not.

        None where none comes for a while.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_NODE_SECONDS), self._changed:
                await self._changed.wait_for(lambda: self._living() or self._stopping)
        nodes = [] if self._stopping else self._living()
        return min(nodes, key=lambda node: _burden(node, project), default=None)

    def _living(self) -> list[ClusterNode]:
        return [node for node in self._nodes.values() if not node.gone.done()]

    async def _on(self, node: ClusterNode, job: Job) -> Ended:
        """One attempt on a node. Raises NodeLost, and OSError when nothing can be kept here."""
        try:
            repository = await self._provide(node, job)
        except RepositoryError as error:
            return Ended(status=error.status, blame="row", message=str(error))
        folder = Path(job.folder)
        sent = job.model_copy(update={"repository": repository, "flags": self._flags})
        async for line in node.run(sent, _replies_in(folder)):
            message = parse(line)
            if isinstance(message, Parcel):
                await asyncio.to_thread(_keep, folder, message)
                return message.ended
            answer = await self._hear(node, job, message)
            if answer is not None:
                node.answer(job, answer)
        raise NodeLost("it has stopped in the middle")

    async def _hear(self, node: ClusterNode, job: Job, report: Report) -> Answer | None:
        """The answer to a report; for a node that has gone nobody waits."""
        if isinstance(report, Paid) and report.exchange is not None:
            add_replies(Path(job.folder) / files.TAPE, report.exchange.encode(), repeated=True)
            await self._broker.hear(job, report)
            return Answer(granted=True)
        if not isinstance(report, Ask | Pace):
            return await self._broker.hear(job, report)
        hearing = asyncio.create_task(self._broker.hear(job, report))
        try:
            either: list[asyncio.Future[Any]] = [hearing, node.gone]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not hearing.done():
                raise NodeLost("it has died")
            return await hearing
        finally:
            hearing.cancel()

    # ------------------------------------------------------------------------------ repositories

    async def _provide(self, node: ClusterNode, job: Job) -> str:
        """Where the node reads the repository. Raises RepositoryError, NodeLost."""
        repository, project = Path(job.repository), job.task.repo
        commit = await asyncio.to_thread(full_name, repository, job.task.base_commit)
        async with self._shipping[node.identity, project]:
            place, there = await node.find(job, commit)
            if not place:
                pack = await self._packed(repository, commit, tuple(there))
                place, problem = await node.receive(project, commit, pack)
                if not place:
                    raise NodeLost(f"{project} could not be stored there ({problem})")
        return place

    async def _packed(self, repository: Path, commit: str, there: tuple[str, ...]) -> Pack:
        copies = self._copies[str(repository)]
        async with copies.lock:
            if copies.pack is None or copies.wanted != (commit, there):
                copies.pack = await asyncio.to_thread(make_pack, repository, commit, there)
                copies.wanted = (commit, there)
            return copies.pack

    # ------------------------------------------------------------------------------------- nodes

    async def begin(self, run: Path) -> None:
        """Start on all nodes, and fetch what workers of a killed driver have paid for.

        Raises ConfigurationError where a node has another version, or there is none.
        """
        found = await asyncio.to_thread(self._cluster.alive)
        begun = await asyncio.gather(
            *(self._add(run, *one) for one in found), return_exceptions=True
        )
        for error in begun:
            if isinstance(error, Other):
                raise ConfigurationError(str(error))
            if isinstance(error, BaseException) and not isinstance(error, NodeLost):
                raise error
        if not self._nodes:
            raise ConfigurationError("the cluster has no node with a processor: see `ray status`")

    async def tend(self, run: Path) -> None:
        """Go on looking for nodes, until cancelled."""
        while True:
            await asyncio.sleep(_TEND_SECONDS)
            try:
                found = await asyncio.to_thread(self._cluster.alive)
            except NodeLost:
                continue  # the head does not answer now; if it never does, Ray ends this process
            for one in found:
                node = self._nodes.get(one[0])
                if one[0] in self._refused or (node is not None and not node.gone.done()):
                    continue
                try:
                    await self._add(run, *one)
                except Other as error:
                    self._refused.add(one[0])
                    self._note(f"not used: {error}")
                except NodeLost:
                    continue  # it is looked at again

    async def _add(self, run: Path, identity: str, address: str, cores: float) -> None:
        """Start on a node. Raises Other, NodeLost, OSError."""
        node = await self._cluster.start(identity, address, cores, self._setup)
        for name, lines in await node.left_behind(self._setup.call_seconds):
            folder = run / "instances" / name
            if folder.parent == run / "instances" and folder.is_dir():
                add_replies(folder / files.TAPE, lines)
        async with self._changed:
            self._nodes[identity] = node
            self._changed.notify_all()


@contextlib.asynccontextmanager
async def open_engine(
    broker: Broker,
    address: str,
    run: Path,
    setup: Setup,
    flags: dict[str, Any],
    *,
    note: Callable[[str], None],
    verbose: bool = False,
) -> AsyncIterator[RayEngine]:
    """An engine on the cluster at `address`. Raises ConfigurationError, OSError."""
    cluster = await join(address, verbose=verbose)
    try:
        engine = RayEngine(broker, cluster, setup, flags, note)
        await engine.begin(run)
        tending = asyncio.create_task(engine.tend(run))
        try:
            yield engine
        finally:
            tending.cancel()
            await asyncio.gather(tending, return_exceptions=True)
    finally:
        await cluster.leave()


def _burden(node: ClusterNode, project: str) -> tuple[bool, float]:
    """How busy a node would be with one more job of the project: idle cores come first."""
    strange = 0.0 if project in node.projects else _STRANGE
    return node.running >= node.cores, (node.running + 1) / node.cores + strange


def _replies_in(folder: Path) -> bytes:
    """The tape of an instance, whose folder is there on return."""
    folder.mkdir(parents=True, exist_ok=True)
    tape = folder / files.TAPE
    return tape.read_bytes() if tape.is_file() else b""


def _keep(folder: Path, parcel: Parcel) -> None:
    """The files of an attempt, here. Raises OSError."""
    for name, data in parcel.contents().items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        if name == files.TAPE:
            add_replies(path, data)
        elif name == files.LOG:
            with contextlib.closing(AppendFile(path)) as log:
                log.append(data, sync=False)
        else:
            replace_file(path, [data])
