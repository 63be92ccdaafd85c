"""Private copies of the target in which tests run, and what its base did in them.

The base is checked out once and nothing runs in it. Every run gets a fresh copy. The copies include
files that a build wrote beside the sources and that git ignores, because imports may need them:
`_version.py` of setuptools-scm, or `*.so`. Of files of secrets they have placeholders, and their
git history has no content of them; fixtures in folders of tests stay, because tests compare them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path, PurePosixPath

from pydantic import TypeAdapter, ValidationError

from agent.repository import is_test_path
from agent.shared.cache import RecordStore, record_format
from agent.shared.secrets import KnownSecrets, is_secret_path, placeholder
from agent.types import FileChange, TestRun
from agent.types.protocols import Reporter, Snapshot
from agent.verify.judging.compare import executed, is_whole
from agent.verify.tools import mount_of
from sandbox import (
    Command,
    Sandbox,
    SandboxError,
    Workspace,
    prepare_products,
    prepare_workspace,
    read_small_file,
)

# These backends show the workspace at its own path instead of mounting it.
IN_PLACE = frozenset({"process", "landlock"})

_BYTE_CODE = (".pyc", ".pyo")

_UNREAD = ("binary", "too-large", "unreadable")

# The end of the name of the folder in which tests are run a second time.
_ELSEWHERE = "-again"

# What tools write into `node_modules`: each run has it for itself.
_WRITTEN_BY_TOOLS = re.compile(r"\.(?:cache|te?mp|vite|vitest)\b")

_PRODUCT = re.compile(r"_*(?:scm_|generated_|build_)?version_*\.py|.*\.(?:so|pyd)")

# The compiled extensions of a large project fit in it; further files are not copied.
_MOST_PRODUCT_BYTES = 512 * 1024 * 1024


class PrivateTrees:
    """Makes copies of the base. `files` (path -> bytes) are written over it. Close it."""

    def __init__(self, snapshot: Snapshot, sandbox: Sandbox, files: Mapping[str, bytes]) -> None:
        self._snapshot = snapshot
        self._sandbox = sandbox
        self._files = files
        self._base: Workspace | None = None
        self.identity = ""  # of the base: its commit and what was written over it

    def close(self) -> None:
        """Remove the base's copy. Safe to call twice."""
        if self._base is not None:
            self._base.close()
            self._base = None

    def base(self) -> Workspace:
        """Return the copy of the base, which is made on the first call."""
        if self._base is None:
            snapshot = self._snapshot
            # Python would run committed byte code in place of the patched source.
            skipped = (skip.path for skip in snapshot.skipped if skip.path.endswith(_BYTE_CODE))
            overlay: dict[str, bytes | None] = {**self._products(), **snapshot.overlay()}
            overlay |= {**self._files, **dict.fromkeys(skipped, None)}
            # Files that are in the commit but that the snapshot has no text of.
            unread = {s.path for s in snapshot.skipped if s.reason in _UNREAD}
            hidden = set(filter(_is_withheld, {*overlay, *snapshot.files, *unread}))
            for path in hidden:
                known = path in snapshot.files
                data = overlay.get(path, snapshot.read(path) if known else b"")
                overlay[path] = data and placeholder(data)
            written = [(path, data and sha256(data).digest()) for path, data in overlay.items()]
            self.identity = repr((snapshot.commit, sorted(written)))
            mount = mount_of(snapshot, self._sandbox)
            self._base = prepare_workspace(
                snapshot.root, snapshot.commit, overlay, mount=mount, withheld=hidden
            )
        return self._base

    def replace_base(self, tree: Workspace) -> None:
        """Take a tree, in which a command has run, for the base; `close` closes it."""
        self.close()
        self._base = tree

    def with_changes(self, changes: Sequence[FileChange], *, elsewhere: bool = False) -> Workspace:
        """Return a fresh copy with the changes, with `elsewhere` at another path. Close it."""
        tree = self.base().copy()
        if elsewhere and not self._sandbox.foreign_root:
            tree.mount = tree.mount.with_name(f"{tree.mount.name}{_ELSEWHERE}")
        try:
            # Deletions first: a folder may replace a file.
            for change in sorted(changes, key=lambda c: (c.after is not None, c.path)):
                if not change.path.endswith(_BYTE_CODE):
                    data = change.after
                    data = data and placeholder(data) if _is_withheld(change.path) else data
                    tree.write(change.path, data, change.executable or None)
        except SandboxError:
            tree.close()
            raise
        return tree

    def with_packages(self, command: Command, tree: Workspace) -> Command:
        """Return the command with each package of `node_modules` in a folder of the tree."""
        root, shown = self._snapshot.root.resolve(), list[Path]()
        for path in command.read_only:
            if path.name == "node_modules" and path.is_relative_to(root):
                shown += self._show_packages(path, str(path.relative_to(root)), tree)
            else:
                shown.append(path)
        return replace(command, read_only=tuple(shown))

    def _show_packages(self, folder: Path, inside: str, tree: Workspace) -> Iterator[Path]:
        """Yield the packages to mount. Links are made anew: they may lead into the tree."""
        in_place = self._sandbox.name in IN_PLACE
        tree.make_mount_point(inside, is_directory=True)
        for entry in sorted(folder.iterdir()):
            path = f"{inside}/{entry.name}"
            if entry.is_symlink():
                tree.ensure_link(path, str(entry.readlink()))
            elif in_place and entry.name.startswith("@"):
                yield from self._show_packages(entry, path, tree)
            elif not _WRITTEN_BY_TOOLS.match(entry.name):
                if in_place:
                    tree.ensure_link(path, str(entry))
                yield entry

    def root_inside(self, tree: Workspace) -> Path:
        """Return where a command finds the tree: some backends mount nothing."""
        return tree.path if self._sandbox.name in IN_PLACE else tree.mount

    def _products(self) -> Mapping[str, bytes]:
        if self._sandbox.foreign_root:
            return prepare_products(self._sandbox, tracked=self._snapshot.exists)
        return build_products(self._snapshot)


