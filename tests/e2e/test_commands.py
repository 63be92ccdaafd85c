"""Every command as a user calls it, as a process, on small real repositories."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.shared.files import REPORT_MARK
from tests.conftest import ROOT, run_git
from tests.support.agent_process import AGENT, agent_environment, run_agent
from tests.support.behaviours import Good, Malformed
from tests.support.fingerprint import fingerprint
from tests.support.scripted_provider import ScriptedProvider
from tests.support.solve_command import require_sandbox

pytestmark = pytest.mark.e2e

MakeRepository = Callable[[Mapping[str, str | bytes]], Path]

FILES = {
    "shop/__init__.py": "",
    "shop/cart.py": (
        '"""Carts."""\n\n\nclass Cart:\n    """Holds prices."""\n\n'
        "    def __init__(self):\n        self.prices = []\n\n"
        '    def total(self):\n        """Sum of the prices."""\n'
        "        return sum(self.prices[1:])\n"
    ),
    "shop/names.py": "def clean(name):\n    return name.strip()\n",
    "tests/test_names.py": (
        "from shop.names import clean\n\n\ndef test_clean():\n    assert clean(' a ') == 'a'\n"
    ),
}
ISSUE = "# Cart.total leaves out the first price\n\nA cart with one price has a total of 0.\n"
EDIT = {"path": "shop/cart.py", "search": "self.prices[1:]", "replace": "self.prices"}
TEST = {
    "path": "tests/test_total.py",
    "content": (
        "from shop.cart import Cart\n\n\ndef test_total():\n    cart = Cart()\n"
        "    cart.prices.append(3)\n    assert cart.total() == 3\n"
    ),
}
REPLY = json.dumps({"thought": "slice", "edits": [EDIT], "reproduction_test": TEST})


class User:
    """A person with a home of their own who calls the command."""

    def __init__(self, home: Path) -> None:
        self.home = home
        home.mkdir()
        self.issue = home / "issue.md"
        self.issue.write_text(ISSUE)

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return run_agent(*arguments, home=self.home, limit=110, **variables)

    def ok(self, *arguments: str, **variables: str) -> str:
        done = self.run(*arguments, **variables)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def solve(self, repository: Path, script: list[Any], *arguments: str, **variables: str):
        with ScriptedProvider(script) as provider:
            done = self.run(
                "solve", "--problem", str(self.issue), "--repo", str(repository), *arguments,
                PATCHSHOT_BASE_URL=provider.base_url, PATCHSHOT_MODEL=provider.model, **variables,
            )  # fmt: skip
        return done, provider


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path / "home")


@pytest.fixture
def repository(make_repository: MakeRepository) -> Path:
    return make_repository(FILES)


def test_help_loads_nothing_heavy() -> None:
    """What makes `agent --help` instant; a clock in a test would only say how busy it is here."""
    code = (
        "import sys\nfrom agent.cli.application import app\n"
        "try:\n    app(['solve', '--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'numpy', 'httpx', 'git', 'tiktoken', 'tree_sitter', 'jinja2',\n"
        "         'asyncio', 'onnxruntime', 'sqlite3'}\n"
        "print('LOADED', sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert "LOADED []" in done.stdout, done.stdout[-500:] + done.stderr


def test_search_finds_the_function_and_says_why(user: User, repository: Path) -> None:
    table = user.ok("search", "cart total of prices", "--repo", str(repository), "--explain")
    assert "Cart.total" in table.splitlines()[0]
    assert any("  lexical" in line for line in table.splitlines())
    assert table == user.ok("search", "cart total of prices", "--repo", str(repository), "-v")
    found = json.loads(
        user.ok("search", "--problem", "issue.md", "--repo", str(repository), "--json")
    )
    assert found["results"][0]["symbol"] == "Cart.total"
    assert found["results"][0]["reasons"]


@pytest.mark.slow
def test_context_shows_the_code_and_the_receipt(user: User, repository: Path) -> None:
    arguments = ("context", "--problem", "issue.md", "--repo", str(repository))
    shown = user.ok(*arguments)
    assert "### shop/cart.py:L" in shown
    assert "## Receipt" in shown
    receipt = json.loads(user.ok(*arguments, "--json"))
    assert receipt["tokens"] <= receipt["budget"]
    assert "return sum(self.prices[1:])" in receipt["text"]
    assert user.ok(*arguments, "--prompt").startswith("[system]\n")


def test_apply_prints_a_diff_that_git_takes(user: User, repository: Path) -> None:
    reply = user.home / "reply.json"
    reply.write_text(REPLY)
    before = fingerprint(repository)
    diff = user.ok("apply", "--reply", str(reply), "--repo", str(repository))
    assert fingerprint(repository) == before
    (user.home / "fix.diff").write_text(diff)
    run_git(repository, "apply", "--check", str(user.home / "fix.diff"))
    user.ok("apply", "--reply", str(reply), "--repo", str(repository), "--apply")
    assert "sum(self.prices)" in (repository / "shop/cart.py").read_text()


@pytest.mark.slow
def test_a_recorded_run_is_replayed_offline_and_refused_once_the_prompt_has_changed(
    user: User, repository: Path
) -> None:
    require_sandbox()
    done, _ = user.solve(repository, [Good(REPLY)], "--record", "run.jsonl")
    assert done.returncode == 0, done.stderr
    again = ("solve", "--problem", "issue.md", "--repo", str(repository), "--replay", "run.jsonl")
    assert user.ok(*again) == done.stdout
    (repository / "shop/cart.py").write_text(FILES["shop/cart.py"].replace("prices", "amounts"))
    changed = user.run(*again)
    assert (changed.returncode, changed.stdout) == (2, "")
    assert "prompt" in changed.stderr
    assert "record" in changed.stderr


def test_solve_verifies_a_patch_and_writes_nothing_unasked(user: User, repository: Path) -> None:
    require_sandbox()
    before = fingerprint(repository)
    done, _ = user.solve(repository, [Good(REPLY)], "--output", "fix.diff")
    assert done.returncode == 0, done.stderr
    assert fingerprint(repository) == before
    assert (user.home / "fix.diff").read_text() == done.stdout
    assert "VERIFIED" in done.stderr.splitlines()[-1]


@pytest.mark.slow
def test_given_tests_decide_and_the_model_is_not_told_which(user: User, repository: Path) -> None:
    """The row lies in the repository itself, and the one repair call says that they fail."""
    require_sandbox()
    hidden, kept = "tests/test_names.py::test_of_the_row", "tests/test_names.py::test_clean"
    row = {"FAIL_TO_PASS": json.dumps([hidden]), "PASS_TO_PASS": [kept], "patch": "the answer"}
    (repository / "row.json").write_text(json.dumps(row))
    given = ("--tests-from", str(repository / "row.json"), "--json", "--no-iterative")
    done, provider = user.solve(repository, [Good(REPLY)], *given)
    result = json.loads(done.stdout)
    assert (done.returncode, result["status"], result["verdict"]) == (6, "broken", "regressed")
    assert result["attempts"][-1]["validation"]["known_missed"] == [hidden]
    assert result["attempts"][-1]["validation"]["pass_to_pass"] == [kept]
    assert len(provider.chats) == 2
    assert "0 of 1 that should be fixed pass" in provider.chats[-1].prompt
    told = "".join(chat.prompt for chat in provider.chats)
    assert not any(word in told for word in ("test_of_the_row", "row.json", "the answer"))


@pytest.mark.slow
def test_the_iterative_mode_solves_what_one_call_did_not(user: User, repository: Path) -> None:
    require_sandbox()
    actions = [
        {"action": "search", "query": "cart total"},
        {"action": "read", "path": "shop/cart.py"},
        {"action": "edit", "edits": [EDIT]},
        {"action": "run_tests", "paths": ["tests/test_names.py"]},
        {"action": "finish", "thought": "slice", "reproduction_test": TEST},
    ]
    script = [Malformed(), Malformed(), *(Good(json.dumps(action)) for action in actions)]
    done, provider = user.solve(repository, script, "--json", "--repairs", "1")
    result = json.loads(done.stdout)
    assert (done.returncode, result["verdict"]) == (0, "verified"), done.stderr
    assert [a["kind"] for a in result["attempts"]] == ["one-shot", "repair", "iterative"]
    assert result["usage"]["calls"] == len(script) == len(provider.chats)
    assert "1 passed, 0 failed" in provider.chats[-1].prompt


@pytest.mark.slow
def test_the_demo_ends_in_tests_that_failed_before_and_pass_after(user: User) -> None:
    require_sandbox()
    done = user.run("demo", "--json")
    result = json.loads(done.stdout)
    assert (done.returncode, result["verdict"]) == (0, "verified"), done.stderr
    assert "recorded" in done.stderr
    validation = result["attempts"][0]["validation"]
    assert validation["reproduction_before"]["failed"] > 0
    assert validation["reproduction_after"]["failed"] == 0
    assert {"rota/planner.py", "rota/recurrence.py"} <= {
        edit["path"] for edit in result["attempts"][0]["edits"]
    }


@pytest.mark.slow
def test_the_base_is_what_the_user_sees(user: User, repository: Path) -> None:
    """The uncommitted state is part of the base, left out, or refused, as asked."""
    cart = repository / "shop/cart.py"
    cart.write_text(cart.read_text().replace("Sum of the prices", "What is to be paid"))
    arguments = ("context", "--problem", "issue.md", "--repo", str(repository))
    assert "What is to be paid" in user.ok(*arguments)
    assert "Sum of the prices" in user.ok(*arguments, "--dirty", "ignore")
    refused = user.run(*arguments, "--dirty", "refuse")
    assert refused.returncode == 2
    assert "uncommitted" in refused.stderr


@pytest.mark.slow
def test_solve_applies_the_patch_and_its_test(user: User, repository: Path) -> None:
    require_sandbox()
    done, _ = user.solve(repository, [Good(REPLY)], "--apply", "--with-test")
    assert done.returncode == 0, done.stderr
    assert "sum(self.prices)" in (repository / "shop/cart.py").read_text()
    assert (repository / "tests/test_total.py").read_text() == TEST["content"]


def test_what_the_program_wrote_is_no_part_of_the_project(user: User, repository: Path) -> None:
    (repository / "report.html").write_bytes(REPORT_MARK + b"<p>cart total</p>")
    with (repository / "fix.diff").open("w") as output:
        done = subprocess.run(
            [*AGENT, "search", "cart total", "--repo", "."],
            cwd=repository, env=agent_environment(user.home), stdout=output,
            stderr=subprocess.PIPE, text=True, timeout=60, check=True,
        )  # fmt: skip
    assert " clean" in done.stderr


@pytest.mark.parametrize("arguments", [(), ("issue.md", "--problem", "issue.md")])
def test_the_issue_is_given_once(user: User, arguments: tuple[str, ...]) -> None:
    done = user.run("solve", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("agent: give the issue once: ")
