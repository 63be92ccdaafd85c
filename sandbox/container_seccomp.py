"""podman's own filter of system calls, with a few more taken out of it.

podman's default (containers-common, seccomp.json) lets every container make user namespaces, mount
in them, and reach the host over vsock; no test needs it, and kernel exploits begin there. Docker's
default, which is compiled in, forbids all three. The format is that of both: an allow-list of rules
`{"names", "action", "args", ...}` (docs.docker.com/engine/security/seccomp).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_ALLOW, _REFUSE = "SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO"
_EPERM, _ENOSYS = 1, 38

# The same calls as in `sandbox.seccomp`, by name.
_DENIED = frozenset(
    {
        "add_key",
        "bpf",
        "chroot",
        "fsconfig",
        "fsmount",
        "fsopen",
        "fspick",
        "io_uring_enter",
        "io_uring_register",
        "io_uring_setup",
        "keyctl",
        "mount",
        "mount_setattr",
        "move_mount",
        "open_by_handle_at",
        "open_tree",
        "perf_event_open",
        "pivot_root",
        "quotactl",
        "reboot",
        "request_key",
        "setns",
        "umount",
        "umount2",
        "unshare",
        "userfaultfd",
    }
)

# Looked at by their arguments, below.
_REPLACED = frozenset({"clone", "clone3", "socket"})

# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET (linux/sched.h).
_NAMESPACE_FLAGS = 0x7E02_0000
_FAMILIES = (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK: bound to a network namespace

_OWN_RULES: tuple[dict[str, Any], ...] = (
    {"names": sorted(_DENIED), "action": _REFUSE, "args": [], "errnoRet": _EPERM},
    # Its flags lie in memory that a filter cannot read; libc falls back to clone.
    {"names": ["clone3"], "action": _REFUSE, "args": [], "errnoRet": _ENOSYS},
    {
        "names": ["clone"],
        "action": _ALLOW,
        "args": [
            {"index": 0, "value": _NAMESPACE_FLAGS, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}
        ],
    },
    *(
        {
            "names": ["socket"],
            "action": _ALLOW,
            "args": [{"index": 0, "value": family, "valueTwo": 0, "op": "SCMP_CMP_EQ"}],
        }
        for family in _FAMILIES
    ),
)


def stricter(default: Path) -> bytes | None:
    """The text of a profile, made from the engine's default; None where that cannot be read."""
    try:
        profile = json.loads(default.read_text("utf-8"))
        rules = [_without(rule) for rule in profile["syscalls"]]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    profile["syscalls"] = [*(rule for rule in rules if rule["names"]), *_OWN_RULES]
    return json.dumps(profile, sort_keys=True).encode()


def _without(rule: dict[str, Any]) -> dict[str, Any]:
    names = [name for name in rule["names"] if name not in _DENIED and name not in _REPLACED]
    return {**rule, "names": names}
