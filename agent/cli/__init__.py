"""The command line program `agent`. `agent.cli.commands` has one module for each command.

`main` is the entry point. This module imports only modules that Python has already loaded, so that
Ctrl-C prints a message from the start. `application` lists the commands.
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
"""128 + SIGPIPE: the reader of stdout has closed it (`agent index --list | head -1`)."""

OBJECTS_BETWEEN_COLLECTIONS = 100_000
"""Threshold of the garbage collector; Python's default is 700. Commands create almost no reference
cycles, and with the default a tenth of the time before the first model call went to collections.
"""

_COMPLETION = "_{}_COMPLETE"
"""The variable with which a shell requests completions: `_AGENT_COMPLETE=bash_source agent`."""

STDOUT_CLOSED = 2
"""Exit code of a usage error: stdout cannot be written."""


def main() -> None:
    """Run the command `agent`. Always raises SystemExit."""
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    # httpx would import its own command line, and rich and pygments with it, which takes a
    # fifteenth of the time before the first model call. It goes on where that import fails.
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
    try:
        _open_streams()
        raise SystemExit(_call(sys.argv[1:]))
    except KeyboardInterrupt:
        _end(INTERRUPTED, "interrupted")
    except BrokenPipeError:
        _end(PIPE_CLOSED)
    except OSError as error:
        if error.errno != errno.EBADF:
            raise
        _end(STDOUT_CLOSED, "stdout is closed: send it somewhere, such as > /dev/null")


def _open_streams() -> None:
    """Open `os.devnull` for each of the descriptors 0 to 2 that is closed.

    Otherwise a file that is opened later would get the descriptor. Writing to a stdout that was
    closed fails with an error message. Text for a stderr that was closed is discarded.
    """
    for number, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, flags)  # gets the lowest free number, which is `number`
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115  (open until the end)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def _call(arguments: list[str]) -> int:
    """Run the command that the arguments name, and return the exit code.

    Click's own `main` would turn Ctrl-C and closed pipes into other exit codes.
    """
    from click.exceptions import ClickException, Exit

    from agent.cli.application import app
    from agent.shared.terminal import protect_streams

    protect_streams()
    for program in ("agent", "patchshot"):
        variable = _COMPLETION.format(program.upper())
        if variable in os.environ:
            app.main(prog_name=program, complete_var=variable)
    try:
        with app.make_context("agent", arguments) as context:
            app.invoke(context)
    except Exit as done:
        return done.exit_code
    except ClickException as error:
        error.show(file=sys.stderr)
        return error.exit_code
    return 0


def _end(code: int, message: str = "") -> None:
    """Exit with `code`, and discard buffered stdout so that flushing it raises no second error."""
    silent = os.open(os.devnull, os.O_WRONLY)
    if code != INTERRUPTED:
        os.dup2(silent, 1)
    try:
        if message:
            print(f"agent: {message}", file=sys.stderr, flush=True)  # noqa: T201
    except OSError:
        os.dup2(silent, 2)  # stderr is closed too
    raise SystemExit(code) from None
