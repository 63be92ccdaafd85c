"""Runs git within limits of time, memory and output, and parses what it lists. Of GitPython only
`Git.execute` is used: its object model reads the target's configuration and has no time limit.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import selectors
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from agent.errors import RepositoryError
from sandbox import git_options

if TYPE_CHECKING:
    from git.cmd import Git

# Output of one call, and memory of its process without the files that it maps.
_MOST_OUTPUT = 1 << 30
_MOST_MEMORY = 2 << 30
_READ_BYTES = 1 << 20

# After this time a call of git may be waiting for a FIFO. Looking for one takes seconds at most.
_DOUBT_SECONDS = 3.0
_MOST_FOLDERS = 100_000

# Newer versions of git ignore a `.gitignore` above this size; older ones read it as a whole.
_IGNORE_BYTES = 100 * 1024 * 1024
_FATAL = 128  # the exit code of git when it gives up


@dataclass(frozen=True, slots=True)
class GitOutput:
    """What a call of git printed, and its exit code."""

    code: int
    stdout: bytes
    stderr: bytes

    @property
    def complaint(self) -> str:
        """The error of git on one line, without control characters."""
        lines = self.stderr.decode("utf-8", errors="replace").splitlines()
        said = next((line for line in lines if line.startswith(("fatal:", "error:"))), "")
        words = said or (lines[0] if lines else f"git ended with exit code {self.code}")
        return re.sub(r"[\x00-\x1f\x7f-\x9f]", "?", words)[:300]


@dataclass(frozen=True, slots=True)
class GitRunner:
    """Starts git through GitPython, in an environment of its own and with a time limit."""

    git: str
    env: str
    seconds: float

    def run(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path,
        variables: Mapping[str, str],
        secrets: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        paths: int | None = None,
    ) -> GitOutput:
        """Run git with only `variables` and `secrets` in its environment; `secrets` are on no
        command line, and the output has at most `paths` records. Raises RepositoryError.
        """
        # GitPython can only add to the caller's environment. A GIT_DIR or GIT_CONFIG_COUNT in it
        # must not reach git, so `env -i` starts with an empty one.
        settings = [f"{name}={value}" for name, value in sorted(variables.items())]
        cleared = ["-i"] if not secrets else _cleared({*variables, *secrets})
        trusted = ("-c", "safe.directory=*")  # the repository may belong to another user
        argv = [self.env, *cleared, *settings, self.git, *git_options(), *trusted, *arguments]
        if any("\0" in part for part in argv):
            raise RepositoryError("a NUL character in a path or revision; give it without")
        with tempfile.TemporaryFile() as given:
            given.write(stdin)
            given.seek(0)
            process = _start(_gitpython(cwd), argv, given, secrets or {})
            try:
                stdout, stderr = self._collect(process, cwd, paths)
                process.wait(self.seconds)
            except subprocess.TimeoutExpired:
                raise self._late(cwd) from None
            finally:
                _end(process)
        if process.returncode >= _FATAL:
            _check_ignore_files(cwd)
        return GitOutput(process.returncode, stdout, stderr)

    def _collect(
        self, process: subprocess.Popen[bytes], cwd: Path, paths: int | None
    ) -> tuple[bytes, bytes]:
        assert process.stdout is not None
        assert process.stderr is not None
        output: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
        size = count = 0
        started, limit = time.monotonic(), min(self.seconds, _DOUBT_SECONDS)
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ, "stdout")
            selector.register(process.stderr, selectors.EVENT_READ, "stderr")
            while selector.get_map():
                left = started + limit - time.monotonic()
                ready = selector.select(left) if left > 0 else []
                if not ready:  # git may be waiting for an ignore file
                    _check_ignore_files(cwd)
                    if limit == self.seconds:
                        raise self._late(cwd)
                    limit = self.seconds
                for key, _ in ready:
                    data = os.read(key.fd, _READ_BYTES)
                    if not data:
                        selector.unregister(key.fileobj)
                    output[key.data].append(data)
                    size += len(data)
                    count += data.count(b"\0") if paths else 0
                if size > _MOST_OUTPUT or (paths and count > paths):
                    what = f"more than {paths:,} paths" if paths else f"over {_MOST_OUTPUT:,} bytes"
                    raise RepositoryError(f"{cwd}: git lists {what}; give a smaller repository")
        return b"".join(output["stdout"]), b"".join(output["stderr"])

    def _late(self, work_tree: Path) -> RepositoryError:
        return RepositoryError(
            f"{work_tree}: git took longer than {self.seconds:g} s and was stopped; "
            "check the disk and the repository's files"
        )


def _check_ignore_files(work_tree: Path) -> None:
    """Raise RepositoryError for a file at which git waits, or which it reads as a whole."""
    for _, (folder, _, names) in zip(range(_MOST_FOLDERS), os.walk(work_tree), strict=False):
        path = f"{folder}/.gitignore"
        state = os.lstat(path) if ".gitignore" in names else None
        if state is not None and stat.S_ISFIFO(state.st_mode):
            raise RepositoryError(f"{path}: a FIFO, for which git would wait; remove it")
        if state is not None and stat.S_ISREG(state.st_mode) and state.st_size > _IGNORE_BYTES:
            raise RepositoryError(f"{path}: larger than {_IGNORE_BYTES:,} bytes; remove it")


def _cleared(kept: Collection[str]) -> list[str]:
    """Return options of `env` that remove every variable of this process but those in `kept`."""
    names = {*os.environ, "LANGUAGE", "LC_ALL"}  # GitPython sets the last two
    return [part for name in sorted(names - {*kept}) for part in ("-u", name)]


def _start(
    git: Git, argv: Sequence[str], stdin: BinaryIO, secrets: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    from git.exc import GitError

    try:
        wrapper = git.execute(
            argv, istream=stdin, as_process=True, start_new_session=True, env=dict(secrets)
        )
    except (GitError, OSError) as error:
        raise RepositoryError(f"git cannot be started ({error}); check its installation") from None
    process, wrapper.proc = wrapper.proc, None  # its finalizer would reap the process a second time
    assert process is not None
    with contextlib.suppress(ProcessLookupError, PermissionError):
        resource.prlimit(process.pid, resource.RLIMIT_DATA, (_MOST_MEMORY, _MOST_MEMORY))
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def _gitpython(cwd: Path) -> Git:
    # GitPython looks for git when it is imported, and would raise or warn.
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
    from git.cmd import Git

    return Git(cwd)


SYMLINK_MODE = "120000"
SUBMODULE_MODE = "160000"
EXECUTABLE_MODE = "100755"


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """A file of a commit. `path` is bytes of any encoding, `oid` 40 hexadecimal digits."""

    path: bytes
    mode: str
    oid: str
    size: int | None = None


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """A file of the index. `skip_worktree`: a sparse checkout leaves it out of the work tree."""

    path: bytes
    mode: str
    skip_worktree: bool


def records(listing: bytes) -> Iterator[bytes]:
    """Return the NUL-terminated records of a `-z` listing."""
    return (record for record in listing.split(b"\0") if record)


def tree_entries(listing: bytes) -> tuple[TreeEntry, ...]:
    """Parse `<mode> <type> <oid><TAB><path>` (git-ls-tree, OUTPUT FORMAT)."""
    parts = (record.partition(b"\t") for record in records(listing))
    fields = ((head.decode("ascii").split(), path) for head, _, path in parts)
    return tuple(TreeEntry(path, mode, oid) for (mode, _type, oid), path in fields)


def sizes_by_id(listing: bytes) -> dict[str, int]:
    """Parse `<oid> <type> <size>`, or `<oid> missing` (git-cat-file, BATCH OUTPUT)."""
    lines = (line.split() for line in listing.decode("ascii").splitlines())
    return {line[0]: int(line[2]) for line in lines if len(line) == 3}


def index_entries(listing: bytes) -> tuple[IndexEntry, ...]:
    """Parse `<tag> <mode> <oid> <stage><TAB><path>` (git-ls-files, OUTPUT), each path once."""
    found: dict[bytes, IndexEntry] = {}
    for record in records(listing):
        head, _, path = record.partition(b"\t")
        tag, mode, _oid, _stage = head.decode("ascii").split()
        found.setdefault(path, IndexEntry(path, mode, skip_worktree=tag == "S"))
    return tuple(found.values())


def batch_contents(output: bytes) -> Iterator[tuple[str, bytes]]:
    """Parse `<oid> <type> <size>\\n<content>\\n`, or `<oid> missing\\n` (git-cat-file, BATCH
    OUTPUT).
    """
    at = 0
    while at < len(output):
        end = output.index(b"\n", at)
        oid, kind, *size = output[at:end].decode("ascii").split()
        at = end + 1
        if not size:
            continue
        start, at = at, at + int(size[0]) + 1
        if kind == "blob":
            yield oid, output[start : at - 1]
