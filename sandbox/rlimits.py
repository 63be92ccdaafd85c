"""Limits of the kernel on each process, set by a wrapper around the command.

They hold per process (RLIMIT_NPROC per user): a command that forks can use a multiple of them,
within the wall limit. Bounds on the total, where control groups can be had, take their place.
"""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

from sandbox.hierarchies import Bound
from sandbox.types import Ended, Limits, SandboxError

_SHELL_SIGNAL = 128  # a shell and bwrap report death by signal N as 128 + N


def wrapper(
    limits: Limits, *, shared_user: bool, bounds: frozenset[Bound] = frozenset()
) -> tuple[str, ...]:
    """`prlimit` with its arguments; the command follows.

    `shared_user`: the command runs under a uid with other processes, whose number the limit of
    processes then includes. The second value of the CPU limit ends what ignores SIGXCPU. `bounds`
    are kept for all processes together by a control group: memory that is only reserved (by a JVM,
    Go or Node by the dozens of GiB) is then no harm, and what is too much is told as such.
    Raises SandboxError when util-linux is not installed.
    """
    program = shutil.which("prlimit", path="/usr/bin:/bin:/usr/local/bin")
    if program is None:
        raise SandboxError("prlimit is not installed; install the package util-linux")
    found = [
        program,
        f"--cpu={limits.cpu_seconds}:{limits.cpu_seconds + 1}",
        f"--fsize={limits.file_size}",
        "--core=0",
    ]
    if Bound.MEMORY not in bounds:
        found.append(f"--as={limits.address_space}")
    if Bound.PROCESSES not in bounds:
        processes = limits.processes + (_threads_of_user() if shared_user else 0)
        found.append(f"--nproc={processes}")
    return (*found, "--")


def explain(returncode: int, seconds: float, limits: Limits) -> tuple[Ended, int | None, str]:
    """What a status of 0..255 (128 + N: signal N) or -N (signal N) means.

    A command that itself exits with 128 + N cannot be told from one that died of signal N.
    """
    number = -returncode if returncode < 0 else returncode - _SHELL_SIGNAL
    if number <= 0 or number >= signal.NSIG:
        return Ended.EXITED, returncode, ""
    out_of_cpu = f"used {limits.cpu_seconds} s of CPU time"
    if number == signal.SIGXCPU:
        return Ended.CPU_LIMIT, None, out_of_cpu
    if number == signal.SIGXFSZ:
        return Ended.DISK_LIMIT, None, f"wrote a file of more than {limits.file_size} bytes"
    if number == signal.SIGKILL and seconds >= limits.cpu_seconds:
        return Ended.CPU_LIMIT, None, f"killed, probably because it {out_of_cpu}"
    return Ended.SIGNALLED, None, _name(number)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _threads_of_user() -> int:
    """How many threads this uid has now: RLIMIT_NPROC counts threads (setrlimit(2))."""
    total = 0
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and process.stat().st_uid == os.getuid():
                total += sum(1 for _ in (process / "task").iterdir())
        except OSError:
            continue  # it ended meanwhile, or is not ours to see
    return total
