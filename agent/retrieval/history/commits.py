"""Messages, changed files, renames and changed functions of past commits, by two calls of `git log`
a batch. In hunks without context each line of content has a mark, so it cannot imitate git's own.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, TypeVar

from agent.errors import RepositoryError

if TYPE_CHECKING:
    from agent.repository import GitRepository

MAX_LISTED_FILES = 50
"""Commits with more files are reformattings or imports: only their size and renames are stored."""

MAX_HUNK_FILES = 12
"""Hunks are read only for commits with at most so many files; others are not evidence."""

MAX_MESSAGE = 4_000  # characters; the rest of a longer message is usually a pasted log
MAX_RENAMES = 5_000  # most renames read from one commit
_MAX_FUNCTIONS = 40  # for one file in one commit; more are a rewrite
_BATCH = 100  # commits in one call of git: limits memory and the delay of cancellation
RENAME_LIMIT = 500  # files on each side whose contents git compares; identical files always match
_FILE_MODES = frozenset({"100644", "100755", "120000"})
_BIG_FILE = 1_000_000  # bytes; the same as MAX_FILE_BYTES of a snapshot

_Contents = TypeVar("_Contents")

_TRAILER = re.compile(
    r"^(?:co-authored|signed-off|reviewed|acked|tested|reported|suggested|committed|approved)-by:",
    re.IGNORECASE,
)


STRICT = {"strict": True, "extra": "forbid"}
"""Configuration of pydantic for cached records: the file may be forged, so nothing is converted."""


@dataclass(frozen=True, slots=True)
class Touch:
    """One file that a commit changed, with its path after the commit and the changed functions."""

    __pydantic_config__: ClassVar = STRICT
    path: str
    functions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CommitFacts:
    """A commit's message and changes. `size` counts all changed files."""

    __pydantic_config__: ClassVar = STRICT

    commit: str
    subject: str
    body: str
    size: int
    touches: tuple[Touch, ...]
    renames: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """One changed file. `status` is git's letter."""

    status: str
    path: str
    before: str = ""


@dataclass(frozen=True, slots=True)
class Listed:
    """A commit as git lists it. The message lacks trailers and is cut at MAX_MESSAGE."""

    commit: str
    subject: str
    body: str
    changes: tuple[Change, ...]

    @property
    def renames(self) -> tuple[tuple[str, str], ...]:
        """Pairs (before, after) of paths, at most MAX_RENAMES."""
        pairs = ((change.before, change.path) for change in self.changes)
        return tuple(pair for pair in pairs if all(pair))[:MAX_RENAMES]


def walk(
    git: GitRepository,
    commits: Sequence[str],
    read: Callable[[Sequence[Listed]], Mapping[str, _Contents]],
) -> Iterator[list[tuple[Listed, _Contents | None]]]:
    """Yield batches of these commits in their order, with what `read` returns, which a commit lacks
    whose blobs are not all there, as in a partial clone. Raises RepositoryError.
    """
    for start in range(0, len(commits), _BATCH):
        batch = commits[start : start + _BATCH]
        try:
            listed = _list_commits(git, batch)
            contents = read(listed)
        except RepositoryError:
            lacking = _lack_blobs(git, batch)
            if not lacking:
                raise
            whole = _list_commits(git, [name for name in batch if name not in lacking])
            contents = read(whole)
            # Identical files are found without their contents.
            others = _list_commits(git, [name for name in batch if name in lacking], "-M100%")
            by_name = {one.commit: one for one in (*whole, *others)}
            listed = [by_name[name] for name in batch]
        yield [(one, contents.get(one.commit)) for one in listed]


def _lack_blobs(git: GitRepository, commits: Sequence[str]) -> frozenset[str]:
    """Return the commits with a changed file of which the repository lacks a version."""
    output = git.changes(commits, "--raw", "--no-abbrev", "--no-renames", "--format=tformat:%H")
    commit, blobs = "", dict[tuple[str, str], None]()
    for line in output.decode("utf-8", "replace").splitlines():
        if not line.startswith(":"):
            commit = line or commit
            continue
        before, after, *ids = line[1:].split(" ")[:4]
        modes = (before, after)
        blobs |= {
            (commit, oid): None for mode, oid in zip(modes, ids, strict=True) if mode in _FILE_MODES
        }
    stdin = "".join(f"{oid}\n" for _, oid in blobs).encode()
    found = git.call("cat-file", "--batch-check", "--buffer", stdin=stdin).stdout.decode()
    missing = {line.split()[0] for line in found.splitlines() if line.endswith(" missing")}
    return frozenset(commit for commit, oid in blobs if oid in missing)


