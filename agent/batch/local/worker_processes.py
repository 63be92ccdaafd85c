"""Start worker processes: by a command each, or for the price of a fork by a fork server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol

from agent.results import kept as files
from agent.shared.workers import import_path

LONGEST_LINE = 64 * 1024 * 1024
"""Bytes of one report at most; `EarlierReplies` has an entry for each reply."""

# -P: nothing is imported from the current folder. It stays the working directory, because paths and
# the configuration file are relative to it.
PYTHON = (sys.executable, "-P", "-m")

WORKER = (*PYTHON, "agent.batch.worker")


class SolverProcess(Protocol):
    """A worker process that leads its own session."""

    async def read(self) -> bytes:
        """Return its next line with the newline; at the end, b"" or a line without one."""
        ...

    def send(self, data: bytes) -> None:
        """Send input; do nothing if the worker no longer reads."""
        ...

    def hang_up(self) -> None:
        """Close its input, which asks it to end."""
        ...

    def terminate(self) -> None:
        """Send SIGTERM to the process, not to its children."""
        ...

    def kill(self) -> None:
        """Send SIGKILL to its session."""
        ...

    async def wait(self) -> int | None:
        """Wait until it and its session have ended.

        Return the exit code, negative for a signal, None if it is unknown.
        """
        ...


class Spawner(Protocol):
    """Starts workers."""

    async def start(self, folder: Path) -> SolverProcess:
        """Start a worker whose standard error is the log in the folder. Raises OSError."""
        ...

    async def close(self) -> None:
        """Release everything. All workers must have been waited for."""
        ...


class CommandSpawner:
    """A `Spawner` that runs a command for each worker."""

    def __init__(self, command: Sequence[str] = WORKER) -> None:
        self._command = tuple(command)

    async def start(self, folder: Path) -> SolverProcess:
        """Start the command."""
        with open_log(folder) as log:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                limit=LONGEST_LINE,
                env=environment(),
                start_new_session=True,  # Ctrl-C reaches the driver only, which then decides
            )
        return CommandWorker(process)

    async def close(self) -> None:
        """Do nothing."""


class CommandWorker:
    """A `SolverProcess` that this process has started itself."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def read(self) -> bytes:
        """Read one line of its output."""
        assert self._process.stdout is not None
        return await self._process.stdout.readline()

    def send(self, data: bytes) -> None:
        """Write to its pipe."""
        assert self._process.stdin is not None
        self._process.stdin.write(data)

    def hang_up(self) -> None:
        """Close its pipe."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def terminate(self) -> None:
        """Send SIGTERM to it."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to the session that it leads."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def wait(self) -> int | None:
        """Wait for its end, kill its session, and return the exit code."""
        code = await self._process.wait()
        self.kill()
        return code


def open_log(folder: Path) -> BinaryIO:
    """Open the log of an instance for appending. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    return (folder / files.LOG).open("ab")


def environment() -> dict[str, str]:
    """Return the user's environment, keys included, with the import path of this process."""
    return {**os.environ, "PYTHONPATH": import_path()}


# Loading takes a second or two; on a machine that swaps, much longer.
_READY_SECONDS = 120.0

_LONGEST_MESSAGE = 64
_END_SECONDS = 5.0  # from the end of its socket to its own

# OpenBLAS starts a thread a core when numpy is imported; nothing here multiplies large matrices.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

_FORK_SERVER = (*PYTHON, "agent.batch.local.fork_server")


class _Lost(Exception):
    """The fork server has exited."""


class ForkServerSpawner:
    """A `Spawner` that forks workers from a server.

    If the server dies, its workers live on and a new server is started. If none can be started,
    each worker is started by a command.
    """

    def __init__(self, server: tuple[str, ...] = _FORK_SERVER) -> None:
        self._command = server
        self._server: _ForkServer | None = None
        self._starting = asyncio.Lock()
        self._fallback = CommandSpawner()

    async def start(self, folder: Path) -> SolverProcess:
        """Fork a worker."""
        for _ in range(2):  # a second try replaces a server that died unnoticed
            server = await self._living()
            with contextlib.suppress(_Lost, TimeoutError):
                async with asyncio.timeout(_READY_SECONDS):
                    return await server.fork(folder)
        return await self._fallback.start(folder)

    async def close(self) -> None:
        """Stop the server."""
        if self._server is not None:
            await self._server.close()
            self._server = None

    async def _living(self) -> _ForkServer:
        async with self._starting:
            if self._server is not None and self._server.lost:
                await self.close()
            if self._server is None:
                self._server = await _ForkServer.start(self._command)
            return self._server


