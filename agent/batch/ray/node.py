"""Run jobs on a node of a cluster, and send their reports to the driver.

`Node` knows nothing of Ray; `agent.batch.ray.cluster` makes it an actor. It exchanges only bytes
and text with the driver. Its files are below the cache folder of the node:

nodes/KEY/instances/ID/   the folder of an instance, removed at the end of the run
repositories/PROJECT/     copies of repositories, kept for later runs
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import os
import platform
import re
import shutil
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from pydantic import BaseModel, ConfigDict

import agent
from agent import __version__
from agent.batch.local.local_engine import LocalEngine
from agent.batch.local.worker_processes import Spawner
from agent.batch.messages import (
    REPORTS,
    Answer,
    Ask,
    AttemptEnded,
    Pace,
    Paid,
    SolveJob,
    WorkerReport,
    encode_line,
)
from agent.batch.ray.repository_transfer import Pack, commits_of, has_commit, unpack
from agent.datasets import SolverTask
from agent.errors import ConfigurationError, RepositoryError
from agent.results import kept as files
from agent.shared.files import AppendFile, locked, replace_file

OWN_PATHS = ("PATCHSHOT_CACHE_DIR", "PATCHSHOT_LOG_FILE", "PATCHSHOT_PYTHON")
"""Environment variables that stay those of the node, because they name its own paths."""

_FILE = re.compile(
    rf"{files.RESULT}|{files.RECEIPT}|{files.VERDICT}|{files.PATCH}|{files.EXCHANGES}|{files.LOG}"
    r"|prompts/[0-9]{3,6}\.md|replies/[0-9]{3,6}\.txt"
)
_LOCK_SECONDS = 0.2  # between two checks of the lock of a worker that finishes its call


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class NodeSetup(_Message):
    """Settings of a run, sent to a node. `key` is the run's name. It holds secrets: do not store
    it.
    """

    key: str
    environment: dict[str, str]
    unset: tuple[str, ...]
    job_seconds: float
    call_seconds: float
    slot_seconds: float
    cores: int | None = None  # that tests may use; None for all


class AttemptFiles(_Message):
    """The end of an attempt, with the files of its folder in Base64."""

    ended: AttemptEnded
    files: dict[str, str]

    def contents(self) -> Mapping[str, bytes]:
        """Return the files by name, `result.json` last, without names that are not expected."""
        names = (name for name in self.files if _FILE.fullmatch(name))
        ordered = sorted(names, key=lambda name: (name == files.RESULT, name))
        return {name: base64.b64decode(self.files[name]) for name in ordered}


@dataclass(slots=True)
class _WorkerChannel:
    """Connects a worker with the driver: a queue of reports, and the answer to one question."""

    out: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)
    answer: asyncio.Future[Answer] | None = None


class Node:
    """One run on one node. Call `begin` first."""

    _setup: NodeSetup
    _cache: Path
    _root: Path
    _engine: LocalEngine

    def __init__(self, spawner: Spawner | None = None) -> None:
        self._spawner = spawner
        self._channels: dict[tuple[str, int], _WorkerChannel] = {}

    async def version(self) -> str:
        """Return `program_version()`, which has to be the same on all machines."""
        return await asyncio.to_thread(program_version)

    async def begin(self, message: str) -> None:
        """Take over the `NodeSetup` of a run in place of the settings of the node."""
        setup = self._setup = NodeSetup.model_validate_json(message)
        own = [n for n in os.environ if n.startswith("PATCHSHOT_") and n not in OWN_PATHS]
        for name in (*own, *setup.unset):
            os.environ.pop(name, None)
        os.environ.update(setup.environment)
        self._cache = _cache_folder()
        self._root = self._cache / "nodes" / setup.key
        self._engine = LocalEngine(
            self,
            setup.job_seconds,
            self._spawner,
            cores=setup.cores,
            slot_seconds=setup.slot_seconds,
        )

    async def stay(self) -> None:
        """Never return, so that a waiting driver learns of the end of the node."""
        await asyncio.Event().wait()

    # ----------------------------------------------------------------------------- repositories

    async def find(self, path: str, project: str, commit: str) -> tuple[str, list[str]]:
        """Return the path where a commit can be read here, or "" and the commits of the copy here.

        `path` is the driver's path, which may be on a disk that both machines share.
        """
        copy = self._copy(project)
        for place in (Path(path), copy):
            if await asyncio.to_thread(has_commit, place, commit):
                return str(place), []
        return "", await asyncio.to_thread(commits_of, copy)

    async def receive(
        self, project: str, commit: str, data: bytes, shallow: list[str]
    ) -> tuple[str, str]:
        """Add a commit to the copy of a project. Return its path and "", or "" and the problem."""
        copy = self._copy(project)
        try:
            await asyncio.to_thread(unpack, copy, commit, Pack(data, tuple(shallow)))
        except (RepositoryError, OSError) as error:
            return "", str(error)
        return str(copy), ""

    def _copy(self, project: str) -> Path:
        return self._cache / "repositories" / f"{project.replace('/', '__')}.git"

    # ------------------------------------------------------------------------------------- jobs

    async def left_behind(self) -> list[tuple[str, bytes]]:
        """Return the recordings of workers whose driver died, by folder name.

        Wait for calls that are still under way.
        """
        deadline = time.monotonic() + self._setup.call_seconds
        found = []
        for folder in sorted(self._root.glob("instances/*")):
            await _unlocked(folder / files.LOCK, deadline)
            with contextlib.suppress(OSError):
                found.append((folder.name, (folder / files.EXCHANGES).read_bytes()))
        return found

    async def run(self, message: str, recording: bytes) -> AsyncGenerator[bytes, None]:
        """Run a job. Yield its reports, and its `AttemptFiles` at the end.

        `recording` holds the replies so far.
        """
        job = SolveJob.model_validate_json(message)
        folder = self._folder(job.task)
        await asyncio.to_thread(_prepare, folder, recording)
        channel = self._channels[job.task.instance_id, job.attempt] = _WorkerChannel()
        here = job.model_copy(update={"folder": str(folder), "remote": True})
        attempt = asyncio.create_task(self._engine.attempt(here))
        attempt.add_done_callback(lambda _: channel.out.put_nowait(None))
        try:
            while (report := await channel.out.get()) is not None:
                yield report
            yield encode_line(AttemptFiles(ended=attempt.result(), files=_files_in(folder)))
        finally:
            del self._channels[job.task.instance_id, job.attempt]

    async def answer(self, name: str, attempt: int, message: str) -> None:
        """Pass the driver's answer to the worker that waits for it."""
        channel = self._channels.get((name, attempt))
        if channel is not None and channel.answer is not None and not channel.answer.done():
            channel.answer.set_result(Answer.model_validate_json(message))

    async def cancel(self) -> None:
        """Ask all workers to stop, and kill them soon."""
        await self._engine.cancel()

    async def close(self) -> None:
        """Let workers record what they are paying, and end all processes of the run."""
        await self._engine.close()

    async def clear(self) -> None:
        """Remove all files of the run, once the driver has them."""
        await asyncio.to_thread(shutil.rmtree, self._root, ignore_errors=True)

    def _folder(self, task: SolverTask) -> Path:
        return self._root / "instances" / task.folder_name

    # ---------------------------------------------------------------- as a handler of its engine

    async def handle(self, job: SolveJob, report: WorkerReport) -> Answer | None:
        """Send a report to the driver. Return the answer if the report is a question."""
        channel = self._channels[job.task.instance_id, job.attempt]
        if isinstance(report, Ask | Pace | Paid):
            channel.answer = asyncio.get_running_loop().create_future()
        channel.out.put_nowait(encode_line(report))
        return (
            await channel.answer
            if isinstance(report, Ask | Pace | Paid) and channel.answer
            else None
        )

    async def worker_exited(self, job: SolveJob) -> None:
        """Do nothing: the driver sees the end of a worker from its `AttemptFiles`."""


