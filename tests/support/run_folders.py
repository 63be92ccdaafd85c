"""Folders of runs for the tests of `agent report`; `make_run` holds every end of an instance."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from agent.batch import Entry, Failed, Fingerprint, Finished, RunStarted, SetAside, Started
from agent.datasets import SolverTask, folder_name
from agent.errors import Status
from agent.llm.recording import ChatExchange, ChatReply, ChatRequest
from agent.results import kept as files
from agent.run.record import RunRecord
from agent.types import Message, Usage

ISSUE = """Basket.total_price is one too low

`total_price` of an empty basket gives **-1**:

```python
>>> Basket().total_price()
-1
```
"""
DIFF = '''diff --git a/shop/basket.py b/shop/basket.py
index 35c08ef2cabf..dd2286b69b8d 100644
--- a/shop/basket.py
+++ b/shop/basket.py
@@ -6,4 +6,4 @@ import os
 class Basket:
     """What somebody is about to buy."""
     def total_price(self):
-        return sum(item.price for item in self.items) - 1
+        return sum(prices, start=0)
'''
# Status, verdict, message.
ENDS: tuple[tuple[str, str | None, str], ...] = (
    ("accepted", "verified", "Fails on the base, passes with the patch: 2 tests"),
    ("accepted", "not-regressed", "16 tests pass before and after; none shows the fix"),
    ("unverified", "unverified", "No test could be run: the project needs a database"),
    ("broken", "regressed", "Fail newly: tests/test_basket.py::test_many"),
    ("broken", "broken-syntax", "shop/basket.py:9: invalid syntax"),
    ("suspect", "suspect", "The patch takes a failing test out of the run"),
    ("not-applied", None, "edit 1 (shop/basket.py): the search text is not in the file"),
    ("unparseable", None, "the reply was cut off at the output limit"),
    ("no-edit", None, "the reply asks for no edit"),
    ("time-limit", None, "the time limit of 1500 s has been reached"),
    ("provider", None, "the provider cannot be reached after 3 tries"),
    ("budget", None, "the next call would cost more than is left"),
    ("set-aside", None, "killed by SIGKILL"),
    ("row", None, "no commit ffffffff in owner/shop"),
    ("cut-off", None, ""),
    ("not-begun", None, ""),
)
_FAILURES = {"not-applied": ["no-match"], "unparseable": ["truncated"], "no-edit": ["no-edit"]}


class RunFolder:
    """Writes one run folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "instances").mkdir(parents=True)
        self._entries: list[Entry] = []
        self._tasks: list[SolverTask] = []
        model = "scripted at http://127.0.0.1:8080/v1"
        settings = {"context_tokens": 6000, "iterative": True, "without": ["static"]}
        made_with = Fingerprint(dataset="5e" * 32, model=model, settings=settings)
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
        if status in ("row", "cut-off"):
            return
        folder = self.root / "instances" / folder_name(task.instance_id)
        folder.mkdir(exist_ok=True)
        (folder / "log.txt").write_text(f"attempt 1\nretrieve: done\n\x1b[31m{message}\x1b[0m\n")
        if status in ("set-aside", "provider", "budget"):
            self._fail(name, status, message)
            return
        exchange = _exchange(task)
        result = _result(status, verdict, message, exchange.reply.usage)
        # As `agent.results.kept` does, without waiting for the disk.
        (folder / files.PATCH).write_text(result.diff)
        (folder / files.RESULT).write_text(result.model_dump_json(indent=2))
        (folder / files.EXCHANGES).write_text(exchange.model_dump_json() + "\n")
        ended = Finished(id=name, attempt=1, status=Status(status), verdict=verdict, seconds=24.2)
        self.add(ended)

    def _fail(self, name: str, status: str, message: str) -> None:
        if status == "set-aside":
            self.add(
                _failed(name, "crash", Status.CRASHED, message),
                SetAside(id=name, tries=2, reason=message),
            )
        else:
            blame = "environment" if status == "provider" else "budget"
            self.add(_failed(name, blame, Status(status), message))

    def write(self) -> Path:
        """Write what belongs to the run as a whole; the folder."""
        time = "2026-01-02T03:04:05+00:00"
        begun = RunStarted(version="0.1.0", time=time, instances=len(self._tasks))
        lines = "".join(f"{entry.model_dump_json()}\n" for entry in [begun, *self._entries])
        (self.root / "journal.jsonl").write_text(lines)
        tasks = "".join(f"{task.model_dump_json()}\n" for task in self._tasks)
        (self.root / "tasks.jsonl").write_text(tasks)
        return self.root


def _exchange(task: SolverTask) -> ChatExchange:
    usage = Usage(input_tokens=4000, output_tokens=444, cost_usd=0.007464, calls=1)
    messages = (
        Message("system", "You repair programs."),
        Message("user", f"<issue>\n{task.problem_statement}</issue>\n"),
    )
    return ChatExchange(
        sha256="0" * 64,
        request=ChatRequest(model="scripted", messages=messages, max_output_tokens=8192),
        reply=ChatReply(text='{"edits": []}', model="scripted", finish_reason="stop", usage=usage),
        seconds=3.2,
    )


def _result(status: str, verdict: str | None, message: str, usage: Usage) -> RunRecord:
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
            "attempts": [attempt], "usage": asdict(usage),
            "timings": {"snapshot": 0.1, "retrieve": 0.4, "pack": 0.3, "call": 9, "validate": 14},
            "model": "scripted", "commit": "a" * 40, "dirty": False, "receipt": receipt(),
            "notes": ["a note of the run"],
        }
    )  # fmt: skip


def make_run(root: Path, instances: int = len(ENDS)) -> RunFolder:
    """A run of so many instances that end in all ways there are."""
    made = RunFolder(root)
    for number, (status, verdict, message) in enumerate(ENDS[:instances]):
        made.end(made.task(number), status, verdict, message)
    made.write()
    return made


def validation(verdict: str, reason: str) -> dict[str, Any]:
    """A verdict with its runs."""
    run = {
        "command": ["python", "-m", "pytest"], "passed": 16, "failed": 0, "skipped": 1,
        "seconds": 3.1, "ended": "exited", "channels": ["report", "exit code"],
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


def _failed(name: str, blame: Any, status: Status, reason: str) -> Failed:
    return Failed(id=name, attempt=1, blame=blame, status=status, reason=reason)
