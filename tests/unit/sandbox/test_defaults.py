"""The defaults of the sandbox."""

from __future__ import annotations

from sandbox.in_place import ProcessSandbox
from sandbox.types import Limits

MIB = 1024 * 1024


def test_the_unsafe_backend_says_so() -> None:
    probe = ProcessSandbox().probe()
    assert (probe.available, probe.isolated, dict(probe.guarantees)) == (True, False, {})


def test_limits_have_the_documented_defaults() -> None:
    assert Limits() == Limits(
        wall_seconds=900.0,
        cpu_seconds=600,
        address_space=4096 * MIB,
        processes=256,
        file_size=256 * MIB,
        output=4 * MIB,
        report=16 * MIB,
        tmp=512 * MIB,
        memory=4096 * MIB,
        workspace=2048 * MIB,
    )
