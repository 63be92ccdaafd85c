"""Filters of system calls that an unprivileged test run never needs and kernel exploits use.

`filter_program` is for bwrap and Landlock, `stricter_profile` for podman. Numbers are those of
syscall_64.tbl and asm-generic/unistd.h of Linux.
"""

from __future__ import annotations

import errno
import json
import platform
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Denied calls with their numbers on x86-64 and on aarch64, which lacks those of 0.
# Keyrings are not namespaced. Since Linux 5.0, new calls have the same number everywhere.
_DENIED: Mapping[str, tuple[int, int]] = {
    "acct": (163, 89), "add_key": (248, 217), "bpf": (321, 280), "chroot": (161, 51),
    "delete_module": (176, 106), "fanotify_init": (300, 262), "finit_module": (313, 273),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fsopen": (430, 430), "fspick": (433, 433),
    "init_module": (175, 105), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425), "kexec_file_load": (320, 294), "kexec_load": (246, 104),
    "keyctl": (250, 219), "modify_ldt": (154, 0), "mount": (165, 40), "mount_setattr": (442, 442),
    "move_mount": (429, 429), "open_by_handle_at": (304, 265), "open_tree": (428, 428),
    "perf_event_open": (298, 241), "pivot_root": (155, 41), "quotactl": (179, 60),
    "reboot": (169, 142), "request_key": (249, 218), "setns": (308, 268), "swapoff": (168, 225),
    "swapon": (167, 224), "syslog": (103, 116), "umount2": (166, 39), "userfaultfd": (323, 282),
}  # fmt: skip

_FAMILIES = (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK: bound to a network namespace

# struct seccomp_data: int nr; u32 arch; u64 instruction_pointer; u64 args[6] (little endian).
_NR, _ARCH, _ARGS = 0, 4, 16

# linux/bpf_common.h and linux/filter.h.
_LOAD, _RETURN = 0x20, 0x06
_EQUAL, _AT_LEAST, _ANY_BIT = 0x15, 0x35, 0x45

_ALLOW, _FAIL = 0x7FFF_0000, 0x0005_0000  # SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO

_X32 = 0x4000_0000  # the other calling convention of x86-64: same calls, other numbers

_CLONE_NEWUSER = 0x1000_0000
_TERMINAL_IOCTLS = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: type into the terminal

_CLONE3 = 435  # its flags lie in memory that a filter cannot read; libc falls back to clone


# AUDIT_ARCH_* of linux/audit.h, and the column of the numbers in the tables.
_MACHINES = {"x86_64": (0xC000_003E, 0), "aarch64": (0xC000_00B7, 1)}
_CLONE, _UNSHARE, _SOCKET, _IOCTL = (56, 220), (272, 97), (41, 198), (16, 29)


def filter_program(machine: str | None = None, *, sockets: bool = True) -> bytes | None:
    """Return a classic BPF program (seccomp(2)) for `machine`; None where numbers are unknown.

    Without `sockets`, socket(2) is refused for every family, because a socket leads out where file
    system and network are the host's. socketpair(2) remains.
    """
    name = platform.machine() if machine is None else machine
    if name not in _MACHINES:
        return None
    audit, column = _MACHINES[name]
    denied = [
        _when(_EQUAL, numbers[column], errno.EPERM)
        for numbers in _DENIED.values()
        if numbers[column]
    ]
    namespace = _when(_ANY_BIT, _CLONE_NEWUSER, errno.EPERM)
    typing = [step for code in _TERMINAL_IOCTLS for step in _when(_EQUAL, code, errno.EPERM)]
    steps = [
        _step(_LOAD, _ARCH),
        _step(_EQUAL, audit, yes=1),
        _step(_RETURN, _FAIL | errno.ENOSYS),
        _step(_LOAD, _NR),
        *_when(_AT_LEAST, _X32, errno.ENOSYS),
        *_when(_EQUAL, _CLONE3, errno.ENOSYS),
        *(step for call in denied for step in call),
        *_argument(_CLONE[column], 0, namespace),
        *_argument(_UNSHARE[column], 0, namespace),
        *_argument(_IOCTL[column], 1, typing),
        *_argument(_SOCKET[column], 0, _unless(_FAMILIES if sockets else (), errno.EAFNOSUPPORT)),
        _step(_RETURN, _ALLOW),
    ]
    return b"".join(steps)


def _step(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("<HBBI", code, yes, no, value)


def _when(test: int, value: int, error: int) -> list[bytes]:
    return [_step(test, value, no=1), _step(_RETURN, _FAIL | error)]


def _unless(values: tuple[int, ...], error: int) -> list[bytes]:
    allowed = [(_step(_EQUAL, value, no=1), _step(_RETURN, _ALLOW)) for value in values]
    return [step for pair in allowed for step in pair] + [_step(_RETURN, _FAIL | error)]


def _argument(call: int, index: int, checks: list[bytes]) -> list[bytes]:
    body = [_step(_LOAD, _ARGS + 8 * index), *checks, _step(_RETURN, _ALLOW)]
    return [_step(_EQUAL, call, no=len(body)), *body]


# ---- profiles of containers

_PROFILE_ALLOW, _PROFILE_REFUSE = "SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO"

# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET (linux/sched.h).
_NAMESPACE_FLAGS = 0x7E02_0000

# podman's default allows these without a look at their arguments.
_REFUSED_NAMES = frozenset({*_DENIED, "umount", "unshare"})
_REPLACED_NAMES = frozenset({"clone", "clone3", "socket"})


def stricter_profile(default: Path) -> bytes | None:
    """Return podman's default profile without the denied calls; None if it cannot be read.

    podman's default lets every container make user namespaces, mount in them, and reach the host
    over vsock. Docker's default, which is compiled in, forbids all three.
    """
    filtered = _REFUSED_NAMES | _REPLACED_NAMES
    try:
        profile = json.loads(default.read_text("utf-8"))
        rules = [
            {**rule, "names": [name for name in rule["names"] if name not in filtered]}
            for rule in profile["syscalls"]
        ]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    profile["syscalls"] = [*(rule for rule in rules if rule["names"]), *_profile_rules()]
    return json.dumps(profile, sort_keys=True).encode()


def _profile_rules() -> list[dict[str, Any]]:
    return [
        _rule(sorted(_REFUSED_NAMES), _PROFILE_REFUSE, errnoRet=errno.EPERM),
        _rule(["clone3"], _PROFILE_REFUSE, errnoRet=errno.ENOSYS),
        _rule(["clone"], _PROFILE_ALLOW, (_NAMESPACE_FLAGS, "SCMP_CMP_MASKED_EQ")),
        *(_rule(["socket"], _PROFILE_ALLOW, (family, "SCMP_CMP_EQ")) for family in _FAMILIES),
    ]


def _rule(
    names: list[str], action: str, test: tuple[int, str] | None = None, **more: int
) -> dict[str, Any]:
    args = [{"index": 0, "value": test[0], "valueTwo": 0, "op": test[1]}] if test else []
    return {"names": names, "action": action, "args": args, **more}
