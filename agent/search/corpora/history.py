"""Past changes as a corpus: each distinct hunk of the ancestor commits is a passage."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agent.errors import RepositoryError
from agent.history import CountedHunks, HunkHistory, NoHistory, hunk_text, printable
from agent.repository import language_of
from agent.search.passages import CorpusUnavailable, Label, Passage

if TYPE_CHECKING:
    from agent.history import AddedHunk
    from agent.protocols import Snapshot

_ID = 10  # characters of a commit id in a title


@dataclass(frozen=True, slots=True)
class HunkSource:
    """The `CorpusSource` of past changes.

    The `origin` of a passage is the newest commit that added the text. `path`, `start` and `end`
    refer to that commit; `symbol` is the function that contains the hunk.
    """

    history: HunkHistory

    @property
    def label(self) -> Label:
        """Return the label `[history]`."""
        return Label.HISTORY

    def passages(self, snapshot: Snapshot, cancel: threading.Event) -> Sequence[Passage]:
        """Return distinct hunks: newest commit first, then by path and line.

        Raises Cancelled. Raises CorpusUnavailable if no history can be read.
        """
        try:
            commits = replace(self.history, cancel=cancel).commits(snapshot)
        except (NoHistory, RepositoryError) as error:
            raise CorpusUnavailable(f"no commit history: {error}") from None
        if commits and not any(one.commit.complete for one in commits):
            raise CorpusUnavailable(
                "no commit history: the clone lacks the contents of past commits; "
                "fetch them (git fetch --refetch --no-filter)"
            )
        return tuple(distinct_passages(commits))


def distinct_passages(commits: Iterable[CountedHunks]) -> Iterator[Passage]:
    """Yield one passage for each distinct text, at its first occurrence."""
    seen: set[bytes] = set()
    for counted in commits:
        for hunk, digest in zip(counted.commit.hunks, counted.digests, strict=True):
            if digest not in seen:
                seen.add(digest)
                yield passage_of(counted, hunk)


def passage_of(counted: CountedHunks, hunk: AddedHunk) -> Passage:
    """Convert a hunk to a passage. Its `content` is the digest of the hunk in the table."""
    commit = counted.commit
    return Passage(
        corpus=Label.HISTORY,
        title=f"{commit.commit[:_ID]}: {printable(commit.subject)}",
        text=hunk_text(commit.subject, hunk),
        path=hunk.path,
        start=hunk.start,
        end=hunk.end,
        symbol=hunk.names[0] if hunk.names else "",
        language=language_of(hunk.path),
        origin=commit.commit,
    )
