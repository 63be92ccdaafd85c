"""Which files used to change together with given ones, from the history of the base."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from agent.errors import RepositoryError
from agent.repository.git import open_repository

# Commits of the base's history that are looked at, the latest first; what changed together years
# ago lies somewhere else today.
_COMMITS = 1_000

# Of one commit: a larger one is a release or a reformatting, in which everything changed.
_MOST_FILES = 12

# Two files that changed once, together, are no couple yet.
_PRIOR = 3.0

_SECONDS = 20.0


def changed_together(root: Path, commit: str, paths: Sequence[str]) -> Mapping[str, float]:
    """For other files how regularly they changed with any of these, 0..1, in order of path.

    The share of a given file's commits that the other was in, with a prior; the highest over the
    given paths.
    Empty where the history cannot be read: it is a hint, not a need.
    """
    try:
        with open_repository(root, seconds=_SECONDS) as git:
            commits = git.ancestors(commit, _COMMITS)
            listing = git.changes(commits, "--name-only", "--no-renames", "-z", "--format=%x01")
    except RepositoryError:
        return {}
    return _scores(_commits(listing), frozenset(paths))


def _commits(listing: bytes) -> list[list[str]]:
    """The paths of each commit that is small enough."""
    found = []
    for record in listing.split(b"\x01")[1:]:
        names = [name.strip(b"\n") for name in record.split(b"\0")]
        paths = [name.decode("utf-8", "surrogateescape") for name in names if name]
        if 1 < len(paths) <= _MOST_FILES:
            found.append(paths)
    return found


def _scores(commits: Sequence[Sequence[str]], seeds: frozenset[str]) -> dict[str, float]:
    best: dict[str, float] = {}
    for seed in sorted(seeds):
        holding = [paths for paths in commits if seed in paths]
        both = Counter(path for paths in holding for path in paths if path not in seeds)
        for path, count in both.items():
            best[path] = max(best.get(path, 0.0), count / (len(holding) + _PRIOR))
    return dict(sorted(best.items()))
