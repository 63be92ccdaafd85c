"""The system call filter: what an unprivileged test run never needs and kernel exploits love.

A classic BPF program (seccomp(2), linux/filter.h) that allows everything but a short list. Numbers
are those of arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Mapping
from dataclasses import dataclass

# struct seccomp_data: int nr; u32 arch; u64 instruction_pointer; u64 args[6] (little endian).
_NR, _ARCH, _ARGS = 0, 4, 16

# linux/bpf_common.h and linux/filter.h.
_LOAD, _RETURN = 0x20, 0x06
_EQUAL, _AT_LEAST, _ANY_BIT = 0x15, 0x35, 0x45

_ALLOW, _FAIL = 0x7FFF_0000, 0x0005_0000  # SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO

_X32 = 0x4000_0000  # the other calling convention of x86-64: same calls, other numbers

_CLONE_NEWUSER = 0x1000_0000
_TERMINAL_IOCTLS = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: type into the terminal
_FAMILIES = (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK: bound to a network namespace


@dataclass(frozen=True, slots=True)
class _Machine:
    """AUDIT_ARCH_* of linux/audit.h and the numbers of the calls that are looked at."""

    audit: int
    clone: int
    unshare: int
    socket: int
    ioctl: int
    denied: tuple[int, ...]


# Since Linux 5.0 new calls have the same number everywhere: io_uring_*, the new mount interface.
_COMMON = (425, 426, 427, 428, 429, 430, 431, 432, 433, 442)
_CLONE3 = 435  # its flags lie in memory that a filter cannot read; libc falls back to clone

_MACHINES: Mapping[str, _Machine] = {
    "x86_64": _Machine(
        audit=0xC000_003E,
        clone=56,
        unshare=272,
        socket=41,
        ioctl=16,
        denied=(
            *(165, 166, 155, 161, 308),  # mount, umount2, pivot_root, chroot, setns
            *(321, 298, 323),  # bpf, perf_event_open, userfaultfd
            *(248, 249, 250),  # add_key, request_key, keyctl: keyrings are not namespaced
            *(304, 103, 163, 179),  # open_by_handle_at, syslog, acct, quotactl
            *(246, 320, 175, 313, 176),  # kexec and modules
            *(167, 168, 169),  # swapon, swapoff, reboot
        ),
    ),
    "aarch64": _Machine(
        audit=0xC000_00B7,
        clone=220,
        unshare=97,
        socket=198,
        ioctl=29,
        denied=(
            *(40, 39, 41, 51, 268),
            *(280, 241, 282),
            *(217, 218, 219),
            *(265, 116, 89, 60),
            *(104, 294, 105, 273, 106),
            *(224, 225, 142),
        ),
    ),
}


def program(machine: str | None = None, *, sockets: bool = True) -> bytes | None:
    """The filter for `machine` (default: this one), as bwrap's `--seccomp` takes it.

    Without `sockets`, socket(2) is refused for every family, AF_UNIX too: where the file system and
    the network are the host's, a socket leads out. Pairs of connected ones remain.
    None where the numbers are not known: then there is no filter, and a probe says so.
    """
    known = _MACHINES.get(platform.machine() if machine is None else machine)
    return None if known is None else b"".join(_instructions(known, sockets))


def _instructions(machine: _Machine, sockets: bool) -> list[bytes]:
    families = _FAMILIES if sockets else ()
    return [
        _step(_LOAD, _ARCH),
        _step(_EQUAL, machine.audit, yes=1),
        _step(_RETURN, _FAIL | errno.ENOSYS),
        _step(_LOAD, _NR),
        *_when(_AT_LEAST, _X32, errno.ENOSYS),
        *_when(_EQUAL, _CLONE3, errno.ENOSYS),
        *(
            step
            for call in (*machine.denied, *_COMMON)
            for step in _when(_EQUAL, call, errno.EPERM)
        ),
        *_argument(machine.clone, 0, _when(_ANY_BIT, _CLONE_NEWUSER, errno.EPERM)),
        *_argument(machine.unshare, 0, _when(_ANY_BIT, _CLONE_NEWUSER, errno.EPERM)),
        *_argument(
            machine.ioctl,
            1,
            [step for code in _TERMINAL_IOCTLS for step in _when(_EQUAL, code, errno.EPERM)],
        ),
        *_argument(machine.socket, 0, _unless(families, errno.EAFNOSUPPORT)),
        _step(_RETURN, _ALLOW),
    ]


def _step(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    """One `struct sock_filter`; the jumps count instructions to skip."""
    return struct.pack("<HBBI", code, yes, no, value)


def _when(test: int, value: int, error: int) -> list[bytes]:
    return [_step(test, value, no=1), _step(_RETURN, _FAIL | error)]


def _unless(values: tuple[int, ...], error: int) -> list[bytes]:
    """Allow `values`, fail for any other."""
    allowed = [(_step(_EQUAL, value, no=1), _step(_RETURN, _ALLOW)) for value in values]
    return [step for pair in allowed for step in pair] + [_step(_RETURN, _FAIL | error)]


def _argument(call: int, index: int, checks: list[bytes]) -> list[bytes]:
    """`checks` on the low half of one argument of one call, which is allowed otherwise."""
    body = [_step(_LOAD, _ARGS + 8 * index), *checks, _step(_RETURN, _ALLOW)]
    return [_step(_EQUAL, call, no=len(body)), *body]
