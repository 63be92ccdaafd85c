"""Bad input gets one line that says what is wrong, the right exit code, and no traceback."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from tests.conftest import run_git
from tests.support.agent_process import run_agent
from tests.support.behaviours import Good
from tests.support.scripted_provider import ScriptedProvider

pytestmark = pytest.mark.e2e

FILES = {"calc.py": "def add(a, b):\n    return a - b\n"}
MakeRepository = Callable[[Mapping[str, str | bytes]], Path]


def agent(
    *arguments: str, cwd: Path, wrapper: Sequence[str] = (), **variables: str
) -> subprocess.CompletedProcess[str]:
    nowhere = {"PATCHSHOT_BASE_URL": "http://127.0.0.1:9/v1", "PATCHSHOT_MODEL": "none"}
    return run_agent(*arguments, home=cwd, prefix=wrapper, **(nowhere | variables))


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """What the user reads last; nothing may look like a traceback."""
    text = done.stderr
    assert "Traceback" not in text, text
    return text.strip().splitlines()[-1]


@pytest.fixture
def issue(tmp_path: Path) -> Path:
    file = tmp_path / "issue.md"
    file.write_text("add() subtracts\n")
    return file


@pytest.mark.slow
def test_problems_that_cannot_be_used(tmp_path: Path, make_repository: MakeRepository) -> None:
    repository = make_repository(FILES)
    cases: Mapping[str, tuple[bytes | None, str]] = {
        "missing.md": (None, "no such file"),
        "empty.md": (b" \n\t\n", "empty"),
        "binary.md": (b"\x7fELF\0\0\0\1" * 200, "binary"),
        "huge.md": (b"word " * 2_200_000, "the limit is"),
    }
    for name, (content, expected) in cases.items():
        if content is not None:
            (tmp_path / name).write_bytes(content)
        done = agent("solve", "--problem", name, "--repo", str(repository), cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, ""), name
        assert expected in last_line(done).lower() or expected in last_line(done), name
        assert name in last_line(done)


@pytest.mark.slow
def test_repositories_that_cannot_be_used(tmp_path: Path, issue: Path) -> None:
    for name in ("plain", "fresh", "blank"):
        (tmp_path / name).mkdir()
    run_git(tmp_path / "fresh", "init", "-q")
    run_git(tmp_path / "blank", "init", "-q")
    run_git(tmp_path / "blank", "commit", "-q", "--allow-empty", "-m", "nothing")
    run_git(tmp_path, "init", "-q", "--bare", "bare")
    for name, expected in (
        ("absent", "absent"),
        ("plain", "not a git repository"),
        ("fresh", "no commit"),
        ("bare", "bare"),
        ("blank", "no usable"),
    ):
        done = agent("solve", "--problem", str(issue), "--repo", name, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, ""), name
        assert expected in last_line(done).lower(), last_line(done)


def test_without_git(tmp_path: Path, issue: Path, make_repository: MakeRepository) -> None:
    repository = make_repository(FILES)
    (tmp_path / "empty-bin").mkdir()
    done = agent(
        "solve", "--problem", str(issue), "--repo", str(repository),
        cwd=tmp_path, PATH=str(tmp_path / "empty-bin"),
    )  # fmt: skip
    assert done.returncode == 2
    assert "git is not installed" in last_line(done)


def test_without_a_model(tmp_path: Path, issue: Path, make_repository: MakeRepository) -> None:
    repository = make_repository(FILES)
    done = agent(
        "solve", "--no-tests", "--problem", str(issue), "--repo", str(repository),
        cwd=tmp_path, PATCHSHOT_BASE_URL="", PATCHSHOT_MODEL="",
    )  # fmt: skip
    assert done.returncode == 2
    assert "PATCHSHOT_BASE_URL" in last_line(done)


@pytest.mark.slow
def test_a_cost_limit_refuses_before_the_call(
    tmp_path: Path, issue: Path, make_repository: MakeRepository
) -> None:
    repository = make_repository(FILES)
    arguments = ("solve", "--no-tests", "--problem", str(issue), "--repo", str(repository))
    prices = {"PATCHSHOT_PRICES": "3,15"}
    with ScriptedProvider([Good("{}")]) as provider:
        url = {"PATCHSHOT_BASE_URL": provider.base_url, "PATCHSHOT_MODEL": "scripted"}
        for limit, variables in (
            (("--max-cost", "0.01"), prices),
            (("--max-cost", "5"), {}),
            (("--max-tokens", "500"), {}),
            (("--max-calls", "0"), {}),
        ):
            done = agent(*arguments, *limit, cwd=tmp_path, **url, **variables)
            assert (done.returncode, done.stdout) == (8, ""), done.stderr
            assert last_line(done)
        assert provider.chats == []


def test_usage_errors_as_json(tmp_path: Path) -> None:
    done = agent("solve", "--json", "--problem", "none.md", cwd=tmp_path)
    assert done.returncode == 2
    assert '"status": "usage"' in done.stdout
    assert '"exit_code": 2' in done.stdout
