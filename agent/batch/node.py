"""A node of a cluster at work: jobs run here as on one machine, and what they report goes out.

`Node` knows nothing of Ray: it becomes an actor in `agent.batch.cluster`. All that passes is bytes
and text. Its folder lies below the cache folder of the node and is gone when the run is over:

nodes/KEY/instances/ID/   the folder of an instance, until the driver has its files
repositories/PROJECT/     copies of repositories, for all runs
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import re
import shutil
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from agent.batch import folder as files
from agent.batch.child import Spawner
from agent.batch.dataset import Task
from agent.batch.local import LocalEngine
from agent.batch.messages import REPORTS, Answer, Ask, Ended, Job, Pace, Paid, Report, line_of
from agent.batch.shipping import Pack, commits_of, has_commit, unpack
from agent.batch.version import here
from agent.durable import AppendFile, locked, replace_file
from agent.errors import ConfigurationError, RepositoryError

PLACES = ("PATCHSHOT_CACHE_DIR", "PATCHSHOT_LOG_FILE", "PATCHSHOT_PYTHON")
"""Variables that a node has of its own: they name places on it."""

_FILE = re.compile(
    rf"{files.RESULT}|{files.RECEIPT}|{files.VERDICT}|{files.PATCH}|{files.TAPE}|{files.LOG}"
    r"|prompts/[0-9]{3,6}\.md|replies/[0-9]{3,6}\.txt"
)
_LOCK_SECONDS = 0.2  # between two looks at the lock of a worker that finishes its call


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Setup(_Message):
    """What a node is told of a run. `key` names it. It holds keys: it is sent, never stored."""

    key: str
    environment: dict[str, str]
    unset: tuple[str, ...]
    job_seconds: float
    call_seconds: float
    turn_seconds: float
    cores: int | None = None  # that tests may use; None: those of the machine


class Parcel(_Message):
    """The end of an attempt, with the files of its folder, Base64."""

    ended: Ended
    files: dict[str, str]

    def contents(self) -> Mapping[str, bytes]:
        """The files by name, `result.json` last; names of no file of ours are left out."""
        names = (name for name in self.files if _FILE.fullmatch(name))
        ordered = sorted(names, key=lambda name: (name == files.RESULT, name))
        return {name: base64.b64decode(self.files[name]) for name in ordered}


@dataclass(slots=True)
class _Wire:
    """Between a worker and the driver: reports go out in order, each question has one answer."""

    out: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)
    answer: asyncio.Future[Answer] | None = None


class Node:
    """One run on one node. `begin` comes first."""

    _setup: Setup
    _cache: Path
    _root: Path
    _engine: LocalEngine

    def __init__(self, spawner: Spawner | None = None) -> None:
        self._spawner = spawner
        self._wires: dict[tuple[str, int], _Wire] = {}

    async def version(self) -> str:
        """What runs here (`version.here`): it has to be the same everywhere."""
        return await asyncio.to_thread(here)

    async def begin(self, message: str) -> None:
        """Take the `Setup` of a run: its settings, not those that the node was started with."""
        setup = self._setup = Setup.model_validate_json(message)
        own = [n for n in os.environ if n.startswith("PATCHSHOT_") and n not in PLACES]
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
            turn_seconds=setup.turn_seconds,
        )

    async def stay(self) -> None:
        """Does not return: who waits for it learns of the node's end."""
        await asyncio.Event().wait()

    # ----------------------------------------------------------------------------- repositories

    async def find(self, path: str, project: str, commit: str) -> tuple[str, list[str]]:
        """Where the commit of a project can be read here, "" where it cannot.

        `path` is the driver's, which may lie on a disk that both see. Also the commits that the
        copy here was made for.
        """
        copy = self._copy(project)
        for place in (Path(path), copy):
            if await asyncio.to_thread(has_commit, place, commit):
                return str(place), []
        return "", await asyncio.to_thread(commits_of, copy)

    async def receive(
        self, project: str, commit: str, data: bytes, shallow: list[str]
    ) -> tuple[str, str]:
        """Add a commit to the copy of a project: where that is, or "" and why it is not."""
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
        """Tapes of workers whose driver was gone, by folder name; waits for calls under way."""
        deadline = time.monotonic() + self._setup.call_seconds
        found = []
        for folder in sorted(self._root.glob("instances/*")):
            await _unlocked(folder / files.LOCK, deadline)
            with contextlib.suppress(OSError):
                found.append((folder.name, (folder / files.TAPE).read_bytes()))
        return found

    async def run(self, message: str, tape: bytes) -> AsyncGenerator[bytes, None]:
        """Reports of a job as they come, and a `Parcel` at its end. `tape`: the replies so far."""
        job = Job.model_validate_json(message)
        folder = self._folder(job.task)
        await asyncio.to_thread(_prepare, folder, tape)
        wire = self._wires[job.task.instance_id, job.attempt] = _Wire()
        here = job.model_copy(update={"folder": str(folder), "remote": True})
        attempt = asyncio.create_task(self._engine.attempt(here))
        attempt.add_done_callback(lambda _: wire.out.put_nowait(None))
        try:
            while (report := await wire.out.get()) is not None:
                yield report
            yield line_of(Parcel(ended=attempt.result(), files=_files_in(folder)))
        finally:
            del self._wires[job.task.instance_id, job.attempt]

    async def answer(self, name: str, attempt: int, message: str) -> None:
        """The driver's answer to the question that a worker has asked."""
        wire = self._wires.get((name, attempt))
        if wire is not None and wire.answer is not None and not wire.answer.done():
            wire.answer.set_result(Answer.model_validate_json(message))

    async def cancel(self) -> None:
        """Ask all workers to stop, and soon make them."""
        await self._engine.cancel()

    async def close(self) -> None:
        """Let workers keep what they are paying for; then no process of the run is left."""
        await self._engine.close()

    async def clear(self) -> None:
        """Leave no file of the run, once the driver has everything."""
        await asyncio.to_thread(shutil.rmtree, self._root, ignore_errors=True)

    def _folder(self, task: Task) -> Path:
        return self._root / "instances" / task.folder_name

    # ---------------------------------------------------------------- as a broker of its engine

    async def hear(self, job: Job, report: Report) -> Answer | None:
        """Send a report out; where it is a question, its answer."""
        wire = self._wires[job.task.instance_id, job.attempt]
        if isinstance(report, Ask | Pace | Paid):
            wire.answer = asyncio.get_running_loop().create_future()
        wire.out.put_nowait(line_of(report))
        return await wire.answer if isinstance(report, Ask | Pace | Paid) and wire.answer else None

    async def gone(self, job: Job) -> None:
        """The driver sees that from the parcel."""


