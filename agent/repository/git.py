"""Reading a git repository that nobody trusts. The one module that uses GitPython.

Two git directories are at work. `rev-parse` runs on the user's own, to name paths and commits.
Everything else runs on a private, empty one made for the call, which borrows the user's objects and
copies of the index and of `info/exclude`. So none of the target's configuration is in force while
files are listed and blobs read, a missing object of a partial clone is missing rather than fetched,
and nothing of the user's repository is written: not even the time stamp of a shared index, which
git sets whenever it reads a split index.

Every call has a time limit and dies with its process group.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import stat
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent.errors import RepositoryError
from agent.repository.listings import (
    IndexEntry,
    TreeEntry,
    batch_contents,
    index_entries,
    records,
    tree_entries,
)
from agent.repository.location import Location, locate
from sandbox.hardened_git import environment, options
from sandbox.private import make_private

if TYPE_CHECKING:
    from git.cmd import Git

# A listing of 100,000 files takes seconds; what takes longer hangs (a FIFO as configuration file).
GIT_SECONDS = 120.0

# A commit graph is a cache in the repository's own hands: parents are read from the commits.
_PLAIN_WALK = ("core.commitGraph=false",)


@dataclass(frozen=True, slots=True)
class _Output:
    code: int
    stdout: bytes
    stderr: bytes

    @property
    def complaint(self) -> str:
        """What git said, on one line, fit for a terminal."""
        lines = self.stderr.decode("utf-8", errors="replace").splitlines()
        said = next((line for line in lines if line.startswith(("fatal:", "error:"))), "")
        words = said or (lines[0] if lines else f"git ended with exit code {self.code}")
        return re.sub(r"[\x00-\x1f\x7f-\x9f]", "?", words)[:300]


@contextlib.contextmanager
def open_repository(path: Path, *, seconds: float = GIT_SECONDS) -> Iterator[GitRepository]:
    """Open the repository that `path` is in, for reading. `seconds` limits each call of git.

    Its private directory is one that is swept if we are killed. Raises RepositoryError: git
    missing, no repository, broken, or one with SHA-256 object names.
    """
    runner = _Runner(_program("git"), _program("env"), seconds)
    location = locate(path)
    real = _RealGitDir(runner, location)
    held = make_private()
    try:
        private = held.path / "git"
        private.mkdir()
        yield GitRepository(runner, location, real, private)
    finally:
        held.remove()


class GitRepository:
    """Reads of one repository. Made by `open_repository`, usable until its `with` block ends."""

    def __init__(
        self, runner: _Runner, location: Location, real: _RealGitDir, private: Path
    ) -> None:
        self.location = location
        self.bare = real.bare
        self._runner = runner
        self._real = real
        self._private = private
        self._prepare()

    def _prepare(self) -> None:
        (self._private / "refs").mkdir()
        (self._private / "info").mkdir()
        (self._private / "HEAD").write_text("ref: refs/heads/none\n")
        _copy_file(self._real.exclude, self._private / "info" / "exclude")
        _copy_file(self._real.shallow, self._private / "shallow")
        index = self._private / "index"
        if not _copy_file(self._real.index, index):
            return
        content = index.read_bytes()
        for shared in self._real.index.parent.glob("sharedindex.*"):
            if _names(content, shared.name.partition(".")[2]):
                _copy_file(shared, self._private / shared.name)

    def resolve(self, revision: str) -> str:
        """The id of the commit that a revision names. Raises RepositoryError when none does."""
        output = self._real.git(
            "rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}"
        )
        commit = output.stdout.decode("ascii", errors="replace").strip()
        if output.code == 0 and re.fullmatch(r"[0-9a-f]{40}", commit):
            return commit
        root = self.location.root
        if revision != "HEAD":
            raise RepositoryError(
                f"{root}: no commit {revision!r} here; check the name, or fetch it first"
            )
        raise RepositoryError(f"{root}: no commits yet; commit once, then try again")

    def tree(self, commit: str, *, sizes: bool) -> tuple[TreeEntry, ...]:
        """All files of a commit, in git's order. `sizes` reads the object headers too."""
        arguments = ["ls-tree", "-r", "-z", "--full-tree", *(["-l"] if sizes else [])]
        listing = self._read(*arguments, "--end-of-options", commit)
        return tree_entries(listing)

    def index(self) -> tuple[IndexEntry, ...]:
        """The index, once a path (an unmerged file has up to three entries there)."""
        return index_entries(self._read("ls-files", "-t", "-s", "-z"))

    def untracked(self) -> tuple[bytes, ...]:
        """Files that are neither in the index nor ignored; a nested repository ends with `/`."""
        ignore = [f"core.excludesFile={file}" for file in self._user_excludes()]
        listing = self._read(
            "ls-files", "--others", "--exclude-standard", "-z", configuration=ignore
        )
        return tuple(records(listing))

    def blobs(self, oids: Sequence[str]) -> Mapping[str, bytes]:
        """The contents of blobs by id, read in one call. What the repository lacks is left out."""
        if not oids:
            return {}
        stdin = "".join(f"{oid}\n" for oid in oids).encode("ascii")
        return dict(batch_contents(self._read("cat-file", "--batch", "--buffer", stdin=stdin)))

    def ancestors(self, commit: str, limit: int) -> tuple[str, ...]:
        """The last `limit` commits of a commit's history, merges left out, by falling date.

        The commit itself is one of them. Only parents are followed, so nothing that came later is
        among them. The commit at which a shallow clone ends seems to add every file: it is left
        out.
        """
        listing = self._read(
            "rev-list", "--no-merges", f"--max-count={limit}", "--end-of-options", commit,
            configuration=_PLAIN_WALK,
        )  # fmt: skip
        ends = self.shallow_ends()
        return tuple(oid for oid in listing.decode("ascii").split() if oid not in ends)

    def changes(
        self,
        commits: Sequence[str],
        *arguments: str,
        attributes: str = "",
        configuration: Sequence[str] = (),
    ) -> bytes:
        """`git log` of just these commits, each against its parent, in their order.

        `arguments` say what to print. `attributes` alone decide how files are compared: git runs
        outside the work tree, and no driver of the repository's configuration is in force.
        """
        if not commits:
            return b""
        (self._private / "info" / "attributes").write_text(attributes)
        return self._read(
            "log", "--stdin", "--no-walk=unsorted", "--no-ext-diff", "--no-textconv", "--no-color",
            "--no-notes", "--no-show-signature", "--no-mailmap", "--ignore-submodules=all",
            "--encoding=UTF-8", *arguments,
            stdin="".join(f"{commit}\n" for commit in commits).encode("ascii"),
            configuration=(*_PLAIN_WALK, *configuration),
            outside=True,
        )  # fmt: skip

    def shallow_ends(self) -> frozenset[str]:
        """The commits at which a shallow clone ends; none where the history is whole."""
        try:
            return frozenset((self._private / "shallow").read_text("ascii").split())
        except (FileNotFoundError, UnicodeDecodeError):
            return frozenset()

    def trusts_file_mode(self) -> bool:
        """Whether executable bits on disk mean something (`core.fileMode`, on by default)."""
        output = self._git(
            "config", "--file", str(self._real.config), "--type=bool", "--get", "core.fileMode"
        )
        return output.stdout.strip() != b"false"

    def _user_excludes(self) -> tuple[str, ...]:
        """The ignore file that the user's own configuration names; never the repository's."""
        output = self._git(
            "config", "--global", "--includes", "--type=path", "--get", "core.excludesFile",
            without=("GIT_CONFIG_GLOBAL",),
        )  # fmt: skip
        name = os.fsdecode(output.stdout.removesuffix(b"\n"))
        return (name,) if output.code == 0 and name else ()

    def _read(
        self,
        *arguments: str,
        stdin: bytes = b"",
        configuration: Sequence[str] = (),
        outside: bool = False,
    ) -> bytes:
        output = self._git(*arguments, stdin=stdin, configuration=configuration, outside=outside)
        if output.code != 0:
            raise RepositoryError(
                f"{self.location.root}: git cannot read it ({output.complaint}); "
                "see what `git fsck` says there"
            )
        return output.stdout

    def _git(
        self,
        *arguments: str,
        stdin: bytes = b"",
        configuration: Sequence[str] = (),
        without: Sequence[str] = (),
        outside: bool = False,
    ) -> _Output:
        work_tree = self._private if outside else self.location.root
        borrowed = {
            "GIT_DIR": str(self._private),
            "GIT_OBJECT_DIRECTORY": str(self._real.objects),
            "GIT_WORK_TREE": str(work_tree),
        }
        extra = [part for setting in configuration for part in ("-c", setting)]
        variables = {**environment(), **borrowed}
        return self._runner.run(
            [*extra, *arguments],
            cwd=work_tree,
            variables={name: value for name, value in variables.items() if name not in without},
            stdin=stdin,
        )


