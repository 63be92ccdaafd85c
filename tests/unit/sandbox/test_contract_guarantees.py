"""The second half of the contract: an oracle outside checks what a backend claims."""

from __future__ import annotations

import ctypes
import os
import secrets
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.types import Ended
from tests.support.claims import CLAIMS, claimants, claims_here
from tests.support.sandboxes import Runner

pytestmark = pytest.mark.slow

MIB = 1024 * 1024


def claimed(guarantee: str) -> pytest.MarkDecorator:
    """Run a test on every backend that claims this guarantee."""
    return pytest.mark.parametrize("run", claimants(guarantee), indirect=True)


def test_every_backend_claims_what_is_written(run: Runner) -> None:
    found = {name for name, holds in run.probe().guarantees.items() if holds}
    assert found == claims_here(run.backend)


def test_every_guarantee_has_its_tests() -> None:
    tested = {
        mark.args[1]
        for test in globals().values()
        for mark in getattr(test, "pytestmark", ())
        if mark.name == "parametrize"
    }
    assert tested == {claimants(name) for claims in CLAIMS.values() for name in claims}


def test_only_those_that_isolate_wholly_say_so(run: Runner) -> None:
    isolated = run.backend.removesuffix("-user") in ("bwrap", "container")
    assert run.probe().isolated is isolated


# --------------------------------------------------------------------------------------- network


@pytest.fixture
def listeners() -> Iterator[tuple[int, int, str, list[bytes]]]:
    """Opens TCP and UDP ports and an abstract socket here, and records what arrives."""
    heard: list[bytes] = []
    name = f"\0patchshot-{secrets.token_hex(8)}"
    stream = socket.create_server(("127.0.0.1", 0))
    datagram = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagram.bind(("127.0.0.1", 0))
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind(name)
    abstract.listen()

    def accept(server: socket.socket) -> None:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            heard.append(b"connected")

    def receive() -> None:
        try:
            heard.append(datagram.recv(100))
        except OSError:
            return

    threads = [
        threading.Thread(target=accept, args=(stream,)),
        threading.Thread(target=accept, args=(abstract,)),
        threading.Thread(target=receive),
    ]
    for thread in threads:
        thread.start()
    yield stream.getsockname()[1], datagram.getsockname()[1], name[1:], heard
    for server in (stream, abstract, datagram):
        try:
            server.shutdown(socket.SHUT_RDWR)  # ends an accept that waits
        except OSError:
            pass
        server.close()
    for thread in threads:
        thread.join(10)


CALL = """
import socket
def attempt(action):
    try:
        action()
    except OSError:
        pass
attempt(lambda: socket.create_connection(("127.0.0.1", {tcp}), 2))
attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", {udp})))
attempt(lambda: socket.socket(socket.AF_UNIX).connect("\\0{name}"))
"""


@claimed("no-network")
def test_nothing_reaches_a_listener_outside(
    run: Runner, listeners: tuple[int, int, str, list[bytes]]
) -> None:
    tcp, udp, name, heard = listeners
    result = run.python(CALL.format(tcp=tcp, udp=udp, name=name))
    assert (result.exit_code, heard) == (0, [])


def test_the_listeners_hear_what_is_not_isolated(
    listeners: tuple[int, int, str, list[bytes]],
) -> None:
    """The control of the test above."""
    tcp, udp, name, heard = listeners
    assert Runner("process").python(CALL.format(tcp=tcp, udp=udp, name=name)).exit_code == 0
    assert sorted(heard)[:1] == [b"connected"]


# ----------------------------------------------------------------------------- files and secrets


