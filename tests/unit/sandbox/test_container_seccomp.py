from __future__ import annotations

import json
from pathlib import Path

import pytest

from sandbox.container_seccomp import stricter

ALLOW = "SCMP_ACT_ALLOW"


def made(tmp_path: Path, *rules: dict[str, object]) -> dict[str, object]:
    default = tmp_path / "seccomp.json"
    whole = {"defaultAction": "SCMP_ACT_ERRNO", "archMap": [], "syscalls": rules}
    default.write_text(json.dumps(whole))
    text = stricter(default)
    assert text is not None
    found: dict[str, object] = json.loads(text)
    return found


def allowed(profile: dict[str, object], name: str) -> list[dict[str, object]]:
    rules = profile["syscalls"]
    assert isinstance(rules, list)
    return [rule for rule in rules if name in rule["names"] and rule["action"] == ALLOW]


def test_what_the_default_allows_stays_but_for_the_dangerous(tmp_path: Path) -> None:
    names = ["read", "unshare", "mount", "setns", "io_uring_setup", "bpf", "clone", "clone3"]
    profile = made(tmp_path, {"names": names, "action": ALLOW, "args": []})
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    assert [rule["names"] for rule in allowed(profile, "read")] == [["read"]]
    for name in set(names) - {"read", "clone"}:
        assert allowed(profile, name) == []


def test_processes_may_be_made_but_no_namespaces(tmp_path: Path) -> None:
    (rule,) = allowed(made(tmp_path, {"names": ["clone"], "action": ALLOW}), "clone")
    args = rule["args"]
    assert isinstance(args, list)
    assert (args[0]["op"], args[0]["valueTwo"]) == ("SCMP_CMP_MASKED_EQ", 0)
    assert args[0]["value"] & 0x1000_0000  # CLONE_NEWUSER


def test_sockets_of_known_families_only(tmp_path: Path) -> None:
    rules = allowed(made(tmp_path, {"names": ["socket"], "action": ALLOW, "args": None}), "socket")
    values = [rule["args"][0]["value"] for rule in rules]  # type: ignore[index]
    assert values == [1, 2, 10, 16]


def test_a_rule_without_names_is_none(tmp_path: Path) -> None:
    rules = made(tmp_path, {"names": ["setns"], "action": ALLOW})["syscalls"]
    assert isinstance(rules, list)
    assert all(rule["names"] for rule in rules)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"syscalls": [1]}', '{"syscalls": [{}]}'])
def test_a_default_that_cannot_be_read_stays_the_engines(tmp_path: Path, text: str) -> None:
    default = tmp_path / "seccomp.json"
    default.write_text(text)
    assert stricter(default) is None
    assert stricter(tmp_path / "none") is None
