"""A small interpreter of classic BPF runs the filter, also for other machines."""

from __future__ import annotations

import errno
import json
import struct
from pathlib import Path

import pytest

from sandbox.seccomp import filter_program, stricter_profile

PROFILE_ALLOW = "SCMP_ACT_ALLOW"


def made(tmp_path: Path, *rules: dict[str, object]) -> dict[str, object]:
    default = tmp_path / "seccomp.json"
    whole = {"defaultAction": "SCMP_ACT_ERRNO", "archMap": [], "syscalls": rules}
    default.write_text(json.dumps(whole))
    text = stricter_profile(default)
    assert text is not None
    found: dict[str, object] = json.loads(text)
    return found


def allowed(profile: dict[str, object], name: str) -> list[dict[str, object]]:
    rules = profile["syscalls"]
    assert isinstance(rules, list)
    return [rule for rule in rules if name in rule["names"] and rule["action"] == PROFILE_ALLOW]


def test_what_the_default_allows_stays_but_for_the_dangerous(tmp_path: Path) -> None:
    names = ["read", "unshare", "mount", "setns", "io_uring_setup", "bpf", "clone", "clone3"]
    profile = made(tmp_path, {"names": names, "action": PROFILE_ALLOW, "args": []})
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    assert [rule["names"] for rule in allowed(profile, "read")] == [["read"]]
    for name in set(names) - {"read", "clone"}:
        assert allowed(profile, name) == []


def test_processes_may_be_made_but_no_namespaces(tmp_path: Path) -> None:
    (rule,) = allowed(made(tmp_path, {"names": ["clone"], "action": PROFILE_ALLOW}), "clone")
    args = rule["args"]
    assert isinstance(args, list)
    assert (args[0]["op"], args[0]["valueTwo"]) == ("SCMP_CMP_MASKED_EQ", 0)
    assert args[0]["value"] & 0x1000_0000  # CLONE_NEWUSER


def test_sockets_of_known_families_only(tmp_path: Path) -> None:
    rules = allowed(
        made(tmp_path, {"names": ["socket"], "action": PROFILE_ALLOW, "args": None}), "socket"
    )
    values = [rule["args"][0]["value"] for rule in rules]  # type: ignore[index]
    assert values == [1, 2, 10, 16]


def test_a_rule_without_names_is_none(tmp_path: Path) -> None:
    rules = made(tmp_path, {"names": ["setns"], "action": PROFILE_ALLOW})["syscalls"]
    assert isinstance(rules, list)
    assert all(rule["names"] for rule in rules)


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
