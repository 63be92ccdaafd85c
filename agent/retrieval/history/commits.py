"""Messages, changed files, renames and changed functions of past commits.

Each batch of commits needs two calls of `git log`. The first returns messages and changed paths.
The second returns hunks without context (`-p -U0`) of the smaller commits. git's hunk headers name
the enclosing function (gitattributes(5), "Defining a custom hunk-header"), and changed lines name
the functions that were added or renamed. In such a diff every line of content begins with `+`, `-`
or `\\`, so file contents cannot imitate git's own lines.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

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
    """One file that a commit changed, with its path after the commit and the changed functions.

    Function names are as in the source, without their class ("get", not "Client.get").
    """

    __pydantic_config__: ClassVar = STRICT
    path: str
    functions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CommitFacts:
    """A commit's message and changes. `size` counts all changed files, even if `touches` is empty.

    `renames` are pairs (before, after). `complete` is False if contents were missing (a partial
    clone). Paths that are not UTF-8 are counted in `size` only.
    """

    __pydantic_config__: ClassVar = STRICT

    commit: str
    subject: str
    body: str
    size: int
    touches: tuple[Touch, ...]
    renames: tuple[tuple[str, str], ...] = ()
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Walked(Generic[_Contents]):
    """A commit of a walk. `contents` is None if there are none; `complete` as in `CommitFacts`."""

    listed: Listed
    contents: _Contents | None
    complete: bool


def walk(
    git: GitRepository,
    commits: Sequence[str],
    read: Callable[[Sequence[Listed]], Mapping[str, _Contents]],
) -> Iterator[tuple[Walked[_Contents], ...]]:
    """Yield batches of these commits (no merges), in their order.

    `read` returns the contents of the commits that have some, by id, and raises RepositoryError if
    git lacks them. Raises RepositoryError if git fails or a commit is missing.
    """
    for start in range(0, len(commits), _BATCH):
        batch = commits[start : start + _BATCH]
        try:
            listed = list_commits(git, batch, f"-M -l{RENAME_LIMIT}")
            found, complete = read(listed), True
        except RepositoryError:
            # A partial clone lacks contents; listing names and exact renames needs none.
            listed = list_commits(git, batch, "-M100%")
            found, complete = {}, False
        yield tuple(Walked(one, found.get(one.commit), complete) for one in listed)


def read_commits(git: GitRepository, commits: Sequence[str]) -> Iterator[tuple[CommitFacts, ...]]:
    """Yield batches of the facts of these commits, as `walk` does. Raises RepositoryError."""
    for batch in walk(git, commits, partial(_functions, git)):
        yield tuple(_facts(one.listed, one.contents or {}, one.complete) for one in batch)


def _facts(listed: Listed, functions: Mapping[int, tuple[str, ...]], complete: bool) -> CommitFacts:
    subject, body = message_text(listed.subject), message_text(listed.body)
    kept = listed.changes if len(listed.changes) <= MAX_LISTED_FILES else ()
    touches = tuple(
        Touch(change.path, functions.get(number, ()))
        for number, change in enumerate(kept)
        if change.path
    )
    return CommitFacts(
        listed.commit, subject, body, len(listed.changes), touches, listed.renames, complete
    )


def message_text(text: bytes) -> str:
    """Return a message without its trailers, cut at MAX_MESSAGE characters."""
    lines = text.decode("utf-8", "replace").splitlines()
    return "\n".join(line for line in lines if not _TRAILER.match(line)).strip()[:MAX_MESSAGE]


# ------------------------------------------------------------------------------- messages and paths

_FORMAT = "--format=tformat:%H%x00%s%x00%b%x00"


@dataclass(frozen=True, slots=True)
class Change:
    """One changed file. `status` is git's letter.

    `path` is "" if it is not UTF-8; `before` is set only for a rename.
    """

    status: str
    path: str
    before: str = ""


@dataclass(frozen=True, slots=True)
class Listed:
    """A commit as git lists it. The message's bytes are usually UTF-8."""

    commit: str
    subject: bytes
    body: bytes
    changes: tuple[Change, ...]

    @property
    def renames(self) -> tuple[tuple[str, str], ...]:
        """Pairs (before, after) of paths, at most MAX_RENAMES."""
        pairs = ((change.before, change.path) for change in self.changes)
        return tuple(pair for pair in pairs if all(pair))[:MAX_RENAMES]


