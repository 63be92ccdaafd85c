"""A stand-alone program that locks itself in and becomes the command.

    python3 -I -S launch.py CONFIGURATION STATUS

The arguments are descriptors: of a JSON document (see `backend`) and of a pipe, to which it writes
LOCKED when it is locked in, or what went wrong. It imports only the standard library. Numbers and
structures are those of linux/landlock.h, linux/prctl.h and linux/seccomp.h. The three system calls
have the same numbers on every architecture (since Linux 5.13).
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import stat
import struct
import sys

LOCKED = b"locked\n"

CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PATH_BENEATH = 1

_PR_CAPBSET_DROP, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 24, 22, 38
_PR_SET_PDEATHSIG = 1
_SECCOMP_MODE_FILTER = 2
_INSTRUCTION_BYTES = 8  # struct sock_filter

# LANDLOCK_ACCESS_FS_*: the first 13 belong to ABI 1.
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIRECTORY = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REFER, _TRUNCATE, _IOCTL_DEVICE = 1 << 13, 1 << 14, 1 << 15
_FIRST_ACCESS = (1 << 13) - 1
_LATER_ACCESS = ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEVICE))
_DEVICES_MADE = 1 << 6 | 1 << 11  # MAKE_CHAR, MAKE_BLOCK

_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE

# LANDLOCK_ACCESS_NET_BIND_TCP, CONNECT_TCP; LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET, SIGNAL.
_NETWORK, _SCOPES = 0b11, 0b11
_NETWORK_SINCE, _SCOPES_SINCE = 4, 6


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def main(configuration: int, status: int) -> None:
    """Lock in and become the command. Does not return."""
    os.set_inheritable(status, False)
    try:
        with os.fdopen(configuration, "rb") as file:
            document = json.load(file)
        ruleset = make_ruleset(document["abi"], document["rules"])
        drop_privileges(document["uid"])
        # A change of uid clears this signal, so it comes after. If our parent died before, LOCKED
        # below has no reader, and the command is not started.
        check(_libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "pdeathsig")
        check(_libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
        check(_libc().syscall(_RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")
        os.close(ruleset)
        os.chdir(document["cwd"])
        filter_calls(bytes(document["seccomp"]))
        os.write(status, LOCKED)
        os.execve(document["argv"][0], document["argv"], document["environment"])  # noqa: S606
    except (OSError, KeyError, ValueError) as error:
        os.write(status, str(error).encode("utf-8", "replace"))
        os._exit(125)


def make_ruleset(abi: int, rules: list[tuple[str, str]]) -> int:
    """Return a descriptor of a ruleset that handles all that this ABI knows and allows `rules`.

    A rule is a path and what is allowed below it: "read", "write" or "device".
    """
    handled = _FIRST_ACCESS | sum(bit for since, bit in _LATER_ACCESS if abi >= since)
    attributes = struct.pack("=Q", handled)
    if abi >= _NETWORK_SINCE:
        attributes += struct.pack("=Q", _NETWORK)
    if abi >= _SCOPES_SINCE:
        attributes += struct.pack("=Q", _SCOPES)
    ruleset = int(_libc().syscall(CREATE_RULESET, attributes, len(attributes), 0))
    check(ruleset, "landlock_create_ruleset")
    allowed = {
        "read": _EXECUTE | _READ_FILE | _READ_DIRECTORY,
        "write": handled & ~(_DEVICES_MADE | _IOCTL_DEVICE),
        "device": _READ_FILE | _WRITE_FILE | _TRUNCATE,
    }
    for path, kind in rules:
        _allow(ruleset, path, allowed[kind] & handled)
    return ruleset


def _allow(ruleset: int, path: str, access: int) -> None:
    beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(beneath).st_mode):
            access &= _OF_FILES
        rule = struct.pack("=Qi", access, beneath)
        check(_libc().syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0), f"rule for {path}")
    finally:
        os.close(beneath)


def drop_privileges(uid: int | None) -> None:
    """Give up root for good: bounding set, groups, uid. Does nothing for None."""
    if uid is None:
        return
    capability = 0
    while _libc().prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) == 0:
        capability += 1
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def filter_calls(program: bytes) -> None:
    """Install a classic BPF program for this process and all its descendants."""
    code = ctypes.create_string_buffer(program, len(program))
    count = len(program) // _INSTRUCTION_BYTES
    # struct sock_fprog: unsigned short len, padding, struct sock_filter *filter.
    header = struct.pack("=H6xQ", count, ctypes.addressof(code))
    check(_libc().prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header, 0, 0), "seccomp")


def check(result: int, what: str) -> None:
    """Raise OSError with the kernel's reason when a call failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
