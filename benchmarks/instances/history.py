"""Commits that repair a fault and bring its test, read from a project's history."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from agent.repository.git import GitRepository
from benchmarks.instances.messages import describe
from benchmarks.instances.parts import Parts, Touched, sort_parts

_AT_ONCE = 500  # commits in one call of git

_HEAD = re.compile(r"[0-9a-f]{40} (?:[0-9a-f]{40} ?)*")
_COUNTS = re.compile(r"\n?(\d+|-)\t(\d+|-)\t(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Repair:
    """A commit that may become an instance. `problem` is its message as the text of an issue."""

    commit: str
    parent: str
    problem: str
    parts: Parts


@dataclass(frozen=True, slots=True)
class Entry:
    """A commit as the log has it."""

    commit: str
    parent: str
    message: str
    touched: tuple[Touched, ...]


def repairs(git: GitRepository, repo: str, tip: str, limit: int) -> Iterator[Repair]:
    """Of the last `limit` commits those that fit, newest first; of equal messages the newest.

    Raises RepositoryError.
    """
    seen: set[str] = set()
    commits = git.ancestors(git.resolve(tip), limit)
    for start in range(0, len(commits), _AT_ONCE):
        for entry in read_log(git, commits[start : start + _AT_ONCE]):
            parts = sort_parts(entry.touched)
            problem = describe(entry.message, repo.rpartition("/")[2]) if parts else None
            if parts is None or problem is None or problem.casefold() in seen:
                continue
            seen.add(problem.casefold())
            yield Repair(entry.commit, entry.parent, problem, parts)


def diff(git: GitRepository, commit: str, paths: Sequence[str]) -> str:
    """What a commit changes in these files, as git prints it. Raises RepositoryError."""
    output = git.changes([commit], "--format=", "-p", "--no-renames", "--full-index", "--", *paths)
    return output.decode("utf-8", "replace").lstrip("\n")


def read_log(git: GitRepository, commits: Sequence[str]) -> Iterator[Entry]:
    """The entries of these commits. Raises RepositoryError."""
    output = git.changes(commits, "--numstat", "-z", "--no-renames", "--format=%x00%H %P%x00%B%x00")
    return parse_log(output)


def parse_log(output: bytes) -> Iterator[Entry]:
    """Records of `commit parent`, the message, then counts and paths, all ended by NUL.

    Commits without exactly one parent are left out.
    """
    tokens = output.decode("utf-8", "replace").split("\0")
    # A message may look like a head, but the empty field before a head it does not have.
    heads = [
        at for at in range(1, len(tokens) - 1)
        if _HEAD.fullmatch(tokens[at]) and not tokens[at - 1].strip("\n")
    ]  # fmt: skip
    for at, end in pairwise([*heads, len(tokens)]):
        commit, *parents = tokens[at].split()
        if len(parents) != 1:
            continue
        counts = (_COUNTS.fullmatch(token) for token in tokens[at + 2 : end])
        touched = tuple(Touched(c[3], _sum(c[1], c[2])) for c in counts if c)
        yield Entry(commit, parents[0], tokens[at + 1], touched)


def _sum(added: str, removed: str) -> int | None:
    return None if "-" in (added, removed) else int(added) + int(removed)
