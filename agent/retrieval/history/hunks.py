"""The lines that past commits added: git's own hunks, each with its enclosing function.

Each batch of commits needs two calls of `git log`, as in `agent.retrieval.history.commits`: first
the changed paths of each commit, then the diffs of the commits that changed few files. Hunks have
no context lines, but are split as in git's default diff: changes up to six lines apart are one
hunk. The parser counts the lines that each hunk's header announces, so file contents cannot imitate
git's own lines.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, ClassVar

from agent.repository import checked_path, decode, is_generated_path, is_vendored_path
from agent.repository.unified_diff import HUNK_HEADER
from agent.retrieval.history.commits import (
    DEFINITION,
    DIFF_CONFIGURATION,
    DIFF_DRIVERS,
    MAX_LISTED_FILES,
    RENAME_LIMIT,
    STARTS_DEFINITION,
    STRICT,
    Listed,
    Walked,
    defined_name,
    message_text,
    walk,
)
from agent.retrieval.history.table import CachedHistory
from agent.shared.secrets import mask_secrets

if TYPE_CHECKING:
    from agent.repository import GitRepository

MIN_ADDED = 3
"""Least lines that a hunk adds by default: smaller ones are version numbers, imports or typos."""

MAX_HUNKS = 100
"""Most hunks of one commit by default, the largest first: a commit with more is a rewrite."""

MAX_LINES = 60  # in a hunk's text, as in a window of code: the start describes a new file
MAX_CHARS = 3_000
_MAX_NAMES = 20  # most functions of a hunk; the first ones of a new file
_MAX_CONTEXT = 120  # characters; git itself cuts at 80 bytes by default
_MAX_LINE = 400  # mean characters of a line; longer means minified or encoded
_BATCH_FILES = 400  # changed files in one call: limits the size of git's output
_GAP = "--inter-hunk-context=6"  # joins the same changes as git's default of three context lines

_DATA = (
    ".lock", ".snap", ".map", ".svg", ".ipynb", ".po", ".pot", ".csv", ".tsv", ".diff", ".patch",
)  # fmt: skip
"""Data files that tools write; left out like generated and vendored files (`agent.repository`)."""


@dataclass(frozen=True, slots=True)
class HunkFilter:
    """Selects the hunks that are read, by path and size.

    `patterns` are globs (`*` also matches `/`), matched with the whole path, or with the file's
    name if the pattern has no `/`. `name/` matches what is below a folder of that name. As in a
    `.gitignore`, a pattern excludes, `!` before it includes, and the last match decides. If none
    matches, the built-in rules decide. `min_added`: lines; `max_hunks`: of one commit.
    """

    patterns: tuple[str, ...] = ("generated/",)
    min_added: int = MIN_ADDED
    max_hunks: int = MAX_HUNKS

    def keeps(self, path: str) -> bool:
        """Whether hunks of this path are read."""
        for pattern in reversed(self.patterns):
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
    """Lines that a commit added to a file in one place.

    `path` and the lines `start` to `end` (1-based, inclusive, of the whole hunk) refer to the file
    after the commit. `context`: the line that git names the hunk by, "" for none. `names`:
    functions and classes that the hunk is in or defines, last parts only. `text`: the added lines,
    joined by line feeds, cut at MAX_LINES and MAX_CHARS; `added` counts all of them.
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
    """The hunks of one commit by path and line.

    `size` counts all changed files, even if the commit has too many for its hunks to be read.
    `left_out` counts hunks beyond the most of one commit. `complete` is False if contents were
    missing (a partial clone); the hunks are then unknown.
    """

    __pydantic_config__: ClassVar = STRICT
    commit: str
    subject: str
    size: int
    hunks: tuple[AddedHunk, ...] = ()
    renames: tuple[tuple[str, str], ...] = ()  # (before, after)
    left_out: int = 0
    complete: bool = True


_FORMAT = 2
"""Increase when the hunks of a commit or their text change; older records are then ignored."""