class _RealGitDir:
    """The user's git directory: only `rev-parse` ever runs on it."""

    def __init__(self, runner: _Runner, location: Location) -> None:
        self._runner = runner
        self._location = location
        paths = ("objects", "index", "info/exclude", "config", "shallow")
        output = self.git(
            "rev-parse", "--is-bare-repository", "--show-object-format",
            *(part for path in paths for part in ("--git-path", path)),
        )  # fmt: skip
        lines = os.fsdecode(output.stdout).splitlines()
        if output.code != 0 or len(lines) != 2 + len(paths):
            raise RepositoryError(
                f"{location.root}: not a usable git repository ({output.complaint}); "
                "see what `git status` says there"
            )
        if lines[1] != "sha1":
            raise RepositoryError(
                f"{location.root}: its objects have {lines[1]} names, only sha1 is supported; "
                "export the files into a new repository"
            )
        self.bare = location.bare or lines[0] == "true"
        self.objects, self.index, self.exclude, self.config, self.shallow = (
            location.root / line for line in lines[2:]
        )

    def git(self, *arguments: str) -> _Output:
        git_dir = f"--git-dir={self._location.git_dir}"
        return self._runner.run(
            [git_dir, *arguments], cwd=self._location.root, variables=environment()
        )


@dataclass(frozen=True, slots=True)
class _Runner:
    """Starts git through GitPython, in an environment of its own, and bounds its time."""

    git: str
    env: str
    seconds: float

    def run(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path,
        variables: Mapping[str, str],
        stdin: bytes = b"",
    ) -> _Output:
        # GitPython adds to the caller's environment and cannot take away from it; a GIT_DIR or
        # GIT_CONFIG_COUNT set there must not reach git, so `env -i` starts from nothing.
        settings = [f"{name}={value}" for name, value in sorted(variables.items())]
        trusted = ("-c", "safe.directory=*")  # another user's repository is read all the same
        argv = [self.env, "-i", *settings, self.git, *options(), *trusted, *arguments]
        if any("\0" in part for part in argv):
            raise RepositoryError("a NUL character in a path or revision; give it without")
        process = _start(_gitpython(cwd), argv)
        try:
            stdout, stderr = process.communicate(stdin, timeout=self.seconds)
        except subprocess.TimeoutExpired:
            raise RepositoryError(
                f"{cwd}: git took longer than {self.seconds:g} s and was stopped; "
                "check the disk and the repository's configuration"
            ) from None
        finally:
            _end(process)
        return _Output(process.returncode, stdout, stderr)


