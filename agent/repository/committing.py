"""Commits a patch on a new branch with a private index. Of the repository's settings only a name,
an address and the wish for a signature count; no hook or filter runs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agent.errors import ConfigurationError, RepositoryError
from agent.repository.git import GitRepository, merge_texts
from agent.repository.git_process import (
    EXECUTABLE_MODE,
    SUBMODULE_MODE,
    SYMLINK_MODE,
    GitOutput,
    TreeEntry,
    records,
)
from agent.types import FileChange
from sandbox import read_control_file

_NONE = "0" * 40  # the id that stands for "no such reference" and "no such file"
_FILE_MODE = "100644"

# What gpg, ssh-keygen and their agents need of the user's environment.
_FOR_SIGNING = (
    "GNUPGHOME", "GPG_TTY", "SSH_AUTH_SOCK", "XDG_RUNTIME_DIR", "DISPLAY", "WAYLAND_DISPLAY",
    "DBUS_SESSION_BUS_ADDRESS",
)  # fmt: skip
_USER_CONFIG = ("GIT_CONFIG_GLOBAL", "XDG_CONFIG_HOME")


@dataclass(frozen=True, slots=True)
class CommitRefused:
    """Why the patch cannot be committed: a clause without a full stop."""

    reason: str


@dataclass(frozen=True, slots=True)
class _Author:
    """How the user commits: variables of git, and settings where commits are signed."""

    variables: Mapping[str, str]
    signing: tuple[str, ...] | None

    def commit(self, git: GitRepository, tree: str, base: str, message: str) -> GitOutput:
        extra = {name: os.environ[name] for name in _FOR_SIGNING if name in os.environ}
        signed = self.signing is not None
        return git.call(
            "commit-tree", *(["-S"] if signed else []), "-p", base, "-F", "-", tree,
            stdin=message.encode("utf-8", "replace"),
            configuration=self.signing or (),
            variables={**self.variables, **(extra if signed else {})},
            outside=True,
        )  # fmt: skip


def check_branch(git: GitRepository, branch: str, base: str) -> None:
    """Check that the new branch can be made on `base`. Raises ConfigurationError."""
    reference = check_branch_name(git, branch)
    if _tip(git, reference) is not None:
        raise ConfigurationError(f"--branch {branch}: this branch exists; give another name")
    _author(git)
    _check_writable(git)
    trial = f"start\ncreate {reference} {base}\nprepare\nabort\n"
    output = git.call("update-ref", "--stdin", stdin=trial.encode(), outside=True)
    if output.code != 0:
        raise ConfigurationError(f"--branch {branch}: it cannot be made ({output.complaint})")


def check_branch_name(git: GitRepository, branch: str) -> str:
    """Return the full name of a branch. Raises ConfigurationError for a name git refuses."""
    reference = f"refs/heads/{branch}"
    well_formed = re.fullmatch(r"[^-\x00-\x20\x7f][^\x00-\x20\x7f]*", branch) and branch != "HEAD"
    if not well_formed or git.call("check-ref-format", reference, outside=True).code != 0:
        raise ConfigurationError(f"--branch {branch}: not a name for a branch; give another one")
    return reference


def commit_changes(
    git: GitRepository, changes: Sequence[FileChange], base: str, branch: str, message: str
) -> str | CommitRefused:
    """Commit the changes on top of `base` as the new branch, merged where files differ; return the
    commit's id. Raises ConfigurationError and RepositoryError.
    """
    reference = check_branch_name(git, branch)
    author = _author(git)
    _check_writable(git)
    tree = _tree(git, changes, base)
    if isinstance(tree, CommitRefused):
        return tree
    tip = _tip(git, reference)
    if tip is not None:
        if _output(git, "rev-parse", f"{tip}^{{tree}}", f"{tip}^@").split() == [tree, base]:
            return tip
        return CommitRefused(f"the branch {branch} exists, with another content")
    made = author.commit(git, tree, base, message)
    if made.code != 0:
        return CommitRefused(f"git makes no commit ({made.complaint})")
    commit = made.stdout.decode("ascii").strip()
    output = git.call(
        "update-ref", "--no-deref", reference, commit, _NONE,
        configuration=("core.logAllRefUpdates=false",), outside=True,
    )  # fmt: skip
    if output.code != 0:
        return CommitRefused(f"the branch {branch} cannot be made ({output.complaint})")
    return commit


_NO_FILES = (SYMLINK_MODE, SUBMODULE_MODE)


def changes_between(git: GitRepository, base: str, head: str) -> tuple[str, tuple[FileChange, ...]]:
    """Return where `head` left `base`, and what it changes from there, in order of path.

    Links and submodules are left out. Raises RepositoryError.
    """
    tip = git.resolve(head)
    output = git.call("merge-base", git.resolve(base), tip, outside=True)
    start = output.stdout.decode("ascii", "replace").strip()
    if output.code != 0 or not start:
        raise RepositoryError(f"{base} and {head} have no commit in common here: fetch the history")
    before, after = ({e.path: e for e in git.tree(one, sizes=False)} for one in (start, tip))
    links = {p for side in (before, after) for p, e in side.items() if e.mode in _NO_FILES}
    paths = sorted({p for p in {*before, *after} if before.get(p) != after.get(p)} - links)
    entries = [(path, before.get(path), after.get(path)) for path in paths]
    contents = git.blobs(sorted({e.oid for _, *sides in entries for e in sides if e}))

    def change(path: bytes, old: TreeEntry | None, new: TreeEntry | None) -> FileChange:
        was, now = (contents[e.oid] if e else None for e in (old, new))
        return FileChange(os.fsdecode(path), was, now, bool(new and new.mode == EXECUTABLE_MODE))

    return start, tuple(change(*entry) for entry in entries)


def user_settings(git: GitRepository) -> Mapping[str, str]:
    """Return the settings of the user's own git configuration, with the files it includes."""
    read_control_file(git.directory.own / "config.worktree")  # git opens it too: no FIFO, no device
    place = {"GIT_DIR": str(git.directory.own.absolute())}
    chosen = {name: os.environ[name] for name in _USER_CONFIG if name in os.environ}
    output = git.call(
        "config", "--global", "--includes", "--null", "--list",
        without=() if "GIT_CONFIG_GLOBAL" in chosen else ("GIT_CONFIG_GLOBAL",),
        variables={**place, **chosen},
        outside=True,
    )  # fmt: skip
    entries = (os.fsdecode(record).partition("\n") for record in records(output.stdout))
    return {name: value if parted else "true" for name, parted, value in entries}


