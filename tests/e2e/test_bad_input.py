"""Bad input gets one line that says what is wrong, the right exit code, and no traceback."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.conftest import run_git
from tests.support.user import Done, User

pytestmark = pytest.mark.e2e


@pytest.fixture
def user(make_repository: Callable[[Mapping[str, str | bytes]], Path], tmp_path: Path) -> User:
    repository = make_repository({"calc.py": "def add(a, b):\n    return a - b\n"})
    nowhere = {"PATCHSHOT_BASE_URL": "http://127.0.0.1:9/v1", "PATCHSHOT_MODEL": "none"}
    return User(tmp_path / "home", repository, "add() subtracts\n", **nowhere)


def refused(done: Done, *words: str, code: int = 2) -> None:
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert "Traceback" not in done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert all(word in last.lower() for word in words), last


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "word"),
    [
        (None, "no such file"),
        (b" \n\t\n", "empty"),
        (b"\x7fELF\0\0\0\1" * 200, "binary"),
        (b"word " * 2_200_000, "the limit is"),
    ],
    ids=["missing", "empty", "binary", "huge"],
)
def test_a_problem_that_cannot_be_used(user: User, content: bytes | None, word: str) -> None:
    if content is not None:
        (user.home / "p.md").write_bytes(content)
    refused(user.run("solve", "p.md", "--repo", str(user.repository)), "p.md", word)


@pytest.mark.slow
def test_repositories_that_cannot_be_used(user: User) -> None:
    for name in ("plain", "fresh", "blank", "bare"):
        (user.home / name).mkdir()
    run_git(user.home / "fresh", "init", "-q")
    run_git(user.home / "blank", "init", "-q")
    run_git(user.home / "blank", "commit", "-q", "--allow-empty", "-m", "nothing")
    run_git(user.home / "bare", "init", "-q", "--bare")
    for name, word in {
        "absent": "absent",
        "plain": "not a git repository",
        "fresh": "no commit",
        "bare": "bare",
        "blank": "no usable",
    }.items():
        refused(user.run("solve", "issue.md", "--repo", name), word)


def test_without_git_a_model_or_an_issue(user: User) -> None:
    (user.home / "bin").mkdir()
    refused(user.run("solve", *user.task, PATH=str(user.home / "bin")), "git is not installed")
    without = {"PATCHSHOT_BASE_URL": "", "PATCHSHOT_MODEL": ""}
    refused(user.run("solve", "--no-tests", *user.task, **without), "patchshot_base_url")
    for arguments in ((), ("issue.md", "--problem", "issue.md")):
        refused(user.run("solve", *arguments), "give the issue once")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "limit", "prices"),
    [
        ("--max-cost", "0.01", "3,15"),
        ("--max-cost", "5", ""),
        ("--max-tokens", "500", ""),
        ("--max-calls", "0", ""),
    ],
)
def test_a_limit_refuses_before_the_call(user: User, option: str, limit: str, prices: str) -> None:
    variables = {"PATCHSHOT_PRICES": prices} if prices else {}
    done, provider = user.solve(["{}"], "--no-tests", option, limit, **variables)
    refused(done, code=8)
    assert provider.chats == []


def test_usage_errors_as_json(user: User) -> None:
    done = user.run("solve", "--json", "--problem", "none.md")
    assert done.returncode == 2
    assert '"status": "usage"' in done.stdout
    assert '"exit_code": 2' in done.stdout
