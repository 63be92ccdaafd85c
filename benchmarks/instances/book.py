"""Which instance a chat call asks about, told from its messages alone: nothing is remembered.

So a server that is started again, or a run that goes on after a kill, gives the same answers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.errors import ConfigurationError
from agent.run.problem import problem_from_text
from agent.run.prompting import as_data

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