def _author(git: GitRepository) -> _Author:
    """Return who commits. Raises ConfigurationError if nothing says so."""
    users = user_settings(git)
    sources: tuple[Callable[[str], str], ...] = (git.setting, lambda name: users.get(name, ""))
    variables = {}
    for role in ("author", "committer"):
        for part in ("name", "email"):
            variable = f"GIT_{role}_{part}".upper()
            values = [os.environ.get(variable, ""), *(one(f"user.{part}") for one in sources)]
            value = next((text for text in values if text.strip()), "")
            if not value:
                raise ConfigurationError(
                    f"--branch makes a commit, and git does not know your {part}: "
                    f"git config --global user.{part} ..."
                )
            variables[variable] = value
    asked = [source("commit.gpgsign").lower() for source in sources]
    if not {*asked} & {"true", "yes", "on", "1"}:
        return _Author(variables, None)
    keys = (name for name in users if name == "user.signingkey" or name.startswith("gpg."))
    return _Author(variables, tuple(f"{name}={users[name]}" for name in keys))


def _check_writable(git: GitRepository) -> None:
    """Check the folders that get the commit. A link could lead anywhere. Raises RepositoryError."""
    for folder in (git.directory.objects, git.directory.common / "refs"):
        if folder.is_symlink() or not os.access(folder, os.W_OK):
            raise RepositoryError(f"{folder}: a link, or closed to this user: --branch needs it")


def _tip(git: GitRepository, reference: str) -> str | None:
    output = git.call("rev-parse", "--verify", "--quiet", reference, outside=True)
    return output.stdout.decode("ascii").strip() if output.code == 0 else None


def _output(
    git: GitRepository,
    *arguments: str,
    stdin: bytes = b"",
    variables: Mapping[str, str] | None = None,
) -> str:
    output = git.call(*arguments, stdin=stdin, variables=variables, outside=True)
    if output.code != 0:
        raise RepositoryError(f"{git.location.root}: git cannot commit ({output.complaint})")
    return output.stdout.decode("ascii").strip()


def _tree(git: GitRepository, changes: Sequence[FileChange], base: str) -> str | CommitRefused:
    entries = {os.fsdecode(entry.path): entry for entry in git.tree(base, sizes=False)}
    touched = [entries[change.path].oid for change in changes if change.path in entries]
    contents = git.blobs(sorted({*touched}))
    index = {"GIT_INDEX_FILE": str(git.scratch / "commit-index")}
    lines = []
    for change in sorted(changes, key=lambda change: (change.after is not None, change.path)):
        entry = entries.get(change.path)
        now = None if entry is None else contents.get(entry.oid)
        line = _index_line(git, change, entry, now)
        if isinstance(line, CommitRefused):
            return line
        lines.append(line)
    _output(git, "read-tree", base, variables=index)
    listing = b"".join(lines)
    _output(git, "update-index", "--replace", "-z", "--index-info", stdin=listing, variables=index)
    tree = _output(git, "write-tree", "--missing-ok", variables=index)
    if tree == _output(git, "rev-parse", f"{base}^{{tree}}"):
        return CommitRefused("the commit holds what the patch would change already")
    return tree


def _index_line(
    git: GitRepository, change: FileChange, entry: TreeEntry | None, now: bytes | None
) -> bytes | CommitRefused:
    """Return the line of `git update-index --index-info` for a change; write its blob."""
    path = os.fsencode(change.path)
    if entry is not None and (now is None or entry.mode == SYMLINK_MODE):
        return CommitRefused(f"{change.path} is no file in the commit, or its content is missing")
    content = _content(change, now)
    if isinstance(content, CommitRefused):
        return content
    if content is None:
        return f"0 {_NONE}\t".encode() + path + b"\0"
    oid = _output(git, "hash-object", "-w", "--stdin", "--no-filters", stdin=content)
    new_mode = EXECUTABLE_MODE if change.executable else _FILE_MODE
    return f"{new_mode if entry is None else entry.mode} {oid}\t".encode() + path + b"\0"


def _content(change: FileChange, now: bytes | None) -> bytes | CommitRefused | None:
    before, after = change.before, change.after
    if now == before:
        return after
    if now is None or before is None:
        state = "is not in the commit" if now is None else "is in the commit already"
        return CommitRefused(f"{change.path} {state}, only your uncommitted edits have it so")
    if now == before.replace(b"\r\n", b"\n"):  # as git stores text
        return after if after is None else after.replace(b"\r\n", b"\n")
    merged = None if after is None else merge_texts(now, before, after)
    if merged is None:
        return CommitRefused(f"the patch changes what you have not committed yet in {change.path}")
    return merged