def _is_withheld(path: str) -> bool:
    return is_secret_path(path) and not is_test_path(path)


def known_secrets(snapshot: Snapshot) -> KnownSecrets:
    """Return the values of the files of secrets, fixtures of tests excepted."""
    return KnownSecrets(snapshot.read(path) for path in snapshot.files if _is_withheld(path))


def build_products(snapshot: Snapshot) -> Mapping[str, bytes]:
    """Return the build products in folders of tracked Python files, as path -> bytes."""
    products: dict[str, bytes] = {}
    left = _MOST_PRODUCT_BYTES
    folders = {PurePosixPath(path).parent for path in snapshot.files if path.endswith(".py")}
    for folder in sorted(folders):
        place = snapshot.root / folder
        for file in sorted(place.glob("*")) if not place.is_symlink() else ():
            path = str(folder / file.name)
            if _PRODUCT.fullmatch(file.name) and not snapshot.exists(path):
                with suppress(OSError):  # it is too large
                    data = read_small_file(file, left)
                    products |= {path: data} if data is not None else {}
                    left -= len(data or b"")
    return products


def is_named_by(python: Path, root: Path) -> bool:
    """Whether what is installed for an interpreter leads to a folder (an editable installation)."""
    patterns = ("*.pth", "*.egg-link", "__editable__*.py")
    for file in (f for p in package_folders(python) for one in patterns for f in p.glob(one)):
        with suppress(OSError):
            if str(root).encode() in (read_small_file(file) or b""):
                return True
    return False


def package_folders(python: Path) -> list[Path]:
    """Return the folders of an interpreter's packages, and of the installation behind it."""
    prefixes = sorted({python.parent.parent, python.resolve().parent.parent})
    return [folder for up in prefixes for folder in sorted(up.glob("lib*/python*/*-packages"))]


# ------------------------------------------------------------------------------ runs of the base

# Change the last number whenever `TestRun` or how it is read changes.
_FORMAT = record_format("cache of test runs", 0x50535243, 4)  # "PSRC"

# Bytes of one run, and of all. A run of 20,000 tests with long names has less than 4 MiB.
_MOST_BYTES = 4 * 1024 * 1024
_MOST_TOTAL = 128 * 1024 * 1024

# Tests look at the clock and certificates expire, so that a result holds for a month at most.
_MONTH = 30 * 24 * 3600.0

_RUN = TypeAdapter(TestRun)


class BaseRuns:
    """Runs of the base by key, in memory and in a file of `folder` unless it is None. Close it."""

    def __init__(self, folder: Path | None, reporter: Reporter) -> None:
        path = folder / "results.sqlite" if folder else None
        self._store = RecordStore(path, reporter=reporter, limit=_MOST_TOTAL, file_format=_FORMAT)
        self._finished: dict[bytes, TestRun] = {}

    def close(self) -> None:
        """Remove the runs that were not used for longest, if they are too many."""
        self._store.close()

    def get(self, key: bytes) -> TestRun | None:
        """Return a run that was put under this key, marked as cached."""
        if key not in self._finished and (data := self._store.get([key]).get(key)):
            with suppress(ValidationError):
                self._finished[key] = _RUN.validate_json(data, strict=True)
        return replace(self._finished[key], cached=True) if key in self._finished else None

    def put(self, key: bytes, run: TestRun, *, lasting: bool) -> None:
        """Keep a run; on disk only a `lasting` one that is whole and whose accounts agree."""
        self._finished[key] = run
        if lasting and is_whole(run) and executed(run) and not run.channels.disagreements:
            with suppress(ValueError):  # text that is no Unicode
                data = _RUN.dump_json(run)
                if len(data) <= _MOST_BYTES:
                    self._store.put([(key, data)])


def key_of(parts: object, shown: Iterable[Path]) -> bytes:
    """Return the key of a result that depends on `parts` and on what is installed in folders."""
    dates: list[tuple[str, int]] = []
    for folder in shown:
        with suppress(OSError):
            dates.append((str(folder), folder.stat().st_mtime_ns))
            dates += [(str(one), one.lstat().st_mtime_ns) for one in folder.iterdir()]
    text = repr((int(time.time() // _MONTH), parts, sorted(dates)))
    return sha256(text.encode("utf-8", "surrogateescape")).digest()
