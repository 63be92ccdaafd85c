"""Meters of a run: what its control group counts or what /proc shows; see also `sandbox.disk`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from sandbox.cgroups import ControlGroup
from sandbox.hierarchies import Bound
from sandbox.supervise import Breach, Meter
from sandbox.tree import descendants, usage
from sandbox.types import Ended, Limits

# A program that goes on after so many refused processes does nothing else: a fork bomb.
_REFUSALS = 1000

# Reading /proc of some hundred processes takes milliseconds.
_LOOK_SECONDS = 0.25


class InsideMeter(Meter, Protocol):
    """A meter that is told the first process of a sandbox before that runs anything."""

    def enter(self, pid: int) -> None:
        """Raises SandboxError when the run must not go on."""
        ...

    def close(self) -> None:
        """Let go of what was held. Safe to call twice."""
        ...


class GroupMeter:
    """Memory, CPU time and number of all processes together, by their control group."""

    def __init__(self, group: ControlGroup, limits: Limits) -> None:
        self._group = group
        self._limits = limits

    def enter(self, pid: int) -> None:
        """Put the first process in; see `InsideMeter`."""
        self._group.enter(pid)

    def close(self) -> None:
        """Nothing to let go of: the group is removed by its maker."""

    def breach(self) -> Breach | None:
        """A process was killed for memory, the time is used up, or nothing but forks is tried."""
        if self._group.memory_kills():
            return out_of_memory(self._limits)
        used = self._group.cpu_seconds()
        if used is not None and used > self._limits.cpu_seconds:
            return out_of_time(self._limits)
        if self._group.refused_processes() > _REFUSALS:
            return too_many_processes(self._limits, decisive=True)
        return None

    def after(self) -> Breach | None:
        """Memory is decisive even in the end: the kernel has killed something."""
        if self._group.memory_kills():
            return out_of_memory(self._limits)
        if self._group.refused_processes():
            return too_many_processes(self._limits, decisive=False)
        return None


class TreeMeter:
    """CPU time and threads where no control group counts them: a look at /proc now and then."""

    def __init__(self, limits: Limits, bounds: frozenset[Bound]) -> None:
        """`bounds`: what control groups see to."""
        self._limits = limits
        self._bounds = bounds
        self._pid = 0
        self._looked = 0.0
        self._most = 0

    def enter(self, pid: int) -> None:
        """Everything of the run is below this process."""
        self._pid = pid

    def pids(self) -> Sequence[int]:
        """The processes of the run."""
        return descendants(self._pid) if self._pid else ()

    def close(self) -> None:
        """Nothing to let go of."""

    def breach(self) -> Breach | None:
        """The time is used up."""
        now = time.monotonic()
        if self._bounds.issuperset(Bound) or now - self._looked < _LOOK_SECONDS:
            return None
        self._looked = now
        used = usage(self.pids())
        self._most = max(self._most, used.threads)
        if Bound.CPU not in self._bounds and used.cpu_seconds > self._limits.cpu_seconds:
            return out_of_time(self._limits)
        return None

    def after(self) -> Breach | None:
        """As many threads as allowed were seen: one more was then refused, very likely."""
        self._pid = 0  # the number may soon be another's
        if Bound.PROCESSES in self._bounds or self._most < self._limits.processes:
            return None
        return too_many_processes(self._limits, decisive=False)


class Meters:
    """Several meters as one; the first that has something to say is heard."""

    def __init__(self, meters: Sequence[InsideMeter]) -> None:
        self._meters = tuple(meters)

    def enter(self, pid: int) -> None:
        """See `InsideMeter`."""
        for meter in self._meters:
            meter.enter(pid)

    def close(self) -> None:
        """See `InsideMeter`."""
        for meter in self._meters:
            meter.close()

    def breach(self) -> Breach | None:
        """See `Meter`."""
        return next((found for one in self._meters if (found := one.breach())), None)

    def after(self) -> Breach | None:
        """See `Meter`. Every one is asked; a decisive answer wins."""
        found = [breach for one in self._meters if (breach := one.after())]
        return min(found, key=lambda breach: not breach.decisive, default=None)


def out_of_memory(limits: Limits) -> Breach:
    """The kernel killed for memory."""
    words = f"all processes together used more than {limits.memory} bytes of memory"
    return Breach(Ended.MEMORY_LIMIT, words)


def out_of_time(limits: Limits) -> Breach:
    """All processes together used up their CPU time."""
    return Breach(Ended.CPU_LIMIT, f"used {limits.cpu_seconds} s of CPU time")


def too_many_processes(limits: Limits, *, decisive: bool) -> Breach:
    """A fork or thread was refused."""
    words = f"reached the limit of {limits.processes} processes and threads"
    return Breach(Ended.PROCESS_LIMIT, words, decisive)
