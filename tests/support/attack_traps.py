"""Oracles outside of the sandbox: each trap is set on the host and says what reached it.

A trap gives its attack the arguments that it needs (a port, a path, a process id), and afterwards
evidence: nothing when the attack was contained. So the same trap serves the control, which runs the
attack without a sandbox and must find some.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sandbox.types import RunResult

Evidence = Callable[[RunResult], list[str]]


@dataclass(frozen=True, slots=True)
class Trap:
    """`arguments` are the attack's own; `evidence` is asked after it, in words for a failure."""

    arguments: tuple[str, ...]
    evidence: Evidence


Setter = Callable[[Path], AbstractContextManager[Trap]]


def marker() -> str:
    """A word that occurs nowhere else on this machine."""
    return f"patchshot-attack-{uuid.uuid4().hex}"


@contextmanager
def nothing(folder: Path) -> Iterator[Trap]:
    """No trap: what the attack itself gets is what there is to see."""
    yield Trap((), lambda _: [])


# --------------------------------------------------------------------------------------- processes


@contextmanager
def survivors(folder: Path) -> Iterator[Trap]:
    """The process table: who still carries the marker in arguments or environment."""
    word = marker()

    def evidence(_: RunResult) -> list[str]:
        deadline = time.monotonic() + 1.0
        while (found := processes_with(word)) and time.monotonic() < deadline:
            time.sleep(0.05)
        return [f"process {pid} is alive" for pid in found]

    try:
        yield Trap((word,), evidence)
    finally:
        for pid in processes_with(word):
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def processes_with(word: str) -> list[int]:
    """Ids of processes with a word in their arguments or environment, this one apart."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            told = (place / "cmdline").read_bytes() + (place / "environ").read_bytes()
            dead = (place / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            continue
        if word.encode() in told and not dead and int(place.name) != os.getpid():
            found.append(int(place.name))
    return sorted(found)


_VICTIM = """
import ctypes, sys
held = ctypes.create_string_buffer(b"untouched", 16)
print(ctypes.addressof(held), flush=True)
for line in sys.stdin:
    print(held.value.decode(), flush=True)
"""


@contextmanager
def victim(folder: Path) -> Iterator[Trap]:
    """A process of the host with a known word at a known address of its memory."""
    command = [sys.executable, "-I", "-c", _VICTIM]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        address = process.stdout.readline().strip()

        def evidence(_: RunResult) -> list[str]:
            if process.poll() is not None:
                return [f"the process ended with {process.returncode}"]
            state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
            if state in "Tt":
                return ["the process is stopped"]
            process.stdin.write("tell\n")
            told = process.stdout.readline().strip()
            return [] if told == "untouched" else [f"its memory says {told!r}"]

        try:
            yield Trap((str(process.pid), address), evidence)
        finally:
            process.kill()


# -------------------------------------------------------------------------------------------- files


@contextmanager
def canaries(folder: Path) -> Iterator[Trap]:
    """Files with a secret in the places of the host that hold some, open to everybody.

    The attack gets their paths and a word for files of its own beside them.
    """
    word, secret = marker(), uuid.uuid4().hex
    repository = folder / "users-repository"
    (repository / ".git").mkdir(parents=True)
    for place in (repository, repository / ".git"):
        place.chmod(0o777)
    places = [
        *(place / word for place in _PLACES if os.access(place, os.W_OK)),
        repository / "settings.py",
        repository / ".git" / "config",
    ]
    try:
        for place in places:
            place.write_text(secret)
            place.chmod(0o666)

        def evidence(result: RunResult) -> list[str]:
            read = secret.encode() in result.stdout + result.stderr + result.report
            found = ["a secret was read"] if read else []
            for place in places:
                if not place.exists() or place.read_text() != secret:
                    found.append(f"{place} was changed")
                if place.with_name(f"{word}-new").exists():
                    found.append(f"{place.parent} was written")
            return found

        yield Trap((json.dumps([str(place) for place in places]), word), evidence)
    finally:
        for place in places:
            for name in (place.name, f"{place.name}-moved", f"{word}-new"):
                place.with_name(name).unlink(missing_ok=True)


_PLACES = (
    Path.home(),
    Path("/etc"),
    Path("/var/tmp"),
    Path("/var/lib"),
    Path("/run"),
    Path("/opt"),
)

_SYSTEM = ("/", "/usr", "/usr/bin", "/usr/local", "/lib", "/etc", "/dev", "/boot", "/srv", "/var")


@contextmanager
def system(folder: Path) -> Iterator[Trap]:
    """The folders of the system: a new file of the attack's in any of them."""
    word = marker()
    places = [Path(place, word) for place in (*_SYSTEM, str(folder))]

    def evidence(_: RunResult) -> list[str]:
        return [f"{place} is there" for place in places if place.exists()]

    try:
        yield Trap((json.dumps([str(place) for place in places]),), evidence)
    finally:
        for place in places:
            place.unlink(missing_ok=True)


