"""`agent demo`: solve the issue of the bundled project offline with a recorded model reply.

If an endpoint is configured (PATCHSHOT_BASE_URL), the demo calls that model instead.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import click

from agent.cli.commands import solve
from agent.cli.commands.common import guarded
from agent.cli.options import command as declare
from agent.cli.options import json_option, quiet_option
from agent.errors import ConfigurationError
from agent.llm import without_credentials
from agent.settings import environment
from agent.shared.terminal import say

# Name of the folder of the bundled project. Only its files are part of the recorded prompt.
PROJECT = "rota"

# If this variable is set, the demo calls that model.
_ENDPOINT = "PATCHSHOT_BASE_URL"


def run(*, json: bool, quiet: bool, verbose: bool) -> int:
    """Make a repository of the bundled project, solve its issue, and return the exit code."""
    return guarded(lambda: _run(json=json, quiet=quiet, verbose=verbose), json=json)


def _run(*, json: bool, quiet: bool, verbose: bool) -> int:
    source = _examples() / PROJECT
    recording = _examples() / f"{PROJECT}.recording.jsonl"
    address = environment((_ENDPOINT,)).get(_ENDPOINT)
    live = address is not None
    with tempfile.TemporaryDirectory(prefix="patchshot-demo-") as folder:
        target = Path(folder) / PROJECT
        _make_repository(source, target)
        if not quiet:
            _introduce(source / "ISSUE.md", address)
        request = solve.SolveRequest(
            problem=str(source / "ISSUE.md"),
            repo=target,
            json=json,
            quiet=quiet,
            verbose=verbose,
            replay=None if live else recording,
        )
        return solve.run(request, {"keep": False} if live else {"keep": False, **_RECORDED})


# Settings of the recording. Other settings of the user would change the prompt, and the recorded
# reply would not match.
_RECORDED = {
    "model": "recorded",
    "embed": "off",
    "preset": "default",
    "context_tokens": 6000,
    "max_chunks": 30,
    "repairs": 1,
    "max_steps": 0,
}


def _introduce(issue: Path, address: str | None) -> None:
    title = issue.read_text("utf-8").split("\n", 1)[0].lstrip("# ")
    say(f'demo: project "{PROJECT}", issue: {title}')
    if address is not None:
        say(f"demo: calling the model at {without_credentials(address)}")
    else:
        say(
            "demo: the model's reply is a recorded one; retrieval, patching and tests are run now "
            "(set PATCHSHOT_BASE_URL and PATCHSHOT_MODEL to call a model)"
        )


def _make_repository(source: Path, target: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__", ".pytest_cache", "ISSUE.md")
    shutil.copytree(source, target, ignore=ignored)
    identity = ("-c", "user.name=demo", "-c", "user.email=demo@example.invalid")
    quiet = ("-c", "init.defaultBranch=main", "-c", "commit.gpgsign=false")
    for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "rota 1.4.0")):
        try:
            subprocess.run(
                ["git", *identity, *quiet, *arguments],
                cwd=target,
                check=True,
                capture_output=True,
                timeout=60,
            )
        except FileNotFoundError:
            raise ConfigurationError("git is not installed: install it and try again") from None


def _examples() -> Path:
    """Return the folder of examples: beside this package in a checkout, inside it in a wheel."""
    package = Path(__file__).resolve().parents[2]
    inside = package / "_examples"
    return inside if inside.is_dir() else package.parent / "examples"


@declare(
    "demo",
    ending="""
    Example:
      agent demo

    With your own model:
      PATCHSHOT_BASE_URL=http://127.0.0.1:8000/v1 PATCHSHOT_MODEL=NAME agent demo
    """,
)
@json_option
@quiet_option
@click.option("--verbose", "-v", is_flag=True, help="Show each model call and the receipt.")
def command(json: bool, quiet: bool, verbose: bool) -> int:
    """Run the main job on a bundled project, offline, with a recorded model reply."""
    return run(json=json, quiet=quiet, verbose=verbose)
