"""`agent batch` run as a command on a small data set, with its provider: for end-to-end tests."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.agent_process import AGENT, agent_environment
from tests.support.behaviours import Answer, Behaviour, ChatRequest
from tests.support.evaluation import dataset_row
from tests.support.interrupts import INTERRUPTIBLE
from tests.support.scripted_provider import ScriptedProvider

GOLD = "g0ld-an5wer"


def edit(search: str) -> str:
    change = {"path": "shop/basket.py", "search": search, "replace": "self.items)"}
    return json.dumps({"edits": [change]})


RIGHT, WRONG = edit("self.items) - 1"), edit("no such text")


@dataclass(frozen=True)
class Held:
    """The same as `then`, once it is let go."""

    then: Behaviour
    go: threading.Event = field(default_factory=threading.Event)

    def answer(self, request: ChatRequest) -> Answer:
        self.go.wait(100)
        return self.then.answer(request)


@dataclass
class Bench:
    """A data set of three instances, and one provider for all runs."""

    folder: Path
    commit: str
    provider: ScriptedProvider
    settings: dict[str, str] = field(default_factory=dict)

    def rows(self, *rows: dict[str, Any] | str) -> None:
        lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
        (self.folder / "d.jsonl").write_text("".join(f"{line}\n" for line in lines))

    def row(self, number: int, **other: Any) -> dict[str, Any]:
        answer = {"patch": GOLD, "test_patch": GOLD, "FAIL_TO_PASS": [GOLD]}
        statement = f"total_price is {number} too low\n\nAn empty basket gives -1."
        return dataset_row(self.commit, number, problem_statement=statement, **{**answer, **other})

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / "stderr").open("wb") as log:
            return subprocess.Popen(
                [
                    *INTERRUPTIBLE, *AGENT, "batch", "--dataset", "d.jsonl",
                    "--repos", "repos", "--output", "preds.json", "--embed", "off", "--no-tests",
                    "--accept-unverified", "--no-iterative", "--json", *arguments,
                ],
                cwd=self.folder,
                env=self._environment(),
                stdout=subprocess.PIPE,
                stderr=log,
            )  # fmt: skip

    def run(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        """The exit code and the summary, {} where there is none."""
        return self.finish(self.start(*arguments))

    def finish(self, process: subprocess.Popen[bytes]) -> tuple[int, dict[str, Any]]:
        stdout, _ = process.communicate(timeout=110)
        return process.returncode, json.loads(stdout) if stdout.strip() else {}

    def _environment(self) -> dict[str, str]:
        own = {
            "TMPDIR": str(self.folder / "tmp"),
            "PATCHSHOT_BASE_URL": self.provider.base_url,
            "PATCHSHOT_API_KEY": "test",
            "PATCHSHOT_MODEL": "scripted",
        }
        return agent_environment(self.folder, **(own | self.settings))

    @property
    def stderr(self) -> str:
        return (self.folder / "stderr").read_text()

    @property
    def calls(self) -> int:
        return len(self.provider.chats)

    def wait_for_calls(self, number: int) -> None:
        self.wait(lambda: self.calls >= number)

    def wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 100
        while not condition():
            assert time.monotonic() < deadline, self.stderr
            time.sleep(0.02)

    def worker(self, number: int = 1) -> int:
        """The process id of the worker of an instance."""
        lock = self.folder / f"preds.run/instances/owner__shop-{number}/lock"
        return int(lock.read_text())

    def predictions(self) -> dict[str, str]:
        entries = json.loads((self.folder / "preds.json").read_text())
        return {name: entry["model_patch"] for name, entry in entries.items()}


def lives(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
