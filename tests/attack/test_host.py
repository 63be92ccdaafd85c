"""Repositories that attack this machine when a user runs the real commands on them."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.attack.host_cases import (
    BY_REPLY,
    ODD,
    ODD_FILES,
    OF_GIT,
    ON_PATH,
    PLANTED,
    SETTINGS,
    TREE_BOMB,
    plant_tree,
)
from tests.conftest import run_git
from tests.support.agent_process import run_agent
from tests.support.images import require_container
from tests.support.sandboxes import require_bwrap
from tests.support.scripted_provider import ScriptedProvider

# A command takes seconds, and a minute where every processor has ten others to run. What these
# repositories did before took longer, or had no end.
_MOST_SECONDS = 60.0
_SOLVE_SECONDS = 240.0
_MOST_MEMORY = 3 << 30

pytestmark = pytest.mark.timeout(900)

_EDIT = {"path": "shop/cart.py", "search": "sum(prices[1:])", "replace": "sum(prices)"}
_TEST = {
    "path": "tests/test_first.py",
    "content": "from shop.cart import total\n\n\ndef test_first():\n    assert total([3]) == 3\n",
}
_REPLY = json.dumps({"thought": "slice", "edits": [_EDIT], "reproduction_test": _TEST})
_FILES = {
    "shop/__init__.py": "",
    "shop/cart.py": "def total(prices):\n    return sum(prices[1:])\n",
    "tests/test_cart.py": (
        "from shop.cart import total\n\n\ndef test_none():\n    assert total([]) == 0\n"
    ),
    "tools/lint": "#!/bin/sh\nexit 0\n",
    ".gitignore": "/build/\n*.local\n",
}
_COMMANDS = ("git", "bwrap", "podman", "docker", "env", "cp", "find", "du", "rm", "python3", "cat")


Plant = Callable[["Target"], dict[str, str]]


class Target:
    """A user's home, a repository in it, and the file that an attack would make."""

    def __init__(self, folder: Path) -> None:
        self.home, self.root, self.marker = folder / "home", folder / "target", folder / "owned"
        self.home.mkdir()
        (self.home / "issue.md").write_text("# total leaves out the first price\n")
        for path, content in _FILES.items():
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_text(content)
        (self.root / "tools" / "lint").chmod(0o755)
        run_git(self.root, "init", "-q")
        run_git(self.root, "add", "-A")
        run_git(self.root, "commit", "-q", "-m", "base")

    def plant(self, place: Path, then: str = 'exec /usr/bin/python3 "$@"') -> Path:
        """Write a program that leaves the marker."""
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"#!/bin/sh\n/bin/touch {self.marker}\n{then}\n")
        place.chmod(0o755)
        return place

    def run(self, *arguments: str, **options: str) -> subprocess.CompletedProcess[str]:
        cwd = Path(options.pop("cwd", str(self.home)))
        limit = _SOLVE_SECONDS if arguments[0] == "solve" else _MOST_SECONDS
        return run_agent(*arguments, home=self.home, cwd=cwd, limit=limit, **options)

    def solve(
        self, *arguments: str, reply: str = _REPLY, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        with ScriptedProvider([reply]) as provider:
            return self.run(
                *("solve", "--problem", "issue.md", "--repo", str(self.root), *arguments),
                PATCHSHOT_BASE_URL=provider.base_url,
                PATCHSHOT_MODEL=provider.model,
                **variables,
            )


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return Target(tmp_path)


@pytest.fixture(params=["bwrap", "landlock", "container"])
def backend(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The options that choose each backend."""
    if request.param == "container":
        return ("--image", require_container())
    if request.param == "bwrap":
        require_bwrap()
    return ("--sandbox", request.param)


# ------------------------------------------------------------------------- planted programs


def _script(target: Target) -> dict[str, str]:
    target.plant(target.root / ".venv" / "bin" / "python")
    return {}


def _whole_environment(target: Target) -> dict[str, str]:
    target.plant(target.root / ".venv" / "bin" / "python")
    (target.root / ".venv" / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.2\n")
    return {}


def _library(target: Target) -> dict[str, str]:
    """The real interpreter, which takes its standard library from the folder `home`."""
    folder = target.root / ".venv"
    (folder / "bin").mkdir(parents=True)
    real = Path("/usr/bin/python3").resolve()
    (folder / "bin" / "python").symlink_to(real)
    (folder / "pyvenv.cfg").write_text(f"home = {target.root}/base/bin\n")
    library = target.root / "base" / "lib" / real.name
    library.mkdir(parents=True)
    (target.root / "base" / "bin").mkdir()
    (library / "os.py").touch()
    evil = f"import posix\nposix.close(posix.open({str(target.marker)!r}, 64 | 1))\n"
    (library / "encodings.py").write_text(evil)
    return {}


def _leading_out(target: Target) -> dict[str, str]:
    program = target.plant(target.home / "bin" / "deploy")
    (target.root / "venv" / "bin").mkdir(parents=True)
    (target.root / "venv" / "bin" / "python").symlink_to(program)
    return {}


def _leading_in(target: Target) -> dict[str, str]:
    target.plant(target.root / "tools" / "env" / "bin" / "python")
    (target.home / "env").symlink_to(target.root / "tools" / "env")
    return {"VIRTUAL_ENV": str(target.home / "env")}


def _active(target: Target) -> dict[str, str]:
    target.plant(target.root / "env" / "bin" / "python")
    target.plant(target.root / "env" / "bin" / "python3")
    folder = target.root / "env"
    return {"VIRTUAL_ENV": str(folder), "PATH": f"{folder}/bin:{os.environ['PATH']}"}


_ENVIRONMENTS = (_script, _whole_environment, _library, _leading_out, _leading_in, _active)


@pytest.mark.slow
@pytest.mark.attack_case(PLANTED.name)
@pytest.mark.parametrize("plant", _ENVIRONMENTS)
def test_a_planted_interpreter_runs_in_a_sandbox_only(target: Target, plant: Plant) -> None:
    require_bwrap()
    variables = plant(target)
    done = target.solve(**variables)
    assert not target.marker.exists(), done.stderr
    assert done.returncode != 1, done.stderr
    assert target.run("doctor", cwd=str(target.root), **variables).returncode != 1
    assert not target.marker.exists()


@pytest.mark.slow
@pytest.mark.attack_case(PLANTED.name, backend="agent")
def test_so_it_is_with_every_backend(target: Target, backend: tuple[str, ...]) -> None:
    _whole_environment(target)
    done = target.solve(*backend)
    assert not target.marker.exists(), done.stderr
    assert done.returncode != 1, done.stderr


@pytest.mark.parametrize("plant", _ENVIRONMENTS)
def test_the_planted_interpreters_work(target: Target, plant: Plant) -> None:
    """The control: asked as other tools ask it, each of them leaves the marker."""
    variables = plant(target)
    folders = [target.root / ".venv", target.root / "venv"]
    folders += [Path(variables["VIRTUAL_ENV"])] if variables else []
    python = next(f / "bin" / "python" for f in folders if (f / "bin" / "python").exists())
    subprocess.run([python, "-I", "-S", "-c", ""], check=False, capture_output=True, timeout=20)
    assert target.marker.exists()


@pytest.mark.slow
@pytest.mark.attack_case(ON_PATH.name, backend="agent")
def test_tools_of_the_repository_are_not_run(target: Target, backend: tuple[str, ...]) -> None:
    for name in _COMMANDS:
        real = shutil.which(name) or "/bin/false"
        target.plant(target.root / "bin" / name, f'exec {real} "$@"')
    (target.home / "linked").symlink_to(target.root / "bin")
    first = f"bin:.:{target.home}/linked:{target.root}/bin"
    variables = {"PATH": f"{first}:{os.environ['PATH']}", "VIRTUAL_ENV": str(target.root)}
    done = target.solve(*backend, **variables)
    assert not target.marker.exists(), done.stderr
    assert done.returncode != 1, done.stderr
    target.run("doctor", *backend, cwd=str(target.root), **variables)
    assert not target.marker.exists()


# ------------------------------------------------------------------------- the next run


def _renamed(root: Path) -> str:
    return (
        "```diff\ndiff --git a/tools/lint b/.venv/bin/python\nsimilarity index 50%\n"
        "rename from tools/lint\nrename to .venv/bin/python\n"
        "--- a/tools/lint\n+++ b/.venv/bin/python\n@@ -1,2 +1,2 @@\n #!/bin/sh\n"
        f"-exit 0\n+/bin/touch {root.parent}/owned\n"
        "diff --git a/.venv/pyvenv.cfg b/.venv/pyvenv.cfg\nnew file mode 100644\n"
        "--- /dev/null\n+++ b/.venv/pyvenv.cfg\n@@ -0,0 +1 @@\n+home = /usr/bin\n```\n"
    )


@pytest.mark.slow
@pytest.mark.attack_case(BY_REPLY.name)
def test_a_reply_plants_nothing_for_the_next_run(target: Target) -> None:
    require_bwrap()
    done = target.solve("--apply", "--no-iterative", reply=_renamed(target.root))
    assert done.returncode == 5, done.stderr
    assert not (target.root / ".venv").exists()
    assert "protected" in done.stderr
    target.solve()
    assert not target.marker.exists()


@pytest.mark.slow
@pytest.mark.attack_case(BY_REPLY.name)
def test_what_the_user_allows_is_still_not_run_outside(target: Target) -> None:
    require_bwrap()
    reply = target.home / "reply.txt"
    reply.write_text(_renamed(target.root))
    arguments = ("--reply", str(reply), "--repo", str(target.root), "--allow", ".venv/*")
    assert target.run("apply", *arguments, "--apply").returncode == 0
    assert os.access(target.root / ".venv" / "bin" / "python", os.X_OK)
    target.solve()
    assert not target.marker.exists()


@pytest.mark.attack_case(BY_REPLY.name)
@pytest.mark.parametrize("path", ["build/x.py", "shop/build.local", "build/deep/er.py"])
def test_what_git_ignores_is_not_made(target: Target, path: str) -> None:
    reply = target.home / "reply.json"
    edits = [{"path": ".gitignore", "search": "/build/\n*.local\n", "replace": "\n"}]
    edits.append({"path": path, "create": "x = 1\n"})
    reply.write_text(json.dumps({"edits": edits}))
    arguments = ("apply", "--reply", str(reply), "--repo", str(target.root))
    done = target.run(*arguments, "--apply")
    assert done.returncode == 5, done.stderr
    assert ".gitignore" in done.stderr
    assert not (target.root / path).exists()
    assert target.run(*arguments, "--allow", path).returncode == 0


# ------------------------------------------------------------------------- odd files


@pytest.fixture
def modest() -> Iterator[None]:
    """Fail if a child took more memory than reading a small repository needs."""
    yield
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    assert peak < _MOST_MEMORY, f"{peak:,} bytes"


def _put(target: Target, name: str, kind: str) -> None:
    place = target.root / name
    if name == ".git":
        shutil.rmtree(place)
    elif name == "new/.gitignore":
        place.parent.mkdir()
        (place.parent / "mod.py").write_text("x = 1\n")
    elif place.parent.name in (".venv", "venv"):
        python = place.parent / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.symlink_to("/usr/bin/python3")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    ODD[kind](place)


@pytest.mark.slow
@pytest.mark.usefixtures("modest")
@pytest.mark.attack_case(ODD_FILES.name)
@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("name", [*SETTINGS, *OF_GIT])
def test_an_odd_file_neither_blocks_nor_fills_memory(target: Target, name: str, kind: str) -> None:
    if kind == "device" and os.geteuid() != 0:
        pytest.skip("only root makes device nodes")
    _put(target, name, kind)
    started = time.monotonic()
    done = target.run("search", "total of prices", "--repo", str(target.root), "--json")
    assert time.monotonic() - started < _MOST_SECONDS / 2
    assert done.returncode in (0, 2), done.stderr
    assert "internal error" not in done.stderr
    if done.returncode:
        assert Path(name).name in done.stderr or "not a git repository" in done.stderr


_SOLVED = ("pyproject.toml", ".venv/pyvenv.cfg", "new/.gitignore", ".git/HEAD")


@pytest.mark.slow
@pytest.mark.usefixtures("modest")
@pytest.mark.attack_case(ODD_FILES.name)
@pytest.mark.parametrize("kind", ["fifo", "link to /dev/zero", "terabyte"])
@pytest.mark.parametrize("name", _SOLVED)
def test_solve_ends_too(target: Target, name: str, kind: str) -> None:
    require_bwrap()
    _put(target, name, kind)
    done = target.solve("--timeout", "40")
    assert "internal error" not in done.stderr
    assert done.returncode in (0, 2, 12), done.stderr


@pytest.mark.attack_case(TREE_BOMB.name)
@pytest.mark.usefixtures("modest")
@pytest.mark.parametrize("arguments", [(), ("--dirty", "ignore")])
def test_a_tree_of_ten_million_paths_is_refused(target: Target, arguments: tuple[str, ...]) -> None:
    commit = plant_tree(target.root)
    stored = sum(f.stat().st_size for f in (target.root / ".git/objects").rglob("*") if f.is_file())
    assert stored < 4096
    (target.root / ".git" / "refs" / "heads" / "main").write_text(f"{commit}\n")
    started = time.monotonic()
    done = target.run("search", "x", "--repo", str(target.root), *arguments)
    assert done.returncode == 2
    assert "more than 1,000,000 paths" in done.stderr
    assert time.monotonic() - started < _MOST_SECONDS / 2


@pytest.mark.slow
@pytest.mark.attack_case(TREE_BOMB.name)
@pytest.mark.usefixtures("modest")
def test_a_past_tree_of_ten_million_paths_does_not_stop_a_run(target: Target) -> None:
    """It is in the history of a commit that is small again."""
    bomb = plant_tree(target.root)
    tree = run_git(target.root, "rev-parse", "HEAD^{tree}").strip()
    head = run_git(target.root, "commit-tree", tree, "-p", bomb, "-m", "small again").strip()
    (target.root / ".git" / "refs" / "heads" / "main").write_text(f"{head}\n")
    arguments = ("search", "total of prices", "--repo", str(target.root))
    done = run_agent(*arguments, home=target.home, limit=_SOLVE_SECONDS)
    assert done.returncode == 0, done.stderr
    assert "internal error" not in done.stderr
