"""The engine of a Ray cluster: each job goes to the least busy node, everything else stays here.

The driver holds the journal, the budget, the request rate and the folders of the instances. A reply
that a node has paid is on the driver's disk before the worker there uses it. If a node dies, only
the jobs under way on it are lost. Nodes that join, or come back, are used.
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

from agent.batch.local.local_engine import STOP_SECONDS
from agent.batch.messages import (
    Answer,
    Ask,
    AttemptEnded,
    Pace,
    Paid,
    ReportHandler,
    SolveJob,
    WorkerReport,
)
from agent.batch.ray.cluster import Cluster, ClusterNode, NodeLost, UnusableNode, join
from agent.batch.ray.node import AttemptFiles, NodeSetup, add_replies, parse
from agent.batch.ray.repository_transfer import Pack, full_name, make_pack
from agent.errors import ConfigurationError, RepositoryError, Status
from agent.results import kept as files
from agent.shared.files import AppendFile, replace_file

if TYPE_CHECKING:
    from agent.settings import Settings

# Seconds between two searches for nodes that have joined, or whose actor has died.
_WATCH_SECONDS = 5.0

# Seconds for which a job waits for a node; a node that restarts needs a minute.
_NODE_SECONDS = 90.0

# If all cores are busy, a node without the repository counts as busier by half a job a core:
# sending every project to every node is the first bottleneck of a large run.
_TRANSFER_BURDEN = 0.5

# Settings that are not sent: paths of this machine, and keys, which are sent in `NodeSetup`.
_HERE_ONLY = frozenset({"api_key", "embed_api_key", "cache_dir", "log_file", "python"})

_Task = asyncio.Task[tuple[SolveJob, AttemptEnded]]


def make_setup(run: Path, settings: Settings, job_seconds: float, slot_seconds: float) -> NodeSetup:
    """Return the settings of a run for its nodes: name, keys and limits.

    Raises OSError if the folder cannot be written.
    """
    from agent.llm import ENVIRONMENT_NAMES
    from agent.settings import environment

    names = (*ENVIRONMENT_NAMES, "EMBED_CONCURRENCY")
    given = dict(environment(names))
    for name, key in (
        ("PATCHSHOT_API_KEY", settings.api_key),
        ("PATCHSHOT_EMBED_API_KEY", settings.embed_api_key),
    ):
        if key is not None:
            given[name] = key.get_secret_value()
    return NodeSetup(
        key=_name_of(run),
        environment=given,
        unset=tuple(name for name in names if name not in given),
        job_seconds=job_seconds,
        slot_seconds=slot_seconds,
        call_seconds=settings.request_timeout,
    )


def shipped_flags(settings: Settings, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of this machine as flags, so that a node uses none of its own."""
    values = settings.model_dump(mode="json", exclude=set(_HERE_ONLY), exclude_none=True)
    return {**values, **flags}


def _name_of(run: Path) -> str:
    """Return the name of the run, which stays the same as long as its folder exists."""
    path = run / "nodes.key"
    if not path.is_file():
        replace_file(path, [hashlib.sha256(os.urandom(32)).hexdigest()[:32].encode(), b"\n"])
    return path.read_text().strip()


@dataclass(slots=True)
class _Copies:
    """The last pack of a repository. It serves all nodes that lack the same commits."""

    lock: asyncio.Lock
    wanted: tuple[str, tuple[str, ...]] | None = None
    pack: Pack | None = None