def read_commits(git: GitRepository, commits: Sequence[str]) -> Iterator[tuple[CommitFacts, ...]]:
    """Yield batches of the facts of these commits, as `walk` does. Raises RepositoryError."""
    for batch in walk(git, commits, partial(_functions, git)):
        yield tuple(_facts(one, functions or {}) for one, functions in batch)


def _facts(one: Listed, functions: Mapping[int, tuple[str, ...]]) -> CommitFacts:
    changes = one.changes if len(one.changes) <= MAX_LISTED_FILES else ()
    touches = tuple(
        Touch(change.path, functions.get(number, ()))
        for number, change in enumerate(changes)
        if change.path
    )
    size = len(one.changes)
    return CommitFacts(one.commit, one.subject, one.body, size, touches, one.renames)


_FORMAT = "--format=tformat:%H%x00%s%x00%b%x00"
_STATUS = re.compile(rb"\n?([A-Z])[0-9]{0,3}")  # `\nM`, `A`, `R087`; no commit's id


def _list_commits(git: GitRepository, commits: Sequence[str], renames: str = "-M") -> list[Listed]:
    output = git.changes(
        commits, "-z", "--name-status", renames, f"-l{RENAME_LIMIT}", _FORMAT,
        attributes=_ATTRIBUTES, configuration=DIFF_CONFIGURATION,
    )  # fmt: skip
    listed = list(parse_listing(output))
    if [one.commit for one in listed] != list(commits):
        raise RepositoryError("git log gave other commits than asked; check the repository")
    return listed


def parse_listing(output: bytes) -> Iterator[Listed]:
    """Parse `<id> NUL <subject> NUL <body> NUL NUL`, then `<status> NUL <path> NUL` by change."""
    fields = output.split(b"\0")
    at = 0
    while at + 3 < len(fields):
        commit, subject, body = fields[at : at + 3]
        at += 4  # the fourth is the empty field that ends the message
        changes: list[Change] = []
        while at + 1 < len(fields) and (match := _STATUS.fullmatch(fields[at])):
            status = match[1].decode("ascii")
            paths = [_path(name) for name in fields[at + 1 : at + (3 if status in "RC" else 2)]]
            changes.append(Change(status, paths[-1], paths[0] if status == "R" else ""))
            at += 1 + len(paths)
        identity = commit.decode("ascii", "replace")
        yield Listed(identity, _message(subject), _message(body), tuple(changes))


def _message(text: bytes) -> str:
    lines = text.decode("utf-8", "replace").splitlines()
    return "\n".join(line for line in lines if not _TRAILER.match(line)).strip()[:MAX_MESSAGE]


def _path(name: bytes) -> str:
    try:
        return name.decode("utf-8")
    except UnicodeDecodeError:
        return ""


# git's own patterns for hunk headers. git has none for JavaScript.
_DRIVERS: Mapping[str, str] = {
    "python": "py pyi pyx pxd",
    "ruby": "rb rake",
    "golang": "go",
    "rust": "rs",
    "java": "java",
    "kotlin": "kt kts",
    "php": "php",
    "csharp": "cs",
    "cpp": "c h cc cpp cxx hh hpp hxx",
    "elixir": "ex exs",
    "perl": "pl pm",
    "patchshot-script": "js jsx mjs cjs ts tsx mts cts vue svelte",
}
DIFF_DRIVERS = "".join(
    f"*.{suffix} diff={driver}\n" for driver, suffixes in _DRIVERS.items()
    for suffix in suffixes.split()
)  # fmt: skip
"""Attributes that assign a pattern for function names to each kind of file."""

_ATTRIBUTES = "* -diff\n" + DIFF_DRIVERS  # all other files have no hunks

