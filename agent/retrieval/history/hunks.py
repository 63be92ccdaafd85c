"""The lines that past commits added: git's own hunks without context lines, each with its enclosing
function. Changes up to six lines apart are one hunk, as in git's default diff.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, ClassVar

from agent.repository import checked_path, decode, is_generated_path, is_vendored_path
from agent.repository.unified_diff import DiffHunk, read_diff
from agent.retrieval.history.commits import (
    DEFINITION,
    DIFF_CONFIGURATION,
    DIFF_DRIVERS,
    MAX_LISTED_FILES,
    RENAME_LIMIT,
    STARTS_DEFINITION,
    STRICT,
    Listed,
    defined_name,
    walk,
)
from agent.retrieval.history.table import CachedHistory
from agent.shared.secrets import mask_secrets

if TYPE_CHECKING:
    from agent.repository import GitRepository

MIN_ADDED = 3
"""Least lines that a hunk adds: smaller ones are version numbers, imports or typos."""

MAX_HUNKS = 100
"""Most hunks of one commit, the largest first: a commit with more is a rewrite."""

MAX_LINES = 60  # in a hunk's text, as in a window of code: the start describes a new file
MAX_CHARS = 3_000
_MAX_NAMES = 20  # most functions of a hunk; the first ones of a new file
_MAX_CONTEXT = 120  # characters; git itself cuts at 80 bytes by default
_MAX_LINE = 400  # mean characters of a line; longer means minified or encoded
_GAP = "--inter-hunk-context=6"  # joins the same changes as git's default of three context lines

_DATA = (
    ".lock", ".snap", ".map", ".svg", ".ipynb", ".po", ".pot", ".csv", ".tsv", ".diff", ".patch",
)  # fmt: skip
"""Data files that tools write; left out like generated and vendored files (`agent.repository`)."""

DEFAULT_PATTERNS = ("generated/",)


def is_chosen(path: str, patterns: Sequence[str]) -> bool:
    """Whether hunks of this path are read: the last matching glob decides, as in a `.gitignore`."""
    for pattern in reversed(patterns):
        glob = pattern.removeprefix("!")
        if _matches(path, glob):
            return glob != pattern
    if path.lower().endswith(_DATA):
        return False
    return not (is_generated_path(path) or is_vendored_path(path))


def _matches(path: str, glob: str) -> bool:
    if glob.endswith("/"):
        return fnmatchcase(f"/{path}", f"*/{glob.removeprefix('/')}*")
    return fnmatchcase(path if "/" in glob else path.rpartition("/")[2], glob)


@dataclass(frozen=True, slots=True)
class AddedHunk:
    """Lines that a commit added in one place: `start` to `end` of the file after it. `context`: the
    line that git names the hunk by. `names`: functions and classes that it is in or defines. `text`
    is cut at MAX_LINES and MAX_CHARS; `added` counts all lines.
    """

    __pydantic_config__: ClassVar = STRICT
    path: str
    start: int
    end: int
    context: str
    names: tuple[str, ...]
    text: str
    added: int


@dataclass(frozen=True, slots=True)
class CommitHunks:
    """The hunks of one commit by path and line."""

    __pydantic_config__: ClassVar = STRICT
    commit: str
    subject: str
    hunks: tuple[AddedHunk, ...] = ()


_FORMAT = 5
"""Increase when the hunks of a commit or their text change; older records are then ignored."""


@dataclass(frozen=True, slots=True)
class HunkHistory(CachedHistory[CommitHunks]):
    """Loads hunks of the paths that `patterns` choose."""

    stage = "hunks"
    record = CommitHunks
    patterns: tuple[str, ...] = DEFAULT_PATTERNS

    def key_text(self, commit: str) -> str:
        """Return the name of a commit's record."""
        return "\0".join((f"hunks {_FORMAT}|{commit}", *self.patterns))

    def read(self, git: GitRepository, names: Sequence[str]) -> Iterator[Sequence[CommitHunks]]:
        """Read commits with git."""
        for batch in read_hunks(git, names, self.patterns):
            yield [without_secrets(commit) for commit in batch]


def without_secrets(commit: CommitHunks) -> CommitHunks:
    """Mask secrets in texts, contexts and the subject."""
    hunks = tuple(
        replace(hunk, text=mask_secrets(hunk.text).text, context=mask_secrets(hunk.context).text)
        for hunk in commit.hunks
    )
    return replace(commit, subject=mask_secrets(commit.subject).text, hunks=hunks)


