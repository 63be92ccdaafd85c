"""What `action.yml` runs: solve an issue, then open a pull request, or comment what was found.

    python -I -m agent.results.publishing.github_action # -I: the target's modules are not imported

It reads ISSUE (a number or a text), MODE (`pr` or `comment`), REPORT (the page to write) and
GitHub's own variables. A run that an issue starts goes on only for users with write access, since
each run costs money.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from agent.errors import ConfigurationError, ForgeError, PatchshotError, Status
from agent.llm import own_redactor
from agent.results.publishing.forge import Forge, find_forge
from agent.results.publishing.publication import describe_result
from agent.run.record import RunRecord
from agent.shared.terminal import say

# A job on GitHub ends after this time; `agent solve` has a time limit of its own.
_SECONDS = 6 * 3600

# The triggers whose users GitHub itself restricts to people who may change the repository.
_EVENTS = ("issues", "workflow_dispatch")

# Ends that say nothing about the issue: something is wrong with the job.
_BROKEN = (Status.CRASHED, Status.USAGE, Status.PROVIDER, Status.SANDBOX, Status.INTERRUPTED)

_BOT = ("github-actions[bot]", "41898282+github-actions[bot]@users.noreply.github.com")


def main() -> int:
    """Run the action, and return the exit code of the step."""
    try:
        return _run(os.environ)
    except PatchshotError as error:
        say(f"agent: {error}")
        return error.status.exit_code


def _run(given: Mapping[str, str]) -> int:
    issue, mode = given.get("ISSUE", "").strip(), given.get("MODE", "pr")
    if not issue or mode not in ("pr", "comment"):
        raise ConfigurationError("the action needs an issue, and the mode pr or comment")
    project = given.get("GITHUB_REPOSITORY", "")
    forge = find_forge(f"{given.get('GITHUB_SERVER_URL', 'https://github.com')}/{project}")
    _check_event(forge, given)
    number = int(issue) if issue.isascii() and issue.isdigit() else None
    result = _solve(f"{project}#{number}" if number else "-", issue, mode, given)
    url = result.published.pull_request if result.published else None
    _tell(given, "GITHUB_OUTPUT", f"verdict={result.verdict or ''}\npull-request={url or ''}\n")
    text = own_redactor()(describe_result(result, with_diff=True))
    _tell(given, "GITHUB_STEP_SUMMARY", text)
    if result.status in _BROKEN:
        return result.exit_code
    if url is None and number is not None:
        why = "No pull request was opened. " if mode == "pr" else ""
        forge.comment(number, f"{why}This is what patchshot found.\n\n{text}")
    return 0


def _check_event(forge: Forge, given: Mapping[str, str]) -> None:
    """Refuse triggers that a stranger can pull. Raises ForgeError."""
    event = given.get("GITHUB_EVENT_NAME", "")
    if event not in _EVENTS:
        raise ForgeError(f"the action runs on {' and '.join(_EVENTS)} only, not on {event or '?'}")
    for variable in ("GITHUB_ACTOR", "GITHUB_TRIGGERING_ACTOR"):
        user = given.get(variable, "")
        if user and not forge.may_write(user):
            raise ForgeError(f"{user} may not write to {forge.place}: the issue is not solved")
    if not given.get("GITHUB_ACTOR"):
        raise ForgeError("GITHUB_ACTOR is not set: nobody is known to have started the job")


def _solve(source: str, text: str, mode: str, given: Mapping[str, str]) -> RunRecord:
    command = [sys.executable, "-I", "-m", "agent", "solve", "--problem", source, "--json"]
    command += ["--dirty", "ignore"]  # what the job installed is no part of the project
    if mode == "pr":
        name = source.rpartition("#")[2] if "#" in source else "text"
        branch = f"patchshot/issue-{name}-{given.get('GITHUB_RUN_NUMBER', '1')}"
        command += ["--branch", branch, "--pr"]
    who = {
        f"GIT_{role}_{part}": value
        for role in ("AUTHOR", "COMMITTER")
        for part, value in zip(("NAME", "EMAIL"), _BOT, strict=True)
    }
    done = subprocess.run(
        command,
        input=text.encode("utf-8", "replace"),
        stdout=subprocess.PIPE,
        env={**who, **given},
        timeout=_SECONDS,
        check=False,
    )
    if not done.stdout:
        raise ConfigurationError(f"agent solve ended with exit code {done.returncode}: see above")
    if given.get("REPORT"):
        _report(done.stdout, Path(given["REPORT"]))
    return RunRecord.model_validate_json(done.stdout)


def _report(result: bytes, page: Path) -> None:
    """Write the page that the job keeps. It holds no prompts, which show the project's code."""
    data = page.with_suffix(".json")
    data.write_bytes(result)
    command = [sys.executable, "-I", "-m", "agent", "report", str(data), "--no-bodies"]
    subprocess.run([*command, "--output", str(page)], stdout=subprocess.DEVNULL, check=False)


def _tell(given: Mapping[str, str], variable: str, text: str) -> None:
    if given.get(variable):
        with Path(given[variable]).open("a", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    raise SystemExit(main())
