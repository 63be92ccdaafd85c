"""The backend that was asked for is used, or none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agent.settings import load
from sandbox.choose import REQUIRED, Backend, check_isolation, make_sandbox, other_backends
from sandbox.container import ContainerSandbox
from sandbox.container_engine import find_engine
from sandbox.types import SandboxError


@pytest.mark.usefixtures("bwrap_works")
def test_the_default_backend_is_bwrap_and_it_is_sure_of_what_is_required() -> None:
    probe = check_isolation(make_sandbox(unsafe=False)).probe()
    assert (probe.backend, probe.available, probe.isolated, probe.problem) == (
        *("bwrap", True, True),
        "",
    )
    assert all(probe.guarantees[name] for name in REQUIRED)


def test_the_unsafe_backend_comes_only_when_asked_for() -> None:
    assert check_isolation(make_sandbox(unsafe=True)).name == "process"


@pytest.mark.parametrize(
    ("backend", "image", "name"),
    [
        ("auto", None, "bwrap"),
        ("bwrap", None, "bwrap"),
        ("landlock", None, "landlock"),
        ("auto", "some:image", "container"),
        ("container", "some:image", "container"),
    ],
)
def test_every_other_backend_is_asked_for(backend: Backend, image: str | None, name: str) -> None:
    assert make_sandbox(unsafe=False, backend=backend, image=image).name == name


def test_without_the_modules_of_containers_an_image_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are not in a miner's bundle."""
    monkeypatch.setitem(sys.modules, "sandbox.container", None)
    with pytest.raises(SandboxError, match="PATCHSHOT_IMAGE"):
        make_sandbox(unsafe=False, image="some:image")


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


def test_the_start_of_a_run_removes_what_killed_agents_left(
    container: ContainerSandbox, stale_container: str
) -> None:
    engine = find_engine("podman")
    assert engine.exist(stale_container)
    check_isolation(container)
    assert not engine.exist(stale_container)


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