_SETTINGS = (
    *("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hostname"),
    *(
        "/proc/sys/vm/panic_on_oom",
        "/proc/sys/kernel/randomize_va_space",
        "/proc/self/oom_score_adj",
    ),
)


@contextmanager
def settings(folder: Path) -> Iterator[Trap]:
    """The kernel's settings and the host's name."""
    before = {name: Path(name).read_bytes() for name in _SETTINGS if Path(name).exists()}

    def changed() -> list[str]:
        return [name for name in sorted(before) if Path(name).read_bytes() != before[name]]

    try:
        yield Trap(
            (json.dumps(sorted(before)),), lambda _: [f"{name} was changed" for name in changed()]
        )
    finally:
        for name in changed():
            Path(name).write_bytes(before[name])


@contextmanager
def mounts(folder: Path) -> Iterator[Trap]:
    """The mount table of the host."""
    word = marker()

    def evidence(_: RunResult) -> list[str]:
        return [line for line in Path("/proc/self/mounts").read_text().splitlines() if word in line]

    yield Trap((word,), evidence)


# ------------------------------------------------------------------------- what outlives a process


@contextmanager
def shared_memory(folder: Path) -> Iterator[Trap]:
    """System V and POSIX shared memory of the host."""
    word = marker()
    key = uuid.uuid4().int % 2**30 + 1

    def segments() -> list[int]:
        rows = [line.split() for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]]
        return [int(row[1]) for row in rows if int(row[0]) == key]

    def evidence(_: RunResult) -> list[str]:
        found = ["a System V segment is there"] if segments() else []
        return found + (["a file in /dev/shm is there"] if Path("/dev/shm", word).exists() else [])

    try:
        yield Trap((str(key), word), evidence)
    finally:
        Path("/dev/shm", word).unlink(missing_ok=True)
        for segment in segments():
            ctypes.CDLL(None).shmctl(segment, 0, None)  # IPC_RMID


@contextmanager
def kernel_log(folder: Path) -> Iterator[Trap]:
    """The kernel's message buffer, where this user may read it."""
    word = marker()

    def evidence(_: RunResult) -> list[str]:
        try:
            log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            return []
        found = []
        while True:
            try:
                found += ["the kernel's log was written"] if word in os.read(log, 8192).decode(
                    "utf-8", "replace") else []  # fmt: skip
            except BlockingIOError:
                break
            except OSError:
                continue
        os.close(log)
        return found

    yield Trap((word,), evidence)


@contextmanager
def keyring(folder: Path) -> Iterator[Trap]:
    """The keyrings of this user, which no namespace separates."""
    word = marker()

    def evidence(_: RunResult) -> list[str]:
        listed = Path("/proc/keys")
        keys = listed.read_text() if listed.exists() else ""
        return ["a key was left in the keyring"] if word in keys else []

    try:
        yield Trap((word,), evidence)
    finally:
        _forget(word)


def _forget(word: str) -> None:
    if not Path("/proc/keys").exists():
        return
    for line in Path("/proc/keys").read_text().splitlines():
        if word in line:
            ctypes.CDLL(None).syscall(250, 21, int(line.split()[0], 16))  # KEYCTL_INVALIDATE


@contextmanager
def open_files(folder: Path) -> Iterator[Trap]:
    """Descriptors of this process that a child inherits unless somebody closes them."""
    file = folder / "held"
    file.write_text("secret of the agent")
    ours, theirs = socket.socketpair()
    descriptor = os.open(file, os.O_RDWR)
    for held in (descriptor, theirs.fileno()):
        os.set_inheritable(held, True)

    def evidence(result: RunResult) -> list[str]:
        ours.setblocking(False)
        found = []
        with suppress(BlockingIOError):
            found += ["a socket was written"] if ours.recv(100) else []
        if file.read_text() != "secret of the agent":
            found.append("a file was written")
        return found + (["a file was read"] if b"secret of the agent" in result.stdout else [])

    try:
        yield Trap((), evidence)
    finally:
        os.close(descriptor)
        ours.close()
        theirs.close()


@contextmanager
def environment(folder: Path) -> Iterator[Trap]:
    """A secret in the environment of this process."""
    secret = uuid.uuid4().hex
    os.environ["AWS_SECRET_ACCESS_KEY"] = secret
    try:
        yield Trap(
            (), lambda result: ["it was read"] * (secret.encode() in result.stdout + result.stderr)
        )
    finally:
        del os.environ["AWS_SECRET_ACCESS_KEY"]
