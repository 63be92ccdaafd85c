from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.bwrap import BwrapSandbox
from sandbox.choose import (
    REQUIRED,
    HostFacts,
    advise_on_bwrap,
    judge_output,
    probe_by_running,
)
from sandbox.container import ContainerSandbox
from sandbox.in_place import ProcessSandbox
from sandbox.types import Command, SandboxError
from sandbox.workspace import empty_workspace
from tests.support.sandboxes import Runner

DENIED = "bwrap: No permissions to create new namespace"


@pytest.mark.parametrize(
    ("stderr", "advice"),
    [
        ("", "install the package bubblewrap"),
        (DENIED, "docs/guide/install.md"),
        ("bwrap: Can't mkdir /usr/x: Read-only file system", "mount point"),
    ],
)
def test_advice_follows_what_bwrap_prints(stderr: str, advice: str) -> None:
    assert advice in advise_on_bwrap(stderr)


NAMESPACES = {name: f"{name}:[1]" for name in ("net", "pid", "mnt", "ipc", "uts")}
HOST = HostFacts(NAMESPACES, homes=frozenset({"7:9"}))
GOOD = "\n".join(
    [
        *(f"{name}={name}:[2]" for name in NAMESPACES),
        *("CapEff=0000", "CapPrm=0000", "CapBnd=0000", "NoNewPrivs=1", "Seccomp=2"),
        *("interface=lo", "environment=LC_ALL", "uid=1000", "did=use"),
        *("place=7:1 /", "place= /root"),
    ]
)


def test_trying_finds_out_that_the_unsafe_backend_isolates_nothing() -> None:
    probe = probe_by_running(ProcessSandbox(), homes=(Path("/usr").parent / "etc",))
    lacking = {name for name in REQUIRED if not probe.guarantees[name]}
    assert not probe.isolated
    assert {"no-network", "pid-namespace", "private-home"} <= lacking
    assert "process gives no" in probe.problem


def test_facts_of_a_good_sandbox_give_every_guarantee() -> None:
    found = judge_output(GOOD, HOST)
    assert {name for name, holds in found.items() if not holds} == set()


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
        ("place= /root", "place=7:9 /root", "private-home"),
        ("place=7:1 /", "place= /", "private-home"),
        ("did=use", "did=use\ndid=write-root", "read-only-root"),
        ("did=use", "did=use\ndid=write-kernel", "read-only-kernel-settings"),
        ("did=use", "did=use\ndid=nest", "no-nested-namespaces"),
        ("did=use", "", "usable"),
        ("Seccomp=2", "Seccomp=0", "syscall-filter"),
    ],
)
def test_each_fact_costs_its_guarantee(old: str, new: str, lost: str) -> None:
    found = judge_output(GOOD.replace(old, new, 1), HOST)
    assert {name for name, holds in found.items() if not holds} == {lost}


def test_variables_that_a_backend_gives_itself_are_no_leak() -> None:
    output = GOOD.replace("environment=LC_ALL", "environment=PATH")
    assert judge_output(output, HostFacts(NAMESPACES, variables=frozenset({"PATH"})))[
        "private-environment"
    ]
    assert not judge_output(output, HOST)["private-environment"]


def test_an_image_with_a_directory_of_that_name_does_not_show_the_home(
    container: ContainerSandbox,
) -> None:
    """The test image has its own /root, and root's home is /root here."""
    probe = probe_by_running(container, homes=(Path("/root"),), variables=())
    assert probe.guarantees["private-home"]
    assert not probe.guarantees["private-environment"]  # PATH, which nothing allowed


@pytest.mark.usefixtures("bwrap_works")
def test_a_home_that_is_shown_is_seen() -> None:
    """Device and inode identify a directory, and are the same from inside."""
    run = Runner("bwrap")
    state = Path("/usr").stat()
    assert run.shell("stat -c %d:%i /usr").stdout.decode() == f"{state.st_dev}:{state.st_ino}\n"


def test_a_missing_bwrap_is_a_problem_with_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    probe = BwrapSandbox().probe()
    assert (probe.available, probe.isolated) == (False, False)
    assert "install the package bubblewrap" in probe.problem


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
    with empty_workspace(mount=Path("/srv/x")) as workspace, pytest.raises(SandboxError):
        sandbox.run(Command(("touch", str(tmp_path / "ran"))), workspace)
    assert not (tmp_path / "ran").exists()
