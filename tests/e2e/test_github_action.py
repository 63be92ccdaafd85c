"""`action.yml`: its steps, run as GitHub would run them, and what must not stand in them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT
from tests.support.action_runner import ActionRunner, read_action
from tests.support.agent_process import agent_environment
from tests.support.forge_server import ForgeServer
from tests.support.scripted_provider import ScriptedProvider

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(150)]

MakeRepository = Callable[[Mapping[str, str | bytes]], Path]

FILES = {
    "calc.py": "def add(a, b):\n    return a - b\n",
    "agent/__init__.py": "raise SystemExit('the target was imported')\n",
    "pip/__main__.py": "raise SystemExit('the target was imported')\n",
}
REPLY = json.dumps(
    {"edits": [{"path": "calc.py", "search": "return a - b", "replace": "return a + b"}]}
)
HOSTILE = 'add() subtracts"; touch canary; echo "$(touch canary) `touch canary`'


class Job:
    """A job that a label has started on a loopback GitHub."""

    def __init__(self, folder: Path, repository: Path, forge: ForgeServer) -> None:
        self.forge = forge
        self.repository = repository
        self.provider = ScriptedProvider([REPLY])
        home = folder / "home"
        home.mkdir()
        variables = agent_environment(
            home,
            GITHUB_SERVER_URL=forge.url,
            GITHUB_API_URL=f"{forge.url}/api/v3",
            GITHUB_REPOSITORY=forge.project,
            GITHUB_EVENT_NAME="issues",
            GITHUB_ACTOR="maintainer",
            GITHUB_RUN_NUMBER="5",
            PATCHSHOT_EMBED="off",
            PATCHSHOT_TESTS="false",
            PATCHSHOT_MAX_STEPS="0",
            PATCHSHOT_REPAIRS="0",
        )
        del variables["PYTHONPATH"]  # the step installs the program
        github = {"token": forge.token, "event.issue.number": "12"}
        (folder / "runner").mkdir()
        self.runner = ActionRunner(folder / "runner", repository, github, variables)

    def run(
        self, *, accept: bool = True, variables: Mapping[str, str] | None = None, **inputs: str
    ) -> int:
        more = {"PATCHSHOT_ACCEPT_UNVERIFIED": "true" if accept else "false", **(variables or {})}
        self.runner.variables = {**self.runner.variables, **more}
        with self.provider:
            return self.runner.run(
                model="scripted", base_url=self.provider.base_url, api_key="model-key", **inputs
            )


@pytest.fixture
def job(make_repository: MakeRepository, tmp_path: Path) -> Iterator[Job]:
    repository = make_repository(FILES)
    with ForgeServer(tmp_path / "forge", "owner/name") as forge:
        forge.publish(repository)
        forge.issues[12] = (HOSTILE, "It gives -1.")
        forge.permissions["maintainer"] = "write"
        yield Job(tmp_path, repository, forge)


slow = pytest.mark.slow


def test_no_text_of_an_event_stands_in_a_script() -> None:
    pages = [ROOT / "action.yml", *sorted((ROOT / "docs/guide").glob("*.md"))]
    for page in pages:
        blocks = re.findall(r"```yaml\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
        texts = [page.read_text("utf-8")] if page.suffix == ".yml" else blocks
        for script in (run for text in texts for run in scripts(yaml.safe_load(text))):
            assert "${{" not in script, page
    assert any(scripts(read_action()))


def scripts(node: object) -> Iterator[str]:
    """The bodies of all `run:` keys."""
    if isinstance(node, dict):
        for name, value in node.items():
            if name == "run":
                yield str(value)
            yield from scripts(value)
    elif isinstance(node, list):
        for value in node:
            yield from scripts(value)


def test_the_documented_workflow_asks_for_no_more_than_it_needs() -> None:
    text = (ROOT / "docs/guide/github-action.md").read_text("utf-8")
    workflow = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)[0])
    needed = {"contents": "write", "pull-requests": "write", "issues": "write"}
    assert workflow["permissions"] == needed
    assert workflow[True] == {"issues": {"types": ["labeled"]}}  # YAML 1.1 reads `on` as true
    [job] = workflow["jobs"].values()
    assert "github.event.label.name" in job["if"]
    assert job["concurrency"]
    given = next(step["with"] for step in job["steps"] if "patchshot" in step["uses"])
    assert {*given} <= {*read_action()["inputs"]}


@slow
def test_a_labelled_issue_becomes_a_pull_request(job: Job) -> None:
    assert job.run(setup="echo needed > installed.txt") == 0, job.runner.log
    [opened] = job.forge.opened
    assert opened["head"] == "patchshot/issue-12-5"
    assert opened["body"].endswith("Fixes owner/name#12\n")
    assert job.runner.outputs == {
        "verdict": "unverified", "pull-request": f"{job.forge.url}/owner/name/pull/1",
    }  # fmt: skip
    assert not job.forge.comments
    assert "UNVERIFIED" in (job.runner.folder / "summary.md").read_text()
    assert job.runner.artifact is not None
    assert "add() subtracts" in job.runner.artifact.read_text()
    assert sorted(path.name for path in job.repository.iterdir()) == [
        ".git", "agent", "calc.py", "installed.txt", "pip",
    ]  # fmt: skip
    assert job.forge.token not in job.runner.log
    assert "model-key" not in job.runner.log


@slow
def test_a_patch_that_is_not_accepted_becomes_a_comment(job: Job) -> None:
    assert job.run(accept=False) == 0, job.runner.log
    assert not job.forge.opened
    [(number, body)] = job.forge.comments
    assert number == 12
    assert body.startswith("No pull request was opened.")
    assert "+    return a + b" in body
    assert job.runner.outputs["pull-request"] == ""


@slow
def test_a_text_instead_of_a_number(job: Job) -> None:
    text = f"--help\n{HOSTILE}"
    assert job.run(issue=text, variables={"GITHUB_EVENT_NAME": "workflow_dispatch"}) == 0
    assert len(job.forge.opened) == 1, job.runner.log
    assert HOSTILE.split('"')[0] in job.provider.chats[0].prompt
    assert not (job.repository / "canary").exists()


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"GITHUB_ACTOR": "stranger"}, "stranger may not write"),
        ({"GITHUB_TRIGGERING_ACTOR": "stranger"}, "stranger may not write"),
        ({"GITHUB_EVENT_NAME": "pull_request_target"}, "not on pull_request_target"),
    ],
)
@slow
def test_a_stranger_starts_no_run(job: Job, variables: Mapping[str, str], message: str) -> None:
    assert job.run(variables=variables) == 2
    assert message in job.runner.log
    assert not job.provider.chats
    assert not job.forge.comments