def parse(line: bytes) -> WorkerReport | AttemptFiles:
    """Parse a message of `Node.run`. Raises pydantic's ValidationError."""
    return AttemptFiles.model_validate_json(line) if line.startswith(b'{"ended"') else _report(line)


def _report(line: bytes) -> WorkerReport:
    return REPORTS.validate_json(line)


def add_replies(recording: Path, lines: bytes, *, repeated: bool = False) -> int:
    """Append to a recording the lines that it lacks. Return their number. Raises OSError.

    With `repeated`, append all lines, because the same reply was paid again.
    """
    known = (
        []
        if repeated or not recording.is_file()
        else recording.read_bytes().splitlines(keepends=True)
    )
    added = 0
    with contextlib.closing(AppendFile(recording)) as file:
        for line in lines.splitlines(keepends=True):
            if line in known:
                known.remove(line)
            elif line.endswith(b"\n"):
                file.append(line)
                added += 1
    return added


def _cache_folder() -> Path:
    from agent.settings import load

    return load({}).cache_dir


def _prepare(folder: Path, recording: bytes) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    replace_file(folder / files.EXCHANGES, [recording])


def _files_in(folder: Path) -> dict[str, str]:
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if _FILE.fullmatch(name) and path.is_file():
            found[name] = base64.b64encode(path.read_bytes()).decode("ascii")
    return found


async def _unlocked(lock: Path, deadline: float) -> None:
    """Wait until the lock is free or the deadline has passed."""
    while time.monotonic() < deadline:
        try:
            with locked(lock):
                return
        except ConfigurationError:
            await asyncio.sleep(_LOCK_SECONDS)


def program_version() -> str:
    """Return the versions of this package (with a hash of its source), of Python and of Ray."""
    try:
        ray = metadata.version("ray")
    except metadata.PackageNotFoundError:
        ray = "none"
    return (
        f"patchshot {__version__} ({_digest()[:12]}), Python {platform.python_version()}, Ray {ray}"
    )


def _digest() -> str:
    """Return the SHA-256 of the names and contents of all modules, hex."""
    digest = hashlib.sha256()
    for place in agent.__path__:
        root = Path(place)
        for path in sorted(root.rglob("*.py")):
            data = path.read_bytes()
            digest.update(f"{path.relative_to(root).as_posix()}\0{len(data)}\0".encode())
            digest.update(data)
    return digest.hexdigest()
