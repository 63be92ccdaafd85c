"""`--apply` and `agent undo` as a user calls them, while the work tree changes under them."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.agent_process import AGENT, agent_environment, run_agent
from tests.support.behaviours import ChatRequest, Good
from tests.support.scripted_provider import ScriptedProvider, Step
from tests.support.solve_command import require_sandbox

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(150)]

MakeRepository = Callable[[Mapping[str, str | bytes]], Path]

CALC = (
    '"""Sums."""\n\n\ndef add(a, b):\n    """Add."""\n    return a - b\n\n\nLIMIT = 3\nNAME = 4\n'
)
FIXED = CALC.replace("a - b", "a + b")
FILES = {
    "calc.py": CALC,
    "test_calc.py": "from calc import add\n\n\ndef test_add():\n    assert add(0, 0) == 0\n",
}
REPLY = json.dumps(
    {
        "edits": [{"path": "calc.py", "search": "return a - b", "replace": "return a + b"}],
        "reproduction_test": {
            "path": "test_issue.py",
            "content": "from calc import add\n\n\ndef test_issue():\n    assert add(1, 2) == 3\n",
        },
    }
)


@dataclass(frozen=True, slots=True)
class Target:
    repository: Path
    home: Path

    @property
    def calc(self) -> Path:
        return self.repository / "calc.py"

    def solve(
        self, step: Step, *arguments: str, **variables: str
    ) -> tuple[subprocess.CompletedProcess[str], int]:
        """Run `agent solve --apply`; also gives the number of calls that were made."""
        issue = self.home / "issue.md"
        issue.write_text("add() subtracts\n")
        with ScriptedProvider([step]) as provider:
            done = run_agent(
                "solve", "--apply", "--problem", str(issue), "--repo", str(self.repository),
                *arguments,
                home=self.home,
                PATCHSHOT_BASE_URL=provider.base_url,
                PATCHSHOT_MODEL="scripted",
                PATCHSHOT_EMBED="off",
                **variables,
            )  # fmt: skip
            return done, len(provider.chats)

    def undo(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run_agent("undo", *arguments, home=self.home, cwd=self.repository)

    def names(self) -> list[str]:
        return sorted(path.name for path in self.repository.iterdir())


@pytest.fixture
def target(make_repository: MakeRepository, tmp_path: Path) -> Target:
    (tmp_path / "home").mkdir()
    return Target(make_repository(FILES), tmp_path / "home")


def meanwhile(action: Callable[[], object]) -> Step:
    """A model during whose call the user does something."""

    def answer(_: ChatRequest) -> str:
        action()
        return REPLY

    return answer


def test_a_success_says_what_was_written_and_undo_takes_it_back(target: Target) -> None:
    require_sandbox()
    target.calc.chmod(0o600)
    done, _ = target.solve(Good(REPLY))
    assert done.returncode == 0, done.stderr
    assert "+    return a + b" in done.stdout
    assert f"wrote 1 file: calc.py; undo with agent undo --repo {target.repository}" in done.stderr
    assert target.calc.read_text() == FIXED
    assert target.calc.stat().st_mode & 0o777 == 0o600
    undone = target.undo()
    assert (undone.returncode, undone.stdout) == (0, "restored calc.py\n"), undone.stderr
    assert target.calc.read_text() == CALC
    assert target.calc.stat().st_mode & 0o777 == 0o600
    again = target.undo()
    assert again.returncode == 2
    assert "nothing to undo" in again.stderr
    assert target.names() == [".git", "calc.py", "test_calc.py"]


def test_an_edit_of_the_same_line_costs_nothing_that_was_paid(target: Target) -> None:
    require_sandbox()
    edited = CALC.replace("a - b", "b - a")
    done, _ = target.solve(meanwhile(lambda: target.calc.write_text(edited)))
    assert done.returncode == 5, done.stderr
    assert "+    return a + b" in done.stdout
    assert target.calc.read_text() == edited
    last = done.stderr.splitlines()[-1]
    assert last.startswith("agent: not-applied: nothing was written: calc.py has changed")
    assert last.endswith("the diff is in what was printed")


def test_without_a_place_for_undo_no_call_is_paid(target: Target) -> None:
    (target.home / "file").write_text("")
    done, calls = target.solve(Good(REPLY), XDG_STATE_HOME=str(target.home / "file"))
    assert (done.returncode, calls) == (2, 0), done.stderr
    assert "XDG_STATE_HOME" in done.stderr


# ------------------------------------------------------------------ saved replies, without tests

MANY = 40
OLD = {f"pkg/m{number:02}.py": f"VALUE = {number}\n" for number in range(MANY)}
NEW = {path: text.replace("VALUE", "RENAMED") for path, text in OLD.items()}


def many_edits(folder: Path) -> Path:
    """A saved reply that changes all files of OLD, removes one and makes one."""
    edits: list[dict[str, object]] = [
        {"path": path, "search": "VALUE", "replace": "RENAMED"} for path in OLD if path[-4] != "9"
    ]
    edits += [{"path": path, "delete": True} for path in OLD if path[-4] == "9"]
    edits.append({"path": "fresh/new.py", "create": "X = 1\n"})
    reply = folder / "reply.json"
    reply.write_text(json.dumps({"edits": edits}))
    return reply


def content(repository: Path) -> dict[str, str]:
    found = (path for path in repository.rglob("*") if path.is_file())
    files = {str(path.relative_to(repository)): path for path in found}
    return {name: path.read_text() for name, path in files.items() if not name.startswith(".git/")}


EXPECTED = {path: text for path, text in NEW.items() if path[-4] != "9"} | {
    "fresh/new.py": "X = 1\n"
}


@pytest.mark.parametrize("seen", [1, 20, 36])
def test_sigkill_leaves_all_or_none_after_the_next_command(
    make_repository: MakeRepository, tmp_path: Path, seen: int
) -> None:
    repository, reply = make_repository(OLD), many_edits(tmp_path)
    process = subprocess.Popen(
        [*AGENT, "apply", "--apply", "--reply", str(reply), "--repo", str(repository), "-q"],
        env=agent_environment(tmp_path),
        stdout=subprocess.DEVNULL,
    )
    watched = [path for path in OLD if path[-4] != "9"][seen - 1]
    while process.poll() is None:
        if (repository / watched).read_text() != OLD[watched]:
            process.send_signal(signal.SIGKILL)
            break
    process.wait(timeout=60)
    assert content(repository) != OLD
    done = run_agent("search", "value", "--repo", str(repository), home=tmp_path)
    assert done.returncode == 0, done.stderr
    assert content(repository) in (OLD, EXPECTED)
    undone = run_agent("undo", "--repo", str(repository), home=tmp_path)
    assert undone.returncode in (0, 2), undone.stderr  # 2: it was taken back already
    assert content(repository) == OLD
    assert not (repository / "fresh").exists()


def test_two_writers_take_turns(make_repository: MakeRepository, tmp_path: Path) -> None:
    """One writes; the others find the content there already, or fit theirs to it."""
    repository, reply = make_repository(OLD), many_edits(tmp_path)
    command = [*AGENT, "apply", "--apply", "--reply", str(reply), "--repo", str(repository)]
    started = time.monotonic()
    writers = [
        subprocess.Popen(
            command, env=agent_environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(3)
    ]
    said = [writer.communicate(timeout=100)[1].decode() for writer in writers]
    assert content(repository) == EXPECTED, (said, time.monotonic() - started)
    assert sum("wrote 41 files" in text for text in said) == 1, said