def read_hunks(
    git: GitRepository, commits: Sequence[str], patterns: Sequence[str] = DEFAULT_PATTERNS
) -> Iterator[tuple[CommitHunks, ...]]:
    """Yield batches of the hunks of these commits, as `walk` does. Raises RepositoryError."""

    def diffs(listed: Sequence[Listed]) -> Mapping[str, list[AddedHunk]]:
        diff = git.changes(
            [one.commit for one in listed if _is_read(one, patterns)],
            "-p", "-U0", _GAP, "-M", f"-l{RENAME_LIMIT}", "--diff-filter=AMR",
            "--src-prefix=a/", "--dst-prefix=b/", "--format=tformat:commit %H",
            attributes=DIFF_DRIVERS, configuration=("core.quotePath=false", *DIFF_CONFIGURATION),
        )  # fmt: skip
        return parse_patch(diff, patterns)

    for batch in walk(git, commits, diffs):
        yield tuple(_of_commit(one, hunks or ()) for one, hunks in batch)


def _is_read(listed: Listed, patterns: Sequence[str]) -> bool:
    paths = (change.path for change in listed.changes if change.status in "AMR" and change.path)
    few = 0 < len(listed.changes) <= MAX_LISTED_FILES
    return few and any(is_chosen(path, patterns) for path in paths)


def _of_commit(listed: Listed, hunks: Sequence[AddedHunk]) -> CommitHunks:
    largest = sorted(hunks, key=lambda hunk: (-hunk.added, hunk.path, hunk.start))[:MAX_HUNKS]
    ordered = sorted(largest, key=lambda hunk: (hunk.path, hunk.start))
    return CommitHunks(listed.commit, listed.subject, tuple(ordered))


_COMMIT = re.compile(rb"^commit ([0-9a-f]{40})\n", re.MULTILINE)
_DEFINES = re.compile(rb"[ \t]*" + DEFINITION)


def parse_patch(diff: bytes, patterns: Sequence[str]) -> Mapping[str, list[AddedHunk]]:
    """Return the hunks of `git log -p` of at least MIN_ADDED lines, by commit. Raises DiffError."""
    _, *parts = _COMMIT.split(diff)
    hunks: dict[str, list[AddedHunk]] = {}
    for commit, patch in zip(parts[::2], parts[1::2], strict=True):
        own = hunks.setdefault(commit.decode("ascii"), [])
        for file in read_diff(patch):
            path = checked_path(os.fsencode(file.new or ""))
            if path and path.isprintable() and is_chosen(path, patterns):
                own += filter(None, (_added(path, hunk) for hunk in file.hunks))
    return hunks


def _added(path: str, hunk: DiffHunk) -> AddedHunk | None:
    """Return the hunk; None if it adds too little or no human-written lines."""
    added = [line.text for line in hunk.lines if line.mark == "+"]
    if len(added) < MIN_ADDED or sum(map(len, added)) > (_MAX_LINE + 1) * len(added):
        return None
    text = decode(b"".join(added[:MAX_LINES])).text
    if not text.strip():
        return None
    context, names = _place(hunk)
    end = hunk.new + max(sum(line.mark != "-" for line in hunk.lines), 1) - 1
    text = text[:MAX_CHARS].rstrip()
    return AddedHunk(path, hunk.new, end, context, names, text, len(added))


def _place(hunk: DiffHunk) -> tuple[str, tuple[str, ...]]:
    line = hunk.place
    first = next((n for n, one in enumerate(hunk.lines) if one.text.strip()), 0)
    head = b"".join(one.mark.encode() + one.text for one in hunk.lines[: first + 1])
    definitions = [one for one in hunk.lines if _DEFINES.match(one.text)][:_MAX_NAMES]
    texts = [one.text for one in definitions]
    if STARTS_DEFINITION.match(head):  # the function in git's header ends before this hunk
        line = next((one.text for one in definitions if one.mark == "+"), b"")
    else:
        texts.insert(0, line)
    names = dict.fromkeys(name for text in texts for name in defined_name(text))
    return decode(line.strip()).text.strip()[:_MAX_CONTEXT], tuple(names)[:_MAX_NAMES]
