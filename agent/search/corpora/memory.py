"""Patches that the user accepted before. They are stored on this machine, and only on request.

Each project has one file in the user's data folder. An entry contains the issue's text and a
summary of the diff, with secrets masked. Entries are only sent to the configured embedder and
store.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict

from agent.repository import language_of
from agent.search.json_lines import JsonLines
from agent.search.passages import CorpusUnavailable, Label, Passage
from agent.search.text_format import described
from agent.shared.secrets import is_secret_path, mask_secrets

if TYPE_CHECKING:
    from agent.types import Problem
    from agent.types.protocols import Snapshot

MAX_ENTRIES = 1_000
"""Maximum entries of a project that are searched. The oldest are ignored."""

MAX_ISSUE = 4_000
MAX_CHANGE = 6_000
"""Maximum characters stored of an issue, and of the changed lines."""

_FILE = re.compile(r"^\+\+\+ b/(.+)$")
_HUNK = re.compile(r"^@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@ ?(.*)$")


class MemoryLine(BaseModel):
    """One accepted patch. `id` is the SHA-256 (hex) of issue and change; it prevents duplicates."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    id: str
    commit: str
    title: str
    issue: str
    paths: tuple[str, ...]
    change: str
    rejected: bool = False  # takes back the lines before it with this id


@dataclass(frozen=True, slots=True)
class Memory:
    """The accepted patches of one project, stored in `path`."""

    path: Path

    def remember(self, problem: Problem, diff: bytes, commit: str) -> bool:
        """Add an accepted patch; return False if it exists already. Raises OSError."""
        line = make_line(problem, diff, commit)
        if any(known.id == line.id for known in self.entries()):
            return False
        self._lines().append(line)
        return True

    def take_back(self, problem: Problem, diff: bytes, commit: str) -> bool:
        """Remove an accepted patch; return False if it is not there. Raises OSError."""
        line = make_line(problem, diff, commit)
        if all(known.id != line.id for known in self.entries()):
            return False
        self._lines().append(line.model_copy(update={"rejected": True}))
        return True

    def entries(self) -> tuple[MemoryLine, ...]:
        """Return the newest MAX_ENTRIES distinct entries that are not rejected, oldest first."""
        lines = {line.id: line for line in self._lines().news()}
        return tuple(line for line in lines.values() if not line.rejected)[-MAX_ENTRIES:]

    def forget(self) -> int:
        """Remove all entries; return how many there were."""
        count = len(self.entries())
        self.path.unlink(missing_ok=True)
        return count

    def _lines(self) -> JsonLines[MemoryLine]:
        return JsonLines(self.path, MemoryLine)


@dataclass(frozen=True, slots=True)
class MemorySource:
    """The `CorpusSource` of accepted patches."""

    memory: Memory

    @property
    def label(self) -> Label:
        """Return the label `[memory]`."""
        return Label.MEMORY

    def passages(self, snapshot: Snapshot, cancel: threading.Event) -> Sequence[Passage]:
        """Return one passage for each patch, oldest first.

        Raises CorpusUnavailable if there is none.
        """
        del snapshot, cancel
        entries = self.memory.entries()
        if not entries:
            raise CorpusUnavailable(
                "nothing is remembered of this project (`agent solve --remember` keeps accepted "
                "patches)"
            )
        return tuple(_passage(entry) for entry in entries)


def make_line(problem: Problem, diff: bytes, commit: str) -> MemoryLine:
    """Return the entry for a patch, with secrets masked."""
    text = diff.decode("utf-8", "replace")
    paths = tuple(dict.fromkeys(_paths(text)))
    change = mask_secrets(summarise_diff(text)).text[:MAX_CHANGE]
    issue = mask_secrets(problem.text).text[:MAX_ISSUE]
    digest = sha256(f"{issue}\0{change}".encode("utf-8", "surrogatepass")).hexdigest()
    title = mask_secrets(problem.title).text[:200]
    return MemoryLine(
        id=digest, commit=commit, title=title, issue=issue, paths=paths, change=change
    )


def summarise_diff(diff: str) -> str:
    """Return the paths, the functions around hunks, and the added and removed lines of a diff."""
    kept: list[str] = []
    hidden = False
    for line in diff.split("\n"):
        if found := _FILE.match(line):
            hidden = is_secret_path(found.group(1))
            kept.append(found.group(1))
        elif found := _HUNK.match(line):
            kept.extend([found.group(1)] if found.group(1) else [])
        elif line.startswith(("+", "-")) and not line.startswith(("+++", "---")) and not hidden:
            kept.append(line)
    return "\n".join(kept)


def _paths(diff: str) -> list[str]:
    return [found.group(1) for line in diff.split("\n") if (found := _FILE.match(line))]


def _passage(entry: MemoryLine) -> Passage:
    path = entry.paths[0] if entry.paths else ""
    return Passage(
        corpus=Label.MEMORY,
        title=entry.title,
        text=described(entry.title, "patch", path, f"{entry.issue}\n{entry.change}"),
        path=path,
        language=language_of(path) if path else "text",
        origin=entry.id,
        tags=("accepted",),
    )
