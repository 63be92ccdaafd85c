"""Finds podman or docker: scripts play both, and one test asks the real podman."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sandbox.container import ContainerSandbox
from sandbox.container_engine import Engine, Image, find_engine, find_image
from sandbox.types import Command, SandboxError
from sandbox.workspace import empty_workspace

PODMAN = {
    "host": {
        "cgroupVersion": "v1",
        "security": {"rootless": False, "seccompProfilePath": "/x/seccomp.json"},
    }
}
USERS = {"rootless": True, "selinuxEnabled": True}
DOCKER = {"MemoryLimit": True, "PidsLimit": True, "SecurityOptions": ["name=seccomp"]}


def fake(folder: Path, name: str, info: object, *, version: str = "") -> None:
    """Make a program that prints this description; a string is an error."""
    program = folder / name
    fails = isinstance(info, str)
    said = info if fails else json.dumps(info)
    program.write_text(
        f"#!/bin/sh\n[ $1 = --version ] && echo {version or name + ' version 99.1'} && exit\n"
        f"cat <<'END' {'>&2' if fails else ''}\n{said}\nEND\nexit {int(fails)}\n"
    )
    program.chmod(0o755)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    for name in ("cat", "sh"):
        (tmp_path / name).symlink_to(f"/bin/{name}")
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("programs", "engine"),
    [
        ({"podman": PODMAN, "docker": DOCKER},
         {"kind": "podman", "groups": True, "seccomp": Path("/x/seccomp.json")}),
        ({"docker": DOCKER}, {"kind": "docker", "groups": True}),
        ({"podman": {"host": {"cgroupVersion": "v1", "security": USERS}}},
         {"kind": "podman", "rootless": True, "groups": False, "selinux": True}),
        ({"podman": {"host": {"cgroupVersion": "v2", "security": USERS}}},
         {"kind": "podman", "rootless": True, "groups": True, "selinux": True}),
    ],
)  # fmt: skip
def test_the_first_engine_that_answers_is_described(
    path: Path, programs: dict[str, object], engine: dict[str, object]
) -> None:
    for name, info in programs.items():
        fake(path, name, info)
    expected = {"program": str(path / str(engine["kind"])), "rootless": False, **engine}
    assert find_engine() == Engine(**expected)  # type: ignore[arg-type]


def test_a_podman_of_another_machine_is_of_no_use(path: Path) -> None:
    fake(path, "podman", {"host": {**PODMAN["host"], "serviceIsRemote": True}})
    with pytest.raises(SandboxError, match="another machine"):
        find_engine()


@pytest.mark.parametrize(
    ("info", "said"),
    [
        ("Cannot connect to the Docker daemon", "Cannot connect to the Docker daemon"),
        ({"ServerErrors": ["permission denied"]}, "permission denied"),
        ({**DOCKER, "SecurityOptions": ["name=rootless"]}, "use podman, or docker as root"),
        ({}, "no known way"),
        ([], "no known way"),
    ],
)
def test_a_docker_that_is_of_no_use_is_a_problem_with_advice(
    path: Path, info: object, said: str
) -> None:
    fake(path, "docker", info)
    with pytest.raises(SandboxError, match=said) as caught:
        find_engine()
    assert "podman is not installed" in str(caught.value)
    assert "install podman" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "version"), [("podman", "podman version 3.4.4"), ("docker", "Docker version 19.03.8")]
)
def test_an_engine_that_lacks_an_option_is_too_old(path: Path, name: str, version: str) -> None:
    fake(path, name, PODMAN if name == "podman" else DOCKER, version=version)
    with pytest.raises(SandboxError, match="too old"):
        find_engine()


def test_the_engine_that_was_named_is_the_only_one(path: Path) -> None:
    fake(path, "podman", PODMAN)
    with pytest.raises(SandboxError, match="docker is not installed"):
        find_engine("docker")


def test_without_an_engine_nothing_is_run(path: Path) -> None:
    probe = ContainerSandbox("some:image").probe()
    assert (probe.available, probe.isolated) == (False, False)
    assert "install podman" in probe.problem


def test_an_image_that_is_not_there_is_not_fetched(container: ContainerSandbox) -> None:
    probe = ContainerSandbox("localhost/none:1", "podman").probe()
    assert not probe.available
    assert "podman pull localhost/none:1" in probe.problem


@pytest.mark.parametrize("name", ["--help", "Bad Name!!", "", "a\nb", "a;b"])
def test_what_cannot_name_an_image_is_refused(path: Path, name: str) -> None:
    fake(path, "podman", PODMAN)
    with pytest.raises(SandboxError, match="not the name of an image") as raised:
        find_image(find_engine(), name)
    assert "pull" not in str(raised.value)


def test_an_image_has_variables_and_for_docker_no_volumes(path: Path) -> None:
    config = {"Env": ["PATH=/a:/b", "EMPTY=", "X=a=b"], "Volumes": {"/data": {}}}
    described = [{"Id": "sha256:1", "Config": config}]
    for name in ("podman", "docker"):
        fake(path, name, described)
    podman = Engine(str(path / "podman"), "podman", rootless=False, groups=True)
    variables = {"PATH": "/a:/b", "EMPTY": "", "X": "a=b"}
    assert find_image(podman, "some:image") == Image("sha256:1", variables)
    docker = Engine(str(path / "docker"), "docker", rootless=False, groups=True)
    with pytest.raises(SandboxError, match="has volumes: use podman"):  # docker makes them writable
        find_image(docker, "some:image")


def answering(folder: Path, run: str) -> Path:
    """Make a podman with one image, whose `run` is a line of shell that logs its arguments."""
    program, log = folder / "podman", folder / "log"
    described = json.dumps([{"Id": "sha256:1", "Config": {}}])
    program.write_text(
        "#!/bin/sh\ncase $1 in\n"
        "--version) echo podman version 4.3.1;;\n"
        f"info) echo '{json.dumps(PODMAN)}';;\n"
        f"image) echo '{described}';;\n"
        f"*) echo $* >>{log}; {run};;\nesac\n"
    )
    program.chmod(0o755)
    return log


def refused(folder: Path) -> str:
    with empty_workspace(mount=Path("/srv/x"), parent=folder) as workspace:
        with pytest.raises(SandboxError) as caught:
            ContainerSandbox("some:image").run(Command(("true",)), workspace)
        assert not list(workspace.path.parent.glob("run-*"))
    return str(caught.value)


def test_a_container_that_does_not_start_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = answering(tmp_path, "echo 'Error: OCI runtime error: no such cgroup' >&2; exit 126")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    said = "podman cannot start a container (OCI runtime error: no such cgroup)"
    assert refused(tmp_path) == said
    assert len([line for line in log.read_text().splitlines() if " run " in line]) == 1
