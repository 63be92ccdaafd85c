"""What all commands share: one-line errors, exit codes, progress, and the start of every job."""

from __future__ import annotations

import errno
import json as json_module
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from agent.errors import (
    ConfigurationError,
    PatchshotError,
    SandboxUnavailable,
    Status,
    UsageError,
)
from agent.events import Notice, StageFinished, StageStarted
from agent.result import Ledger, SolveResult, summarise

if TYPE_CHECKING:
    from agent.protocols import Reporter, Snapshot
    from agent.types import Problem

DirtyMode = Literal["include", "ignore", "refuse"]

# Set to show the traceback of an internal error.
DEBUG_VARIABLE = "PATCHSHOT_DEBUG"

PIPE_CLOSED = 141
"""128 + SIGPIPE, as shells report it: whoever read stdout went away. Not 130, which is Ctrl-C's."""


def guarded(command: Callable[[], int], *, json: bool = False) -> int:
    """Run a command; turn what ends it into one line on stderr and an exit code.

    With `json`, stdout still carries a SolveResult that says the same.
    """
    try:
        return command()
    except PatchshotError as error:
        return fail(error.status, str(error), json=json)
    except KeyboardInterrupt:
        return fail(Status.INTERRUPTED, "interrupted", json=json)
    except BrokenPipeError:
        abandon_stdout()
        return PIPE_CLOSED
    except OSError as error:
        translated = translate_os_error(error)
        return fail(translated.status, str(translated), json=json)
    except Exception as error:  # noqa: BLE001  (the last line: a bug must still end in one line)
        return fail(Status.CRASHED, describe_crash(error), json=json)


def fail(status: Status, message: str, *, json: bool) -> int:
    """Say why there is no result, and give the exit code."""
    message = make_redactor()(message)
    with suppress(OSError):  # stderr may be what is closed
        say(f"agent: {message}")
    if json:
        with suppress(OSError, UsageError):  # stdout may be what `message` is about
            print_json(summarise(Ledger(), status=status, message=message))
    return status.exit_code


def abandon_stdout() -> None:
    """Send what stdout still holds to nowhere: no second error when the interpreter ends."""
    with suppress(OSError, ValueError):  # stdout may be no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(text: str) -> None:
    """Text to stderr. It may hold a model's or a repository's words: no control characters."""
    safe = "".join(
        c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text
    )
    print(safe, file=sys.stderr, flush=True)  # noqa: T201


def describe_crash(error: Exception) -> str:
    """A bug in one line; its traceback where the user asks for it."""
    if os.environ.get(DEBUG_VARIABLE):
        say(make_redactor()("".join(traceback.format_exception(error))))
    kind = type(error).__name__
    return f"internal error, please report it: {kind}: {error} ({DEBUG_VARIABLE}=1 shows more)"


def translate_os_error(error: OSError) -> PatchshotError:
    """A full disk or missing rights, in words."""
    place = f" ({error.filename})" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return SandboxUnavailable(
            f"the disk is full{place}: free some space or set TMPDIR and PATCHSHOT_CACHE_DIR to "
            "a place that has some"
        )
    return PatchshotError(f"{error.strerror or error}{place}")


def print_json(result: SolveResult) -> None:
    """The result as JSON on stdout."""
    write_stdout((result.model_dump_json(indent=2) + "\n").encode("utf-8", "replace"))


def print_value(value: Any) -> None:
    """Any JSON-able value on stdout."""
    text = json_module.dumps(value, indent=2, ensure_ascii=False)
    write_stdout((text + "\n").encode("utf-8", "replace"))


def write_stdout(data: bytes) -> None:
    """Bytes to stdout, unchanged. Raises UsageError where it is closed or leads to a full disk."""
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except OSError as error:
        if error.errno == errno.EBADF:
            abandon_stdout()
            raise UsageError("stdout is closed: send it somewhere, such as > /dev/null") from None
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise UsageError("the disk of what stdout leads to is full: send it elsewhere") from None


@contextmanager
def reporting(
    *, quiet: bool, verbose: bool = False, log_file: Path | None = None
) -> Iterator[Reporter]:
    """The reporter for this terminal, its spinner stopped and the log closed at the end.

    `verbose` shows each model call. Raises UsageError when `log_file` cannot be written.
    """
    from agent.console import TerminalReporter, reporter_for

    redact = make_redactor()
    reporter = reporter_for(quiet=quiet, verbose=verbose, redact=redact)
    with ExitStack() as stack:
        if isinstance(reporter, TerminalReporter):
            stack.enter_context(reporter)
        if log_file is None:
            yield cast("Reporter", reporter)
            return
        from agent.llm.call_log import LogFile

        yield stack.enter_context(LogFile(log_file, cast("Reporter", reporter), redact))


def make_redactor() -> Callable[[str], str]:
    """What masks the keys of this process, and whatever looks like one, in a text."""
    from agent.llm.redaction import Redactor
    from agent.settings import secret_values

    return Redactor(secret_values())


def load_problem(source: str) -> Problem:
    """The issue, from wherever `--problem` says."""
    from agent.problem import read_problem

    return read_problem(source, stdin=sys.stdin.buffer)


def own_file(source: str | None) -> Path | None:
    """The file that a `--problem` or `--reply` names, if it names one."""
    if source is None or source == "-" or source.startswith(("http://", "https://")):
        return None
    return Path(source)


def refuse_overwriting(output: Path, inputs: Mapping[str, Path | None]) -> None:
    """Nothing where `output` is none of the inputs, by whatever name.

    `inputs`: path by option, such as `--dataset`. Raises ConfigurationError.
    """
    for option, path in inputs.items():
        if path is not None and _same_file(output, path):
            raise ConfigurationError(
                f"--output is the {option} ({path}), which would be lost: give another --output"
            )


def _same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # one of them is not there
        return one.absolute() == other.absolute()


def load_snapshot(
    repo: Path,
    commit: str | None,
    dirty: str,
    reporter: Reporter,
    ledger: Ledger | None = None,
    *,
    exclude: Sequence[Path | None] = (),
) -> Snapshot:
    """Read the repository and say what was found.

    `exclude`: the command's own files (the issue, the output), which are no part of the project
    even where they lie in it.
    """
    from agent.repository.selection import skipped_in_words
    from agent.repository.snapshot import take_snapshot

    started = time.perf_counter()
    reporter(StageStarted("snapshot", str(repo)))
    ok = False
    summary = ""
    try:
        own = [path.resolve() for path in exclude if path is not None]
        snapshot = take_snapshot(repo, commit=commit, dirty=cast("DirtyMode", dirty), exclude=own)
        state = "with uncommitted changes" if snapshot.dirty else "clean"
        why = skipped_in_words(snapshot.skipped)
        skipped = f", {len(snapshot.skipped):,} skipped ({why})" if why else ""
        base = f"{snapshot.commit[:10]} {state}"
        summary, ok = f"{len(snapshot.files):,} files{skipped} at {base}", True
    finally:
        seconds = time.perf_counter() - started
        reporter(StageFinished("snapshot", seconds, summary, ok))
        if ledger is not None:
            ledger.spend("snapshot", seconds)
    for note in snapshot.notes:
        reporter(Notice(note))
    return snapshot
