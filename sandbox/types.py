"""Values and the protocol of the sandbox. Nothing here knows of models, issues or patches."""

from __future__ import annotations

import enum
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from sandbox.workspace import Workspace

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one run. Sizes in bytes, times in seconds."""

    wall_seconds: float = 900.0
    cpu_seconds: int = 600  # of all processes together where it is seen, of each in any case
    address_space: int = 4096 * _MIB  # a process; in force where `memory` cannot be
    processes: int = 256  # and threads
    file_size: int = 256 * _MIB
    output: int = 4 * _MIB  # a stream; head and tail are kept, the middle is cut
    report: int = 16 * _MIB  # of either report
    tmp: int = 512 * _MIB  # the temporary directory
    memory: int = 4096 * _MIB  # of all processes and their files in memory, where it can be bound
    workspace: int = 2048 * _MIB  # of the private copy, what the command writes included


class Ended(enum.StrEnum):
    """Why a run ended. Only EXITED carries an exit code of the command's own choosing."""

    EXITED = "exited"
    SIGNALLED = "signalled"
    WALL_LIMIT = "wall-limit"
    CPU_LIMIT = "cpu-limit"
    OUTPUT_LIMIT = "output-limit"
    MEMORY_LIMIT = "memory-limit"
    PROCESS_LIMIT = "process-limit"
    DISK_LIMIT = "disk-limit"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Command:
    """What to run. `argv` is executed directly, never by a shell.

    `environment` is the whole environment beside a fixed minimal one; nothing is inherited.
    `read_only` are host paths (an interpreter, a virtual environment) made visible at their own
    paths. With `report`, the environment variable SANDBOX_REPORT names a pipe that the command may
    write: what is written cannot be taken back, and comes as `RunResult.report`. SANDBOX_JUNIT then
    names a file that it may write; its bytes come back in `RunResult.junit`.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    cwd: str = "."  # relative to the workspace
    limits: Limits = field(default_factory=Limits)
    read_only: tuple[Path, ...] = ()
    report: bool = False


@dataclass(frozen=True, slots=True)
class RunResult:
    """What came of a run. Streams are raw bytes, cut in the middle at `Limits.output`."""

    ended: Ended
    exit_code: int | None
    stdout: bytes
    stderr: bytes
    seconds: float
    report: bytes = b""
    detail: str = ""  # the limit or signal in words, "" when exited
    junit: bytes = b""
    report_dropped: int = 0  # bytes of the report that came beyond its limit


@dataclass(frozen=True, slots=True)
class Probe:
    """What a backend can do on this machine, found by trying it."""

    backend: str
    available: bool
    isolated: bool
    guarantees: Mapping[str, bool]  # "no-network", "read-only-root", "pid-namespace", ...
    problem: str = ""  # when not available: what is wrong and what to install or allow


class Sandbox(Protocol):
    """Runs untrusted commands. bwrap, container, landlock, process (unsafe), a fake."""

    @property
    def name(self) -> str: ...
    @property
    def foreign_root(self) -> bool:
        """Whether commands see another file system than this machine's (a container image).

        Interpreters and tools must then be looked for inside, not on this machine.
        """
        ...

    def probe(self) -> Probe: ...
    def run(
        self, command: Command, workspace: Workspace, *, cancel: threading.Event | None = None
    ) -> RunResult:
        """Run to its end, a limit, or `cancel`. No process of it survives the call.

        Raises SandboxError when the backend itself fails (not when the command does).
        """
        ...


class SandboxError(Exception):
    """The backend cannot run anything here; the message says what to install or allow."""
