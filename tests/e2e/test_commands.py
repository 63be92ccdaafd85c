"""Every command as a user calls it, as a process, on small real repositories."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from agent.shared.files import REPORT_MARK
from tests.conftest import ROOT, run_git
from tests.support.agent_process import AGENT, agent_environment
from tests.support.behaviours import MALFORMED
from tests.support.fingerprint import fingerprint
from tests.support.loopback import Scripted, loopback
from tests.support.sandboxes import require_bwrap
from tests.support.user import User

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


@pytest.fixture
def repository(make_repository: MakeRepository) -> Path:
    return make_repository(FILES)


@pytest.fixture
def user(tmp_path: Path, repository: Path) -> User:
    return User(tmp_path / "home", repository, ISSUE)


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


def test_search_finds_the_function_and_says_why(user: User) -> None:
    table = user.ok("search", "cart total of prices", *user.task[2:], "--explain")
    assert "Cart.total" in table.splitlines()[0]
    assert any("  lexical" in line for line in table.splitlines())
    (first, *_) = user.read("search", *user.task)["results"]
    assert first["symbol"] == "Cart.total"
    assert first["reasons"]


@pytest.mark.slow
def test_context_shows_the_code_and_the_receipt(user: User) -> None:
    shown = user.ok("context", *user.task)
    assert "### shop/cart.py:L" in shown
    assert "## Receipt" in shown
    receipt = user.read("context", *user.task)
    assert receipt["tokens"] <= receipt["budget"]
    assert "return sum(self.prices[1:])" in receipt["text"]
    assert user.ok("context", *user.task, "--prompt").startswith("[system]\n")


def test_apply_prints_a_diff_that_git_takes(user: User, repository: Path) -> None:
    (user.home / "reply.json").write_text(REPLY)
    before = fingerprint(repository)
    diff = user.ok("apply", "--reply", "reply.json", *user.task[2:])
    assert fingerprint(repository) == before
    (user.home / "fix.diff").write_text(diff)
    run_git(repository, "apply", "--check", str(user.home / "fix.diff"))
    user.ok("apply", "--reply", "reply.json", *user.task[2:], "--apply")
    assert "sum(self.prices)" in (repository / "shop/cart.py").read_text()


@pytest.mark.slow
def test_a_recorded_run_is_replayed_offline_and_refused_once_the_prompt_has_changed(
    user: User, repository: Path
) -> None:
    require_bwrap()
    done, _ = user.solve([REPLY], "--record", "run.jsonl")
    assert done.returncode == 0, done.stderr
    over, provider = user.solve([REPLY], "--record", "run.jsonl")
    assert (over.returncode, provider.chats) == (2, [])
    assert "--record run.jsonl: the file exists" in over.stderr
    again = ("solve", *user.task, "--replay", "run.jsonl")
    assert user.ok(*again) == done.stdout
    (repository / "shop/cart.py").write_text(FILES["shop/cart.py"].replace("prices", "amounts"))
    changed = user.run(*again)
    assert (changed.returncode, changed.stdout) == (2, "")
    assert "prompt" in changed.stderr
    assert "record" in changed.stderr


def test_solve_verifies_a_patch_and_writes_nothing_unasked(user: User, repository: Path) -> None:
    require_bwrap()
    before = fingerprint(repository)
    done, _ = user.solve([REPLY], "--output", "fix.diff")
    assert done.returncode == 0, done.stderr
    assert fingerprint(repository) == before
    assert (user.home / "fix.diff").read_text() == done.stdout
    assert "VERIFIED" in done.stderr.splitlines()[-1]


@pytest.mark.slow
def test_given_tests_decide_and_the_model_is_not_told_which(user: User, repository: Path) -> None:
    """The row lies in the repository itself, and the one repair call says that they fail."""
    require_bwrap()
    hidden, kept = "tests/test_names.py::test_of_the_row", "tests/test_names.py::test_clean"
    row = {"FAIL_TO_PASS": json.dumps([hidden]), "PASS_TO_PASS": [kept], "patch": "the answer"}
    (repository / "row.json").write_text(json.dumps(row))
    given = ("--tests-from", str(repository / "row.json"), "--json", "--no-iterative")
    done, provider = user.solve([REPLY], *given)
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
    require_bwrap()
    actions = [
        {"action": "search", "query": "cart total"},
        {"action": "read", "path": "shop/cart.py"},
        {"action": "edit", "edits": [EDIT]},
        {"action": "run_tests", "paths": ["tests/test_names.py"]},
        {"action": "finish", "thought": "slice", "reproduction_test": TEST},
    ]
    script = [MALFORMED, MALFORMED, *(json.dumps(action) for action in actions)]
    done, provider = user.solve(script, "--json", "--repairs", "1")
    result = json.loads(done.stdout)
    assert (done.returncode, result["verdict"]) == (0, "verified"), done.stderr
    assert [a["kind"] for a in result["attempts"]] == ["one-shot", "repair", "iterative"]
    assert result["usage"]["calls"] == len(script) == len(provider.chats)
    assert "1 passed, 0 failed" in provider.chats[-1].prompt


@pytest.mark.slow
def test_the_demo_ends_in_tests_that_failed_before_and_pass_after(user: User) -> None:
    require_bwrap()
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
    arguments = ("context", *user.task)
    assert "What is to be paid" in user.ok(*arguments)
    assert "Sum of the prices" in user.ok(*arguments, "--dirty", "ignore")
    refused = user.run(*arguments, "--dirty", "refuse")
    assert refused.returncode == 2
    assert "uncommitted" in refused.stderr


def test_what_the_program_wrote_is_no_part_of_the_project(user: User, repository: Path) -> None:
    (repository / "report.html").write_bytes(REPORT_MARK + b"<p>cart total</p>")
    (repository / "older.diff").write_text("+cart total\n")
    with (repository / "fix.diff").open("w") as output:
        done = subprocess.run(
            [*AGENT, "search", "cart total", "--repo", "."],
            cwd=repository, env=agent_environment(user.home), stdout=output,
            stderr=subprocess.PIPE, text=True, timeout=60, check=True,
        )  # fmt: skip
    assert " clean" in done.stderr


def test_the_help_is_short_and_fits_a_terminal(user: User) -> None:
    shown = user.ok("solve", "--help", COLUMNS="80")
    everything = user.ok("solve", "--help-all", COLUMNS="80")
    assert max(map(len, (shown + everything).splitlines())) <= 80
    assert len(re.findall(r"^  (?:-\w, )?--", shown, re.MULTILINE)) <= 12
    assert "more options: agent solve --help-all" in shown
    assert "--replay PATH" in everything


@pytest.mark.parametrize("program", ["agent", "patchshot"])
def test_shell_completion(program: str, user: User) -> None:
    variable = f"_{program.upper()}_COMPLETE"
    source = user.run(**{variable: "bash_source"})
    assert f"complete -o nosort -F _{program}_completion {program}" in source.stdout
    words = {"COMP_WORDS": f"{program} solve --max", "COMP_CWORD": "2"}
    completed = user.run(**{variable: "bash_complete"}, **words)
    assert {"plain,--max-cost", "plain,--max-calls"} <= set(completed.stdout.split())


@pytest.mark.slow
def test_an_issue_on_github_is_named_by_its_number(user: User) -> None:
    issue = {"title": "Cart.total leaves out a price", "body": "It is the first.", "number": 12}
    options = ("--repo", str(user.repository), "--no-tests", "--accept-unverified")
    with loopback(Scripted(issue)) as server:
        variables = {"GITHUB_API_URL": server.url, "GITHUB_TOKEN": "ghs_loopback"}
        for name in ("owner/shop#12", f"{server.url}/owner/shop/issues/12"):
            done, provider = user.ask([REPLY], "solve", name, *options, **variables)
            assert done.returncode == 0, done.stderr
            assert "It is the first." in provider.chats[0].prompt
            assert "ghs_loopback" not in done.stderr + done.stdout
    assert [request.target for request in server.requests] == ["/repos/owner/shop/issues/12"] * 2
    tokens = {request.headers["authorization"] for request in server.requests}
    assert tokens == {"Bearer ghs_loopback"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("pytst tests", "not found"),
        ("cd nowhere && pytest", "can't cd to nowhere"),
    ],
)
def test_a_test_command_that_does_not_start_ends_the_run_before_a_call(
    command: str, reason: str, user: User
) -> None:
    require_bwrap()
    done, provider = user.solve([REPLY], "--test-cmd", command, "--json")
    assert (done.returncode, json.loads(done.stdout)["status"]) == (2, "usage"), done.stderr
    assert all(text in done.stderr.splitlines()[-1] for text in ("--test-cmd", command, reason))
    assert provider.chats == []


@pytest.mark.slow
def test_shell_operators_of_a_test_command_are_run_by_a_shell(user: User) -> None:
    require_bwrap()
    command = "cd shop && python -m pytest -q ../tests | tee /tmp/log && exit 0"
    done, _ = user.solve([REPLY], "--test-cmd", command, "--json")
    result = json.loads(done.stdout)
    assert (done.returncode, result["verdict"]) == (0, "verified"), done.stderr
    passed = result["attempts"][0]["validation"]["pass_to_pass"]
    assert passed == ["tests/test_names.py::test_clean"]


@pytest.mark.slow
def test_a_test_command_that_only_fails_gives_no_more_than_unverified(user: User) -> None:
    require_bwrap()
    done, _ = user.solve([REPLY], "--test-cmd", "echo hi && false")
    assert done.returncode == 11
    assert "the test command fails on the base (exit code 1)" in done.stderr
