"""What a new user meets: a mistyped test command, a model that goes in circles, messages, help."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.e2e.test_commands import FILES, REPLY, User
from tests.support.agent_process import run_agent
from tests.support.behaviours import Good
from tests.support.loopback import Scripted, loopback
from tests.support.scripted_provider import ScriptedProvider
from tests.support.solve_command import require_sandbox

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(150)]

MakeRepository = Callable[[Mapping[str, str | bytes]], Path]


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path / "home")


@pytest.fixture
def repository(make_repository: MakeRepository) -> Path:
    return make_repository(FILES)


def test_a_recording_is_not_overwritten(user: User, repository: Path) -> None:
    (user.home / "run.jsonl").write_text("paid for\n")
    done, provider = user.solve(repository, [Good(REPLY)], "--record", "run.jsonl")
    assert (done.returncode, provider.chats) == (2, [])
    assert "--record run.jsonl: the file exists" in done.stderr
    assert (user.home / "run.jsonl").read_text() == "paid for\n"


def _solve_issue(user: User, repository: Path, issue: str, **variables: str):
    with ScriptedProvider([Good(REPLY)]) as provider:
        done = user.run(
            "solve", issue, "--repo", str(repository), "--no-tests", "--accept-unverified",
            PATCHSHOT_BASE_URL=provider.base_url, PATCHSHOT_MODEL=provider.model, **variables,
        )  # fmt: skip
    return done, provider


def test_an_issue_on_github_is_named_by_its_number(user: User, repository: Path) -> None:
    issue = {"title": "Cart.total leaves out a price", "body": "It is the first.", "number": 12}
    with loopback(Scripted(issue), Scripted(issue)) as server:
        variables = {"GITHUB_API_URL": server.url, "GITHUB_TOKEN": "ghs_loopback"}
        done, provider = _solve_issue(user, repository, "owner/shop#12", **variables)
        assert done.returncode == 0, done.stderr
        by_url = f"{server.url}/owner/shop/issues/12"
        assert _solve_issue(user, repository, by_url, **variables)[0].returncode == 0
        requests = list(server.requests)
    assert "It is the first." in provider.chats[0].prompt
    assert [request.target for request in requests] == ["/repos/owner/shop/issues/12"] * 2
    for request in requests:
        headers = {name.lower(): value for name, value in request.headers.items()}
        assert headers["authorization"] == "Bearer ghs_loopback"
    assert "ghs_loopback" not in done.stderr + done.stdout


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
    source = run_agent(home=user.home, **{variable: "bash_source"})
    assert f"complete -o nosort -F _{program}_completion {program}" in source.stdout
    words = {"COMP_WORDS": f"{program} solve --max", "COMP_CWORD": "2"}
    found = run_agent(home=user.home, **{variable: "bash_complete"}, **words)
    assert {"plain,--max-cost", "plain,--max-calls"} <= set(found.stdout.split())


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("pytst tests", "failed to execute pytst"),
        ("cd nowhere && pytest", "can't cd to nowhere"),
    ],
)
def test_a_command_that_does_not_start_ends_the_run_before_a_call(
    command: str, said: str, user: User, repository: Path
) -> None:
    require_sandbox()
    done, provider = user.solve(repository, [Good(REPLY)], "--test-cmd", command, "--json")
    result = json.loads(done.stdout)
    assert (done.returncode, result["status"]) == (2, "usage"), done.stderr
    last = done.stderr.splitlines()[-1]
    assert "--test-cmd" in last
    assert command in last
    assert said in last
    assert result["usage"]["calls"] == len(provider.chats) == 0


def test_shell_operators_are_run_by_a_shell(user: User, repository: Path) -> None:
    require_sandbox()
    command = "cd shop && python -m pytest -q ../tests | tee /tmp/log && exit 0"
    done, _ = user.solve(repository, [Good(REPLY)], "--test-cmd", command, "--json")
    result = json.loads(done.stdout)
    assert (done.returncode, result["verdict"]) == (0, "verified"), done.stderr
    assert result["attempts"][0]["validation"]["pass_to_pass"] == [
        "tests/test_names.py::test_clean"
    ]


def test_a_command_that_only_fails_never_gives_more_than_unverified(
    user: User, repository: Path
) -> None:
    require_sandbox()
    done, _ = user.solve(repository, [Good(REPLY)], "--test-cmd", "echo hi && false")
    assert done.returncode == 11
    assert "the test command fails on the base (exit code 1)" in done.stderr
    assert "fails on the base and with the patch (exit code 1)" in done.stderr.splitlines()[-1]
