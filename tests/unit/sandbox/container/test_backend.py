"""The container backend beyond the contract: options, leaks, kill -9, images like SWE-bench's."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from sandbox.container import ContainerSandbox, open_controls, run_arguments
from sandbox.container_engine import Engine, Image, find_engine
from sandbox.container_image import TESTBED, candidate_interpreters, prepare_products
from sandbox.runs import open_run
from sandbox.types import Command, Ended, RunResult, SandboxError
from sandbox.workspace import empty_workspace, prepare_workspace
from tests.conftest import run_git
from tests.support.images import TESTBED_PYTHON, require_container
from tests.support.sandboxes import ROOT, Runner

MIB = 1024 * 1024
PODMAN = Engine("/usr/bin/podman", "podman", rootless=False, groups=True)
DOCKER = Engine("/usr/bin/docker", "docker", rootless=False, groups=True)
IMAGE = Image("sha256:1", {"PATH": "/a"})


@pytest.fixture
def run(container: ContainerSandbox) -> Runner:
    return Runner("container", sandbox=container)


def arguments(
    tmp_path: Path,
    engine: Engine,
    *,
    mount: str = "/srv/x",
    read_only: tuple[Path, ...] = (),
    network: bool = False,
) -> list[str]:
    command = Command(("true",), read_only=read_only, network=network)
    with (
        empty_workspace(mount=Path(mount), parent=tmp_path) as workspace,
        open_run(command, workspace, None, None) as run,
        open_controls(run.scratch, b"", None) as controls,
    ):
        homes = (Path("/home/me"),)
        return run_arguments(engine, IMAGE, run, controls, user="7:8", homes=homes)


# --------------------------------------------------------------------------------------- options


@pytest.mark.parametrize("engine", [PODMAN, DOCKER])
def test_every_wall_has_its_option_and_nothing_opens_the_container(
    tmp_path: Path, engine: Engine
) -> None:
    whole = " ".join(arguments(tmp_path, engine))
    for option in (
        *("--network none", "--read-only", "--cap-drop ALL", "--pull never", "--log-driver none"),
        *("--security-opt no-new-privileges", "--user 7:8", "--rm", "--ipc private"),
        *("--entrypoint /bin/sh", "--env https_proxy=", f"--memory {4096 * MIB}"),
        *(f"--memory-swap {4096 * MIB}", "--pids-limit 258", "--ulimit core=0:0"),
        "--ulimit cpu=600:601",
    ):
        assert f"{option} " in whole
    for bad in ("--privileged", ".sock", "--device", "--pid=host", "unconfined", "--volume"):
        assert bad not in whole


def test_what_differs_between_commands_and_engines(tmp_path: Path) -> None:
    podman, docker = arguments(tmp_path, PODMAN), arguments(tmp_path, DOCKER)
    assert {"--http-proxy=false", "--read-only-tmpfs=false"} <= set(podman) - set(docker)
    assert docker[docker.index("--userns") + 1] == "host"
    connected = arguments(tmp_path, PODMAN, network=True)
    assert "--network" not in connected
    assert "--cap-drop" in connected


@pytest.mark.parametrize("mount", ["/", "/usr", "/tmp", "/proc", "/etc", "/home"])
def test_the_workspace_hides_nothing_of_the_system(tmp_path: Path, mount: str) -> None:
    with pytest.raises(SandboxError, match="cannot be mounted"):
        arguments(tmp_path, PODMAN, mount=mount)


@pytest.mark.parametrize("path", ["/", "/etc", "/usr", "/home", "/home/me", "/var", "/none"])
def test_host_paths_that_hold_too_much_are_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(SandboxError, match=r"refused to show|does not exist"):
        arguments(tmp_path, PODMAN, read_only=(Path(path),))


def test_any_path_is_shown_at_its_own_place_and_cannot_be_written(
    tmp_path: Path, container: ContainerSandbox
) -> None:
    inside = tmp_path / 'a,b "c":d'
    inside.mkdir(mode=0o777)
    inside.chmod(0o777)
    (inside / "plugin.py").write_text("x = 1\n")
    script = 'cat "$0/plugin.py"; echo x >"$0/plugin.py"; touch "$0/new"; exit 0'
    command = Command(("/bin/sh", "-c", script, str(inside)), read_only=(inside,))
    with empty_workspace(mount=Path("/srv/x")) as workspace:
        assert container.run(command, workspace).stdout == b"x = 1\n"
    assert [path.name for path in inside.iterdir()] == ["plugin.py"]
    assert (inside / "plugin.py").read_text() == "x = 1\n"


# ----------------------------------------------------------------------------------- environment


def test_secrets_are_in_no_list_of_processes_of_this_machine(run: Runner) -> None:
    secret = f"secret-{secrets.token_hex(8)}"
    seen: list[str] = []
    stop = threading.Event()

    def watch() -> None:
        while not stop.is_set():
            seen.extend(command_line(entry) for entry in Path("/proc").glob("[0-9]*"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        result = run.shell('printf %s "$TOKEN" | wc -c', environment={"TOKEN": secret})
    finally:
        stop.set()
        watcher.join()
    assert int(result.stdout) == len(secret)
    assert "/sandbox/run" in "".join(seen)  # it did look
    assert secret not in "".join(seen)


def test_a_loader_variable_of_the_target_is_not_the_engines(run: Runner) -> None:
    """A repository may name variables of its test command; the client must not see them."""
    given = {"LD_PRELOAD": "/none/evil.so", "CONTAINERS_CONF": "/none", "PATH": "/usr/bin:/bin"}
    result = run.shell('echo "$CONTAINERS_CONF"', environment=given)
    assert (result.stdout, result.exit_code) == (b"/none\n", 0)


# ---------------------------------------------------------------------------------------- limits


def test_running_out_of_memory_leaves_no_file_where_we_are(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """conmon makes an empty file `oom` in its own directory."""
    monkeypatch.chdir(tmp_path)
    result = run.shell("x=$(head -c 300000000 /dev/zero | tail -c 300000000)", memory=60 * MIB)
    assert result.ended is Ended.MEMORY_LIMIT
    assert list(tmp_path.iterdir()) == []


# -------------------------------------------------------------------------------- nothing stays

AGENT = """
    import sys
    from pathlib import Path
    from sandbox.container import ContainerSandbox
    from sandbox.types import Command
    from sandbox.workspace import empty_workspace
    with empty_workspace(mount=Path("/srv/x"), parent=Path(sys.argv[3])) as workspace:
        command = Command(("/bin/sh", "-c", "touch started; sleep " + sys.argv[2]))
        ContainerSandbox(sys.argv[1], "podman").run(command, workspace)
