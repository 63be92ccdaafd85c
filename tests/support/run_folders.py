"""Folders of runs for the tests of `agent report`, written by the parts that write real ones.

`make_run` is made up, seeded, and holds every way in which an instance can end.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agent.batch import Entry, Failed, Fingerprint, Finished, RunStarted, SetAside, Started
from agent.datasets import SolverTask
from agent.errors import Status
from agent.llm.recording import ChatExchange, ChatReply, ChatRequest
from agent.results import kept as files
from agent.run.record import RunRecord
from agent.types import Message, Usage

ISSUE = """Basket.total_price is one too low

## What happens
`total_price` of an empty basket gives **-1**:

```python
>>> Basket().total_price()
-1
```

Expected: 0. Seen since the last release.
"""
DIFF = '''diff --git a/shop/basket.py b/shop/basket.py
index 35c08ef2cabf..dd2286b69b8d 100644
--- a/shop/basket.py
+++ b/shop/basket.py
@@ -6,7 +6,9 @@ import os
 class Basket:
     """What somebody is about to buy."""
     def total_price(self):
-        return sum(item.price for item in self.items) - 1
+        # The price of nothing is nothing.
+        prices = [item.price for item in self.items]
+        return sum(prices, start=0)


 def unrelated_helper(path):
'''
# Status, verdict, message, and how often of a hundred.
ENDS: tuple[tuple[str, str | None, str, int], ...] = (
    ("accepted", "verified", "Fails on the base, passes with the patch: 2 tests", 34),
    ("accepted", "not-regressed", "16 tests pass before and after; none shows the fix", 16),
    ("unverified", "unverified", "No test could be run: the project needs a database", 5),
    ("broken", "regressed", "Fail newly: tests/test_basket.py::test_many", 9),
    ("broken", "broken-syntax", "shop/basket.py:9: invalid syntax", 2),
    ("suspect", "suspect", "The patch takes a failing test out of the run", 2),
    ("not-applied", None, "edit 1 (shop/basket.py): the search text is not in the file", 8),
    ("unparseable", None, "the reply was cut off at the output limit", 4),
    ("no-edit", None, "the reply asks for no edit", 4),
    ("time-limit", None, "the time limit of 1500 s has been reached", 3),
    ("provider", None, "the provider cannot be reached after 3 tries", 2),
    ("budget", None, "the next call would cost more than is left", 2),
    ("set-aside", None, "killed by SIGKILL", 2),
    ("row", None, "no commit ffffffff in owner/shop", 2),
    ("cut-off", None, "", 2),
    ("not-begun", None, "", 3),
)
_FAILURES = {"not-applied": ["no-match"], "unparseable": ["truncated"], "no-edit": ["no-edit"]}


class RunFolder:
    """Writes one run folder."""

    def __init__(self, root: Path, *, seed: int = 1) -> None:
        self.root = root
        self.random = random.Random(seed)
        (root / "instances").mkdir(parents=True)
        self._entries: list[Entry] = []
        self._tasks: list[SolverTask] = []
        self.resolved: dict[str, bool] = {}
        made_with = Fingerprint(
            dataset="5e" * 32,
            model="scripted at http://127.0.0.1:8080/v1",
            settings={"context_tokens": 6000, "iterative": True, "without": ["static"]},
        )
        (root / "run.json").write_text(made_with.model_dump_json(indent=2))

    def task(self, number: int, **other: Any) -> SolverTask:
        """A selected instance."""
        project = ("owner/shop", "acme/ledger", "north/atlas")[number % 3]
        values = {
            "instance_id": f"{project.replace('/', '__')}-{number}",
            "repo": project,
            "base_commit": f"{number:040x}",
            "problem_statement": ISSUE,
            **other,
        }
        made = SolverTask.model_validate(values)
        self._tasks.append(made)
        return made

    def add(self, *entries: Entry) -> None:
        """Entries of the journal."""
        self._entries += entries

    def end(self, task: SolverTask, status: str, verdict: str | None, message: str) -> None:
        """Let an instance end, with the files of its folder."""
        name = task.instance_id
        if status == "not-begun":
            return
        self.add(Started(id=name, attempt=1))
        if status == "row":
            self.add(_failed(name, "row", Status.USAGE, message))
            return
        exchange = self.exchange(task)
        usage = exchange.reply.usage
        if status == "cut-off":
            return
        seconds = self._timings()
        folder = self.root / "instances" / task.folder_name
        folder.mkdir(exist_ok=True)
        (folder / "log.txt").write_text(f"attempt 1\nretrieve: done\n\x1b[31m{message}\x1b[0m\n")
        if status in ("set-aside", "provider", "budget"):
            self._fail(name, status, message)
            return
        result = self.result(status, verdict, message, usage, seconds)
        _write_result(folder, result)
        (folder / "exchanges.jsonl").write_text(exchange.model_dump_json() + "\n")
        self.add(
            Finished(
                id=name,
                attempt=1,
                status=Status(status),
                verdict=verdict,
                seconds=round(sum(seconds.values()) + 0.2, 3),
            )
        )
        if result.diff:
            self.resolved[name] = self.random.random() < (0.85 if verdict == "verified" else 0.3)

    def _fail(self, name: str, status: str, message: str) -> None:
        if status == "set-aside":
            self.add(
                _failed(name, "crash", Status.CRASHED, message),
                SetAside(id=name, tries=2, reason=message),
            )
        else:
            blame = "environment" if status == "provider" else "budget"
            self.add(_failed(name, blame, Status(status), message))

    def _timings(self) -> dict[str, float]:
        draw = self.random.lognormvariate
        means = {"snapshot": 0.1, "retrieve": 0.4, "pack": 0.3, "call": 9, "validate": 14}
        return {stage: round(mean * draw(0, 0.7), 3) for stage, mean in means.items()}

    def exchange(self, task: SolverTask, reply: str = '{"edits": []}') -> ChatExchange:
        """One call about an instance."""
        tokens = round(4000 * self.random.lognormvariate(0, 0.4))
        usage = Usage(
            input_tokens=tokens,
            output_tokens=tokens // 9,
            cost_usd=round(tokens * 1.2e-6 + tokens // 9 * 6e-6, 6),
            calls=1,
        )
        messages = (
            Message("system", "You repair programs."),
            Message("user", f"<issue>\n{task.problem_statement}</issue>\n"),
        )
        return ChatExchange(
            sha256=f"{len(self._tasks):064x}",
            request=ChatRequest(model="scripted", messages=messages, max_output_tokens=8192),
            reply=ChatReply(text=reply, model="scripted", finish_reason="stop", usage=usage),
            seconds=3.2,
        )

    def result(
        self,
        status: str,
        verdict: str | None,
        message: str,
        usage: Usage,
        timings: Mapping[str, float],
    ) -> RunRecord:
        """The result of an instance."""
        diff = DIFF if verdict else ""
        attempt = {
            "kind": "one-shot", "status": status, "reason": message, "reader": "json",
            "failure_kinds": _FAILURES.get(status, []), "missing": [],
            "edits": [{"path": "shop/basket.py", "tier": "indentation", "line": 9,
                       "path_as_written": None}] if diff else [],
            "repairs": [{"name": "fence", "note": "took the reply out of a fence",
                         "saved": "malformed", "edit": None}] if diff else [],
            "validation": validation(verdict, message) if verdict else None,
        }  # fmt: skip
        return RunRecord.model_validate(
            {
                "status": status, "exit_code": Status(status).exit_code, "verdict": verdict,
                "message": message, "diff": diff, "thought": "The sum is reduced by one.",
                "reproduction_test": {"path": "tests/test_issue.py",
                                      "content": "def test_empty():\n    assert True\n"},
                "attempts": [attempt],
                "usage": asdict(usage), "timings": timings, "model": "scripted",
                "commit": "a" * 40, "dirty": False, "receipt": receipt(),
                "notes": ["a note of the run"],
            }
        )  # fmt: skip

    def write(self) -> Path:
        """Write what belongs to the run as a whole; the folder."""
        begun = RunStarted(
            version="0.1.0", time="2026-01-02T03:04:05+00:00", instances=len(self._tasks)
        )
        self.journal([begun, *self._entries])
        tasks = "".join(f"{task.model_dump_json()}\n" for task in self._tasks)
        (self.root / "tasks.jsonl").write_text(tasks)
        return self.root

    def journal(self, entries: Sequence[Entry]) -> None:
        """Write the journal."""
        lines = "".join(f"{entry.model_dump_json()}\n" for entry in entries)
        (self.root / "journal.jsonl").write_text(lines)


def make_run(root: Path, instances: int = 100) -> RunFolder:
    """A run of so many instances that end in all ways there are."""
    made = RunFolder(root)
    weights = [end[3] for end in ENDS]
    for number in range(instances):
        status, verdict, message, _ = (
            ENDS[number] if number < len(ENDS) else made.random.choices(ENDS, weights)[0]
        )
        made.end(made.task(number), status, verdict, message)
    made.write()
    return made


def write_evaluation(path: Path, resolved: Mapping[str, bool]) -> Path:
    """A report of the harness's shape."""
    tests = {"success": ["tests/test_basket.py::test_empty"], "failure": []}
    failed = {"success": [], "failure": ["tests/test_basket.py::test_empty"]}
    entries = {
        name: {
            "patch_successfully_applied": True,
            "resolved": done,
            "tests_status": {"FAIL_TO_PASS": tests if done else failed, "PASS_TO_PASS": tests},
        }
        for name, done in resolved.items()
    }
    path.write_text(json.dumps(entries))
    return path


