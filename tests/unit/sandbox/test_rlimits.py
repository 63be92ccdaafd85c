from __future__ import annotations

import pytest

from sandbox.hierarchies import Bound
from sandbox.rlimits import explain, wrapper
from sandbox.types import Ended, Limits

LIMITS = Limits(cpu_seconds=10)


@pytest.mark.parametrize(
    ("returncode", "seconds", "expected"),
    [
        (0, 1.0, (Ended.EXITED, 0, "")),
        (127, 1.0, (Ended.EXITED, 127, "")),
        (128, 1.0, (Ended.EXITED, 128, "")),
        (255, 1.0, (Ended.EXITED, 255, "")),
        (139, 1.0, (Ended.SIGNALLED, None, "SIGSEGV")),
        (-11, 1.0, (Ended.SIGNALLED, None, "SIGSEGV")),
        (-9, 1.0, (Ended.SIGNALLED, None, "SIGKILL")),
        (-40, 1.0, (Ended.SIGNALLED, None, "signal 40")),
        (152, 1.0, (Ended.CPU_LIMIT, None, "used 10 s of CPU time")),
        (137, 11.0, (Ended.CPU_LIMIT, None, "killed, probably because it used 10 s of CPU time")),
    ],
)
def test_a_status_is_explained(
    returncode: int, seconds: float, expected: tuple[Ended, int | None, str]
) -> None:
    assert explain(returncode, seconds, LIMITS) == expected


def test_a_shared_user_leaves_room_for_its_other_processes() -> None:
    def processes(*, shared: bool) -> int:
        arguments = wrapper(LIMITS, shared_user=shared)
        return int(next(a for a in arguments if a.startswith("--nproc=")).partition("=")[2])

    assert processes(shared=False) == 256
    assert processes(shared=True) > 256


def test_what_a_group_bounds_needs_no_limit_of_each_process() -> None:
    def names(*bounds: Bound) -> set[str]:
        arguments = wrapper(LIMITS, shared_user=True, bounds=frozenset(bounds))[1:]
        return {argument.partition("=")[0] for argument in arguments}

    assert names() - names(*Bound) == {"--as", "--nproc"}
    assert names() - names(Bound.MEMORY) == {"--as"}
    assert {"--cpu", "--fsize", "--core"} <= names(*Bound)
