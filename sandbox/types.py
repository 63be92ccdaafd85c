"""Values, errors and the interface of the sandbox. Nothing here knows of models or patches."""

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
    cpu_seconds: int = 600  # of each process, and of all together in a control group
    address_space: int = 4096 * _MIB  # of each process, where `memory` cannot be bound
    processes: int = 256  # and threads
    file_size: int = 256 * _MIB
    output: int = 4 * _MIB  # of each stream; head and tail are kept, the middle is cut
    report: int = 16 * _MIB  # of each of the two reports
    memory: int = 4096 * _MIB  # of all processes and their files in memory, where it can be bound
    workspace: int = 2048 * _MIB  # of the private copy and of all that the command writes


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

    `environment` is added to a fixed minimal one. `read_only` are host paths that the command sees
    at the same paths. With `report`, SANDBOX_REPORT names a pipe for `RunResult.report`, from which
    nothing can be taken back. With `network` the command uses the network of the machine, local
    servers too; Landlock cannot give it.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    cwd: str = "."  # relative to the workspace
    limits: Limits = field(default_factory=Limits)
    read_only: tuple[Path, ...] = ()
    report: bool = False
    network: bool = False


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended. Streams are raw bytes, cut in the middle at `Limits.output`."""

    ended: Ended
    exit_code: int | None
    stdout: bytes
    stderr: bytes
    seconds: float
    report: bytes = b""
    detail: str = ""  # the limit or signal, "" when exited
    report_dropped: int = 0  # bytes of the report beyond its limit


@dataclass(frozen=True, slots=True)
class Probe:
    """What a backend can do on this machine, found out by trying."""

    backend: str
    available: bool
    isolated: bool
    guarantees: Mapping[str, bool]  # "no-network", "read-only-root", "pid-namespace", ...
    problem: str = ""  # when not available: what is wrong and what to install or allow


class SandboxError(Exception):
    """The backend cannot run anything here; the message says what to install or allow."""


class WorkspaceError(SandboxError):
    """The private copy of a repository cannot be made or changed; the message says why."""


# ---- the interface of a backend


class Sandbox(Protocol):
    """Runs untrusted commands: bwrap, container, landlock, process (unsafe), or a fake."""

    @property
    def name(self) -> str: ...
    @property
    def foreign_root(self) -> bool:
        """Whether commands see another file system than this machine's (a container image)."""
        ...

    def probe(self) -> Probe: ...
    def run(
        self, command: Command, workspace: Workspace, *, cancel: threading.Event | None = None
    ) -> RunResult:
        """Run a command to its end, a limit, or `cancel`. None of its processes survives the call.

        Raises SandboxError when the backend itself fails.
        """
        ...