"""


@pytest.fixture
def agent(container: ContainerSandbox, tmp_path: Path) -> Iterator[tuple[int, str]]:
    """Return the pid of a process that runs a container, and the mark of what runs inside."""
    mark = f"3600.{secrets.randbelow(10**9)}"
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(AGENT), require_container(), mark, str(tmp_path)],
        cwd=ROOT,
        start_new_session=True,
    ) as process:
        wait_for(lambda: any(tmp_path.glob("*/tree/started")), 60)
        yield process.pid, mark
        process.kill()


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def left(pid: int, mark: str) -> list[str]:
    """Return containers of an agent and processes with a mark."""
    names = find_engine("podman").ask("ps", "--all", "--format", "{{.Names}}").split()
    return [name for name in names if f"-{pid}-" in name] + running(f"sleep\0{mark}\0")


def running(words: str) -> list[str]:
    """Return processes of this machine with exactly this command line."""
    lines = (command_line(entry) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [line for line in lines if line == words]


def command_line(process: Path) -> str:
    try:
        return (process / "cmdline").read_text()
    except OSError:
        return ""  # it has ended


@pytest.mark.parametrize("whole_group", [False, True])
def test_kill_9_of_the_agent_leaves_nothing(agent: tuple[int, str], whole_group: bool) -> None:
    pid, mark = agent
    assert len(left(pid, mark)) == 2
    (os.killpg if whole_group else os.kill)(pid, signal.SIGKILL)
    wait_for(lambda: not left(pid, mark), 30)


def test_a_client_that_is_killed_leaves_no_container(run: Runner) -> None:
    mark = f"3600.{secrets.randbelow(10**9)}"
    results: list[RunResult] = []
    thread = threading.Thread(target=lambda: results.append(run.shell(f"sleep {mark}")))
    thread.start()
    wait_for(lambda: bool(running(f"sleep\0{mark}\0")), 30)
    clients = [
        int(process.name)
        for process in Path("/proc").glob("[0-9]*")
        if "patchshot" in (line := command_line(process))
        and "\0run\0" in line
        and parent(process) == os.getpid()
    ]
    assert len(clients) == 1
    os.kill(clients[0], signal.SIGKILL)
    thread.join(30)
    assert [result.ended for result in results] == [Ended.SIGNALLED]
    assert left(os.getpid(), mark) == []


def parent(process: Path) -> int:
    return int((process / "stat").read_text().rpartition(")")[2].split()[1])


# ------------------------------------------------------------------------------- images of others


def test_a_project_is_tested_where_its_image_has_it(
    container: ContainerSandbox, make_repository: Callable[[Mapping[str, str]], Path]
) -> None:
    """The tree comes from the repository, its build products and interpreter from the image."""
    files = {
        "pkg/__init__.py": "from pkg._version import version\n",
        "tests/test_pkg.py": "import pkg\ndef test():\n    assert pkg.version == '1.2.3'\n",
    }
    root = make_repository(files)
    commit = run_git(root, "rev-parse", "HEAD").strip()
    python = str(next(iter(candidate_interpreters(container))))
    assert python == TESTBED_PYTHON
    argv = (python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests")
    command = Command(argv, environment={"PYTHONPATH": str(TESTBED)})
    products = prepare_products(container)
    results = [_tested(container, root, commit, overlay, command) for overlay in (products, {})]
    assert [result.exit_code for result in results] == [0, 2]
    assert b"1 passed" in results[0].stdout
    assert b"No module named 'pkg._version'" in results[1].stdout


def _tested(
    sandbox: ContainerSandbox,
    root: Path,
    commit: str,
    overlay: Mapping[str, bytes],
    command: Command,
) -> RunResult:
    with prepare_workspace(root, commit, overlay, mount=Path(TESTBED)) as workspace:
        return sandbox.run(command, workspace)
