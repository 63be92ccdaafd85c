"""A person who calls `agent`, as a process, in a home of their own."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.agent_process import AGENT, INTERRUPTIBLE, agent_environment, run_agent
from tests.support.behaviours import Step
from tests.support.scripted_provider import ScriptedProvider

Done = subprocess.CompletedProcess[str]


@dataclass(frozen=True, slots=True)
class Started:
    """A command in the background; its stderr goes to the file `log`."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def stderr(self) -> str:
        return self.log.read_text()

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for what the running command is to bring about."""
        deadline = time.monotonic() + 100
        while not condition():
            assert time.monotonic() < deadline, self.stderr
            assert self.process.poll() is None, self.stderr
            time.sleep(0.02)

    def wait_for(self, text: str) -> None:
        """Wait for a text on stderr."""
        self.wait_until(lambda: text in self.stderr)

    def stop(self, number: int = signal.SIGKILL) -> tuple[int, bytes]:
        """Send a signal; the exit code and stdout."""
        self.process.send_signal(number)
        stdout, _ = self.process.communicate(timeout=60)
        return self.process.returncode, stdout


class User:
    """`repository` and `issue` are what `solve` is called with, `variables` the environment."""

    def __init__(
        self, home: Path, repository: Path = Path(), issue: str = "", **variables: str
    ) -> None:
        home.mkdir(exist_ok=True)
        self.home = home
        self.repository = repository
        self.issue = home / "issue.md"
        self.issue.write_text(issue)
        self.variables = variables

    @property
    def task(self) -> tuple[str, ...]:
        """The options that name the issue and the repository."""
        return ("--problem", str(self.issue), "--repo", str(self.repository))

    def run(
        self,
        *arguments: str,
        cwd: Path | None = None,
        prefix: Sequence[str] = (),
        limit: float = 110.0,
        **variables: str,
    ) -> Done:
        own = self.variables | variables
        return run_agent(*arguments, home=self.home, cwd=cwd, prefix=prefix, limit=limit, **own)

    def ok(self, *arguments: str, **variables: Any) -> str:
        """The stdout of a command that succeeds."""
        done = self.run(*arguments, **variables)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def read(self, *arguments: str, **variables: Any) -> Any:
        """What a command that succeeds prints with `--json`."""
        return json.loads(self.ok(*arguments, "--json", **variables))

    def start(self, *arguments: str, **variables: str) -> Started:
        """Start a command that Ctrl-C can end."""
        log = self.home / "stderr"
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                [*INTERRUPTIBLE, *AGENT, *arguments],
                cwd=self.home,
                env=agent_environment(self.home, **self.variables, **variables),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
            )
        return Started(process, log)

    def solve(
        self, script: Sequence[Step], *arguments: str, **options: Any
    ) -> tuple[Done, ScriptedProvider]:
        """Run `agent solve` on the issue against a server that plays a script."""
        return self.ask(script, "solve", *self.task, *arguments, **options)

    def ask(
        self, script: Sequence[Step], *arguments: str, **options: Any
    ) -> tuple[Done, ScriptedProvider]:
        """Run a command with a model that plays a script."""
        with ScriptedProvider(script) as provider:
            return self.run(*arguments, **{**served_by(provider), **options}), provider


def served_by(provider: ScriptedProvider) -> dict[str, str]:
    """The variables that name a model, without embeddings of a server."""
    return {
        "PATCHSHOT_BASE_URL": provider.base_url,
        "PATCHSHOT_MODEL": provider.model,
        "PATCHSHOT_API_KEY": "test",
        "PATCHSHOT_EMBED": "off",
    }
