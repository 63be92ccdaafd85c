"""Worker processes as an engine sees them, and the plain way to start one: a command."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

from agent.batch import folder as files

LONGEST_LINE = 64 * 1024 * 1024
"""Of one report: `OnTape` names every reply."""

# -P: nothing of the current folder is imported; it stays the working directory, because paths and
# the configuration file are relative to it.
PYTHON = (sys.executable, "-P", "-m")

WORKER = (*PYTHON, "agent.batch.worker")


class Child(Protocol):
    """A process of its own session."""

    async def read(self) -> bytes:
        """Its next line with the newline; without one, or nothing, at the end."""
        ...

    def send(self, data: bytes) -> None:
        """Give it some input; nothing where it takes none any more."""
        ...

    def hang_up(self) -> None:
        """Close its input: the request to end."""
        ...

    def terminate(self) -> None:
        """SIGTERM, to the process alone."""
        ...

    def kill(self) -> None:
        """SIGKILL, to its session."""
        ...

    async def wait(self) -> int | None:
        """Waits for its end, and for that of its session: the exit code (negative for a signal).

        None where nobody can tell.
        """
        ...


class Spawner(Protocol):
    """Starts workers."""

    async def start(self, folder: Path) -> Child:
        """A worker whose standard error is the log in the folder. Raises OSError."""
        ...

    async def close(self) -> None:
        """Nothing is left once all children have been waited for."""
        ...


class CommandSpawner:
    """A `Spawner` that runs a command for each worker."""

    def __init__(self, command: Sequence[str] = WORKER) -> None:
        self._command = tuple(command)

    async def start(self, folder: Path) -> Child:
        """A new process."""
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
        return CommandChild(process)

    async def close(self) -> None:
        """Nothing is shared."""


class CommandChild:
    """A `Child` that this process has started itself."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def read(self) -> bytes:
        """One line."""
        assert self._process.stdout is not None
        return await self._process.stdout.readline()

    def send(self, data: bytes) -> None:
        """Through its pipe."""
        assert self._process.stdin is not None
        self._process.stdin.write(data)

    def hang_up(self) -> None:
        """Close its pipe."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def terminate(self) -> None:
        """Ask it."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """The session it leads, and no other."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def wait(self) -> int | None:
        """Its exit code; its session has been killed."""
        code = await self._process.wait()
        self.kill()
        return code


def open_log(folder: Path) -> BinaryIO:
    """The log of an instance, to append to. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    return (folder / files.LOG).open("ab")


def environment() -> dict[str, str]:
    """The user's own (keys are there), and where this package is found from any folder."""
    here = str(Path(__file__).resolve().parents[2])
    entries = [here, *(entry for entry in sys.path if Path(entry).is_absolute())]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(entries))}
