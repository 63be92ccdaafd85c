"""The second half of the contract: what a backend claims. `tests/attack` attacks each claim."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attack.run_cases import RUN_CASES
from tests.support.claims import BACKENDS, CLAIMS, claimants, claims_here
from tests.support.sandboxes import Runner

pytestmark = pytest.mark.slow

# The attack, tried on every backend that claims it, which a guarantee stops.
_ATTACKS = {
    "ipc-namespace": "shared memory",
    "no-foreign-signals": "signals to the host",
    "no-nested-namespaces": "nested namespaces",
    "no-network": "TCP",
    "pid-namespace": "surviving daemon",
    "private-environment": "environment",
    "private-home": "files of the host",
    "read-only-kernel-settings": "kernel settings",
    "read-only-root": "writable system",
    "total-memory-limit": "memory of many",
    "workspace-size-limit": "full workspace",
}
_TESTED_HERE = {"no-privileges", "read-only-modes", "syscall-filter", "usable"}


def claimed(guarantee: str) -> pytest.MarkDecorator:
    """Run a test on every backend that claims this guarantee."""
    return pytest.mark.parametrize("run", claimants(guarantee), indirect=True)


def test_every_backend_claims_what_is_written(run: Runner) -> None:
    probe = run.probe()
    assert {name for name, holds in probe.guarantees.items() if holds} == claims_here(run.backend)
    assert probe.isolated is (run.backend.removesuffix("-user") in ("bwrap", "container"))


def test_every_guarantee_is_attacked_on_every_backend_that_claims_it() -> None:
    cases = {case.name: case for case in RUN_CASES}
    assert {*_ATTACKS, *_TESTED_HERE} == {name for claims in CLAIMS.values() for name in claims}
    for guarantee, attack in _ATTACKS.items():
        attacked = {backend for backend in BACKENDS if cases[attack].is_claimed_by(backend)}
        assert attacked >= set(claimants(guarantee))


@claimed("read-only-modes")
def test_modes_of_files_outside_stay(run: Runner, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    canary.touch(mode=0o644)
    run.shell(f"chmod 777 {canary}; chmod 777 /usr/bin; exit 0")
    assert canary.stat().st_mode & 0o777 == 0o644


@claimed("no-privileges")
def test_there_is_nothing_to_be_gained(run: Runner) -> None:
    code = "import os; print(os.getuid() * os.geteuid() * os.getgid() == 0); os.setuid(0)"
    result = run.python(code)
    assert result.stdout == b"False\n"
    assert b"PermissionError" in result.stderr or b"OSError" in result.stderr
    status = run.shell("grep -E '^(CapEff|CapPrm|CapInh|CapAmb|NoNewPrivs)' /proc/self/status")
    values = [line.split()[1] for line in status.stdout.decode().splitlines()]
    assert sorted(map(int, values)) == [0, 0, 0, 0, 1]


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
