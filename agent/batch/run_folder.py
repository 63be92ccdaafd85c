"""The folder of a run: taking its lock, and the file of the selected instances.

RUN/run.json         the settings, model and data set of the run (`checks`)
RUN/journal.jsonl    what has happened (`journal`)
RUN/tasks.jsonl      the selected instances (`TaskFile`)
RUN/instances/ID/    the folder of one instance (`agent.results.kept`)
RUN/nodes.key        the name of the run on the nodes of a cluster
RUN/lock             held by the driver
"""

from __future__ import annotations

import contextlib
import os
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self

from agent.datasets import InputProblem, SolverTask
from agent.errors import ConfigurationError
from agent.shared.files import locked

RUN, JOURNAL, TASKS, INSTANCES = "run.json", "journal.jsonl", "tasks.jsonl", "instances"
_KEY, _LOCK = "nodes.key", "lock"

# Each of these marks a run folder. A process that is killed at the beginning leaves only others.
_MARKS = frozenset({RUN, JOURNAL})
_OTHERS = frozenset({TASKS, INSTANCES, _KEY, _LOCK})


@contextlib.contextmanager
def claim_run_folder(folder: Path) -> Iterator[None]:
    """Create or reopen the folder of a run, and hold its lock for the block.

    If the block raises before the journal has an entry, whatever this command created is removed
    again. Raises ConfigurationError for a file, for a folder of something else, and if another
    run holds the lock; OSError.
    """
    _check(folder)
    made = _missing(folder / INSTANCES)
    there = frozenset(path.name for path in folder.iterdir()) if folder.is_dir() else frozenset()
    try:
        (folder / INSTANCES).mkdir(parents=True, exist_ok=True)
        with locked(folder / _LOCK):
            try:
                yield
            except BaseException:
                if _begun(folder):
                    made.clear()
                else:
                    _remove(folder, there)
                raise
    except BaseException:
        for path in made:
            with contextlib.suppress(OSError):  # another program has put something there
                path.rmdir()
        raise


def _begun(folder: Path) -> bool:
    try:
        return (folder / JOURNAL).stat().st_size > 0
    except OSError:
        return False


def _check(folder: Path) -> None:
    for path in (folder, *folder.parents):
        if (path.exists() or path.is_symlink()) and not path.is_dir():
            raise ConfigurationError(
                f"--run {folder}: {path} is not a folder; name a folder, which is created if needed"
            )
    if not folder.is_dir():
        return
    names = frozenset(path.name for path in folder.iterdir())
    if names and not names & _MARKS and not names <= _OTHERS:
        raise ConfigurationError(
            f"--run {folder}: holds something else, not a run of this command; name an empty or "
            "a new folder with --run"
        )


def _missing(folder: Path) -> list[Path]:
    """Return the folders that have to be created for `folder`, the innermost first."""
    missing = []
    for path in (folder, *folder.parents):
        if path.exists():
            break
        missing.append(path)
    return missing


def _remove(folder: Path, there: frozenset[str]) -> None:
    """Remove the files of a run, except those in `there`."""
    for name in sorted((_MARKS | _OTHERS) - {INSTANCES} - there):
        with contextlib.suppress(OSError):
            (folder / name).unlink(missing_ok=True)


class TaskFile:
    """The selected instances by position, in the order of the data set.

    They stay on the disk, so that a large data set takes little memory. The file is written anew at
    each start. `bad` are the rows that were left out. A context manager.
    """

    def __init__(self, path: Path, rows: Iterable[SolverTask | InputProblem]) -> None:
        """Write `path`. Raises OSError and what `rows` raises."""
        self.bad: list[InputProblem] = []
        self.ids: list[str] = []
        self._ends = array("Q", [0])
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        with os.fdopen(os.dup(self._handle), "wb") as file:
            for row in rows:
                if isinstance(row, InputProblem):
                    self.bad.append(row)
                    continue
                line = row.model_dump_json().encode() + b"\n"
                file.write(line)
                self.ids.append(row.instance_id)
                self._ends.append(self._ends[-1] + len(line))

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, position: int) -> SolverTask:
        start, end = self._ends[position], self._ends[position + 1]
        return SolverTask.model_validate_json(os.pread(self._handle, end - start, start))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)
