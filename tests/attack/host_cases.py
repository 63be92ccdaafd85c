"""Attacks by files of a repository on this machine, through the real commands."""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Callable
from hashlib import sha1
from pathlib import Path

from tests.attack.cases import Case

PLANTED = Case(
    name="planted interpreter",
    level="repository",
    does="has a `.venv` whose python, or what it leads to, runs a program; VIRTUAL_ENV names it",
    stopped_by="an environment, and all in a work tree, is read as data and run in a sandbox only",
)
ON_PATH = Case(
    name="planted tools",
    level="repository",
    does="has git, bwrap, podman, cp and others in folders that are on the user's PATH",
    stopped_by="relative folders and those of the work tree are taken off PATH",
)
BY_REPLY = Case(
    name="code for the next run",
    level="patch",
    does="renames a tracked program to .venv/bin/python, or makes what git ignores; runs again",
    stopped_by="protected paths, which need `--allow`; nothing of a work tree runs outside",
)
ODD_FILES = Case(
    name="configuration that is no file",
    level="repository",
    does="has a FIFO, a device, a link to one or a terabyte in the place of each file of settings",
    stopped_by="one reader: regular files only, no links, a size limit, opened without blocking",
)
TREE_BOMB = Case(
    name="tree of ten million paths",
    level="repository",
    does="has a commit of 2 KB whose nested trees have 10^7 paths",
    stopped_by="paths are counted while git lists them; git has limits of time, memory and output",
)

HOST_CASES = (PLANTED, ON_PATH, BY_REPLY, ODD_FILES, TREE_BOMB)

# Every small file that the agent or git reads: settings, what git needs, what names interpreters.
SETTINGS = (
    *("patchshot.toml", "pyproject.toml", "setup.cfg", "tox.ini", "package.json", "Cargo.toml"),
    *(".gitignore", "shop/.gitignore", "new/.gitignore", ".gitattributes", ".gitmodules"),
    *("rust-toolchain.toml", "go.mod", ".python-version", ".venv/pyvenv.cfg", "venv/pyvenv.cfg"),
)
OF_GIT = (
    *(".git", ".git/HEAD", ".git/config", ".git/packed-refs", ".git/shallow", ".git/index"),
    *(".git/commondir", ".git/info/exclude", ".git/objects/info/alternates", ".git/logs/HEAD"),
    *(".git/refs/heads/main", ".git/objects/pack/pack-1.idx", ".git/config.worktree"),
)


def _fifo(place: Path) -> None:
    os.mkfifo(place)


def _zero(place: Path) -> None:
    place.symlink_to("/dev/zero")


def _device(place: Path) -> None:
    os.mknod(place, stat.S_IFCHR | 0o666, os.makedev(1, 5))


def _sparse(place: Path) -> None:
    with place.open("wb") as file:
        file.truncate(2**40)


ODD: dict[str, Callable[[Path], None]] = {
    "fifo": _fifo,
    "link to /dev/zero": _zero,
    "device": _device,
    "terabyte": _sparse,
}


def plant_tree(root: Path, *, levels: int = 7, width: int = 10) -> str:
    """Store a commit whose tree has `width` to the power of `levels` files; return its id."""

    def store(kind: bytes, content: bytes) -> str:
        data = b"%s %d\0%s" % (kind, len(content), content)
        oid = sha1(data, usedforsecurity=False).hexdigest()
        place = root / ".git" / "objects" / oid[:2] / oid[2:]
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(zlib.compress(data))
        return oid

    oid, mode = store(b"blob", b"x = 1\n"), b"100644"
    for _ in range(levels):
        names = (b"%s %d\0%s" % (mode, n, bytes.fromhex(oid)) for n in range(width))
        oid, mode = store(b"tree", b"".join(names)), b"40000"
    who = b"T <t@example.invalid> 1700000000 +0000"
    return store(b"commit", b"tree %s\nauthor %s\ncommitter %s\n\nx\n" % (oid.encode(), who, who))
