"""A project's history along first parents, read with a few calls of git.

Merges are compared with their first parent, so a pull request is one change.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from agent.errors import RepositoryError
from agent.repository.git_process import batch_contents
from agent.repository.scope import Location
from sandbox.git import git_environment, git_options

GIT_SECONDS = 600.0
"""For one call. The history of a large project takes seconds; minutes mean a hanging disk."""

_SOURCES = ("--", "*.py")
_COMMIT_LINE = re.compile(r"^([0-9a-f]{40})\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Delta:
    """A file that a commit changed: git's `status` (A, D, M, T) and the `old` blob."""

    path: str
    status: str
    old: str


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit and the Python files in which it differs from its first parent ("" for none).

    `merged` is the second parent, "" for a commit that is no merge.
    """

    id: str
    parent: str
    merged: str
    message: str
    deltas: tuple[Delta, ...]


class ProjectHistory:
    """Reads one repository; writes nothing."""

    def __init__(self, location: Location) -> None:
        self._location = location

    def tip(self) -> str:
        """Return the id of the commit that HEAD names."""
        return self._git("rev-parse", "--verify", "HEAD^{commit}").decode("ascii").strip()

    def commits(self, limit: int) -> tuple[Commit, ...]:
        """Return the newest `limit` commits on the first-parent line that changed Python files."""
        log = self._git(
            "log", "--first-parent", "-m", "--raw", "-z", "--no-renames", "--abbrev=40",
            "--no-color", f"--max-count={limit}", "--format=%x00%H %P%x00%B%x00", "HEAD", *_SOURCES,
        )  # fmt: skip
        return tuple(_commits(log.decode("utf-8", "surrogateescape").split("\0")))

    def messages(self, ids: Iterable[str]) -> Mapping[str, str]:
        """Return the messages of commits by id."""
        stdin = "".join(f"{commit}\n" for commit in ids).encode("ascii")
        if not stdin:
            return {}
        log = self._git(
            "log", "--no-walk=unsorted", "--stdin", "-z", "--no-color", "--format=%H%n%B",
            stdin=stdin,
        )  # fmt: skip
        records = (record.partition("\n") for record in log.decode("utf-8", "replace").split("\0"))
        return {commit: message for commit, _, message in records if commit}

    def patches(self, commits: Iterable[Commit]) -> Mapping[str, str]:
        """Return each commit's diff against its first parent, without context, by commit id."""
        pairs = "".join(f"{commit.id} {commit.parent}\n" for commit in commits if commit.parent)
        diff = self._git(
            "diff-tree", "--stdin", "-r", "-p", "-U0", "--no-renames", "--no-color",
            "--no-ext-diff", "--no-textconv", *_SOURCES, stdin=pairs.encode("ascii"),
        )  # fmt: skip
        text = diff.decode("utf-8", "replace")
        marks = list(_COMMIT_LINE.finditer(text))
        ends = [*(mark.start() for mark in marks[1:]), len(text)]
        # Without any mark, `ends` has one item too many and the result is empty.
        return {mark[1]: text[mark.end() : end] for mark, end in zip(marks, ends, strict=False)}

    def blobs(self, oids: Sequence[str]) -> Mapping[str, bytes]:
        """Return the contents of blobs by id; blobs that the repository lacks are left out."""
        stdin = "".join(f"{oid}\n" for oid in oids).encode("ascii")
        return dict(batch_contents(self._git("cat-file", "--batch", "--buffer", stdin=stdin)))

    def _git(self, *arguments: str, stdin: bytes = b"") -> bytes:
        root = self._location.root
        argv = [
            "git", f"--git-dir={self._location.git_dir}", *git_options(), "-c", "safe.directory=*",
            *arguments,
        ]  # fmt: skip
        try:
            done = subprocess.run(
                argv, input=stdin, capture_output=True, env=dict(git_environment()), cwd=root,
                timeout=GIT_SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise RepositoryError(
                f"{root}: git took longer than {GIT_SECONDS:g} s and was stopped; check the disk"
            ) from None
        except OSError as error:
            raise RepositoryError(f"git cannot be started ({error.strerror}); install it") from None
        if done.returncode != 0:
            said = done.stderr.decode("utf-8", "replace").strip().partition("\n")[0]
            raise RepositoryError(f"{root}: git cannot read it ({said}); see `git fsck` there")
        return done.stdout


def _commits(tokens: Sequence[str]) -> Iterable[Commit]:
    """Parse records of `id parents`, the message, then pairs of a raw line and a path."""
    heads = [at for at in range(len(tokens) - 1) if _is_head(tokens, at)]
    for at, end in pairwise([*heads, len(tokens)]):
        commit, *parents = tokens[at].split()
        yield Commit(
            id=commit,
            parent=parents[0] if parents else "",
            merged=parents[1] if len(parents) > 1 else "",
            message=_readable(tokens[at + 1]),
            deltas=tuple(_deltas(tokens[at + 2 : end])),
        )


def _readable(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


_HEAD = re.compile(r"[0-9a-f]{40}(?: [0-9a-f]{40})* ?")
_RAW = re.compile(r"\n?:(\d{6}) (\d{6}) ([0-9a-f]{40}) [0-9a-f]{40} ([A-Z])\d*")
_REGULAR = "100"


def _is_head(tokens: Sequence[str], at: int) -> bool:
    # A message may look like a head, but no empty field comes before it.
    return _HEAD.fullmatch(tokens[at]) is not None and at > 0 and tokens[at - 1] == ""


def _deltas(tokens: Sequence[str]) -> Iterable[Delta]:
    for at in range(len(tokens) - 1):
        match = _RAW.fullmatch(tokens[at])
        if match is not None and match[2].startswith((_REGULAR, "000000")):
            yield Delta(path=tokens[at + 1], status=match[4], old=match[3])
