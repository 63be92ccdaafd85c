"""Kills writes into a work tree at every step, and finishes them: `python -m ... MODE`.

A child process writes (MODE apply or undo) and is killed with SIGKILL before its n-th change of the
disk; a write is cut in half first. With MODE twice, every fourth time, the process that finishes is
killed at every step too. Then the tree must be wholly old or wholly new. Prints how often it was
either, as JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from agent.results.work_tree import FileOperations, apply_changes, finish_interrupted, undo_changes
from agent.types import FileChange

OLD = {"a.py": b"a = 1\n" * 99, "pkg/b.sh": b"b\n", "pkg/keep.py": b"k\n", "gone/c.py": b"c\n"}
CHANGES = (
    FileChange("a.py", OLD["a.py"], b"a = 2\n" * 99),
    FileChange("gone/c.py", b"c\n", None),
    FileChange("new/deep/d.py", None, b"d\n", executable=True),
    FileChange("pkg/b.sh", b"b\n", b"bb\n"),
)
MODES = {"a.py": 0o640, "pkg/b.sh": 0o755, "pkg/keep.py": 0o644, "gone/c.py": 0o600}

State = dict[str, tuple[int, bytes]]


class Killing(FileOperations):
    """Kills its process before the operation of that number, counted from 1."""

    def __init__(self, at: int) -> None:
        self.left = at

    def _step(self) -> bool:
        self.left -= 1
        return self.left == 0

    def write(self, descriptor: int, data: bytes) -> None:
        if self._step():
            os.write(descriptor, data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        super().write(descriptor, data)


def _killing(name: str) -> Callable[..., object]:
    real = getattr(FileOperations, name)

    def call(self: Killing, *arguments: object) -> object:
        if self._step():
            os.kill(os.getpid(), signal.SIGKILL)
        return real(self, *arguments)

    return call


for _name in (
    "make_folder", "create", "sync", "rename", "remove", "remove_folder",
):  # fmt: skip
    setattr(Killing, _name, _killing(_name))


def make_tree(root: Path) -> None:
    """Make the files of OLD."""
    for path, content in OLD.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
        (root / path).chmod(MODES[path])


def state_of(root: Path) -> State:
    """Every file below `root` with its mode and content, and every folder with its mode."""
    found = {}
    for path in sorted(root.rglob("*")):
        content = path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(root))] = (path.stat().st_mode, content)
    return found


def was_killed(action: Callable[[FileOperations], object], at: int) -> bool:
    """Run the action in a child that is killed at a step; False if it ended before."""
    child = os.fork()
    if child == 0:
        action(Killing(at))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or status == 0, status
    return os.WIFSIGNALED(status)


def main(folder: Path, mode: str) -> Counter[str]:
    """Kill at every step, and return how the tree was found in the end."""
    root, journal = folder / "tree", folder / "journal"

    def apply(operations: FileOperations | None = None) -> object:
        return apply_changes(CHANGES, root, journal, operations=operations)

    def undo(operations: FileOperations | None = None) -> object:
        return undo_changes(root, journal, operations=operations)

    def prepare() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        root.mkdir(parents=True)
        make_tree(root)
        if mode == "undo":
            apply()

    prepare()
    old = state_of(root)
    action = undo if mode == "undo" else apply
    action()
    new = state_of(root)
    assert old != new
    found: Counter[str] = Counter()
    for first in range(1, 1000, 4 if mode == "twice" else 1):
        for second in range(1, 1000):
            prepare()
            if not was_killed(action, first):
                return found
            again = mode == "twice" and was_killed(
                lambda operations: finish_interrupted(root, journal, operations), second
            )
            finish_interrupted(root, journal)
            now = state_of(root)
            assert now in (old, new), (first, second, now)
            assert finish_interrupted(root, journal) == (), (first, second)
            found["new" if now == new else "old"] += 1
            if now == new and mode != "undo":
                undo_changes(root, journal)
                assert state_of(root) == old, (first, second)
            if not again:
                break
    raise AssertionError("the write never ended")


if __name__ == "__main__":
    os.umask(0o022)
    memory = Path("/dev/shm")  # each step is flushed, which takes a disk 10 ms
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as made:
        sys.stdout.write(json.dumps(main(Path(made, "work"), sys.argv[1])))
