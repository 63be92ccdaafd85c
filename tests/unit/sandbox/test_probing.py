"""A backend is tried before it is used; the backend that was asked for is used, or none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.settings import load
from sandbox.bwrap import BwrapSandbox
from sandbox.choose import (
    Backend,
    check_isolation,
    make_sandbox,
    other_backends,
    probe_by_running,
)
from sandbox.container import ContainerSandbox
from sandbox.in_place import ProcessSandbox
from sandbox.types import Command, SandboxError
from sandbox.workspace import empty_workspace
from tests.support.validation import ScriptedSandbox, result_of


@pytest.mark.skipif(os.geteuid() != 0, reason="a user cannot do all of it")
def test_each_guarantee_is_lost_where_nothing_is_isolated() -> None:
    probe = probe_by_running(ProcessSandbox(), homes=(Path("/root"),))
    limits = {"total-memory-limit", "workspace-size-limit"}
    held = {name for name, holds in probe.guarantees.items() if holds}
    assert held - limits == {"usable"}
    assert not probe.isolated
    assert "pid-namespace" in probe.problem


def test_a_trial_without_tools_is_no_guarantee() -> None:
    probe = probe_by_running(ScriptedSandbox(lambda *_: result_of(b"nonsense")), homes=())
    assert (probe.available, dict(probe.guarantees)) == (False, {})


def test_an_image_with_a_directory_of_that_name_does_not_show_the_home(
    container: ContainerSandbox,
) -> None:
    """The test image has its own /root, and root's home is /root here."""
    probe = probe_by_running(container, homes=(Path("/root"),), variables=())
    assert probe.guarantees["private-home"]
    assert not probe.guarantees["private-environment"]  # PATH, which nothing allowed


@pytest.mark.usefixtures("bwrap_works")
def test_a_home_that_is_shown_is_seen() -> None:
    probe = probe_by_running(BwrapSandbox(homes=()), homes=(Path("/lib").resolve().parent / "lib",))
    assert probe.isolated  # /usr is the system, not a home
    state = probe_by_running(BwrapSandbox(homes=()), homes=(Path("/etc/alternatives"),))
    assert not state.guarantees["private-home"]


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


# ---- the choice


@pytest.mark.parametrize(
    ("unsafe", "backend", "image", "name"),
    [
        (True, "auto", None, "process"),
        (False, "auto", None, "bwrap"),
        (False, "bwrap", None, "bwrap"),
        (False, "landlock", None, "landlock"),
        (False, "auto", "some:image", "container"),
        (False, "container", "some:image", "container"),
    ],
)
def test_every_other_backend_is_asked_for(
    unsafe: bool, backend: Backend, image: str | None, name: str
) -> None:
    assert make_sandbox(unsafe=unsafe, backend=backend, image=image).name == name


@pytest.mark.parametrize(
    ("unsafe", "backend", "image", "said"),
    [
        (False, "container", None, "needs an image .*--image"),
        (False, "bwrap", "some:image", "not for bwrap"),
        (False, "landlock", "some:image", "not for landlock"),
        (True, "bwrap", None, "leave one out"),
        (True, "auto", "some:image", "leave one out"),
    ],
)
def test_contradictions_are_refused(
    unsafe: bool, backend: Backend, image: str | None, said: str
) -> None:
    with pytest.raises(SandboxError, match=said):
        make_sandbox(unsafe=unsafe, backend=backend, image=image)


@pytest.mark.parametrize(("backend", "image"), [("auto", None), ("bwrap", None), ("auto", "x:1")])
def test_nothing_takes_the_place_of_a_backend_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: Backend, image: str | None
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxError, match="install"):
        check_isolation(make_sandbox(unsafe=False, backend=backend, image=image))


def test_a_named_landlock_is_taken_although_it_isolates_less(landlock_works: None) -> None:
    probe = check_isolation(make_sandbox(unsafe=False, backend="landlock")).probe()
    assert (probe.backend, probe.available, probe.isolated) == ("landlock", True, False)


def test_the_others_are_probed_too(bwrap_works: None) -> None:
    others = other_backends("landlock")
    assert [probe.backend for probe in others] == ["bwrap", "container"]
    assert others[0].isolated
    assert not others[1].available  # without an image nothing can be said


@pytest.mark.parametrize("name", ["patchshot.toml", "pyproject.toml"])
def test_the_targets_own_configuration_chooses_no_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    target = tmp_path / "target"
    target.mkdir()
    lines = 'sandbox = "landlock"\nimage = "evil:1"\nunsafe_no_sandbox = true\nmax_steps = 7\n'
    (target / name).write_text(("[tool.patchshot]\n" if name[1] == "y" else "") + lines)
    monkeypatch.chdir(target)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    settings = load({}, repository=target)
    found = (settings.sandbox, settings.image, settings.unsafe_no_sandbox, settings.max_steps)
    assert found == ("auto", None, False, 7)
