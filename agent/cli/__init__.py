"""The command line: what `agent` takes. Each command parses here and runs in `agent.commands`.

The program starts in `main`. What Python has loaded anyway is all that is imported above it, so
that a Ctrl-C is answered in words from the first moment on; the commands are in `application`.
"""

from __future__ import annotations

import errno
import gc
import os
import sys

__all__ = ["main"]

INTERRUPTED = 130
"""128 + SIGINT, as shells report it; the same as `agent.errors.Status.INTERRUPTED`."""

PIPE_CLOSED = 141
"""128 + SIGPIPE: whoever read stdout went away (`agent index --list | head -1`)."""

OBJECTS_BETWEEN_COLLECTIONS = 100_000
"""Python's own number is 700. Next to nothing of what a command makes is garbage in circles, and
looking for that took a tenth of the time until a model is asked."""

STDOUT_CLOSED = 2
"""Usage: nothing can be printed."""


def main() -> None:
    """Entry point of the command `agent`. Ends in SystemExit."""
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    try:
        _open_streams()
        from agent.cli.application import app

        app(prog_name="agent")
    except KeyboardInterrupt:
        _end(INTERRUPTED, "interrupted")
    except SystemExit as error:
        # Typer turns these into exit codes of its own, without a word.
        if _came_of(error, KeyboardInterrupt):
            _end(INTERRUPTED, "interrupted")
        if _came_of(error, BrokenPipeError):
            _end(PIPE_CLOSED)
        raise
    except BrokenPipeError:
        _end(PIPE_CLOSED)
    except OSError as error:
        if error.errno != errno.EBADF:
            raise
        _end(STDOUT_CLOSED, "stdout is closed: send it somewhere, such as > /dev/null")


def _open_streams() -> None:
    """Have something at descriptors 0 to 2, so that no file that is opened later takes their place.

    A closed stdout becomes one that cannot be written to: what is printed there fails, and that is
    said. What a closed stderr should say is lost.
    """
    for number, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, flags)  # the lowest free number, which is this one
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115  (open until the end)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def _came_of(error: BaseException, kind: type[BaseException]) -> bool:
    """Whether `error` was raised while one of this kind was handled."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, kind):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def _end(code: int, message: str = "") -> None:
    """Leave with `code`, without a second error for what stdout still holds."""
    silent = os.open(os.devnull, os.O_WRONLY)
    if code != INTERRUPTED:
        os.dup2(silent, 1)
    try:
        if message:
            print(f"agent: {message}", file=sys.stderr, flush=True)  # noqa: T201
    except OSError:
        os.dup2(silent, 2)  # stderr is gone too
    raise SystemExit(code) from None
