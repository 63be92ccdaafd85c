"""`agent_main` and the bundle, called as each version of the miner contract calls them."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.miner.bundle import make_bundle
from tests.conftest import ROOT, run_git
from tests.support.behaviours import Step, slow, unauthorized
from tests.support.fingerprint import fingerprint
from tests.support.miner import MODEL, Called, Caller, Generation, MinerProxy, settings_for
from tests.support.sandboxes import require_bwrap
from tests.support.scripted_provider import ScriptedProvider


def _with_home(home: Path) -> list[str]:
    """The processes that were given this home."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"HOME={home}".encode() in path.read_bytes().split(b"\0"):
                found.append(path.parent.name)
    return found


def wait_until(done: Callable[[], bool], seconds: float = 40.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(150)]

MakeRepository = Callable[[Mapping[str, str | bytes]], Path]

LEVELS = '''"""Levels."""


def level(points: int) -> int:
    """One level for each hundred points."""
    return points // 100


def clean(name: str) -> str:
    """Without blanks."""
    return name.strip()
'''
FILES = {
    "game/__init__.py": "",
    "game/levels.py": LEVELS,
    "tests/test_levels.py": "from game.levels import level\n\n\n"
    "def test_level():\n    assert level(250) == 2\n",
    "README.md": "# Game\n",
}
STATEMENT = "level(-50) gives -1\n\nNegative points must give level 0: `level` should not go below."
TASK = {
    "instance_id": "game__game-1",
    "problem_statement": STATEMENT,
    "repo": "game/game",
    "base_commit": None,
    "run_id": None,
}


def reply(replace: str) -> str:
    edit = {"path": "game/levels.py", "search": "    return points // 100\n", "replace": replace}
    return json.dumps({"thought": "Never below zero.", "edits": [edit]})


GOOD = reply("    return max(0, points // 100)\n")
BREAKING = reply("    return 7\n")

RUN, OTHER_RUN = "3f2a1c9e-0000-4000-8000-000000000001", "3f2a1c9e-0000-4000-8000-000000000002"

# A later version's environment, for what does not depend on the proxy.
V4 = {"EVALUATION_RUN_ID": RUN, "AGENT_TIMEOUT": "100", "RIDGES_MAX_COST_USD": "5"}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "agent.py"
    path.write_text(make_bundle(ROOT).text, "utf-8")
    return path


@pytest.fixture
def repository(make_repository: MakeRepository) -> Path:
    """As a container holds it: with leftovers that nobody committed, one of them staged."""
    root = make_repository(FILES)
    (root / "README.md").write_text("# Game\n\nEdited.\n")
    (root / "staged.txt").write_text("staged\n")
    run_git(root, "add", "staged.txt")
    (root / "untracked.txt").write_text("untracked\n")
    return root


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    path.mkdir()
    return path


def play(script: list[Step], caller: Caller, variables: Mapping[str, str], **own: str) -> Called:
    """One call against a scripted server."""
    with ScriptedProvider(script) as provider:
        (called,) = caller.call(TASK, {**variables, **settings_for(provider, **own)})
    return called