class RayEngine:
    """A `BatchEngine`; made by `open_engine`."""

    def __init__(
        self,
        handler: ReportHandler,
        cluster: Cluster,
        setup: NodeSetup,
        flags: dict[str, Any],
        note: Callable[[str], None],
    ) -> None:
        self._handler = handler
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
        self._unwritten = False  # something that a node sent could not be written
        self._copies: dict[str, _Copies] = defaultdict(lambda: _Copies(asyncio.Lock()))
        self._shipping: dict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)

    # ------------------------------------------------------------------------------------ engine

    def submit(self, job: SolveJob) -> None:
        """Run the job on the least busy node."""
        task = asyncio.create_task(self._run(job))
        self._running.add(task)
        task.add_done_callback(self._ended.put_nowait)

    async def as_completed(self) -> AsyncGenerator[tuple[SolveJob, AttemptEnded], None]:
        """Yield jobs as they end; see `BatchEngine.as_completed`."""
        try:
            while self._running:
                task = await self._ended.get()
                self._running.discard(task)
                yield task.result()
        finally:
            await self._close()

    async def cancel(self) -> None:
        """Ask all workers to stop, and kill the actors if some have not after a while."""
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
        """Let workers record what they are paying, and remove the run from the nodes.

        What could not be written here stays on the nodes, and the next run asks for it.
        """
        self._stopping = True
        nodes = self._living()
        await asyncio.gather(*(node.close(STOP_SECONDS) for node in nodes), return_exceptions=True)
        await asyncio.gather(*self._running, return_exceptions=True)
        if not self._unwritten:
            await asyncio.gather(*(node.clear() for node in nodes), return_exceptions=True)
        for node in self._nodes.values():
            node.kill()

    # -------------------------------------------------------------------------------------- jobs

    async def _run(self, job: SolveJob) -> tuple[SolveJob, AttemptEnded]:
        node = await self._choose_node(job.task.repo)
        if node is None:
            return job, self._lost("no node of the cluster is alive; see `ray status`")
        node.running += 1
        node.projects.add(job.task.repo)
        try:
            ended = await self._run_on(node, job)
        except NodeLost as error:
            ended = self._lost(f"node {node.address} has failed: {error}")
        except OSError:
            self._unwritten = True
            raise
        finally:
            node.running -= 1
            await self._handler.worker_exited(job)
        return job, ended

    def _lost(self, reason: str) -> AttemptEnded:
        if self._stopping:
            return AttemptEnded(status=Status.INTERRUPTED, blame="stopped", message="stopped")
        return AttemptEnded(status=Status.SANDBOX, blame="environment", message=reason)

    async def _choose_node(self, project: str) -> ClusterNode | None:
        """Return the least busy node, preferably one that has the project.

        Return None if there is none for a while.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_NODE_SECONDS), self._changed:
                await self._changed.wait_for(lambda: self._living() or self._stopping)
        nodes = [] if self._stopping else self._living()
        return min(nodes, key=lambda node: _burden(node, project), default=None)

    def _living(self) -> list[ClusterNode]:
        return [node for node in self._nodes.values() if not node.gone.done()]

    async def _run_on(self, node: ClusterNode, job: SolveJob) -> AttemptEnded:
        """Run one attempt on a node. Raises NodeLost, and OSError if a file cannot be written."""
        try:
            repository = await self._provide(node, job)
        except RepositoryError as error:
            return AttemptEnded(status=error.status, blame="row", message=str(error))
        folder = Path(job.folder)
        sent = job.model_copy(update={"repository": repository, "flags": self._flags})
        async for line in node.run(sent, _replies_in(folder)):
            message = parse(line)
            if isinstance(message, AttemptFiles):
                await asyncio.to_thread(_write_files, folder, message)
                return message.ended
            answer = await self._handle(node, job, message)
            if answer is not None:
                node.answer(job, answer)
        raise NodeLost("it has stopped in the middle of a job")

    async def _handle(
        self, node: ClusterNode, job: SolveJob, report: WorkerReport
    ) -> Answer | None:
        """Return the answer to a report. Raises NodeLost if the node dies meanwhile."""
        if isinstance(report, Paid) and report.exchange is not None:
            add_replies(Path(job.folder) / files.EXCHANGES, report.exchange.encode(), repeated=True)
            await self._handler.handle(job, report)
            return Answer(granted=True)
        if not isinstance(report, Ask | Pace):
            return await self._handler.handle(job, report)
        hearing = asyncio.create_task(self._handler.handle(job, report))
        try:
            either: list[asyncio.Future[Any]] = [hearing, node.gone]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not hearing.done():
                raise NodeLost("it has died")
            return await hearing
        finally:
            hearing.cancel()

    # ------------------------------------------------------------------------------ repositories

    async def _provide(self, node: ClusterNode, job: SolveJob) -> str:
        """Make the commit available on the node. Return the path of the repository there.

        Raises RepositoryError, NodeLost.
        """
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
        """Start on all nodes, and fetch the replies that workers of a killed driver have paid.

        Raises ConfigurationError if a node has another version, or if there is no node.
        """
        found = await asyncio.to_thread(self._cluster.alive)
        begun = await asyncio.gather(
            *(self._add(run, *one) for one in found), return_exceptions=True
        )
        for error in begun:
            if isinstance(error, UnusableNode):
                raise ConfigurationError(str(error))
            if isinstance(error, BaseException) and not isinstance(error, NodeLost):
                raise error
        if not self._nodes:
            raise ConfigurationError("the cluster has no node with a CPU; see `ray status`")

    async def watch_nodes(self, run: Path) -> None:
        """Look for new nodes until cancelled."""
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            try:
                found = await asyncio.to_thread(self._cluster.alive)
            except NodeLost:
                continue  # the head does not answer; if it never does again, Ray ends this process
            for one in found:
                node = self._nodes.get(one[0])
                if one[0] in self._refused or (node is not None and not node.gone.done()):
                    continue
                try:
                    await self._add(run, *one)
                except UnusableNode as error:
                    self._refused.add(one[0])
                    self._note(f"not used: {error}")
                except NodeLost:
                    continue  # the next round tries it again

    async def _add(self, run: Path, identity: str, address: str, cores: float) -> None:
        """Start on a node. Raises Other, NodeLost, OSError."""
        node = await self._cluster.start(identity, address, cores, self._setup)
        for name, lines in await node.left_behind(self._setup.call_seconds):
            folder = run / "instances" / name
            if folder.parent == run / "instances" and folder.is_dir():
                add_replies(folder / files.EXCHANGES, lines)
        async with self._changed:
            self._nodes[identity] = node
            self._changed.notify_all()


@contextlib.asynccontextmanager
async def open_engine(
    handler: ReportHandler,
    address: str,
    run: Path,
    setup: NodeSetup,
    flags: dict[str, Any],
    *,
    note: Callable[[str], None],
    verbose: bool = False,
) -> AsyncIterator[RayEngine]:
    """Open an engine on the cluster at `address`. Raises ConfigurationError, OSError."""
    cluster = await join(address, verbose=verbose)
    try:
        engine = RayEngine(handler, cluster, setup, flags, note)
        await engine.begin(run)
        watching = asyncio.create_task(engine.watch_nodes(run))
        try:
            yield engine
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
    finally:
        await cluster.leave()


def _burden(node: ClusterNode, project: str) -> tuple[bool, float]:
    """Return how busy a node would be with one more job of the project, for comparison."""
    transfer = 0.0 if project in node.projects else _TRANSFER_BURDEN
    return node.running >= node.cores, (node.running + 1) / node.cores + transfer


def _replies_in(folder: Path) -> bytes:
    """Return the recorded replies of an instance, and create its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    recording = folder / files.EXCHANGES
    return recording.read_bytes() if recording.is_file() else b""


def _write_files(folder: Path, parcel: AttemptFiles) -> None:
    """Write the files of an attempt to its folder. Raises OSError."""
    for name, data in parcel.contents().items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        if name == files.EXCHANGES:
            add_replies(path, data)
        elif name == files.LOG:
            with contextlib.closing(AppendFile(path)) as log:
                log.append(data, sync=False)
        else:
            replace_file(path, [data])