def _start(git: Git, argv: Sequence[str]) -> subprocess.Popen[bytes]:
    from git.exc import GitError

    try:
        wrapper = git.execute(
            argv, istream=subprocess.PIPE, as_process=True, start_new_session=True
        )
    except (GitError, OSError) as error:
        raise RepositoryError(f"git cannot be started ({error}); check its installation") from None
    process, wrapper.proc = wrapper.proc, None  # its finalizer would reap the process a second time
    assert process is not None
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the group (after a time limit or an interrupt) and close the pipes."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def _gitpython(cwd: Path) -> Git:
    # GitPython looks for git when it is imported, and would raise or warn by itself.
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
    from git.cmd import Git

    return Git(cwd)


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        package = {"env": "coreutils"}.get(name, name)
        raise RepositoryError(f"{name} is not installed; install it (apt install {package})")
    return str(Path(found).absolute())


def _names(index: bytes, shared_index: str) -> bool:
    """Whether a split index refers to the shared index of this name (old ones stay for weeks)."""
    return re.fullmatch(r"[0-9a-f]{40}", shared_index) is not None and (
        int(shared_index, 16).to_bytes(20, "big") in index
    )


def _copy_file(source: Path, target: Path) -> bool:
    """Copy a regular file; False where there is none. A FIFO in its place would block a reader."""
    try:
        descriptor = os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise RepositoryError(
            f"{source}: {error.strerror}; run as a user who may read the repository"
        ) from None
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return False
        with target.open("wb") as copy:
            shutil.copyfileobj(stream, copy)
    return True