@claimed("private-environment")
def test_no_environment_of_this_machine_can_be_read(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = f"secret-{secrets.token_hex(8)}"
    outside = subprocess.Popen(["sleep", "60"], env={"HOST_SECRET": secret})
    try:
        monkeypatch.setenv("HOST_SECRET", secret)
        result = run.shell("cat /proc/[0-9]*/environ 2>/dev/null; env; exit 0")
    finally:
        outside.kill()
        outside.wait()
    assert result.exit_code == 0
    assert secret.encode() not in result.stdout + result.stderr


@claimed("private-home")
def test_private_files_can_be_neither_read_nor_changed(run: Runner, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir(mode=0o755)
    canary = own / "canary"
    canary.write_text("canary-in-the-coal-mine")
    for path in (canary, own):
        path.chmod(0o777)  # open to every uid: what keeps them out is the sandbox
    result = run.shell(f"cat {canary}; ls {own}; echo x >>{canary}; echo x >{own}/new; exit 0")
    assert b"canary-in" not in result.stdout
    assert canary.read_text() == "canary-in-the-coal-mine"
    assert sorted(path.name for path in own.iterdir()) == ["canary"]


@claimed("read-only-root")
def test_nothing_of_the_system_can_be_written(run: Runner) -> None:
    name = f"patchshot-{secrets.token_hex(8)}"
    places = ("", "/usr", "/usr/bin", "/etc", "/dev", "/var", "/opt")
    script = "\n".join(f"touch {place}/{name} && echo wrote {place}" for place in places)
    assert run.shell(f"{script}\nexit 0").stdout == b""
    assert not [place for place in places if Path(f"{place}/{name}").exists()]


@claimed("read-only-modes")
def test_modes_of_files_outside_stay(run: Runner, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    canary.touch(mode=0o644)
    run.shell(f"chmod 777 {canary}; chmod 777 /usr/bin; exit 0")
    assert canary.stat().st_mode & 0o777 == 0o644


@claimed("read-only-kernel-settings")
def test_the_kernels_settings_cannot_be_written(run: Runner) -> None:
    setting = Path("/proc/sys/kernel/core_pattern")
    before = setting.read_text()
    places = (setting, "/proc/sys/kernel/panic", "/proc/sysrq-trigger")
    script = "\n".join(f"(: >>{place}) 2>/dev/null && echo wrote {place}" for place in places)
    assert run.shell(f"{script}\nexit 0").stdout == b""
    assert setting.read_text() == before


# ------------------------------------------------------------------------------------- processes


@pytest.fixture
def bystander() -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A process on this machine of the sandbox's user, and its mark."""
    mark = f"3600.{secrets.randbelow(10**9)}"
    with subprocess.Popen(["sleep", mark]) as process:
        yield process, mark
        process.kill()


@claimed("pid-namespace")
def test_processes_outside_are_neither_seen_nor_killed(
    run: Runner, bystander: tuple[subprocess.Popen[bytes], str]
) -> None:
    process, mark = bystander
    result = run.shell(f"kill -9 {process.pid}; kill -9 -1; cat /proc/[0-9]*/cmdline; exit 0")
    assert process.poll() is None
    assert mark.encode() not in result.stdout


@claimed("no-foreign-signals")
def test_processes_outside_cannot_be_killed(
    run: Runner, bystander: tuple[subprocess.Popen[bytes], str]
) -> None:
    process, _ = bystander
    script = f"kill -9 {process.pid}; kill -9 {os.getpid()}; exit 0"
    assert run.shell(script).exit_code == 0
    assert process.poll() is None


@claimed("ipc-namespace")
def test_shared_memory_of_this_machine_is_not_there(run: Runner) -> None:
    libc = ctypes.CDLL(None)
    key = secrets.randbelow(2**31)
    segment = libc.shmget(key, 4096, 0o1666)  # IPC_CREAT, open to everybody
    assert segment >= 0
    ask = f"import ctypes; print(ctypes.CDLL(None).shmget({key}, 0, 0o666))"
    try:
        assert Runner("process").python(ask).stdout == f"{segment}\n".encode()  # the control
        assert run.python(ask).stdout == b"-1\n"
    finally:
        libc.shmctl(segment, 0, None)  # IPC_RMID


@claimed("no-privileges")
def test_there_is_nothing_to_be_gained(run: Runner) -> None:
    code = "import os; print(os.getuid() * os.geteuid() * os.getgid() == 0); os.setuid(0)"
    result = run.python(code)
    assert result.stdout == b"False\n"
    assert b"PermissionError" in result.stderr or b"OSError" in result.stderr
    status = run.shell("grep -E '^(CapEff|CapPrm|CapInh|CapAmb|NoNewPrivs)' /proc/self/status")
    values = [line.split()[1] for line in status.stdout.decode().splitlines()]
    assert sorted(map(int, values)) == [0, 0, 0, 0, 1]


@claimed("no-nested-namespaces")
def test_no_namespace_can_be_made(run: Runner) -> None:
    code = "import ctypes; libc = ctypes.CDLL(None); print(libc.unshare(0x10000000))"
    assert run.python(code).stdout == b"-1\n"
    assert run.shell("unshare --user true").exit_code != 0


@claimed("syscall-filter")
def test_calls_that_no_test_needs_are_refused(run: Runner) -> None:
    """AF_VSOCK leads to the host of a virtual machine, io_uring around the filter."""
    code = (
        "import ctypes, socket\n"
        "try: print(socket.socket(40, socket.SOCK_STREAM))\n"
        "except OSError: print('refused')\n"
        "print(ctypes.CDLL(None).syscall(425, 1, ctypes.create_string_buffer(120)))\n"
        "print([line for line in open('/proc/self/status') if line.startswith('Seccomp:')])\n"
    )
    assert run.python(code).stdout == b"refused\n-1\n['Seccomp:\\t2\\n']\n"


# ---------------------------------------------------------------------------------------- limits


@claimed("total-memory-limit")
def test_memory_of_all_processes_together_is_limited(run: Runner) -> None:
    """Writes four times 24 MiB, each less than the limit."""
    code = "import time; x = b'x' * (24 << 20); time.sleep(5)"
    script = "\n".join([f'/usr/bin/python3 -I -c "{code}" &'] * 4 + ["wait; exit 3"])
    result = run.shell(script, memory=64 * MIB)
    assert result.ended is Ended.MEMORY_LIMIT
    assert str(64 * MIB) in result.detail


@claimed("workspace-size-limit")
def test_files_of_the_workspace_are_limited_together(run: Runner) -> None:
    script = "for i in 1 2 3 4 5 6; do dd if=/dev/zero of=$i bs=4M count=1 || exit 1; done; sleep 5"
    result = run.shell(script, workspace=16 * MIB)
    assert result.ended is Ended.DISK_LIMIT
    assert str(16 * MIB) in result.detail


@claimed("usable")
def test_ordinary_work_can_be_done(run: Runner) -> None:
    code = (
        "import asyncio, pathlib, subprocess, tempfile, threading, os\n"
        "asyncio.run(asyncio.sleep(0))\n"
        "pathlib.Path('a/b').mkdir(parents=True); pathlib.Path('a/b/c').write_text('x')\n"
        "os.rename('a/b/c', 'd'); os.link('d', 'e'); os.symlink('d', 'f'); os.mkfifo('g')\n"
        "tempfile.NamedTemporaryFile().close()\n"
        "thread = threading.Thread(target=lambda: None); thread.start(); thread.join()\n"
        "print(subprocess.run(['cat', 'f'], capture_output=True).stdout)\n"
    )
    result = run.python(code)
    assert (result.stdout, result.stderr, result.exit_code) == (b"b'x'\n", b"", 0)