def validation(verdict: str, reason: str) -> dict[str, Any]:
    """A verdict with its runs."""
    run = {
        "command": ["python", "-m", "pytest"], "passed": 16, "failed": 0, "skipped": 1,
        "seconds": 3.1, "ended": "exited", "channels": ["report", "junit", "exit code"],
        "disagreements": [], "cached": False,
    }  # fmt: skip
    return {
        "verdict": verdict, "reason": reason, "backend": "bwrap", "interpreter": "Python 3.11",
        "runner": "pytest: the project has Python test files",
        "selected": [{"path": "tests/test_basket.py", "reason": "named after shop/basket.py"}],
        "before": {**run, "cached": True}, "after": run,
        "reproduction_before": {**run, "passed": 0, "failed": 1}, "reproduction_after": run,
        "whole": None,
        "newly_failing": ["tests/test_basket.py::test_many"] if verdict == "regressed" else [],
        "newly_passing": ["tests/test_issue.py::test_empty"] if verdict == "verified" else [],
        "fail_to_pass": [], "pass_to_pass": [], "known_missed": [], "notes": [], "seconds": 6.4,
    }  # fmt: skip


def receipt() -> dict[str, Any]:
    """What was retrieved, and what was cut."""
    piece = {
        "path": "shop/basket.py", "start": 6, "end": 9, "symbol": "Basket.total_price",
        "form": "whole", "tokens": 49, "rank": 1, "score": 5.06,
        "reasons": [
            {"feature": "lexical", "value": 3.27, "note": "1 of 31 by words in common"},
            {"feature": "mentions", "value": 0.2, "note": "total_price is named in the title"},
        ],
        "shown": [[6, 9]],
    }  # fmt: skip
    other = {**piece, "path": "shop/item.py", "symbol": "Item", "rank": 2, "tokens": 31}
    dropped = {"path": "shop/report.py", "start": 1, "end": 80, "symbol": "render", "rank": 3,
               "tokens": 700, "score": 1.0, "cut_by": "budget"}  # fmt: skip
    return {
        "tokens": 80, "budget": 5100, "tokens_by_form": {"whole": 80}, "total_chunks": 31,
        "ranked_chunks": 31, "pieces": [piece, other], "dropped": [dropped], "notes": [],
    }  # fmt: skip


def _write_result(folder: Path, result: RunRecord) -> None:
    """As `agent.results.kept.store` does, without waiting for the disk."""
    (folder / files.PATCH).write_text(result.diff)
    (folder / files.RESULT).write_text(result.model_dump_json(indent=2))


def _failed(name: str, blame: Any, status: Status, reason: str) -> Failed:
    return Failed(id=name, attempt=1, blame=blame, status=status, reason=reason)
