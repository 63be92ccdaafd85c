"""The command line program `agent`. `agent.cli.commands` has one module for each group of commands.

`main` is the entry point. This module imports only modules that Python has already loaded, so that
Ctrl-C prints a message from the start. `application` lists the commands.
"""

from __future__ import annotations

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
        _end(INTERRUPTED, "agent: interrupted")
    except BrokenPipeError:
        _end(PIPE_CLOSED, "")


def _open_streams() -> None:
    """Open `os.devnull` in the place of closed streams, whose descriptors a file would get."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is `number`
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115  (open until the end)
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def _call(arguments: list[str]) -> int:
    """Run the command that the arguments name, and return the exit code.

    Click's own `main` would turn Ctrl-C and closed pipes into other exit codes.
    """
    from click.exceptions import ClickException, Exit

    from agent.cli.application import app
    from agent.shared.terminal import protect_streams

    protect_streams()
    for program in ("agent", "patchshot"):  # a shell asks for completions
        variable = f"_{program.upper()}_COMPLETE"
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


def _end(code: int, message: str) -> None:
    """Exit with `code`; what is left in the buffers goes nowhere after a closed pipe."""
    if code == PIPE_CLOSED:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if message:
        print(message, file=sys.stderr, flush=True)  # noqa: T201
    raise SystemExit(code) from None
