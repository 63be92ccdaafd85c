"""What past commits added: git's own hunks, with the function each stands in.

Two reads of `git log` a batch of commits, as in `agent.repository.history`: the paths that each
commit changed, then the diffs of those that changed few enough. Hunks have no context around them
and are cut where git's default diff would cut them: changes up to six lines apart are one. Lines
are counted off as each hunk's header announces them, so that nothing in a file can imitate git's
own lines.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from agent.errors import RepositoryError
from agent.repository.history import (
    DEFINITION,
    DIFF_CONFIGURATION,
    DIFF_DRIVERS,
    MAX_LISTED_FILES,
    MAX_RENAMES,
    RENAME_LIMIT,
    STARTS_DEFINITION,
    Listed,
    defined_name,
    list_commits,
    message_text,
)
from agent.repository.languages import is_generated_path, is_vendored_path
from agent.repository.selection import checked_path
from agent.repository.text import decode

if TYPE_CHECKING:
    from agent.repository.git import GitRepository

MIN_ADDED = 3
"""Lines that a hunk adds at least: fewer are a version, an import, a typo. Deletions add none."""

MAX_HUNKS = 100
"""Of one commit, the largest: what is beyond them is part of a rewrite."""

MAX_LINES = 60  # of a hunk's text: as a window of code; a new file says in its beginning what it is
MAX_CHARS = 3_000
_MAX_NAMES = 20  # functions of a hunk: of a new file, the first
_MAX_CONTEXT = 120  # characters; git itself stops at 80 bytes, or wherever it is told
_MAX_LINE = 400  # characters a line on average: minified or encoded, whatever the file is called
_BATCH_COMMITS = 100  # how long a wish to stop goes unheard
_BATCH_FILES = 400  # changed files of the commits of one call: bounds what git prints at a time
_GAP = "--inter-hunk-context=6"  # git's default of three lines on either side joins these

_DATA = (
    ".lock", ".snap", ".map", ".svg", ".ipynb", ".po", ".pot", ".csv", ".tsv", ".diff", ".patch",
)  # fmt: skip
"""Left out beside what `agent.repository.languages` calls generated or vendored: tools write it."""


@dataclass(frozen=True, slots=True)
class HunkFilter:
    """Which paths' hunks are of interest.

    `patterns` are globs (`*` also matches `/`), tried on the whole path, or on the file's name
    where the pattern has no `/`. As in a `.gitignore` they leave out, one with `!` before it takes
    in again, and the last one that matches decides; where none does, the built-in rules do.
    """

    patterns: tuple[str, ...] = ()

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
    return fnmatchcase(path if "/" in glob else path.rpartition("/")[2], glob)


@dataclass(frozen=True, slots=True)
class Hunk:
    """Lines that a commit added to a file in one place.

    `path` and the lines `start` to `end` (1-based, inclusive; all of the hunk's) are those of the
    file after the commit. `context`: the line that git names the hunk by, "" for none. `names`:
    functions and classes that the hunk is in or defines, innermost names only. `text`: the added
    lines, joined by line feeds, cut at MAX_LINES and MAX_CHARS; `added` counts all of them.
    """

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

    `size` counts all changed files, also where the commit has too many for its hunks to be read.
    `left_out` counts hunks beyond MAX_HUNKS. `complete` False: contents were missing (a partial
    clone), so that nothing is known of the hunks.
    """

    commit: str
    subject: str
    size: int
    hunks: tuple[Hunk, ...] = ()
    renames: tuple[tuple[str, str], ...] = ()  # (before, after)
    left_out: int = 0
    complete: bool = True


def read_hunks(
    git: GitRepository, commits: Sequence[str], chosen: HunkFilter
) -> Iterator[tuple[CommitHunks, ...]]:
    """The hunks of these commits (no merges), in their order, some commits at a time.

    Raises RepositoryError where git fails, or a commit is missing.
    """
    for start in range(0, len(commits), _BATCH_COMMITS):
        yield _read_batch(git, commits[start : start + _BATCH_COMMITS], chosen)


def _read_batch(
    git: GitRepository, commits: Sequence[str], chosen: HunkFilter
) -> tuple[CommitHunks, ...]:
    try:
        listed = list_commits(git, commits, f"-M -l{RENAME_LIMIT}")
        found = _diffs(git, [one for one in listed if _is_read(one, chosen)], chosen)
        complete = True
    except RepositoryError:
        # A partial clone lacks contents. Names and equal renames need none.
        listed = list_commits(git, commits, "-M100%")
        found, complete = {}, False
    return tuple(_of_commit(one, found.get(one.commit, []), complete) for one in listed)


def _is_read(listed: Listed, chosen: HunkFilter) -> bool:
    if not 0 < len(listed.changes) <= MAX_LISTED_FILES:
        return False
    kept = (change for change in listed.changes if change.status in "AMR" and change.path)
    return any(chosen.keeps(change.path) for change in kept)


def _of_commit(listed: Listed, hunks: Sequence[Hunk], complete: bool) -> CommitHunks:
    largest = sorted(hunks, key=lambda hunk: (-hunk.added, hunk.path, hunk.start))[:MAX_HUNKS]
    renames = tuple((c.before, c.path) for c in listed.changes if c.before and c.path)
    return CommitHunks(
        listed.commit,
        message_text(listed.subject),
        len(listed.changes),
        tuple(sorted(largest, key=lambda hunk: (hunk.path, hunk.start))),
        renames[:MAX_RENAMES],
        len(hunks) - len(largest),
        complete,
    )


def _diffs(
    git: GitRepository, listed: Sequence[Listed], chosen: HunkFilter
) -> Mapping[str, Sequence[Hunk]]:
    """Hunks by commit."""
    found: dict[str, list[Hunk]] = {}
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
_HEADER = re.compile(rb"@@ -[0-9]+(?:,([0-9]+))? \+([0-9]+)(?:,([0-9]+))? @@ ?(.*)", re.DOTALL)
_DEFINES = re.compile(rb"[ \t]*" + DEFINITION)


def parse_patch(diff: bytes, chosen: HunkFilter) -> Iterator[tuple[str, Hunk]]:
    """Commit and hunk of each hunk of `git log -p` (see `_diffs`) that adds MIN_ADDED lines.

    What is no diff is passed over. A name that git quotes (a control character, a quote, a
    backslash) or that is not UTF-8 has no hunks: a snapshot does not show such files either.
    """
    lines = _lines(diff)
    commit, path = "", ""
    for line in lines:
        if line.startswith(b"@@ ") and (header := _HEADER.fullmatch(line)):
            open_hunk = _OpenHunk.announced(header)
            open_hunk.read(lines)
            if path and commit and (hunk := open_hunk.finished(path)) is not None:
                yield commit, hunk
        elif line.startswith(b"+++ "):
            path = _chosen_path(line, chosen)
        elif line.startswith(b"diff "):
            path = ""
        elif line.startswith(b"commit ") and (match := _COMMIT.fullmatch(line)):
            commit = match[1].decode("ascii")


def _lines(data: bytes) -> Iterator[bytes]:
    """Without their line feeds, one at a time: a list of short lines takes much more room."""
    return (line.removesuffix(b"\n") for line in io.BytesIO(data))


def _chosen_path(line: bytes, chosen: HunkFilter) -> str:
    """Of `+++ b/path`, with a tab after it where the path has a blank; "" for none of interest."""
    name = line.removeprefix(b"+++ ").removesuffix(b"\t")
    if not name.startswith(b"b/"):
        return ""  # quoted, or /dev/null
    path = checked_path(name[2:])
    return path if path and chosen.keeps(path) else ""


@dataclass(slots=True)
class _OpenHunk:
    """A hunk while its lines are read. `old`, `new`: lines still to come of either side."""

    old: int
    new: int
    start: int
    end: int
    context: bytes
    added: int = 0
    size: int = 0  # bytes added
    shown: list[bytes] = field(default_factory=list)  # the first MAX_LINES added
    head: list[bytes] = field(default_factory=list)  # up to the first changed line with content
    definitions: list[bytes] = field(default_factory=list)  # with their signs

    @classmethod
    def announced(cls, header: re.Match[bytes]) -> _OpenHunk:
        old, new = (1 if header[group] is None else int(header[group]) for group in (1, 3))
        start = int(header[2])
        return cls(old, new, start, start + max(new, 1) - 1, header[4])

    def read(self, lines: Iterator[bytes]) -> None:
        """Take the lines that the header announced; fewer where the diff ends."""
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

    def finished(self, path: str) -> Hunk | None:
        """The hunk; None for one that adds too little, or nothing that a person wrote."""
        if self.added < MIN_ADDED or self.size > _MAX_LINE * self.added:
            return None
        text = decode(b"\n".join(self.shown) + b"\n").text
        if not text.strip():
            return None
        return Hunk(
            path, self.start, self.end, self._context(), self._names(), text[:MAX_CHARS].rstrip(),
            self.added,
        )  # fmt: skip

    def _starts_definition(self) -> bool:
        """Then what git's header names has ended before."""
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
