from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.bwrap import BwrapSandbox
from sandbox.choose import choose_sandbox
from sandbox.probing import REQUIRED, advice, judge, probe_by_running
from sandbox.process import ProcessSandbox
from sandbox.types import Command, SandboxError
from sandbox.workspace import empty

NAMESPACES = {name: f"{name}:[1]" for name in ("net", "pid", "mnt", "ipc", "uts")}
NOT_YET = {"total-memory-limit", "workspace-size-limit"}
GOOD = "\n".join(
    [
        *(f"{name}={name}:[2]" for name in NAMESPACES),
        *("CapEff=0000", "CapPrm=0000", "CapBnd=0000", "NoNewPrivs=1", "Seccomp=2"),
        *("interface=lo", "environment=LC_ALL", "uid=1000", "did=use"),
    ]
)


@pytest.mark.usefixtures("bwrap_works")
def test_the_default_backend_is_bwrap_and_says_what_it_guarantees() -> None:
    probe = choose_sandbox(unsafe=False).probe()
    assert (probe.backend, probe.available, probe.isolated, probe.problem) == (
        *("bwrap", True, True),
        "",
    )
    assert all(probe.guarantees[name] for name in REQUIRED)
    assert not any(probe.guarantees[name] for name in NOT_YET)


def test_the_unsafe_backend_comes_only_when_asked_for() -> None:
    assert choose_sandbox(unsafe=True).name == "process"


def test_trying_finds_out_that_the_unsafe_backend_isolates_nothing() -> None:
    probe = probe_by_running(ProcessSandbox(), homes=(Path("/usr").parent / "etc",))
    lacking = {name for name in REQUIRED if not probe.guarantees[name]}
    assert not probe.isolated
    assert {"no-network", "pid-namespace", "private-home"} <= lacking
    assert "process gives no" in probe.problem


def test_facts_of_a_good_sandbox_give_every_guarantee() -> None:
    found = judge(GOOD, NAMESPACES)
    assert {name for name, holds in found.items() if not holds} == NOT_YET


@pytest.mark.parametrize(
    ("old", "new", "lost"),
    [
        ("net=net:[2]", "net=net:[1]", "no-network"),
        ("interface=lo", "interface=lo\ninterface=eth0", "no-network"),
        ("pid=pid:[2]", "pid=pid:[1]", "pid-namespace"),
        ("pid=pid:[2]", "pid=", "pid-namespace"),
        ("CapEff=0000", "CapEff=0001", "no-privileges"),
        ("CapBnd=0000\n", "", "no-privileges"),
        ("uid=1000", "uid=0", "no-privileges"),
        ("NoNewPrivs=1", "NoNewPrivs=0", "no-privileges"),
        ("environment=", "environment=HOST_SECRET\nenvironment=", "private-environment"),
        ("did=use", "did=use\ndid=see-home", "private-home"),
        ("did=use", "did=use\ndid=write-root", "read-only-root"),
        ("did=use", "did=use\ndid=write-kernel", "read-only-kernel-settings"),
        ("did=use", "did=use\ndid=nest", "no-nested-namespaces"),
        ("did=use", "", "usable"),
        ("Seccomp=2", "Seccomp=0", "syscall-filter"),
    ],
)
def test_each_fact_costs_its_guarantee(old: str, new: str, lost: str) -> None:
    found = judge(GOOD.replace(old, new, 1), NAMESPACES)
    assert {name for name, holds in found.items() if not holds} == {lost, *NOT_YET}


def test_a_missing_bwrap_is_a_problem_with_advice_and_never_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    probe = BwrapSandbox().probe()
    assert (probe.available, probe.isolated) == (False, False)
    assert "install the package bubblewrap" in probe.problem
    with pytest.raises(SandboxError, match="install the package bubblewrap"):
        choose_sandbox(unsafe=False)


@pytest.mark.parametrize(
    ("says", "problem"),
    [
        ("bubblewrap 0.4.1", "too old"),
        ("bubblewrap 0.8.0", "cannot set up the sandbox (bwrap: setting up uid map: denied)"),
    ],
)
def test_a_bwrap_that_refuses_runs_nothing_unprotected(
    tmp_path: Path, says: str, problem: str
) -> None:
    bwrap = tmp_path / "bwrap"
    bwrap.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && echo {says} && exit\n'
        "echo 'bwrap: setting up uid map: denied' >&2; exit 1\n"
    )
    bwrap.chmod(0o755)
    sandbox = BwrapSandbox(str(bwrap))
    assert problem in sandbox.probe().problem
    with empty(mount=Path("/srv/x")) as workspace, pytest.raises(SandboxError):
        sandbox.run(Command(("touch", str(tmp_path / "ran"))), workspace)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("sys/kernel/apparmor_restrict_unprivileged_userns", "1", "AppArmor"),
        ("sys/kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
        ("sys/user/max_user_namespaces", "0", "user.max_user_namespaces"),
        ("sys/user/max_user_namespaces", "1000", "unshare --user"),
    ],
)
def test_advice_names_the_setting(tmp_path: Path, setting: str, value: str, said: str) -> None:
    (tmp_path / setting).parent.mkdir(parents=True)
    (tmp_path / setting).write_text(f"{value}\n")
    assert said in advice(
        "bwrap: No permissions to create new namespace", proc=tmp_path, root=tmp_path
    )


def test_advice_does_not_blame_the_kernel_for_a_wrong_path(tmp_path: Path) -> None:
    said = advice("bwrap: Can't mkdir /usr/x: Read-only file system", proc=tmp_path, root=tmp_path)
    assert "mount point" in said


def test_advice_knows_containers(tmp_path: Path) -> None:
    (tmp_path / ".dockerenv").write_text("")
    assert "--security-opt" in advice(
        "bwrap: No permissions to create new namespace", proc=tmp_path, root=tmp_path
    )