def applies(patch: str, repository: Path) -> None:
    """`git apply --check` in the agent's own tree, as the contract checks a patch."""
    done = subprocess.run(
        ["git", "apply", "--check", "-"],
        cwd=repository,
        input=patch.encode(),
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()


# ------------------------------------------------------------------------------- the four versions


@dataclass(frozen=True, slots=True)
class Version:
    """What one version sets, with the server's address for {url}, and the run its calls name."""

    generation: Generation
    variables: Mapping[str, str]
    field: str
    run: str
    bundled: bool = False
    in_a_loop: bool = False


VERSIONS = {
    "v1": Version(
        "p1",
        {"AI_PROXY_URL": "{url}", "AI_EMBEDDING_PROXY_URL": "{url}"},
        "run_id",
        OTHER_RUN,  # the input's
        bundled=True,
    ),
    "v2": Version("p2", {"SANDBOX_PROXY_URL": "{url}", "RUN_ID": RUN}, "run_id", OTHER_RUN),
    "v3": Version(
        "p3",
        {"SANDBOX_PROXY_URL": "{url}", "EVALUATION_RUN_ID": RUN, "AGENT_TIMEOUT": "120"},
        "evaluation_run_id",
        RUN,
        bundled=True,
        in_a_loop=True,
    ),
    "v4": Version(
        "p3",
        {**V4, "SANDBOX_PROXY_URL": "{url}", "PATCHSHOT_MODEL": MODEL, "AGENT_TIMEOUT": "120"},
        "evaluation_run_id",
        RUN,
    ),
}


@pytest.mark.parametrize("version", VERSIONS.values(), ids=VERSIONS.keys())
def test_each_version_gets_its_patch_and_keeps_its_tree(
    version: Version, repository: Path, home: Path, bundle: Path
) -> None:
    """Configured by the environment alone, behind the proxy of that time."""
    before = fingerprint(repository)
    entry = bundle if version.bundled else None
    caller = Caller(cwd=repository, home=home, entry=entry, in_a_loop=version.in_a_loop)
    with MinerProxy(GOOD, version.generation) as server:
        variables = {k: v.format(url=server.url) for k, v in version.variables.items()}
        (called,) = caller.call({**TASK, "run_id": OTHER_RUN}, variables)
    assert called.errors == (), called.said
    first = "AI_PROXY_URL" in version.variables
    patch = called.value["patch"] if first else called.value
    assert isinstance(patch, str)
    assert "max(0, points // 100)" in patch
    assert fingerprint(repository) == before
    applies(patch, repository)
    assert list(home.rglob("*")) == []  # nor is anything left in the caller's home
    assert [asked.json[version.field] for asked in server.calls] == [version.run]


def test_a_container_of_the_contract(repository: Path, home: Path, bundle: Path) -> None:
    """The tree at /sandbox/repo, the program beside it, and nothing that could isolate."""
    require_bwrap()
    bwrap = str(Path(shutil.which("bwrap") or "").resolve())
    container = (
        *(bwrap, "--dev-bind", "/", "/", "--tmpfs", "/sandbox", "--die-with-parent"),
        *("--bind", str(repository), "/sandbox/repo", "--chdir", "/sandbox"),
        *("--ro-bind", "/dev/null", bwrap),
    )
    before = fingerprint(repository)
    caller = Caller(cwd=home, home=home, entry=bundle, prefix=container)
    called = play([GOOD], caller, V4)
    assert called.errors == (), called.said
    applies(called.value, repository)
    assert fingerprint(repository) == before
    assert "no tests will be run, the syntax is checked only" in called.stderr


def test_the_bundle_asks_and_answers_like_the_package(
    repository: Path, home: Path, bundle: Path
) -> None:
    """Static vectors are too large to carry; a preset without them sends the same prompt."""
    prompts, answers = [], []
    for entry in (None, bundle):
        with ScriptedProvider([GOOD]) as provider:
            variables = {**V4, **settings_for(provider, PRESET="original")}
            (called,) = Caller(cwd=repository, home=home, entry=entry).call(TASK, variables)
        prompts.append([chat.body for chat in provider.chats])
        answers.append(called.value)
        assert "missing from the installation" not in called.stderr
    assert answers[0] == answers[1]
    assert len(prompts[0]) == 1
    assert prompts[0] == prompts[1]


# ------------------------------------------------------------------------------------ no patch, why


@pytest.mark.parametrize("bundled", [False, True], ids=["installed", "bundle"])
def test_a_transport_failure_is_raised(
    bundled: bool, repository: Path, home: Path, bundle: Path
) -> None:
    caller = Caller(cwd=repository, home=home, entry=bundle if bundled else None)
    called = play([unauthorized], caller, V4)
    assert called.value is None
    name = "TransportFailure" if bundled else "ProviderError"
    assert called.errors[0] == name
    assert ("ConnectionError" in called.errors) == bundled
    assert "PATCHSHOT_API_KEY" in called.said


# ---------------------------------------------------------------------------------------- the clock


def test_the_best_patch_is_there_when_time_runs_out(repository: Path, home: Path) -> None:
    """The first patch fails a test; the repair call never comes back."""
    require_bwrap()
    caller = Caller(cwd=repository, home=home)
    script: list[Step] = [BREAKING, slow(100, GOOD)]
    called = play(script, caller, {**V4, "PATCHSHOT_TIMEOUT": "30"})
    assert called.errors == (), called.said
    assert "return 7" in called.value
    assert called.seconds < 40
    assert "one repair call" in called.stderr


# ------------------------------------------------------------------------------ fresh environments


def _fresh_environment(folder: Path) -> Path:
    """A virtual environment with nothing in it."""
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=100
    )
    return folder / "bin" / "python"


@pytest.mark.slow
def test_with_the_packages_a_fresh_environment_works(
    repository: Path, home: Path, bundle: Path, tmp_path: Path
) -> None:
    """The packages come from this environment by a path file; our own is not among them."""
    python = _fresh_environment(tmp_path / "fresh")
    packages = tmp_path / "packages"
    packages.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "patchshot" not in entry.name.lower() and entry.suffix != ".pth":
            (packages / entry.name).symlink_to(entry)
    (site,) = (tmp_path / "fresh" / "lib").glob("python*/site-packages")
    (site / "packages.pth").write_text(f"{packages}\n")
    caller = Caller(cwd=repository, home=home, entry=bundle, python=str(python))
    called = play([GOOD], caller, V4)
    assert called.errors == (), called.said
    applies(called.value, repository)


def test_twice_in_one_process(repository: Path, home: Path, bundle: Path) -> None:
    caller = Caller(cwd=repository, home=home, entry=bundle, times=2)
    with ScriptedProvider([GOOD]) as provider:
        first, second = caller.call(TASK, {**V4, **settings_for(provider)})
    assert first.value == second.value
    assert provider.chats[0].body == provider.chats[1].body


def test_an_input_without_a_problem(repository: Path, home: Path, bundle: Path) -> None:
    for task in (None, {}, {"problem_statement": None}, {"problem_statement": "  "}):
        (called,) = Caller(cwd=repository, home=home, entry=bundle).call(task, V4)
        assert called.errors[0] == "AgentFailure"
        assert "problem_statement" in called.said


def test_a_model_that_never_answers(repository: Path, home: Path) -> None:
    caller = Caller(cwd=repository, home=home)
    called = play([slow(100, GOOD)], caller, {**V4, "PATCHSHOT_TIMEOUT": "12"})
    assert called.errors[0] == "ProviderError"  # its server's failure, not ours
    assert called.seconds < 20


def test_the_worker_ends_with_its_caller(repository: Path, home: Path, tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    with ScriptedProvider([slow(100, GOOD)]) as provider:
        caller = Caller(cwd=repository, home=home)
        variables = {**V4, **settings_for(provider), "TMPDIR": str(temporary)}
        process = caller.start(TASK, variables)
        try:
            wait_until(lambda: bool(provider.chats))
            assert len(_with_home(home)) >= 2  # the caller and its worker
        finally:
            process.kill()
            process.communicate(timeout=30)
        wait_until(lambda: not _with_home(home))
    assert list(temporary.iterdir()) == []