@dataclass(frozen=True, slots=True)
class HunkHistory(CachedHistory[CommitHunks]):
    """Loads hunks of the `chosen` paths. Secrets are masked before anything is stored."""

    stage = "hunks"
    record = CommitHunks
    most_bytes = 256 * 1024 * 1024
    chosen: HunkFilter = field(default_factory=HunkFilter)

    def key_text(self, commit: str) -> str:
        """Return the name of a commit's record."""
        chosen = self.chosen
        selection = "\0".join((*chosen.patterns, f"{chosen.min_added}|{chosen.max_hunks}"))
        return f"hunks {_FORMAT}|{commit}|{selection}"

    def read(self, git: GitRepository, names: Sequence[str]) -> Iterator[Sequence[CommitHunks]]:
        """Read commits with git."""
        for batch in read_hunks(git, names, self.chosen):
            yield [without_secrets(commit) for commit in batch]


def without_secrets(commit: CommitHunks) -> CommitHunks:
    """Mask secrets: the history still holds those that were removed from the tree."""
    hunks = tuple(
        replace(hunk, text=mask_secrets(hunk.text).text, context=mask_secrets(hunk.context).text)
        for hunk in commit.hunks
    )
    return replace(commit, subject=mask_secrets(commit.subject).text, hunks=hunks)


def read_hunks(
    git: GitRepository, commits: Sequence[str], chosen: HunkFilter
) -> Iterator[tuple[CommitHunks, ...]]:
    """Yield batches of the hunks of these commits, as `walk` does. Raises RepositoryError."""

    def diffs(listed: Sequence[Listed]) -> Mapping[str, Sequence[AddedHunk]]:
        return _diffs(git, [one for one in listed if _is_read(one, chosen)], chosen)

    for batch in walk(git, commits, diffs):
        yield tuple(_of_commit(one, chosen.max_hunks) for one in batch)


def _is_read(listed: Listed, chosen: HunkFilter) -> bool:
    if not 0 < len(listed.changes) <= MAX_LISTED_FILES:
        return False
    kept = (change for change in listed.changes if change.status in "AMR" and change.path)
    return any(chosen.keeps(change.path) for change in kept)


def _of_commit(walked: Walked[Sequence[AddedHunk]], most: int) -> CommitHunks:
    listed, hunks = walked.listed, walked.contents or ()
    largest = sorted(hunks, key=lambda hunk: (-hunk.added, hunk.path, hunk.start))[:most]
    return CommitHunks(
        listed.commit,
        message_text(listed.subject),
        len(listed.changes),
        tuple(sorted(largest, key=lambda hunk: (hunk.path, hunk.start))),
        listed.renames,
        len(hunks) - len(largest),
        walked.complete,
    )


def _diffs(
    git: GitRepository, listed: Sequence[Listed], chosen: HunkFilter
) -> Mapping[str, Sequence[AddedHunk]]:
    """Return hunks by commit."""
    found: dict[str, list[AddedHunk]] = {}
    for batch in _batches(listed):
        diff = git.changes(
            [one.commit for one in batch],
            "-p", "-U0", _GAP, "-M", f"-l{RENAME_LIMIT}", "--diff-filter=AMR",
            "--src-prefix=a/", "--dst-prefix=b/", "--format=tformat:commit %H",
            attributes=DIFF_DRIVERS, configuration=("core.quotePath=false", *DIFF_CONFIGURATION),
        )  # fmt: skip
        for commit, hunk in parse_patch(diff, chosen):
            found.setdefault(commit, []).append(hunk)
    return found


def _batches(listed: Sequence[Listed]) -> Iterator[list[Listed]]:
    batch: list[Listed] = []
    files = 0
    for one in listed:
        if batch and files + len(one.changes) > _BATCH_FILES:
            yield batch
            batch, files = [], 0
        batch.append(one)
        files += len(one.changes)
    if batch:
        yield batch


# ------------------------------------------------------------------------------------------ parsing

_COMMIT = re.compile(rb"commit ([0-9a-f]{40})")
_DEFINES = re.compile(rb"[ \t]*" + DEFINITION)


