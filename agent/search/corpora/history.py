"""Past changes as a corpus: each distinct hunk of the ancestor commits is a passage."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agent.errors import RepositoryError
from agent.repository import language_of, locate, open_repository
from agent.retrieval.history import CommitHunks, HunkHistory, NoHistory, printable
from agent.search.corpora.pull_requests import PullRequest, parse_messages, pull_requests
from agent.search.passages import CorpusUnavailable, Label, Passage
from agent.search.project import project_name
from agent.search.text_format import described
from agent.shared.secrets import mask_secrets

if TYPE_CHECKING:
    from agent.retrieval.history import AddedHunk
    from agent.types.protocols import Snapshot

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
            requests = self._requests(snapshot)
        except (NoHistory, RepositoryError) as error:
            raise CorpusUnavailable(f"no commit history: {error}") from None
        if commits and not any(one.complete for one in commits):
            raise CorpusUnavailable(
                "no commit history: the clone lacks the contents of past commits; "
                "fetch them (git fetch --refetch --no-filter)"
            )
        return tuple(distinct_passages(commits, requests))

    def _requests(self, snapshot: Snapshot) -> Mapping[str, PullRequest]:
        """Return the pull requests of the past commits. Raises RepositoryError."""
        with open_repository(locate(snapshot.root).root) as git:
            output = git.messages(snapshot.commit, self.history.limit)
        return pull_requests(list(parse_messages(output)), project_name(snapshot))


def distinct_passages(
    commits: Iterable[CommitHunks], requests: Mapping[str, PullRequest]
) -> Iterator[Passage]:
    """Yield one passage for each distinct text, at its newest place; `also` has the others."""
    places: dict[tuple[str, ...], list[Passage]] = {}
    for commit in commits:
        request = requests.get(commit.commit)
        for hunk in commit.hunks:
            text = (commit.subject, hunk.path, hunk.context, hunk.text)
            places.setdefault(text, []).append(passage_of(commit, hunk, request))
    for first, *others in places.values():
        yield replace(first, also=tuple(others)) if others else first


def passage_of(commit: CommitHunks, hunk: AddedHunk, request: PullRequest | None) -> Passage:
    """Convert a hunk to a passage, labelled with its commit and pull request."""
    number = "" if request is None else f" ({printable(request.label)})"
    name = hunk.names[0] if hunk.names else hunk.context
    return Passage(
        corpus=Label.HISTORY,
        title=f"{commit.commit[:_ID]}{number}: {printable(commit.subject)}",
        text=described(name, "change", hunk.path, f"{commit.subject}\n{hunk.text}"),
        path=hunk.path,
        start=hunk.start,
        end=hunk.end,
        symbol=hunk.names[0] if hunk.names else "",
        language=language_of(hunk.path),
        origin=commit.commit,
        link="" if request is None else mask_secrets(request.link).text,
    )
