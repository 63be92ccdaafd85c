"""Runs `agent solve` as a user does, in a process of its own, against a scripted server."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from agent.run.record import RunRecord
from tests.conftest import run_git
from tests.support.agent_process import AGENT, agent_environment

_KEPT = ("LANG", "LC_ALL", "TMPDIR")
_HEADER = re.compile(r"^### (?P<path>\S+?):L\d+-\d+", re.MULTILINE)


class Provider(Protocol):
    """Where a model is, and its name."""

    @property
    def base_url(self) -> str: ...
    @property
    def model(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Solved:
    """How one run ended. `result` is what `--json` printed; `seconds` is its wall time."""

    exit_code: int
    result: RunRecord
    stderr: str
    seconds: float

    def explain(self) -> str:
        """What a failing test shows."""
        short = self.result.model_dump_json(indent=1, exclude={"receipt", "diff"})
        return f"exit {self.exit_code} after {self.seconds:.1f} s\n{short}\n{self.stderr}"


def solve(
    problem: Path,
    repository: Path,
    provider: Provider,
    *,
    home: Path,
    arguments: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
    variables: Mapping[str, str] | None = None,
    limit: float = 100.0,
) -> Solved:
    """Run `python -m agent solve ... --json`, for at most `limit` seconds.

    `settings` are PATCHSHOT_* names without the prefix, `variables` any other ones. The environment
    is a fresh one: a home and a cache of its own under `home`, embeddings off, and nothing of the
    caller's but PATH, locale and TMPDIR.
    """
    command = [*AGENT, "solve", "--json=full"]
    command += ["--problem", str(problem), "--repo", str(repository), *arguments]
    begin = time.monotonic()
    done = subprocess.run(
        command,
        env={**_environment(provider, home, settings or {}), **(variables or {})},
        cwd=home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=limit,
        check=False,
    )
    seconds = time.monotonic() - begin
    stderr = done.stderr.decode("utf-8", "replace")
    assert done.stdout, f"nothing on stdout, exit {done.returncode}\n{stderr}"
    result = RunRecord.model_validate_json(done.stdout)
    return Solved(done.returncode, result, stderr, seconds)


def _environment(provider: Provider, home: Path, settings: Mapping[str, str]) -> dict[str, str]:
    own = {
        "BASE_URL": provider.base_url,
        "API_KEY": "test",
        "MODEL": provider.model,
        "EMBED": "off",
        "DEBUG": "1",
        **settings,
    }
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    named = {f"PATCHSHOT_{name}": value for name, value in own.items()}
    return agent_environment(home, **kept, **named)


def shown_files(prompt: str) -> frozenset[str]:
    """The files of which the prompt shows a piece: its `### path:L10-42` headers."""
    return frozenset(match["path"] for match in _HEADER.finditer(prompt))


def apply_in_fresh_clone(diff: str, repository: Path, scratch: Path) -> Path:
    """Check and apply the diff with git on a new clone; gives the clone."""
    clone = scratch / "clone"
    run_git(scratch, "-c", "core.autocrlf=false", "clone", "-q", str(repository), str(clone))
    patch = scratch / "fix.diff"
    patch.write_bytes(diff.encode())
    run_git(clone, "apply", "--check", str(patch))
    run_git(clone, "apply", str(patch))
    return clone


def changed_files(clone: Path) -> frozenset[str]:
    """The paths that differ from the clone's commit, new files included."""
    lines = run_git(clone, "status", "--porcelain", "--no-renames", "-uall", "-z").split("\0")
    return frozenset(line[3:] for line in lines if line)


def require_sandbox() -> None:
    """Skip where bubblewrap does not work, or fail where PATCHSHOT_REQUIRE_BWRAP is set."""
    problem = _sandbox_problem()
    if problem and os.environ.get("PATCHSHOT_REQUIRE_BWRAP"):
        pytest.fail(problem)
    if problem:
        pytest.skip(problem)


def _sandbox_problem() -> str:
    program = shutil.which("bwrap")
    if program is None:
        return "bubblewrap is not installed"
    command = [program, "--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "true"]
    done = subprocess.run(command, capture_output=True, timeout=20, check=False)
    return "" if done.returncode == 0 else f"bwrap: {done.stderr.decode(errors='replace').strip()}"
