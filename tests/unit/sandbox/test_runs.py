from __future__ import annotations

from sandbox.cgroups import Bound
from sandbox.runs import prlimit_command
from sandbox.types import Limits

LIMITS = Limits(cpu_seconds=10)


def test_a_shared_user_leaves_room_for_its_other_processes() -> None:
    def processes(*, shared: bool) -> int:
        arguments = prlimit_command(LIMITS, shared_user=shared)
        return int(next(a for a in arguments if a.startswith("--nproc=")).partition("=")[2])

    assert processes(shared=False) == 256
    assert processes(shared=True) > 256


def test_what_a_group_bounds_needs_no_limit_of_each_process() -> None:
    def names(*bounds: Bound) -> set[str]:
        arguments = prlimit_command(LIMITS, shared_user=True, bounds=frozenset(bounds))[1:]
        return {argument.partition("=")[0] for argument in arguments}

    assert names() - names(*Bound) == {"--as", "--nproc"}
    assert names() - names(Bound.MEMORY) == {"--as"}
    assert {"--cpu", "--fsize", "--core"} <= names(*Bound)
