"""What each backend is to guarantee, as root and ("-user") without privileges.

Written here once, so that a backend which loses a guarantee, or claims one more, is seen; the tests
of a guarantee run on those that claim it.
"""

from __future__ import annotations

from sandbox.cgroups import Bound, usable_hierarchies

BACKENDS = ("bwrap", "bwrap-user", "container", "landlock", "landlock-user", "process")

_WALLS = frozenset(
    {
        "no-nested-namespaces",
        "no-network",
        "no-privileges",
        "private-environment",
        "private-home",
        "read-only-kernel-settings",
        "read-only-root",
        "syscall-filter",
        "usable",
        "workspace-size-limit",
    }
)
_OUTSIDE = frozenset({"no-foreign-signals", "read-only-modes"})
_NAMESPACES = frozenset({"ipc-namespace", "pid-namespace", *_OUTSIDE})
_TOTAL = "total-memory-limit"

CLAIMS = {
    "bwrap": _WALLS | _NAMESPACES | {_TOTAL},
    "bwrap-user": _WALLS | _NAMESPACES,
    "container": _WALLS | _NAMESPACES | {_TOTAL},
    # Landlock says nothing of modes, owners and times: another uid does, and only root has one.
    "landlock": _WALLS | _OUTSIDE | {_TOTAL},
    "landlock-user": _WALLS | {"no-foreign-signals"},
    "process": frozenset(),
}


def claimants(guarantee: str) -> tuple[str, ...]:
    """The backends that claim a guarantee, in order."""
    return tuple(name for name in BACKENDS if guarantee in CLAIMS[name])


def claims_here(backend: str) -> frozenset[str]:
    """What is expected on this machine: without control groups nothing bounds memory as a whole."""
    bounds = {bound for one in usable_hierarchies() for bound in one.bounds}
    grouped = Bound.MEMORY in bounds or backend == "container"
    return CLAIMS[backend] - (frozenset() if grouped else {_TOTAL})
