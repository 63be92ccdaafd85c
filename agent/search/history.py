"""Past changes as corpora: the hunks of earlier commits, and patches that the user accepted.

Accepted patches are stored only on request, one file for each project, with secrets masked; they
are only sent to the configured embedder and store.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import BaseModel

from agent.errors import RepositoryError
from agent.repository import language_of
from agent.retrieval.history import (
    MAX_HUNKS,
    AddedHunk,
    CommitHunks,
    HunkHistory,
    NoHistory,
    printable,
)
from agent.search.passages import CorpusUnavailable, Label, Passage, described
from agent.search.project import JsonLines
from agent.shared.secrets import is_secret_path, mask_secrets

if TYPE_CHECKING:
    from agent.types import Problem
    from agent.types.protocols import Snapshot

_PULL_REQUEST = re.compile(r"\(#(\d+)\)\s*$")  # as squashed and rebased commits are named
_ID = 10  # characters of a commit id in a title


@dataclass(frozen=True, slots=True)
class HunkSource:
    """The `CorpusSource` of past changes. `origin` is the newest commit that added the text."""

    label: ClassVar = Label.HISTORY
    history: HunkHistory

    def passages(self, snapshot: Snapshot, cancel: threading.Event) -> Sequence[Passage]:
        """Return distinct hunks, newest commit first. Raises Cancelled, CorpusUnavailable."""
        try:
            commits = replace(self.history, cancel=cancel).commits(snapshot)
        except (NoHistory, RepositoryError) as error:
            raise CorpusUnavailable(f"no commit history: {error}") from None
        return tuple(distinct_passages(commits))


def distinct_passages(commits: Iterable[CommitHunks]) -> Iterator[Passage]:
    """Yield one passage for each distinct text, at its newest place; `also` has the others.

    Commits of one pull request, by the number at the end of the subject, share MAX_HUNKS.
    """
    places: dict[tuple[str, ...], list[Passage]] = {}
    read = Counter[str]()
    for commit in commits:
        pull = _PULL_REQUEST.search(commit.subject)
        name = pull[1] if pull else commit.commit
        room = max(0, MAX_HUNKS - read[name])
        read[name] += len(commit.hunks)
        largest = sorted(commit.hunks, key=lambda hunk: -hunk.added)[:room]
        for hunk in (one for one in commit.hunks if one in largest):
            text = (commit.subject, hunk.path, hunk.context, hunk.text)
            places.setdefault(text, []).append(passage_of(commit, hunk))
    for first, *others in places.values():
        yield replace(first, also=tuple(others)) if others else first


def passage_of(commit: CommitHunks, hunk: AddedHunk) -> Passage:
    """Convert a hunk to a passage, labelled with its commit."""
    name = hunk.names[0] if hunk.names else hunk.context
    return Passage(
        corpus=Label.HISTORY,
        title=f"{commit.commit[:_ID]}: {printable(commit.subject)}",
        text=described(name, "change", hunk.path, f"{commit.subject}\n{hunk.text}"),
        path=hunk.path,
        start=hunk.start,
        end=hunk.end,
        symbol=hunk.names[0] if hunk.names else "",
        language=language_of(hunk.path),
        origin=commit.commit,
    )


# ------------------------------------------------------------------------------- accepted patches

_MAX_ENTRIES = 1_000  # of a project that are searched; the oldest are ignored
_MAX_ISSUE, _MAX_CHANGE = 4_000, 6_000  # characters
_FILE = re.compile(r"^\+\+\+ b/(.+)$")
_HUNK = re.compile(r"^@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@ ?(.*)$")


class MemoryLine(BaseModel, frozen=True, extra="forbid"):
    """One accepted patch. `id` is the SHA-256 (hex) of issue and change; it prevents duplicates."""

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
        return self._append(_make_line(problem, diff, commit))

    def take_back(self, problem: Problem, diff: bytes, commit: str) -> bool:
        """Remove an accepted patch; return False if it is not there. Raises OSError."""
        line = _make_line(problem, diff, commit)
        return self._append(line.model_copy(update={"rejected": True}))

    def entries(self) -> tuple[MemoryLine, ...]:
        """Return the newest distinct entries that are not rejected, oldest first."""
        lines = {line.id: line for line in JsonLines(self.path, MemoryLine).news()}
        return tuple(line for line in lines.values() if not line.rejected)[-_MAX_ENTRIES:]

    def forget(self) -> int:
        """Remove all entries; return how many there were."""
        count = len(self.entries())
        self.path.unlink(missing_ok=True)
        return count

    def _append(self, line: MemoryLine) -> bool:
        present = any(entry.id == line.id for entry in self.entries())
        if present is line.rejected:
            JsonLines(self.path, MemoryLine).append(line)
        return present is line.rejected


def _make_line(problem: Problem, diff: bytes, commit: str) -> MemoryLine:
    paths, change = _summarised(diff.decode("utf-8", "replace"))
    change = mask_secrets(change).text[:_MAX_CHANGE]
    issue = mask_secrets(problem.text).text[:_MAX_ISSUE]
    return MemoryLine(
        id=sha256(f"{issue}\0{change}".encode("utf-8", "surrogatepass")).hexdigest(),
        commit=commit,
        title=mask_secrets(problem.title).text[:200],
        issue=issue,
        paths=paths,
        change=change,
    )


def _summarised(diff: str) -> tuple[tuple[str, ...], str]:
    paths: dict[str, None] = {}
    lines: list[str] = []
    secret = False
    for line in diff.split("\n"):
        if file := _FILE.match(line):
            secret = is_secret_path(file[1])
            paths[file[1]] = None
            lines.append(file[1])
        elif hunk := _HUNK.match(line):
            lines += [hunk[1]] if hunk[1] else []
        elif line.startswith(("+", "-")) and not line.startswith(("+++", "---")) and not secret:
            lines.append(line)
    return tuple(paths), "\n".join(lines)


@dataclass(frozen=True, slots=True)
class MemorySource:
    """The `CorpusSource` of accepted patches."""

    label: ClassVar = Label.MEMORY
    memory: Memory

    def passages(self, snapshot: Snapshot, cancel: threading.Event) -> Sequence[Passage]:
        """Return one passage for each patch, oldest first; raises CorpusUnavailable for none."""
        del snapshot, cancel
        entries = self.memory.entries()
        if not entries:
            raise CorpusUnavailable(
                "nothing is remembered of this project (`agent solve --remember` keeps accepted "
                "patches)"
            )
        return tuple(_memory_passage(entry) for entry in entries)


def _memory_passage(entry: MemoryLine) -> Passage:
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
