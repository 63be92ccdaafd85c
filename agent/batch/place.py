"""The folder of a run: whose it is, who works in it, and nothing left of a run that never began.

RUN/run.json         what it was begun with (`fingerprint`)
RUN/journal.jsonl    what has happened (`journal`)
RUN/tasks.jsonl      the selected instances (`spool`)
RUN/instances/ID/    one folder an instance (`folder`)
RUN/nodes.key        the name of the run on the nodes of a cluster
RUN/lock             held by the driver
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from agent.durable import locked
from agent.errors import ConfigurationError

RUN, JOURNAL, TASKS, INSTANCES = "run.json", "journal.jsonl", "tasks.jsonl", "instances"
_KEY, _LOCK = "nodes.key", "lock"

# By these a folder is known for one of a run; the others alone are what a kill at its very
# beginning has left.
_MARKS = frozenset({RUN, JOURNAL})
_OTHERS = frozenset({TASKS, INSTANCES, _KEY, _LOCK})


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Make the folder of a run, or take it up, and hold its lock for the block.

    A block that raises before the journal has an entry has begun nothing: what this command has
    made is removed again. Raises ConfigurationError for a folder of something else, for a file, and
    where another run works in it; OSError.
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
            with contextlib.suppress(OSError):  # somebody else has put something there
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
                f"--run {folder}: {path} is no folder; name one, which is made where there is none"
            )
    if not folder.is_dir():
        return
    names = frozenset(path.name for path in folder.iterdir())
    if names and not names & _MARKS and not names <= _OTHERS:
        raise ConfigurationError(
            f"--run {folder}: holds something else, and no run of this command: name an empty or "
            "a new folder with --run"
        )


def _missing(folder: Path) -> list[Path]:
    """The folders to be made for `folder`, the innermost first."""
    missing = []
    for path in (folder, *folder.parents):
        if path.exists():
            break
        missing.append(path)
    return missing


def _remove(folder: Path, there: frozenset[str]) -> None:
    """The files of a run that was not there before."""
    for name in sorted((_MARKS | _OTHERS) - {INSTANCES} - there):
        with contextlib.suppress(OSError):
            (folder / name).unlink(missing_ok=True)
