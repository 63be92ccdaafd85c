"""The driver's side of `agent.batch.nursery`: workers for the price of a fork."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from agent.batch.child import (
    LONGEST_LINE,
    PYTHON,
    Child,
    CommandSpawner,
    environment,
    open_log,
)

# Loading takes a second or two; on a machine that swaps, much longer.
_READY_SECONDS = 120.0

_LONGEST_MESSAGE = 64
_END_SECONDS = 5.0  # from the end of its socket to its own

# OpenBLAS starts a thread a core when numpy is imported; nothing here multiplies large matrices.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

_NURSERY = (*PYTHON, "agent.batch.nursery")


class _Lost(Exception):
    """The nursery is there no more."""


class Hatchery:
    """A `Spawner`. A nursery that dies costs no worker: those that live go on, a new one follows.

    Where none can be started, workers are started one by one.
    """

    def __init__(self, nursery: tuple[str, ...] = _NURSERY) -> None:
        self._command = nursery
        self._nursery: _Nursery | None = None
        self._starting = asyncio.Lock()
        self._fallback = CommandSpawner()

    async def start(self, folder: Path) -> Child:
        """A forked worker."""
        for _ in range(2):  # a nursery that died unnoticed is replaced
            nursery = await self._living()
            with contextlib.suppress(_Lost, TimeoutError):
                async with asyncio.timeout(_READY_SECONDS):
                    return await nursery.hatch(folder)
        return await self._fallback.start(folder)

    async def close(self) -> None:
        """End the nursery."""
        if self._nursery is not None:
            await self._nursery.close()
            self._nursery = None

    async def _living(self) -> _Nursery:
        async with self._starting:
            if self._nursery is not None and self._nursery.lost:
                await self.close()
            if self._nursery is None:
                self._nursery = await _Nursery.start(self._command)
            return self._nursery


class _Pipes:
    """What a worker reads and writes; `theirs` are its ends."""

    def __init__(self) -> None:
        self._input, self._output = os.pipe(), os.pipe()
        self.theirs = (self._input[0], self._output[1])
        self.lines = asyncio.StreamReader(LONGEST_LINE)
        self._sink: asyncio.WriteTransport | None = None
        self._source: asyncio.ReadTransport | None = None

    async def open(self) -> None:
        """Connect our ends."""
        loop = asyncio.get_running_loop()
        self._sink, _ = await loop.connect_write_pipe(
            asyncio.BaseProtocol, os.fdopen(self._input[1], "wb", 0)
        )
        self._source, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self.lines), os.fdopen(self._output[0], "rb", 0)
        )

    def close_theirs(self) -> None:
        """The worker has its own copies."""
        for end in self.theirs:
            os.close(end)

    def send(self, data: bytes) -> None:
        """Nothing where nobody reads."""
        assert self._sink is not None
        if not self._sink.is_closing():
            self._sink.write(data)

    def hang_up(self) -> None:
        """Close its input."""
        if self._sink is not None:
            self._sink.close()

    def close(self) -> None:
        """Close both."""
        self.hang_up()
        if self._source is not None:
            self._source.close()


class HatchedChild:
    """A `Child` that the nursery has forked. `handle`: its pidfd, owned."""

    def __init__(self, number: int, handle: int, pipes: _Pipes) -> None:
        self._number = number
        self._handle = handle
        self._pipes = pipes
        self._end: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

    async def read(self) -> bytes:
        """One line."""
        return await self._pipes.lines.readline()

    def send(self, data: bytes) -> None:
        """Through its pipe."""
        self._pipes.send(data)

    def hang_up(self) -> None:
        """Close its pipe."""
        self._pipes.hang_up()

    def terminate(self) -> None:
        """Ask it."""
        if not self._end.done():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGTERM)

    def kill(self) -> None:
        """Its session; its id is nobody else's until it has been buried."""
        if not self._end.done():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._number, signal.SIGKILL)

    async def wait(self) -> int | None:
        """What the nursery has told of its end; None where it could not."""
        return await asyncio.shield(self._end)

    def end(self, code: int | None) -> None:
        """It is dead."""
        if not self._end.done():
            self._end.set_result(code)
            self._pipes.hang_up()  # its output ends by itself, once it has been read
            os.close(self._handle)

    def watch(self) -> None:
        """Nobody will tell of its end: see to it here."""
        asyncio.get_running_loop().add_reader(self._handle, self._alone)

    def _alone(self) -> None:
        asyncio.get_running_loop().remove_reader(self._handle)
        self.kill()  # what is left of its session
        self.end(None)


@dataclass(slots=True)
class _Nursery:
    """One nursery process, and the children it has borne."""

    process: asyncio.subprocess.Process
    control: socket.socket
    lost: bool = False
    _waiting: deque[tuple[_Pipes, asyncio.Future[HatchedChild]]] = field(default_factory=deque)
    _children: dict[int, HatchedChild] = field(default_factory=dict)

    @classmethod
    async def start(cls, command: tuple[str, ...]) -> _Nursery:
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
        nursery = cls(process, ours)
        asyncio.get_running_loop().add_reader(ours.fileno(), nursery._listen)
        return nursery

    async def hatch(self, folder: Path) -> HatchedChild:
        """Raises _Lost, and OSError where there can be no log."""
        with open_log(folder) as log:
            pipes = _Pipes()
            try:
                await pipes.open()
                born: asyncio.Future[HatchedChild] = asyncio.get_running_loop().create_future()
                self._ask([*pipes.theirs, log.fileno()])
                self._waiting.append((pipes, born))
            except BaseException:
                pipes.close()
                raise
            finally:
                pipes.close_theirs()
        try:
            return await born
        except BaseException:
            pipes.close()
            raise

    def _ask(self, descriptors: list[int]) -> None:
        if self.lost:
            raise _Lost
        try:
            socket.send_fds(self.control, [b"hatch"], descriptors)
        except OSError:
            raise _Lost from None

    async def close(self) -> None:
        """End it; its workers go on."""
        self._lose()
        try:
            await asyncio.wait_for(self.process.wait(), _END_SECONDS)
        except TimeoutError:
            self.process.kill()
            await self.process.wait()

    def _listen(self) -> None:
        """One message of the nursery."""
        try:
            message, handles, _, _ = socket.recv_fds(self.control, _LONGEST_MESSAGE, 1)
        except OSError:
            message, handles = b"", []
        match message.split():
            case [b"born", number] if handles:
                self._born(int(number), handles[0])
            case [b"died", number, code] if int(number) in self._children:
                self._children.pop(int(number)).end(int(code))
            case _:
                self._lose()

    def _born(self, number: int, handle: int) -> None:
        """The oldest request is answered; one that was given up has left its worker no input."""
        pipes, born = self._waiting.popleft()
        child = self._children[number] = HatchedChild(number, handle, pipes)
        if not born.done():
            born.set_result(child)

    def _lose(self) -> None:
        """It hears and says nothing more."""
        if self.lost:
            return
        self.lost = True
        asyncio.get_running_loop().remove_reader(self.control.fileno())
        self.control.close()
        for _, born in self._waiting:
            if not born.done():
                born.set_exception(_Lost())
        for child in self._children.values():
            child.watch()
        self._waiting.clear()
        self._children.clear()