def list_commits(git: GitRepository, commits: Sequence[str], renames: str) -> list[Listed]:
    """List messages and changed paths of these commits. `renames`: git's rename options.

    Raises RepositoryError if git fails or a commit is missing.
    """
    output = git.changes(
        commits, "-z", "--name-status", *renames.split(), _FORMAT,
        attributes=_ATTRIBUTES, configuration=DIFF_CONFIGURATION,
    )  # fmt: skip
    listed = list(parse_listing(output))
    if [one.commit for one in listed] != list(commits):
        raise RepositoryError("git log gave other commits than asked; check the repository")
    return listed


def parse_listing(output: bytes) -> Iterator[Listed]:
    """Parse `<id> NUL <subject> NUL <body> NUL NUL`, then `<status> NUL <path> NUL` for each
    change.

    A rename has two paths. Messages and paths hold no NUL, so they cannot imitate another field.
    """
    fields = output.split(b"\0")
    at = 0
    while at + 3 < len(fields):
        commit, subject, body = fields[at : at + 3]
        at += 4  # the fourth is the empty field that ends the message
        changes: list[Change] = []
        while at + 1 < len(fields) and (status := _status(fields[at])):
            paths = 2 if status in "RC" else 1
            changes.append(_change(status, fields[at + 1 : at + 1 + paths]))
            at += 1 + paths
        yield Listed(commit.decode("ascii", "replace"), subject, body, tuple(changes))


def _status(field: bytes) -> str:
    """Return the letter of `\\nM`, `A`, `R087`; "" for a commit's id."""
    match = re.fullmatch(rb"\n?([A-Z])[0-9]{0,3}", field)
    return match[1].decode("ascii") if match else ""


def _change(status: str, paths: Sequence[bytes]) -> Change:
    if len(paths) > 1 and status == "R":
        return Change(status, _path(paths[1]), _path(paths[0]))
    return Change(status, _path(paths[-1]) if paths else "")


def _path(name: bytes) -> str:
    try:
        return name.decode("utf-8")
    except UnicodeDecodeError:
        return ""


# -------------------------------------------------------------------------------------------- hunks

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
    """Return the names of changed functions, by commit and number of the change."""
    small = [one for one in listed if 0 < len(one.changes) <= MAX_HUNK_FILES]
    diff = git.changes(
        [one.commit for one in small],
        "-p", "-U0", "-M", f"-l{RENAME_LIMIT}", "--diff-filter=MR", "--format=tformat:commit %H",
        attributes=_ATTRIBUTES, configuration=DIFF_CONFIGURATION,
    )  # fmt: skip
    named = parse_hunks(diff)
    return {one.commit: _by_change(one, named.get(one.commit, ())) for one in small}


def _by_change(listed: Listed, named: Sequence[tuple[str, ...]]) -> dict[int, tuple[str, ...]]:
    """Assign the names to changes. The diff lists changed and renamed files only, in order."""
    numbers = [number for number, change in enumerate(listed.changes) if change.status in "MR"]
    if len(numbers) != len(named):
        return {}
    return dict(zip(numbers, named, strict=True))


def parse_hunks(diff: bytes) -> Mapping[str, Sequence[tuple[str, ...]]]:
    """Return the distinct function names for each file of each commit, in order."""
    found: defaultdict[str, list[dict[str, None]]] = defaultdict(list)
    commit = ""
    for match in _STRUCTURE.finditer(diff):
        if match["commit"]:
            commit = match["commit"].decode("ascii")
        elif match["file"]:
            found[commit].append({})
        elif found[commit]:
            for name in _names(match):
                found[commit][-1].setdefault(name)
    return {
        commit: [tuple(names)[:_MAX_FUNCTIONS] for names in files]
        for commit, files in found.items()
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
