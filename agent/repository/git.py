"""Reads an untrusted git repository in a private directory that borrows its objects and references
and copies HEAD and the index. Its configuration is not in force, and nothing in it is written.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from agent.errors import RepositoryError
from agent.repository.git_process import (
    SUBMODULE_MODE,
    GitOutput,
    GitRunner,
    IndexEntry,
    TreeEntry,
    batch_contents,
    index_entries,
    records,
    sizes_by_id,
    tree_entries,
)
from agent.repository.scope import Location, locate_repository
from sandbox import (
    WorkspaceError,
    check_objects,
    check_references,
    find_git_directory,
    git_environment,
    make_private,
    read_control_file,
    remove_tree,
)

# A listing of 100,000 files takes seconds.
GIT_SECONDS = 120.0

# Paths of one commit or index. The largest public repositories have half as many. A tree of ten
# million paths fits into two kilobytes of objects.
MOST_PATHS = 1_000_000

# The index of a million files has a tenth of it, and so have a million packed references.
_CONTROL_BYTES = 1 << 30
_CONFIG_BYTES = 16 << 20

# The names that git resolves outside of `refs`.
_HEADS = ("HEAD", "ORIG_HEAD", "FETCH_HEAD", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD")

_REFTABLE = "[core]\nrepositoryformatversion = 1\n[extensions]\nrefstorage = reftable\n"

# The repository controls its commit graph file, so parents are read from the commits.
_PLAIN_WALK = ("core.commitGraph=false",)


@contextlib.contextmanager
def open_repository(path: Path, *, seconds: float = GIT_SECONDS) -> Iterator[GitRepository]:
    """Open the repository that contains `path`; `seconds` a call. Raises RepositoryError."""
    runner = GitRunner(_program("git"), _program("env"), seconds)
    location = locate_repository(path)
    held = make_private()
    try:
        private = held / "git"
        private.mkdir()
        yield GitRepository(runner, location, private)
    except WorkspaceError as error:
        raise RepositoryError(str(error)) from None
    finally:
        remove_tree(held)


PrivateCall = Callable[..., GitOutput]
"""Runs git: a folder below the private directory, arguments, and `stdin`."""


@contextlib.contextmanager
def private_git(*, seconds: float = GIT_SECONDS) -> Iterator[tuple[Path, PrivateCall]]:
    """Yield a private directory, and a function that runs git in it. Raises RepositoryError."""
    runner = GitRunner(_program("git"), _program("env"), seconds)
    held = make_private()

    def call(folder: Path, *arguments: str, stdin: bytes = b"") -> GitOutput:
        # The private directory may lie inside a repository, if TMPDIR does.
        closed = {"GIT_CEILING_DIRECTORIES": str(held.parent)}
        return runner.run(
            list(arguments), cwd=folder, variables={**git_environment(), **closed}, stdin=stdin
        )

    try:
        yield held, call
    finally:
        remove_tree(held)


def merge_texts(
    ours: bytes, base: bytes, theirs: bytes, *, seconds: float = GIT_SECONDS
) -> bytes | None:
    """Return the three-way merge of texts; None if changes overlap. Raises RepositoryError."""
    with private_git(seconds=seconds) as (root, call):
        names = ("ours", "base", "theirs")
        for name, data in zip(names, (ours, base, theirs), strict=True):
            (root / name).write_bytes(data)
        output = call(root, "merge-file", "-p", "-q", *names)
        return output.stdout if output.code == 0 else None


class GitRepository:
    """Reads one repository while its `with` block is open. `scratch`: the private directory."""

    def __init__(self, runner: GitRunner, location: Location, private: Path) -> None:
        self.location = location
        self._runner = runner
        self.scratch = private
        self.directory = find_git_directory(location.root)
        check_objects(self.directory.objects)
        check_references(self.directory.common)
        self._prepare()
        self._settings = self._read_settings()
        linked = self.directory.own != self.directory.common
        self.bare = location.bare or (
            not linked and _is_true(self._settings.get("core.bare", "false"))
        )

    def _prepare(self) -> None:
        """Make the private directory. Raises WorkspaceError for a file that git could not read."""
        own, common = self.directory.own, self.directory.common
        for folder in ("info", "logs"):
            (self.scratch / folder).mkdir()
        for name, place in (("refs", common), ("logs/refs", common), ("logs/HEAD", own)):
            (self.scratch / name).symlink_to((place / name).absolute())
        for name in ("info/exclude", "packed-refs", "shallow"):
            self._copy(common / name, name)
        for name in _HEADS:
            self._copy(own / name, name)
        self._copy(own / "index", "index")

    def _copy(self, source: Path, name: str) -> None:
        data = read_control_file(source, _CONTROL_BYTES)
        if data is not None:
            (self.scratch / name).write_bytes(data)

    def _read_settings(self) -> Mapping[str, str | None]:
        """Return the repository's own settings; a name without a value is None."""
        data = read_control_file(self.directory.common / "config", _CONFIG_BYTES) or b""
        output = self.call("config", "--file", "-", "--null", "--list", stdin=data, outside=True)
        root = self.location.root
        if output.code != 0:
            raise RepositoryError(
                f"{root}: not a usable git repository ({output.complaint}); "
                "see what `git status` says there"
            )
        entries = (os.fsdecode(record).partition("\n") for record in records(output.stdout))
        settings = {name: value if parted else None for name, parted, value in entries}
        kind = settings.get("extensions.objectformat") or "sha1"
        if kind.lower() != "sha1":
            raise RepositoryError(
                f"{root}: its objects have {kind} names, only sha1 is supported; "
                "export the files into a new repository"
            )
        if settings.get("extensions.refstorage") == "reftable":  # git 2.45 and later
            (self.scratch / "reftable").symlink_to((self.directory.own / "reftable").absolute())
            (self.scratch / "config").write_text(_REFTABLE)
        return settings

    def resolve(self, revision: str) -> str:
        """Return the id of the commit that a revision names. Raises RepositoryError for none."""
        output = self.call(
            "rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}", outside=True
        )
        commit = output.stdout.decode("ascii", errors="replace").strip()
        if output.code == 0 and re.fullmatch(r"[0-9a-f]{40}", commit):
            return commit
        root = self.location.root
        if revision != "HEAD":
            raise RepositoryError(
                f"{root}: no commit {revision!r} here; check the name, or fetch it first"
            )
        if "extension" in output.complaint:
            raise RepositoryError(f"{root}: {output.complaint}; install a newer git")
        raise RepositoryError(f"{root}: no commits yet; commit once, then try again")

    def tree(self, commit: str, *, sizes: bool) -> tuple[TreeEntry, ...]:
        """Return all files of a commit in git's order. `sizes` reads the object headers too."""
        listing = self._read(
            "ls-tree", "-r", "-z", "--full-tree", "--end-of-options", commit, paths=MOST_PATHS
        )
        entries = tree_entries(listing)
        if not sizes:
            return entries
        # `ls-tree --long` reads the header of a blob as often as the tree names it.
        sizes_of = self._sizes({entry.oid for entry in entries if entry.mode != SUBMODULE_MODE})
        return tuple(replace(entry, size=sizes_of.get(entry.oid)) for entry in entries)

    def _sizes(self, oids: Iterable[str]) -> Mapping[str, int]:
        stdin = "".join(f"{oid}\n" for oid in sorted(oids)).encode("ascii")
        return sizes_by_id(self._read("cat-file", "--batch-check", "--buffer", stdin=stdin))

    def index(self) -> tuple[IndexEntry, ...]:
        """Return the index with each path once (an unmerged file has up to three entries)."""
        return index_entries(self._read("ls-files", "-t", "-s", "-z", paths=MOST_PATHS))

    def untracked(self) -> tuple[bytes, ...]:
        """Return files neither in the index nor ignored. A nested repository ends in `/`."""
        ignore = [f"core.excludesFile={file}" for file in self._user_excludes()]
        listing = self._read(
            "ls-files", "--others", "--exclude-standard", "-z", configuration=ignore,
            paths=MOST_PATHS,
        )  # fmt: skip
        return tuple(records(listing))

    def blobs(self, oids: Sequence[str]) -> Mapping[str, bytes]:
        """Return the contents of blobs by id, read in one call, without missing ones."""
        if not oids:
            return {}
        stdin = "".join(f"{oid}\n" for oid in oids).encode("ascii")
        return dict(batch_contents(self._read("cat-file", "--batch", "--buffer", stdin=stdin)))

    def ancestors(self, commit: str, limit: int) -> tuple[str, ...]:
        """Return the last `limit` commits of a history, without merges and shallow ends."""
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
        """Return the `git log` of these commits against their parents; only `attributes` count."""
        if not commits:
            return b""
        (self.scratch / "info" / "attributes").write_text(attributes)
        return self._read(
            "log", "--stdin", "--no-walk=unsorted", "--no-ext-diff", "--no-textconv", "--no-color",
            "--no-notes", "--no-show-signature", "--no-mailmap", "--ignore-submodules=all",
            "--encoding=UTF-8", *arguments,
            stdin="".join(f"{commit}\n" for commit in commits).encode("ascii"),
            configuration=(*_PLAIN_WALK, *configuration),
            outside=True,
        )  # fmt: skip

    def shallow_ends(self) -> frozenset[str]:
        """Return the commits at which a shallow clone ends; none for a complete history."""
        try:
            return frozenset((self.scratch / "shallow").read_text("ascii").split())
        except (FileNotFoundError, UnicodeDecodeError):
            return frozenset()

    def setting(self, name: str) -> str:
        """Return a setting of the repository's own configuration, which is not trusted, or ""."""
        return self._settings.get(name) or ""

    def trusts_file_mode(self) -> bool:
        """Whether executable bits on disk count (`core.fileMode`, on by default)."""
        return _is_true(self._settings.get("core.filemode", "true"))

    def _user_excludes(self) -> tuple[str, ...]:
        """Return the ignore file in the user's configuration, never that of the repository."""
        output = self.call(
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
        paths: int | None = None,
    ) -> bytes:
        output = self.call(
            *arguments, stdin=stdin, configuration=configuration, outside=outside, paths=paths
        )
        if output.code != 0:
            raise RepositoryError(
                f"{self.location.root}: git cannot read it ({output.complaint}); "
                "see what `git fsck` says there"
            )
        return output.stdout

    def call(
        self,
        *arguments: str,
        stdin: bytes = b"",
        configuration: Sequence[str] = (),
        without: Sequence[str] = (),
        outside: bool = False,
        paths: int | None = None,
        variables: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> GitOutput:
        """Run git in the private directory. `variables` are added to the environment, those in
        `without` left out, `secrets` added without being on a command line. `outside`: the work
        tree is empty.
        """
        work_tree = self.scratch if outside else self.location.root
        borrowed = {
            "GIT_DIR": str(self.scratch),
            "GIT_OBJECT_DIRECTORY": str(self.directory.objects.absolute()),
            "GIT_WORK_TREE": str(work_tree),
        }
        extra = [part for setting in configuration for part in ("-c", setting)]
        given = {**git_environment(), **borrowed, **(variables or {})}
        return self._runner.run(
            [*extra, *arguments],
            cwd=work_tree,
            variables={name: value for name, value in given.items() if name not in without},
            secrets=secrets or {},
            stdin=stdin,
            paths=paths,
        )


def _program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        package = {"env": "coreutils"}.get(name, name)
        raise RepositoryError(f"{name} is not installed; install it (apt install {package})")
    return str(Path(path).absolute())


def _is_true(value: str | None) -> bool:
    """Whether git takes the value of a setting for true; None is a name without a value."""
    word = "true" if value is None else value.lower()
    return word in ("true", "yes", "on") or (word.isdigit() and int(word) != 0)
