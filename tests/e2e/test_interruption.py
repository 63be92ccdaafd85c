"""A run that is stopped half-way: nothing of the user's is touched, the best patch is not lost."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.support.agent_process import AGENT, agent_environment
from tests.support.behaviours import Good, Slow
from tests.support.fingerprint import fingerprint
from tests.support.interrupts import INTERRUPTIBLE
from tests.support.scripted_provider import ScriptedProvider
from tests.support.solve_command import require_sandbox

pytestmark = pytest.mark.e2e

# The project's own test hangs: once it runs, there is a patch, and its validation is under way.
FILES = {
    "calc.py": "def add(a, b):\n    return a - b\n",
    "test_calc.py": (
        "import time\nfrom calc import add\n\n\ndef test_add():\n    time.sleep(60)\n"
        "    assert add(0, 0) == 0\n"
    ),
}
REPLY = json.dumps(
    {"edits": [{"path": "calc.py", "search": "return a - b", "replace": "return a + b"}]}
)


class Run:
    """`agent solve` in the background, with everything it may write below `home`."""

    def __init__(self, repository: Path, home: Path, provider: ScriptedProvider) -> None:
        self.output = home / "fix.diff"
        self.temporary = home / "tmp"
        self.temporary.mkdir(parents=True)
        issue = home / "issue.md"
        issue.write_text("add() subtracts\n")
        self.log = home / "stderr"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *INTERRUPTIBLE, *AGENT, "solve", "--problem", str(issue),
                    "--repo", str(repository), "--output", str(self.output),
                ],
                cwd=home,
                env=agent_environment(
                    home,
                    TMPDIR=str(self.temporary),
                    PATCHSHOT_BASE_URL=provider.base_url,
                    PATCHSHOT_MODEL="scripted",
                ),
                stdout=subprocess.PIPE,
                stderr=log,
            )  # fmt: skip

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + 60
        while text not in self.log.read_text():
            assert time.monotonic() < deadline, self.log.read_text()
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.05)

    def stop(self, number: int) -> tuple[int, bytes]:
        self.process.send_signal(number)
        try:
            stdout, _ = self.process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise
        return self.process.returncode, stdout


@pytest.fixture
def repository(
    make_repository: Callable[[Mapping[str, str | bytes]], Path],
) -> Path:
    require_sandbox()
    made = make_repository(FILES)
    (made / "notes.txt").write_text("not committed\n")
    return made


@pytest.mark.parametrize("moment", ["call: waiting", "validate: testing"])
def test_kill_leaves_the_repository_as_it_was(
    repository: Path, tmp_path: Path, moment: str
) -> None:
    before = fingerprint(repository)
    script = [Slow(30, REPLY)] if moment.startswith("call") else [Good(REPLY)]
    with ScriptedProvider(script) as provider:
        run = Run(repository, tmp_path / "home", provider)
        run.wait_for(moment)
        time.sleep(1.0)  # well into the stage
        assert run.stop(signal.SIGKILL)[0] == -signal.SIGKILL
    assert fingerprint(repository) == before


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_prints_its_best_patch_and_cleans_up(
    repository: Path, tmp_path: Path, number: int
) -> None:
    before = fingerprint(repository)
    with ScriptedProvider([Good(REPLY)]) as provider:
        run = Run(repository, tmp_path / "home", provider)
        run.wait_for("validate: testing")
        time.sleep(2.0)
        code, stdout = run.stop(number)
    assert code == 130, run.log.read_text()
    assert b"+    return a + b" in stdout
    assert run.output.read_bytes() == stdout
    assert "interrupted" in run.log.read_text().splitlines()[-1]
    assert "Traceback" not in run.log.read_text()
    assert list(run.temporary.iterdir()) == []
    assert fingerprint(repository) == before
