"""A small interpreter of classic BPF runs the filter, also for other machines."""

from __future__ import annotations

import errno
import struct
from pathlib import Path

import pytest

from sandbox.seccomp import filter_program, stricter_profile


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"syscalls": [1]}', '{"syscalls": [{}]}'])
def test_a_default_that_cannot_be_read_stays_the_engines(tmp_path: Path, text: str) -> None:
    default = tmp_path / "seccomp.json"
    default.write_text(text)
    assert stricter_profile(default) is None
    assert stricter_profile(tmp_path / "none") is None


ALLOW = 0x7FFF0000
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def verdict(machine: str, call: int, *arguments: int, arch: int | None = None) -> int:
    """Return 0 when the call is allowed, else the errno that it gets."""
    code = filter_program(machine)
    assert code is not None
    steps = list(struct.iter_unpack("<HBBI", code))
    audit = ARCHITECTURES[machine] if arch is None else arch
    data = struct.pack("<IIQ6Q", call, audit, 0, *(*arguments, *[0] * (6 - len(arguments))))
    accumulator = position = 0
    while True:
        operation, yes, no, value = steps[position]
        position += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif operation == 0x06:
            return 0 if value == ALLOW else value & 0xFFFF
        else:
            tests = {
                0x15: accumulator == value,
                0x35: accumulator >= value,
                0x45: bool(accumulator & value),
            }
            position += yes if tests[operation] else no


# Numbers on x86-64 and on aarch64.
CALLS = {
    "read": (0, 63),
    "execve": (59, 221),
    "mount": (165, 40),
    "bpf": (321, 280),
    "fanotify_init": (300, 262),
    "keyctl": (250, 219),
    "io_uring_setup": (425, 425),
    "clone3": (435, 435),
    "clone": (56, 220),
    "unshare": (272, 97),
    "socket": (41, 198),
    "ioctl": (16, 29),
}


@pytest.mark.parametrize("machine", sorted(ARCHITECTURES))
@pytest.mark.parametrize(
    ("call", "arguments", "expected"),
    [
        ("read", (), 0),
        ("execve", (), 0),
        ("mount", (), errno.EPERM),
        ("bpf", (), errno.EPERM),
        ("fanotify_init", (), errno.EPERM),
        ("keyctl", (), errno.EPERM),
        ("io_uring_setup", (), errno.EPERM),
        ("clone3", (), errno.ENOSYS),
        ("clone", (0x11,), 0),
        ("clone", (0x10000011,), errno.EPERM),
        ("clone", (0x7D0F00,), 0),  # a thread, as glibc starts one
        ("unshare", (0x10000000,), errno.EPERM),
        ("unshare", (0x400,), 0),
        ("socket", (1,), 0),
        ("socket", (2,), 0),
        ("socket", (10,), 0),
        ("socket", (16,), 0),
        ("socket", (17,), errno.EAFNOSUPPORT),  # AF_PACKET
        ("socket", (38,), errno.EAFNOSUPPORT),  # AF_ALG
        ("socket", (40,), errno.EAFNOSUPPORT),  # AF_VSOCK
        ("ioctl", (0, 0x5412), errno.EPERM),
        ("ioctl", (0, 0x541C), errno.EPERM),
        ("ioctl", (0, 0x5413), 0),  # TIOCGWINSZ
        ("ioctl", (0, 0x1_0000_5412), errno.EPERM),  # the kernel reads the low half only
    ],
)
def test_each_call_gets_its_verdict(
    machine: str, call: str, arguments: tuple[int, ...], expected: int
) -> None:
    number = CALLS[call][sorted(ARCHITECTURES, reverse=True).index(machine)]
    assert verdict(machine, number, *arguments) == expected


def test_calls_and_conventions_of_x86_alone_are_closed() -> None:
    assert verdict("x86_64", 154) == errno.EPERM  # modify_ldt
    assert verdict("aarch64", 0) == 0  # io_setup, which has the number of "no such call"
    assert verdict("x86_64", 0, arch=0x40000003) == errno.ENOSYS  # i386
    assert verdict("x86_64", 0x40000000 + 165) == errno.ENOSYS  # x32


def test_an_unknown_machine_has_no_filter() -> None:
    assert filter_program("riscv64") is None
