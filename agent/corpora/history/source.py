"""Past changes as a corpus: every distinct hunk of the ancestors is a passage."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agent.corpora.history.store import HunkHistory, NoHistory
from agent.corpora.history.table import CountedHunks, hunk_text
from agent.corpora.passages import CorpusUnavailable, Label, Passage
from agent.errors import RepositoryError
from agent.repository.languages import language_of
from agent.retrieval.history_table import Renames, printable

if TYPE_CHECKING:
    from agent.protocols import Snapshot
    from agent.repository.hunks import Hunk

_ID = 10  # characters of a commit's id in a title


@dataclass(frozen=True, slots=True)
class HunkSource:
    """The `CorpusSource` of past changes.

    A passage's `origin` is the newest commit that added the text; `path`, `start` and `end` are as
    they were then (`today` follows renames), `symbol` is the function the hunk stands in.
    """

    history: HunkHistory

    @property
    def label(self) -> Label:
        """`[history]`."""
        return Label.HISTORY

    def passages(self, snapshot: Snapshot, cancel: threading.Event) -> Sequence[Passage]:
        """Distinct hunks, newest commit first, then by path and line.

        Raises CorpusUnavailable where there is no history or none of it can be read, and
        `pool.Cancelled`.
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
    """One passage for each text, where it occurred first."""
    seen: set[bytes] = set()
    for counted in commits:
        for hunk, digest in zip(counted.commit.hunks, counted.digests, strict=True):
            if digest not in seen:
                seen.add(digest)
                yield passage_of(counted, hunk)


def passage_of(counted: CountedHunks, hunk: Hunk) -> Passage:
    """A hunk as a passage. Its `content` is the hunk's digest in the table."""
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


def paths_of_today(commits: Iterable[CountedHunks]) -> Mapping[tuple[str, str], str]:
    """What renames made of each path: by commit and the path that it had after that commit.

    `commits` newest first. Paths that kept their name are left out.
    """
    renames = Renames()
    today: dict[tuple[str, str], str] = {}
    for counted in commits:
        commit = counted.commit
        for path in sorted({hunk.path for hunk in commit.hunks}):
            now = renames.today(path)
            if now != path:
                today[commit.commit, path] = now
        renames.go_back(commit.renames)
    return today