# In order: not a statement; a definition; a function as a value; a method. git shows the first
# group.
_SCRIPT_HEADER = "\n".join(
    (
        r"!^[[:space:]]*(if|for|while|switch|catch|return|else|do|new|throw|await)[^A-Za-z0-9_$]",
        r"^[[:space:]]*(((export|default|async|declare|abstract)[[:space:]]+)*"
        r"(function|class|interface|enum|namespace)[[:space:]*].*)",
        r"^[[:space:]]*((export[[:space:]]+)?(const|let|var)[[:space:]]+[A-Za-z0-9_$]+.*="
        r"[[:space:]]*(async[[:space:]]*)?(function|\(|[A-Za-z0-9_$]+[[:space:]]*=>).*)",
        r"^[[:space:]]*(((async|static|public|private|protected|override|get|set)[[:space:]]+)*"
        r"[A-Za-z0-9_$#]+[[:space:]]*\(.*\{)[[:space:]]*$",
    )
)
DIFF_CONFIGURATION = (
    f"diff.patchshot-script.xfuncname={_SCRIPT_HEADER}",
    f"core.bigFileThreshold={_BIG_FILE}",
)
"""Configuration for `DIFF_DRIVERS`. Files above the size limit have no hunks."""

_MODIFIERS = (
    rb"(?:(?:async|export|default|pub(?:\([^)\n]*\))?|public|private|protected|static|abstract|final"
    rb"|suspend)[ \t]+)*"
)
_KEYWORDS = rb"(?:def|class|func|fn|fun|function|defp|sub|interface|struct|trait|enum)"
DEFINITION = _MODIFIERS + _KEYWORDS + rb"[ \t*]"
_STRUCTURE = re.compile(
    rb"^(?:commit (?P<commit>[0-9a-f]{40})$"
    rb"|(?P<file>diff )--git "
    rb"|@@ -\S+ \+\S+ @@(?P<header>.*)\n(?P<first>(?:[-+][ \t]*\n)*(?:[-+].*)?)"
    rb"|(?=[-+][ \t]*" + DEFINITION + rb")(?P<changed>.*))",
    re.MULTILINE,
)  # fmt: skip
STARTS_DEFINITION = re.compile(rb"(?:[-+][ \t]*\n)*[-+][ \t]*(?:@|#\[|" + DEFINITION + rb")")

_KEYWORD_NAME = re.compile(
    r"\b(?:def|defp|class|function|func|fn|fun|sub|interface|struct|enum|trait|impl|module|object"
    r"|namespace|const|let|var)\b[\s*]*(?:\([^)]*\)\s*)?(?:self\.)?([A-Za-z_$][\w$]*)"
)
_CALLED_NAME = re.compile(r"([A-Za-z_$~][\w$]*)\s*\(")


def _functions(
    git: GitRepository, listed: Sequence[Listed]
) -> dict[str, dict[int, tuple[str, ...]]]:
    small = [one for one in listed if 0 < len(one.changes) <= MAX_HUNK_FILES]
    diff = git.changes(
        [one.commit for one in small],
        "-p", "-U0", "-M", f"-l{RENAME_LIMIT}", "--diff-filter=MR", "--format=tformat:commit %H",
        attributes=_ATTRIBUTES, configuration=DIFF_CONFIGURATION,
    )  # fmt: skip
    named = parse_hunks(diff)
    functions = {}
    for one in small:
        # The diff lists changed and renamed files only, in order.
        numbers = [number for number, change in enumerate(one.changes) if change.status in "MR"]
        names = named.get(one.commit, ())
        functions[one.commit] = (
            dict(zip(numbers, names, strict=True)) if len(numbers) == len(names) else {}
        )
    return functions


def parse_hunks(diff: bytes) -> Mapping[str, Sequence[tuple[str, ...]]]:
    """Return the distinct function names for each file of each commit, in order."""
    names: defaultdict[str, list[dict[str, None]]] = defaultdict(list)
    commit = ""
    for match in _STRUCTURE.finditer(diff):
        if match["commit"]:
            commit = match["commit"].decode("ascii")
        elif match["file"]:
            names[commit].append({})
        elif names[commit]:
            names[commit][-1].update(dict.fromkeys(_names(match)))
    return {
        commit: [tuple(own)[:_MAX_FUNCTIONS] for own in files] for commit, files in names.items()
    }


def _names(match: re.Match[bytes]) -> Iterator[str]:
    """Yield the functions that a hunk's header or a changed line names."""
    if match["changed"] is not None:
        yield from defined_name(match["changed"])
    elif match["header"] is not None:
        first = match["first"]
        if STARTS_DEFINITION.match(first):
            # The function in git's header ends before this definition.
            yield from defined_name(first.rpartition(b"\n")[2])
        else:
            yield from defined_name(match["header"])


def defined_name(line: bytes) -> Iterator[str]:
    """Yield the name that a line defines, if any."""
    text = line.decode("utf-8", "replace")
    match = _KEYWORD_NAME.search(text) or _CALLED_NAME.search(text)
    if match:
        yield match[1]