class _Pipes:
    """The pipes to and from a worker; `theirs` are the worker's ends."""

    def __init__(self) -> None:
        self._input, self._output = os.pipe(), os.pipe()
        self.theirs = (self._input[0], self._output[1])
        self.lines = asyncio.StreamReader(LONGEST_LINE)
        self._sink: asyncio.WriteTransport | None = None
        self._source: asyncio.ReadTransport | None = None

    async def open(self) -> None:
        """Connect our ends to the event loop."""
        loop = asyncio.get_running_loop()
        self._sink, _ = await loop.connect_write_pipe(
            asyncio.BaseProtocol, os.fdopen(self._input[1], "wb", 0)
        )
        self._source, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self.lines), os.fdopen(self._output[0], "rb", 0)
        )

    def close_theirs(self) -> None:
        """Close the worker's ends; the worker has copies of them."""
        for end in self.theirs:
            os.close(end)

    def send(self, data: bytes) -> None:
        """Write to the worker; do nothing if it no longer reads."""
        assert self._sink is not None
        if not self._sink.is_closing():
            self._sink.write(data)

    def hang_up(self) -> None:
        """Close the worker's input."""
        if self._sink is not None:
            self._sink.close()

    def close(self) -> None:
        """Close both pipes."""
        self.hang_up()
        if self._source is not None:
            self._source.close()


class ForkedWorker:
    """A `SolverProcess` that the server has forked. It owns `handle`, its pidfd."""

    def __init__(self, number: int, handle: int, pipes: _Pipes) -> None:
        self._number = number
        self._handle = handle
        self._pipes = pipes
        self._end: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

    async def read(self) -> bytes:
        """Read one line of its output."""
        return await self._pipes.lines.readline()

    def send(self, data: bytes) -> None:
        """Write to its pipe."""
        self._pipes.send(data)

    def hang_up(self) -> None:
        """Close its pipe."""
        self._pipes.hang_up()

    def terminate(self) -> None:
        """Send SIGTERM to it."""
        if not self._end.done():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to its session, whose id is not reused before the server reaps it."""
        if not self._end.done():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._number, signal.SIGKILL)

    async def wait(self) -> int | None:
        """Wait for its end, and return the exit code that the server reports, None if unknown."""
        return await asyncio.shield(self._end)

    def end(self, code: int | None) -> None:
        """Record that it has ended with this exit code."""
        if not self._end.done():
            self._end.set_result(code)
            self._pipes.hang_up()  # its output ends by itself, once it has been read
            os.close(self._handle)

    def watch(self) -> None:
        """Watch for its end here, because the server is gone."""
        asyncio.get_running_loop().add_reader(self._handle, self._alone)

    def _alone(self) -> None:
        asyncio.get_running_loop().remove_reader(self._handle)
        self.kill()  # what is left of its session
        self.end(None)


@dataclass(slots=True)
class _ForkServer:
    """One server process and its workers."""

    process: asyncio.subprocess.Process
    control: socket.socket
    lost: bool = False
    _waiting: deque[tuple[_Pipes, asyncio.Future[ForkedWorker]]] = field(default_factory=deque)
    _children: dict[int, ForkedWorker] = field(default_factory=dict)

    @classmethod
    async def start(cls, command: tuple[str, ...]) -> _ForkServer:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=theirs.fileno(),
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                env=environment() | _ONE_THREAD,
                start_new_session=True,
            )
        ours.setblocking(False)
        server = cls(process, ours)
        asyncio.get_running_loop().add_reader(ours.fileno(), server._listen)
        return server

    async def fork(self, folder: Path) -> ForkedWorker:
        """Fork a worker. Raises _Lost, and OSError if the log cannot be opened."""
        with open_log(folder) as log:
            pipes = _Pipes()
            try:
                await pipes.open()
                started: asyncio.Future[ForkedWorker] = asyncio.get_running_loop().create_future()
                self._ask([*pipes.theirs, log.fileno()])
                self._waiting.append((pipes, started))
            except BaseException:
                pipes.close()
                raise
            finally:
                pipes.close_theirs()
        try:
            return await started
        except BaseException:
            pipes.close()
            raise

    def _ask(self, descriptors: list[int]) -> None:
        if self.lost:
            raise _Lost
        try:
            socket.send_fds(self.control, [b"fork"], descriptors)
        except OSError:
            raise _Lost from None

    async def close(self) -> None:
        """Stop the server; its workers live on."""
        self._lose()
        try:
            await asyncio.wait_for(self.process.wait(), _END_SECONDS)
        except TimeoutError:
            self.process.kill()
            await self.process.wait()

    def _listen(self) -> None:
        """Take one message of the server."""
        try:
            message, handles, _, _ = socket.recv_fds(self.control, _LONGEST_MESSAGE, 1)
        except OSError:
            message, handles = b"", []
        match message.split():
            case [b"started", number] if handles:
                self._take_started(int(number), handles[0])
            case [b"died", number, code] if int(number) in self._children:
                self._children.pop(int(number)).end(int(code))
            case _:
                self._lose()

    def _take_started(self, number: int, handle: int) -> None:
        """Answer the oldest request. If it was given up, its worker finds its input closed."""
        pipes, started = self._waiting.popleft()
        child = self._children[number] = ForkedWorker(number, handle, pipes)
        if not started.done():
            started.set_result(child)

    def _lose(self) -> None:
        """Give up the connection to the server."""
        if self.lost:
            return
        self.lost = True
        asyncio.get_running_loop().remove_reader(self.control.fileno())
        self.control.close()
        for _, started in self._waiting:
            if not started.done():
                started.set_exception(_Lost())
        for child in self._children.values():
            child.watch()
        self._waiting.clear()
        self._children.clear()