def parse_patch(diff: bytes, chosen: HunkFilter) -> Iterator[tuple[str, AddedHunk]]:
    """Yield commit id and hunk for each hunk of `git log -p` (see `_diffs`) with at least
    `chosen.min_added` added lines.

    Text outside diffs is skipped. A path that git quotes (a control character, a quote, a
    backslash) or that is not UTF-8 has no hunks; a snapshot leaves out such files too.
    """
    lines = _lines(diff)
    commit, path = "", ""
    for line in lines:
        if line.startswith(b"@@ ") and (header := HUNK_HEADER.fullmatch(line)):
            open_hunk = _OpenHunk.announced(header)
            open_hunk.read(lines)
            if path and commit and (hunk := open_hunk.finished(path, chosen.min_added)):
                yield commit, hunk
        elif line.startswith(b"+++ "):
            path = _chosen_path(line, chosen)
        elif line.startswith(b"diff "):
            path = ""
        elif line.startswith(b"commit ") and (match := _COMMIT.fullmatch(line)):
            commit = match[1].decode("ascii")


def _lines(data: bytes) -> Iterator[bytes]:
    """Yield lines without their line feeds. A list of short lines would take much more memory."""
    return (line.removesuffix(b"\n") for line in io.BytesIO(data))


def _chosen_path(line: bytes, chosen: HunkFilter) -> str:
    """Return the path of `+++ b/path` (a tab follows if it has a blank); "" if not wanted."""
    name = line.removeprefix(b"+++ ").removesuffix(b"\t")
    if not name.startswith(b"b/"):
        return ""  # quoted, or /dev/null
    path = checked_path(name[2:])
    return path if path and chosen.keeps(path) else ""


@dataclass(slots=True)
class _OpenHunk:
    """A hunk while its lines are read. `old`, `new`: lines of each side that are still to come."""

    old: int
    new: int
    start: int
    end: int
    context: bytes
    added: int = 0
    size: int = 0  # bytes added
    shown: list[bytes] = field(default_factory=list)  # the first MAX_LINES added lines
    head: list[bytes] = field(default_factory=list)  # to the first changed, non-blank line
    definitions: list[bytes] = field(default_factory=list)  # lines with their signs

    @classmethod
    def announced(cls, header: re.Match[bytes]) -> _OpenHunk:
        old, new = (1 if header[group] is None else int(header[group]) for group in (2, 4))
        start = int(header[3])
        return cls(old, new, start, start + max(new, 1) - 1, header[5])

    def read(self, lines: Iterator[bytes]) -> None:
        """Read the lines that the header announces, or up to the end of the diff."""
        begun = False
        while self.old > 0 or self.new > 0:
            line = next(lines, None)
            if line is None:
                return
            kind, content = line[:1], line[1:]
            if kind == b"\\":
                continue  # "\ No newline at end of file"
            self.old -= kind != b"+"
            self.new -= kind != b"-"
            if kind == b"+":
                self._add(content)
            if not begun:
                self.head.append(line)
                begun = bool(content.strip())
            if len(self.definitions) < _MAX_NAMES and _DEFINES.match(content):
                self.definitions.append(line)

    def _add(self, content: bytes) -> None:
        self.added += 1
        self.size += len(content)
        if self.added <= MAX_LINES:
            self.shown.append(content)

    def finished(self, path: str, min_added: int) -> AddedHunk | None:
        """Return the hunk; None if it adds too little or no human-written lines."""
        if self.added < min_added or self.size > _MAX_LINE * self.added:
            return None
        text = decode(b"\n".join(self.shown) + b"\n").text
        if not text.strip():
            return None
        return AddedHunk(
            path, self.start, self.end, self._context(), self._names(), text[:MAX_CHARS].rstrip(),
            self.added,
        )  # fmt: skip

    def _starts_definition(self) -> bool:
        """Whether the function in git's header ends before this hunk."""
        return STARTS_DEFINITION.match(b"\n".join(self.head)) is not None

    def _context(self) -> str:
        line = self.context
        if self._starts_definition():
            added = (one for one in self.definitions if one.startswith(b"+"))
            line = next(added, b"+")[1:]
        return decode(line.strip()).text.strip()[:_MAX_CONTEXT]

    def _names(self) -> tuple[str, ...]:
        header = () if self._starts_definition() else (self.context,)
        names: dict[str, None] = {}
        for line in (*header, *(one[1:] for one in self.definitions)):
            for name in defined_name(line):
                names.setdefault(name)
        return tuple(names)[:_MAX_NAMES]
