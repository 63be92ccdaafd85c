"""`--apply` and `agent undo` as a user calls them, while the work tree changes under them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.support.agent_process import AGENT, agent_environment
from tests.support.behaviours import ChatRequest
from tests.support.sandboxes import require_bwrap
from tests.support.user import User

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(150)]

MakeRepository = Callable[[Mapping[str, str | bytes]], Path]

CALC = (
    '"""Sums."""\n\n\ndef add(a, b):\n    """Add."""\n    return a - b\n\n\nLIMIT = 3\nNAME = 4\n'
)
FILES = {
    "calc.py": CALC,
    "test_calc.py": "from calc import add\n\n\ndef test_add():\n    assert add(0, 0) == 0\n",
}
TEST = "from calc import add\n\n\ndef test_issue():\n    assert add(1, 2) == 3\n"
REPLY = json.dumps(
    {
        "edits": [{"path": "calc.py", "search": "return a - b", "replace": "return a + b"}],
        "reproduction_test": {"path": "test_issue.py", "content": TEST},
    }
)


@pytest.fixture
def user(make_repository: MakeRepository, tmp_path: Path) -> User:
    require_bwrap()
    return User(tmp_path / "home", make_repository(FILES), "add() subtracts\n")


def test_a_success_says_what_was_written_and_undo_takes_it_back(user: User) -> None:
    calc = user.repository / "calc.py"
    calc.chmod(0o600)
    done, _ = user.solve([REPLY], "--apply", "--with-test")
    assert done.returncode == 0, done.stderr
    assert "+    return a + b" in done.stdout
    undo = f"undo with agent undo --repo {user.repository}"
    assert f"wrote 2 files: calc.py, test_issue.py; {undo}" in done.stderr
    assert calc.read_text() == CALC.replace("a - b", "a + b")
    assert (user.repository / "test_issue.py").read_text() == TEST
    assert calc.stat().st_mode & 0o777 == 0o600
    assert "restored calc.py" in user.ok("undo", cwd=user.repository)
    assert calc.read_text() == CALC
    assert calc.stat().st_mode & 0o777 == 0o600
    again = user.run("undo", cwd=user.repository)
    assert (again.returncode, "nothing to undo" in again.stderr) == (2, True)
    names = sorted(path.name for path in user.repository.iterdir())
    assert names == [".git", "calc.py", "test_calc.py"]


def test_an_edit_of_the_same_line_costs_nothing_that_was_paid(user: User) -> None:
    calc, edited = user.repository / "calc.py", CALC.replace("a - b", "b - a")

    def meanwhile(_: ChatRequest) -> str:
        calc.write_text(edited)
        return REPLY

    done, _ = user.solve([meanwhile], "--apply")
    assert done.returncode == 5, done.stderr
    assert "+    return a + b" in done.stdout
    assert calc.read_text() == edited
    last = done.stderr.splitlines()[-1]
    assert last.startswith("agent: not-applied: nothing was written: calc.py has changed")
    assert last.endswith("the diff is in what was printed")


def test_without_a_place_for_undo_no_call_is_paid(user: User) -> None:
    (user.home / "file").write_text("")
    state = str(user.home / "file")
    done, provider = user.solve([REPLY], "--apply", XDG_STATE_HOME=state)
    assert (done.returncode, provider.chats) == (2, []), done.stderr
    assert "XDG_STATE_HOME" in done.stderr


# ------------------------------------------------------------------ saved replies, without tests

OLD = {f"pkg/m{number:02}.py": f"VALUE = {number}\n" for number in range(40)}
DELETED = {path for path in OLD if path[-4] == "9"}
NEW = {path: text.replace("VALUE", "RENAMED") for path, text in OLD.items() if path not in DELETED}
NEW["fresh/new.py"] = "X = 1\n"


@pytest.fixture
def writer(make_repository: MakeRepository, tmp_path: Path) -> User:
    """A user with a saved reply that changes all files of OLD, removes some and makes one."""
    edits: list[dict[str, object]] = [
        {"path": path, "delete": True}
        if path in DELETED
        else {"path": path, "search": "VALUE", "replace": "RENAMED"}
        for path in OLD
    ]
    user = User(tmp_path / "home", make_repository(OLD))
    edits.append({"path": "fresh/new.py", "create": "X = 1\n"})
    (user.home / "reply.json").write_text(json.dumps({"edits": edits}))
    return user


def content(repository: Path) -> dict[str, str]:
    files = (path for path in repository.rglob("*") if path.is_file())
    named = {str(path.relative_to(repository)): path for path in files}
    return {name: path.read_text() for name, path in named.items() if not name.startswith(".git/")}


@pytest.mark.parametrize("number", [0, 35])
def test_sigkill_leaves_all_or_none_after_the_next_command(writer: User, number: int) -> None:
    root = writer.repository
    where = ("--repo", str(root))
    started = writer.start("apply", "--apply", "--reply", "reply.json", *where, "-q")
    watched = sorted(OLD.keys() - DELETED)[number]
    started.wait_until(lambda: (root / watched).read_text() != OLD[watched])
    started.stop()
    assert content(root) != OLD
    writer.ok("search", "value", *where)
    assert content(root) in (OLD, NEW)
    assert writer.run("undo", *where).returncode in (0, 2)  # 2: it was taken back already
    assert content(root) == OLD
    assert not (root / "fresh").exists()


def test_two_writers_take_turns(writer: User) -> None:
    """One writes; the others find the content there already, or fit theirs to it."""
    arguments = ("apply", "--apply", "--reply", "reply.json", "--repo", str(writer.repository))
    writers = [
        subprocess.Popen(
            [*AGENT, *arguments],
            cwd=writer.home,
            env=agent_environment(writer.home),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    messages = [process.communicate(timeout=100)[1] for process in writers]
    assert content(writer.repository) == NEW, messages
    assert sum("wrote 41 files" in text for text in messages) == 1, messages
