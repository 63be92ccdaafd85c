"""A server that answers for a model, from files that others wrote."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.errors import ConfigurationError
from agent.run.problem import problem_from_text
from agent.run.prompting import as_data
from tests.support.behaviours import ChatRequest
from tests.support.scripted_provider import ScriptedProvider

# Only the step-by-step mode speaks of actions in its instructions.
_ACTION = '{"action":'


@dataclass(frozen=True, slots=True)
class Asked:
    """A call: its place in the conversation from 1, and whether it is one of the iterative mode."""

    instance_id: str
    call: int
    iterative: bool


class Book:
    """The rows of a data set by what a prompt shows of them."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        shown = {str(row["instance_id"]): _shown(row) for row in rows}
        # A statement may lie inside another one; the longest that is found is meant.
        self._shown = sorted(shown.items(), key=lambda item: (-len(item[1]), item[0]))

    def asked(self, messages: Sequence[Mapping[str, Any]]) -> Asked | None:
        """What a call's messages ask about; None for nothing that the book has."""
        first = next((str(m["content"]) for m in messages if m["role"] == "user"), "")
        name = next((name for name, shown in self._shown if shown in first), None)
        if name is None:
            return None
        system = "".join(str(m["content"]) for m in messages if m["role"] == "system")
        call = 1 + sum(message["role"] == "assistant" for message in messages)
        return Asked(name, call, _ACTION in system)


def prompt_hash(messages: Sequence[Mapping[str, Any]]) -> str:
    """SHA-256 of roles and contents, as `agent.run.prompting.make_prompt` has it."""
    canonical = json.dumps([[m["role"], m["content"]] for m in messages], ensure_ascii=False)
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


def read_rows(path: Path) -> tuple[dict[str, Any], ...]:
    """The rows of a data set as they stand. Raises ConfigurationError."""
    try:
        return tuple(json.loads(line) for line in path.read_text("utf-8").splitlines() if line)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path}: {error}; give rows as JSON lines") from None


def _shown(row: Mapping[str, Any]) -> str:
    problem = problem_from_text(str(row["problem_statement"]), str(row["instance_id"]))
    return as_data(problem.text).strip()


NO_REPLY = "I have nothing to add to this."
"""Said where no file holds an answer; it cannot be read as edits."""

MODEL = "written"

FINISH = json.dumps({"action": "finish", "thought": "Nothing to add."})
"""Ends the iterative mode at its first step."""


@dataclass(frozen=True, slots=True)
class FromFiles:
    """`ID.txt` answers the first call, `ID.2.txt` the second of its conversation, and so on."""

    folder: Path

    def __call__(self, asked: Asked) -> str:
        """Return the file's text, or a refusal if there is no file."""
        if asked.iterative:
            return self._read(f"{asked.instance_id}.step{asked.call}.txt") or FINISH
        number = "" if asked.call == 1 else f".{asked.call}"
        return self._read(f"{asked.instance_id}{number}.txt") or NO_REPLY

    def _read(self, name: str) -> str:
        try:
            return (self.folder / name).read_text("utf-8")
        except FileNotFoundError:
            return ""


class PromptFolder:
    """Keeps each first prompt as `ID.md`, and their hashes in `index.json`."""

    def __init__(self, folder: Path) -> None:
        """`folder` is made where it is not there."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._index = folder / "index.json"
        self._lock = threading.Lock()

    def known(self) -> dict[str, str]:
        """Hash -> id of the prompts that are kept."""
        return json.loads(self._index.read_text("utf-8")) if self._index.exists() else {}

    def keep(self, name: str, messages: Sequence[Mapping[str, Any]]) -> None:
        """Write a prompt, in place of an earlier one of the instance."""
        with self._lock:
            rest = {sha: other for sha, other in self.known().items() if other != name}
            index = dict(sorted({**rest, prompt_hash(messages): name}.items()))
            (self._folder / f"{name}.md").write_text(as_text(messages), "utf-8")
            self._index.write_text(json.dumps(index, indent=1) + "\n", "utf-8")


def as_text(messages: Sequence[Mapping[str, Any]]) -> str:
    """The messages exactly, each under a line that names its role."""
    return "".join(f"===== {m['role']} =====\n{m['content']}\n" for m in messages)


@dataclass(frozen=True, slots=True)
class Desk:
    """Answers chat calls, and says on standard error what it answers and to whom."""

    book: Book
    answering: FromFiles
    prompts: PromptFolder | None = None
    recording: bool = False

    def __call__(self, request: ChatRequest) -> str:
        """The reply's text."""
        messages = request.body["messages"]
        asked = self.book.asked(messages)
        if asked is None:
            _say("a prompt of no instance")
            return NO_REPLY
        first = asked.call == 1 and not asked.iterative
        if self.prompts is not None and first:
            if self.recording:
                self.prompts.keep(asked.instance_id, messages)
            elif prompt_hash(messages) not in self.prompts.known():
                _say(f"{asked.instance_id}: the prompt is not the one that was answered")
        _say(f"{asked.instance_id}: call {asked.call}{' (iterative)' if asked.iterative else ''}")
        return self.answering(asked)


def serve(desk: Desk, tell: Callable[[str], None]) -> None:
    """Serve until interrupted; `tell` is given the address."""
    with ScriptedProvider([desk], model=MODEL) as provider:
        tell(provider.base_url)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
