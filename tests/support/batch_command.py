"""`agent batch` run as a command on a small data set, with its provider: for end-to-end tests."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.behaviours import ChatRequest
from tests.support.evaluation import bare_repository, dataset_row
from tests.support.scripted_provider import ScriptedProvider
from tests.support.user import Started, User, served_by

GOLD = "g0ld-an5wer"


def edit(search: str) -> str:
    change = {"path": "shop/basket.py", "search": search, "replace": "self.items)"}
    return json.dumps({"thought": "One too low.", "edits": [change]})


RIGHT, WRONG = edit("self.items) - 1"), edit("no such text")


@dataclass(frozen=True)
class Held:
    """The same as `then`, once it is let go."""

    then: str
    go: threading.Event = field(default_factory=threading.Event)

    def __call__(self, _: ChatRequest) -> str:
        self.go.wait(100)
        return self.then


class Bench(User):
    """A data set of three instances, and one provider for all runs."""

    def __init__(self, folder: Path, provider: ScriptedProvider) -> None:
        (folder / "tmp").mkdir()
        super().__init__(folder, TMPDIR=str(folder / "tmp"), **served_by(provider))
        self.provider = provider
        self.commit = bare_repository(folder / "repos")
        self.rows(*map(self.row, range(1, 4)))

    def rows(self, *rows: dict[str, Any] | str) -> None:
        lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
        (self.home / "d.jsonl").write_text("".join(f"{line}\n" for line in lines))

    def row(self, number: int, **other: Any) -> dict[str, Any]:
        answer = {"patch": GOLD, "test_patch": GOLD, "FAIL_TO_PASS": [GOLD]}
        statement = f"total_price is {number} too low\n\nAn empty basket gives -1."
        return dataset_row(self.commit, number, problem_statement=statement, **{**answer, **other})

    def begin(self, *arguments: str) -> Started:
        """Start `agent batch`."""
        return self.start(
            "batch", "--dataset", "d.jsonl", "--repos", "repos", "--output", "preds.json",
            "--no-tests", "--accept-unverified", "--no-iterative", "--json", *arguments,
        )  # fmt: skip

    def batch(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        """The exit code and the summary, {} where there is none."""
        return self.finish(self.begin(*arguments))

    def finish(self, started: Started) -> tuple[int, dict[str, Any]]:
        stdout, _ = started.process.communicate(timeout=110)
        return started.process.returncode, json.loads(stdout) if stdout.strip() else {}

    @property
    def stderr(self) -> str:
        return (self.home / "stderr").read_text()

    @property
    def calls(self) -> int:
        return len(self.provider.chats)

    def worker(self, number: int = 1) -> int:
        """The process id of the worker of an instance."""
        lock = self.home / f"preds.run/instances/owner__shop-{number}/lock"
        return int(lock.read_text())

    def predictions(self) -> dict[str, str]:
        entries = json.loads((self.home / "preds.json").read_text())
        return {name: entry["model_patch"] for name, entry in entries.items()}


def lives(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