def parse(line: bytes) -> Report | Parcel:
    """What `Node.run` has sent. Raises pydantic's ValidationError."""
    return Parcel.model_validate_json(line) if line.startswith(b'{"ended"') else _report(line)


def _report(line: bytes) -> Report:
    return REPORTS.validate_json(line)


def add_replies(tape: Path, lines: bytes, *, repeated: bool = False) -> int:
    """Append to a tape the lines that it lacks; how many those were. Raises OSError.

    `repeated`: all of them, also those that it has: the same reply has been paid again.
    """
    known = [] if repeated or not tape.is_file() else tape.read_bytes().splitlines(keepends=True)
    added = 0
    with contextlib.closing(AppendFile(tape)) as file:
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


def _prepare(folder: Path, tape: bytes) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    replace_file(folder / files.TAPE, [tape])


def _files_in(folder: Path) -> dict[str, str]:
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if _FILE.fullmatch(name) and path.is_file():
            found[name] = base64.b64encode(path.read_bytes()).decode("ascii")
    return found


async def _unlocked(lock: Path, deadline: float) -> None:
    """Wait until nobody holds the lock."""
    while time.monotonic() < deadline:
        try:
            with locked(lock):
                return
        except ConfigurationError:
            await asyncio.sleep(_LOCK_SECONDS)
