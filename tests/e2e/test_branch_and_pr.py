"""`--branch` and `--pr` as a user calls them: a commit and a request, and nothing else changes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import run_git
from tests.support.agent_process import run_agent
from tests.support.behaviours import Good
from tests.support.forge_server import ForgeServer
from tests.support.scripted_provider import ScriptedProvider, Step
from tests.support.solve_command import require_sandbox

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(150)]

MakeRepository = Callable[[Mapping[str, str | bytes]], Path]

CALC = '"""Sums."""\n\n\ndef add(a, b):\n    """Add."""\n    return a - b\n\n\nLIMIT = 3\n'
FIXED = CALC.replace("a - b", "a + b")
FILES = {
    "calc.py": CALC,
    "test_calc.py": "from calc import add\n\n\ndef test_add():\n    assert add(0, 0) == 0\n",
    "run.sh": "#!/bin/sh\n",
}
REPLY = json.dumps(
    {
        "thought": "The operator is wrong.\n\nFixes #7 and @everyone [skip ci]\n/close\n```\n",
        "edits": [{"path": "calc.py", "search": "return a - b", "replace": "return a + b"}],
        "reproduction_test": {
            "path": "test_issue.py",
            "content": "from calc import add\n\n\ndef test_issue():\n    assert add(1, 2) == 3\n",
        },
    }
)
UNTESTED = ("--no-tests", "--no-iterative", "--repairs", "0")
QUICK = (*UNTESTED, "--accept-unverified")
IDENTITY = "[user]\n\tname = Ada\n\temail = ada@example.invalid\n"


@dataclass(frozen=True, slots=True)
class Target:
    repository: Path
    home: Path

    def solve(
        self, *arguments: str, step: Step | None = None, issue: str = "", **variables: str
    ) -> tuple[subprocess.CompletedProcess[str], int]:
        """Run `agent solve`; also gives the number of calls that were made."""
        file = self.home / "issue.md"
        file.write_text("# add() subtracts #12\n")
        with ScriptedProvider([step or Good(REPLY)]) as provider:
            done = self.agent(
                "solve", issue or str(file), "--repo", str(self.repository), *arguments,
                PATCHSHOT_BASE_URL=provider.base_url,
                PATCHSHOT_MODEL="scripted",
                **variables,
            )  # fmt: skip
            return done, len(provider.chats)

    def agent(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return run_agent(*arguments, home=self.home, PATCHSHOT_EMBED="off", **variables)

    def git(self, *arguments: str) -> str:
        return run_git(self.repository, *arguments).strip()

    def state(self) -> dict[str, bytes]:
        """Every file but the objects and the references: the work tree, the index, the settings."""
        files = (path for path in self.repository.rglob("*") if path.is_file())
        named = {str(path.relative_to(self.repository)): path for path in files}
        left_out = (".git/objects/", ".git/refs/heads/")
        return {n: path.read_bytes() for n, path in named.items() if not n.startswith(left_out)}

    def last_run(self) -> str:
        runs = json.loads(self.agent("runs", "--json").stdout)
        return str(runs[0]["run"])


@pytest.fixture
def target(make_repository: MakeRepository, tmp_path: Path) -> Target:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/.gitconfig").write_text(IDENTITY)
    return Target(make_repository(FILES), tmp_path / "home")


@pytest.fixture
def forge(tmp_path: Path, target: Target) -> Iterator[ForgeServer]:
    with ForgeServer(tmp_path / "forge", "owner/name") as server:
        server.publish(target.repository)
        yield server


def named(forge: ForgeServer) -> dict[str, str]:
    """The variables of a user whose forge this is."""
    return {"GITHUB_SERVER_URL": forge.url, "GITHUB_TOKEN": forge.token}


# ------------------------------------------------------------------------------------- the commit


def test_a_branch_has_the_commit_and_nothing_else_changes(target: Target) -> None:
    (target.repository / "run.sh").chmod(0o755)
    target.git("commit", "-qam", "executable")
    (target.repository / "staged.txt").write_text("staged\n")
    target.git("add", "staged.txt")
    (target.repository / "untracked.txt").write_text("untracked\n")
    before, base = target.state(), target.git("rev-parse", "HEAD")
    done, _ = target.solve("--branch", "fix/add", "--json", *QUICK)
    assert done.returncode == 0, done.stderr
    assert target.state() == before
    published = json.loads(done.stdout)["published"]
    assert published["branch"] == "fix/add"
    assert published["pull_request"] is None
    assert published["commit"] == target.git("rev-parse", "fix/add")
    assert f"committed {published['commit'][:10]} on branch fix/add" in done.stderr
    assert target.git("rev-parse", "fix/add^@") == base
    assert target.git("diff", "--name-only", "HEAD", "fix/add").split() == [
        "calc.py", "test_issue.py",
    ]  # fmt: skip
    assert target.git("show", "fix/add:calc.py") == FIXED.strip()
    assert target.git("ls-tree", "fix/add", "run.sh").startswith("100755")
    who = target.git("log", "-1", "--format=%an <%ae> %cn", "fix/add")
    assert who == "Ada <ada@example.invalid> Ada"
    message = target.git("log", "-1", "--format=%B", "fix/add")
    assert message.startswith("Fix: add() subtracts # 12\n\nThe operator is wrong.")
    assert "#7" not in message
    assert "[skip ci]" not in message
    assert target.git("fsck", "--strict") == ""


def test_a_patch_that_is_not_accepted_is_not_committed(target: Target) -> None:
    done, _ = target.solve("--branch", "b", *UNTESTED)
    assert done.returncode == 11, done.stderr
    assert target.git("branch", "--list", "b") == ""
    run = target.last_run()
    last = done.stderr.splitlines()[-1]
    assert last == (
        f"nothing was committed on b; to do so all the same: agent apply {run} --branch b"
    )
    applied = target.agent("apply", run, "--branch", "b")
    assert applied.returncode == 0, applied.stderr
    assert target.git("show", "b:calc.py") == FIXED.strip()
    assert (target.repository / "calc.py").read_text() == CALC


def test_what_can_be_known_before_is_said_before_the_call(
    target: Target, forge: ForgeServer
) -> None:
    target.git("branch", "taken")
    target.git("branch", "folder/below")
    plain = {"GITHUB_SERVER_URL": forge.url}
    wrong = {**plain, "GITHUB_TOKEN": "wrong-token"}
    run_git(forge.bare, "branch", "theirs", "main")
    cases: list[tuple[list[str], dict[str, str], str]] = [
        (["--branch", "taken"], {}, "this branch exists"),
        (["--branch", "folder"], {}, "cannot be made"),
        (["--branch", "-x"], {}, "not a name for a branch"),
        (["--branch", "a..b"], {}, "not a name for a branch"),
        (["--branch", "b", "--apply"], {}, "exclude each other"),
        (["--pr"], {}, "give --branch too"),
        (["--commit-message", "x"], {}, "give --branch too"),
        (["--branch", "b", "--pr"], plain, "set GITHUB_TOKEN"),
        (["--branch", "b", "--pr"], wrong, "401: Bad credentials"),
        (["--branch", "b", "--pr"], {"GITHUB_TOKEN": "x"}, "set GITHUB_SERVER_URL"),
        (["--branch", "theirs", "--pr"], named(forge), "has such a branch"),
        (["--branch", "main2", "--pr"], {**named(forge), "HOME": "/nowhere"}, "user.name"),
    ]
    for arguments, variables, message in cases:
        done, calls = target.solve(*arguments, *QUICK, **variables)
        assert (done.returncode, calls) == (2, 0), (arguments, done.stderr)
        assert message in done.stderr, (arguments, done.stderr)
    assert not forge.opened
    assert list(forge.branches()) == ["main", "theirs", ""]
    assert target.git("branch", "--list", "b", "main2", "theirs") == ""


def test_a_commit_is_signed_as_the_user_configured(target: Target) -> None:
    key = target.home / "key"
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True, timeout=20
    )
    signing = f"\tsigningkey = {key}.pub\n[gpg]\n\tformat = ssh\n[commit]\n\tgpgsign = true\n"
    (target.home / ".gitconfig").write_text(IDENTITY + signing)
    target.git("config", "gpg.ssh.program", "/bin/false")  # the repository's word does not count
    done, _ = target.solve("--branch", "b", *QUICK)
    assert done.returncode == 0, done.stderr
    assert "-----BEGIN SSH SIGNATURE-----" in target.git("cat-file", "commit", "b")


# ------------------------------------------------------------------------------------ the request


def test_a_verified_patch_becomes_a_pull_request(target: Target, forge: ForgeServer) -> None:
    require_sandbox()
    forge.issues[12] = ("add() subtracts", "It gives -1.")
    before = target.state()
    done, _ = target.solve(
        "--branch", "fix", "--pr", "--json",
        issue="owner/name#12", GITHUB_API_URL=f"{forge.url}/api/v3", **named(forge),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [opened] = forge.opened
    published = json.loads(done.stdout)["published"]
    assert published["pull_request"] == f"{forge.url}/owner/name/pull/1"
    assert f"opened {forge.url}/owner/name/pull/1" in done.stderr
    assert forge.branches()["fix"] == published["commit"] == target.git("rev-parse", "fix")
    assert (opened["head"], opened["base"], opened["draft"]) == ("fix", "main", False)
    assert opened["title"] == "Fix: add() subtracts"
    assert "**VERIFIED (own test)**" in opened["body"]
    assert (
        "Failed before and pass now:\n\n```text\ntest_issue.py::test_issue\n```" in opened["body"]
    )
    assert "1 call of `scripted`" in opened["body"]
    assert opened["body"].endswith("Fixes owner/name#12\n")
    pushes = [one for one in forge.requests if one.target.endswith("git-receive-pack")]
    assert all(one.headers["authorization"].startswith("Basic ") for one in pushes)
    assert forge.token not in done.stdout + done.stderr
    assert target.state() == before


def test_what_is_not_verified_is_a_draft(target: Target, forge: ForgeServer) -> None:
    done, _ = target.solve("--branch", "fix", "--pr", *QUICK, **named(forge))
    assert done.returncode == 0, done.stderr
    [opened] = forge.opened
    assert (opened["title"], opened["draft"]) == ("Fix: add() subtracts # 12", True)
    body = opened["body"]
    # The model's text stands in a block that it cannot end, so nothing in it is a command.
    assert "````text\nThe operator is wrong." in body
    assert body.index("/close") < body.index("\n````\n", body.index("/close"))


def test_after_a_failure_the_diff_is_there_and_the_run_goes_on(
    target: Target, forge: ForgeServer
) -> None:
    forge.refuse_requests = 403
    done, calls = target.solve("--branch", "fix", "--pr", *QUICK, **named(forge))
    assert (done.returncode, calls) == (5, 1), done.stderr
    assert "+    return a + b" in done.stdout
    assert forge.token not in done.stdout + done.stderr
    command = f"agent apply {target.last_run()} --branch fix --pr"
    assert done.stderr.splitlines()[-1].endswith(f"to go on: {command}")
    commit = target.git("rev-parse", "fix")
    forge.refuse_requests = 0
    again = target.agent(*command.split()[1:], "--json", **named(forge))
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["published"] == {
        "branch": "fix", "commit": commit, "pull_request": f"{forge.url}/owner/name/pull/1",
    }  # fmt: skip
    assert len(forge.opened) == 1
    twice = target.agent(*command.split()[1:], **named(forge))
    assert f"opened {forge.url}/owner/name/pull/1" in twice.stderr
    assert len(forge.opened) == 1


def test_a_hostile_configuration_runs_nothing_and_gets_no_token(
    target: Target, forge: ForgeServer, tmp_path: Path
) -> None:
    canaries = tmp_path / "canaries"
    canaries.mkdir()
    hooks = target.repository / "hooks"
    hooks.mkdir()
    for name in ("pre-push", "reference-transaction", "pre-commit", "commit-msg", "post-commit"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {canaries}/{name}\n")
        (hooks / name).chmod(0o755)
    program = target.repository / "program"
    program.write_text(f"#!/bin/sh\ntouch {canaries}/$(basename $0); env >> {canaries}/env\n")
    program.chmod(0o755)
    run_git(target.repository, "add", "-A")
    run_git(target.repository, "commit", "-qm", "hostile")
    with ForgeServer(tmp_path / "thief", "owner/name") as thief:
        settings = {
            f"url.{thief.url}/.insteadOf": f"{forge.url}/",
            f"url.{thief.url}/.pushInsteadOf": f"{forge.url}/",
            "remote.origin.pushurl": thief.origin,
            "remote.origin.receivepack": str(program),
            "remote.origin.vcs": "evil",
            "core.sshCommand": str(program),
            "core.hooksPath": str(hooks),
            "core.askPass": str(program),
            "core.fsmonitor": str(program),
            "core.gitProxy": str(program),
            "core.worktree": str(tmp_path),
            "credential.helper": f"!{program}",
            "gpg.program": str(program),
            "gpg.format": "openpgp",
            "commit.gpgsign": "false",
            "push.gpgSign": "true",
            "http.proxy": thief.url,
            f"http.{forge.url}/.proxy": thief.url,
            "http.cookieFile": str(program),
            "filter.evil.clean": str(program),
            "alias.push": f"!{program}",
            "alias.commit-tree": f"!{program}",
            "include.path": str(tmp_path / "more.cfg"),
        }
        (tmp_path / "more.cfg").write_text(f"[core]\n\thooksPath = {hooks}\n")
        for name, value in settings.items():
            run_git(target.repository, "config", name, value)
        (target.repository / ".git/info/attributes").write_text("*.py filter=evil\n")
        done, _ = target.solve("--branch", "fix", "--pr", *QUICK, **named(forge))
        assert done.returncode == 0, done.stderr
        assert len(forge.opened) == 1
        assert not thief.requests
        assert list(canaries.iterdir()) == []

        run_git(target.repository, "config", "--replace-all", "remote.origin.url", thief.origin)
        done, calls = target.solve("--branch", "more", "--pr", *QUICK, **named(forge))
        assert (done.returncode, calls) == (2, 0)
        assert "which gets no token" in done.stderr
        assert not thief.requests
        assert list(canaries.iterdir()) == []
