"""What past commits changed: message, files, renames, and the functions their hunks are in.

Two reads of `git log` a batch of commits. The first gives messages and changed paths. The second
gives hunks without context (`-p -U0`) of the smaller commits: git's hunk headers name the enclosing
function (gitattributes(5), "Defining a custom hunk-header"), and changed lines name the functions
that were added or renamed. In such a diff a line of content begins with `+`, `-` or `\\`, so every
other line is git's own, whatever the files hold.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.errors import RepositoryError

if TYPE_CHECKING:
    from agent.repository.git import GitRepository

MAX_LISTED_FILES = 50
"""A commit of more files is a reformatting or an import; its size and renames are kept only."""

MAX_HUNK_FILES = 12
"""Hunks are read of commits that may serve as evidence: the others say nothing of a function."""

MAX_MESSAGE = 4_000  # characters; what follows in a longer message is a pasted log
MAX_RENAMES = 5_000  # of one commit
_MAX_FUNCTIONS = 40  # of one file in one commit: a rewrite touches "all of it"
_BATCH = 100  # commits a call of git: bounds memory, and how long a wish to stop goes unheard
RENAME_LIMIT = 500  # files on each side whose contents git compares; equal ones always match
_BIG_FILE = 1_000_000  # bytes; as MAX_FILE_BYTES of a snapshot

# Who signed is not what was done.
_TRAILER = re.compile(
    r"^(?:co-authored|signed-off|reviewed|acked|tested|reported|suggested|committed|approved)-by:",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Touch:
    """One file that a commit changed, by the name it had after, and functions changed in it.

    Function names are as in the source, without their class ("get", not "Client.get").
    """

    path: str
    functions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CommitFacts:
    """What a commit says and did. `size` counts all changed files, also where `touches` is empty.

    `renames` are pairs (before, after). `complete` False: contents were missing (a partial clone).
    Paths that are not UTF-8 count in `size` only.
    """

    commit: str
    subject: str
    body: str
    size: int
    touches: tuple[Touch, ...]
    renames: tuple[tuple[str, str], ...] = ()
    complete: bool = True


def read_commits(git: GitRepository, commits: Sequence[str]) -> Iterator[tuple[CommitFacts, ...]]:
    """The facts of these commits (no merges), in their order, some at a time.

    Raises RepositoryError where git fails, or a commit is missing.
    """
    for start in range(0, len(commits), _BATCH):
        yield _read_batch(git, commits[start : start + _BATCH])


def _read_batch(git: GitRepository, commits: Sequence[str]) -> tuple[CommitFacts, ...]:
    try:
        listed = list_commits(git, commits, f"-M -l{RENAME_LIMIT}")
        functions = _functions(git, listed)
        complete = True
    except RepositoryError:
        # A partial clone lacks contents. Names and equal renames need none.
        listed = list_commits(git, commits, "-M100%")
        functions, complete = {}, False
    return tuple(_facts(one, functions.get(one.commit, {}), complete) for one in listed)


def _facts(listed: Listed, functions: Mapping[int, tuple[str, ...]], complete: bool) -> CommitFacts:
    subject, body = message_text(listed.subject), message_text(listed.body)
    kept = listed.changes if len(listed.changes) <= MAX_LISTED_FILES else ()
    touches = tuple(
        Touch(change.path, functions.get(number, ()))
        for number, change in enumerate(kept)
        if change.path
    )
    renames = tuple((c.before, c.path) for c in listed.changes if c.before and c.path)
    return CommitFacts(
        listed.commit, subject, body, len(listed.changes), touches, renames[:MAX_RENAMES], complete
    )


def message_text(text: bytes) -> str:
    """A message or a part of one, without who signed it, cut at MAX_MESSAGE characters."""
    lines = text.decode("utf-8", "replace").splitlines()
    return "\n".join(line for line in lines if not _TRAILER.match(line)).strip()[:MAX_MESSAGE]


# ------------------------------------------------------------------------------- messages and paths

_FORMAT = "--format=tformat:%H%x00%s%x00%b%x00"


@dataclass(frozen=True, slots=True)
class Change:
    """`status` is git's letter. "" for a path that is not UTF-8; `before` only of a rename."""

    status: str
    path: str
    before: str = ""


