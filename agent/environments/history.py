"""Whether the history of a commit holds another one: for ranges of a spec that name commits."""

from __future__ import annotations

from collections.abc import Callable

from agent.repository.git import GitRepository

# More than any project has.
_MOST_COMMITS = 10_000_000


def history_of(git: GitRepository, commit: str) -> Callable[[str], bool]:
    """Says of a commit (7 to 40 hex digits) whether it is `commit` or one of its ancestors.

    Merges do not count. The history is read with the first question: ask while `git` is open.
    """
    history: list[frozenset[str]] = []

    def holds(wanted: str) -> bool:
        if not history:
            history.append(frozenset((commit, *git.ancestors(commit, _MOST_COMMITS))))
        return wanted in history[0] or any(each.startswith(wanted) for each in history[0])

    return holds