@dataclass(frozen=True, slots=True)
class Listed:
    """A commit as git lists it; the message's bytes are UTF-8, or what the author made of it."""

    commit: str
    subject: bytes
    body: bytes
    changes: tuple[Change, ...]


def list_commits(git: GitRepository, commits: Sequence[str], renames: str) -> list[Listed]:
    """Messages and changed paths of these commits. `renames`: git's options that find them.

    Raises RepositoryError where git fails or a commit is missing.
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
    """`<id> NUL <subject> NUL <body> NUL NUL`, then `<status> NUL <path> NUL` for each change.

    A rename has two paths. Messages and paths hold no NUL, so nothing in them can imitate another
    field.
    """
    fields = output.split(b"\0")
    at = 0
    while at + 3 < len(fields):
        commit, subject, body = fields[at : at + 3]
        at += 4  # and the empty one that ends the message
        changes: list[Change] = []
        while at + 1 < len(fields) and (status := _status(fields[at])):
            paths = 2 if status in "RC" else 1
            changes.append(_change(status, fields[at + 1 : at + 1 + paths]))
            at += 1 + paths
        yield Listed(commit.decode("ascii", "replace"), subject, body, tuple(changes))


def _status(field: bytes) -> str:
    """The letter of `\\nM`, `A`, `R087`; "" for a commit's id."""
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

# git's own patterns for hunk headers; JavaScript has none there.
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
"""Attributes: which pattern names the functions of which files."""

_ATTRIBUTES = "* -diff\n" + DIFF_DRIVERS  # no hunks of other files

# Not a statement; a definition; a function as a value; a method. git shows the first group.
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
"""Configuration that `DIFF_DRIVERS` needs; larger files have no hunks."""

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
    """By commit and number of the change: names of the functions that were changed."""
    small = [one for one in listed if 0 < len(one.changes) <= MAX_HUNK_FILES]
    diff = git.changes(
        [one.commit for one in small],
        "-p", "-U0", "-M", f"-l{RENAME_LIMIT}", "--diff-filter=MR", "--format=tformat:commit %H",
        attributes=_ATTRIBUTES, configuration=DIFF_CONFIGURATION,
    )  # fmt: skip
    named = parse_hunks(diff)
    return {one.commit: _by_change(one, named.get(one.commit, ())) for one in small}


def _by_change(listed: Listed, named: Sequence[tuple[str, ...]]) -> dict[int, tuple[str, ...]]:
    """The diff has the changed and renamed files only, in the same order as the listing."""
    numbers = [number for number, change in enumerate(listed.changes) if change.status in "MR"]
    if len(numbers) != len(named):
        return {}
    return dict(zip(numbers, named, strict=True))


def parse_hunks(diff: bytes) -> Mapping[str, Sequence[tuple[str, ...]]]:
    """For each commit and each of its files, in order: the functions named, each once."""
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
    """The functions that a hunk's header, or a changed line, names."""
    if match["changed"] is not None:
        yield from defined_name(match["changed"])
    elif match["header"] is not None:
        first = match["first"]
        if STARTS_DEFINITION.match(first):
            # What git names in the header ends before this definition.
            yield from defined_name(first.rpartition(b"\n")[2])
        else:
            yield from defined_name(match["header"])


def defined_name(line: bytes) -> Iterator[str]:
    """The name that a line defines, if it defines one."""
    text = line.decode("utf-8", "replace")
    match = _KEYWORD_NAME.search(text) or _CALLED_NAME.search(text)
    if match:
        yield match[1]
