"""Functions that all commands share: error messages, exit codes, progress, loading of inputs."""

from __future__ import annotations

import errno
import json as json_module
import os
import stat
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agent.errors import ConfigurationError, PatchshotError, Status, UsageError
from agent.run.record import Ledger, RunRecord, StageTimer, make_record
from agent.settings import environment, load, work_tree_of
from agent.shared.terminal import counted, inert, inert_json, say
from agent.types.events import Notice

if TYPE_CHECKING:
    from agent.results.kept import KeptRun
    from agent.settings import Settings
    from agent.types import Problem
    from agent.types.events import Event
    from agent.types.protocols import Reporter, Snapshot

# Set this variable to show the traceback of an internal error.
DEBUG_VARIABLE = "PATCHSHOT_DEBUG"

# Options whose files are no files of the project. Retrieval must not find the deciding tests.
_OWN_FILES = ("problem", "reply", "output", "record", "replay", "tests_from")


def guarded(command: Callable[[], int], *, json: bool = False) -> int:
    """Run a command. Turn an exception into one line on stderr and an exit code.

    With `json`, stdout still gets a RunRecord with the same message.
    """
    try:
        return command()
    except PatchshotError as error:
        status, message = error.status, str(error)
    except KeyboardInterrupt:
        status, message = Status.INTERRUPTED, "interrupted"
    except BrokenPipeError:
        raise
    except OSError as error:
        status, message = _describe_os_error(error)
    except Exception as error:  # noqa: BLE001  (the last line: a bug must still end in one line)
        status, message = Status.CRASHED, describe_crash(error)
    message = make_redactor()(message)
    with suppress(OSError):  # stderr may be closed
        say(f"agent: {message}")
    if json:
        with suppress(OSError, UsageError):  # stdout may be what `message` is about
            print_record(make_record(Ledger(), status=status, message=message))
    return status.exit_code


def describe_crash(error: Exception) -> str:
    """Return an internal error as one line, with a traceback if the user requests it."""
    if os.environ.get(DEBUG_VARIABLE):
        say(make_redactor()("".join(traceback.format_exception(error))))
    kind = type(error).__name__
    return f"internal error, please report it: {kind}: {error} ({DEBUG_VARIABLE}=1 shows more)"


def _describe_os_error(error: OSError) -> tuple[Status, str]:
    place = f" ({error.filename})" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        advice = "free some space or set TMPDIR and PATCHSHOT_CACHE_DIR to a place that has some"
        return Status.SANDBOX, f"the disk is full{place}: {advice}"
    return Status.USAGE, f"{error.strerror or error}{place}"


def print_record(record: RunRecord) -> None:
    """Print a record as JSON to stdout. Only `--json=full` prints its receipt."""
    context = click.get_current_context(silent=True)
    full = context is not None and context.meta.get("json") == "full"
    print_value(record.model_dump(mode="json", exclude=None if full else {"receipt"}))


def print_value(value: Any) -> None:
    """Print any JSON-serializable value to stdout."""
    text = json_module.dumps(value, indent=2, ensure_ascii=False)
    _write(inert_json(text + "\n").encode("utf-8", "replace"))


def print_result(value: Any, text: str, *, json: bool) -> None:
    """Print the result of a command: its value as JSON, or its text."""
    if json:
        print_value(value)
    else:
        write_stdout(text)


def write_stdout(text: str) -> None:
    """Write text to stdout without control characters, because it may quote a repository.

    Raises UsageError if stdout cannot be written.
    """
    _write(inert(text).encode("utf-8", "replace"))


def write_diff(diff: bytes) -> None:
    """Write a diff to stdout, unchanged unless a person sees it. Raises as `write_stdout`."""
    if sys.stdout.isatty():
        write_stdout(diff.decode("utf-8", "replace"))
    else:
        _write(diff)


def _write(data: bytes) -> None:
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        why = error.strerror or error
        raise UsageError(f"stdout cannot be written ({why}): send it elsewhere") from None


@contextmanager
def reporting(*, quiet: bool, verbose: bool = False, warn: bool = False) -> Iterator[Reporter]:
    """Yield the reporter for this terminal. Stop its spinner at the end.

    `verbose` shows each model call. With `warn`, `quiet` silences progress but not warnings.
    """
    from agent.shared.console import open_reporter

    redact = make_redactor()

    def say_warnings(event: Event) -> None:
        if warn and isinstance(event, Notice) and event.level == "warning":
            say(f"warning: {redact(event.message)}")

    if quiet:
        yield say_warnings
        return
    with open_reporter(verbose=verbose, redact=redact) as reporter:
        yield reporter


def make_redactor() -> Callable[[str], str]:
    """Return a function that masks the keys of this process and other likely secrets."""
    from agent.llm import own_redactor

    return own_redactor()


def load_problem(source: str, *, text: bool = False) -> Problem:
    """Read the issue that `--problem` names. With `text`, `source` may also be its text."""
    from agent.run.problem import read_problem

    github = environment(("GITHUB_API_URL", "GITHUB_TOKEN", "GH_TOKEN"))
    return read_problem(
        source,
        stdin=sys.stdin.buffer,
        github_api=github.get("GITHUB_API_URL"),
        github_token=github.get("GITHUB_TOKEN") or github.get("GH_TOKEN"),
        text=text,
    )


def one_of(what: str, how: str, *values: str | None) -> str:
    """Return the value that was given. Raises UsageError if there is none, or more than one."""
    given = [value for value in values if value is not None]
    if len(given) != 1:
        raise UsageError(f"give {what} once: {how}")
    return given[0]


def find_kept(prefix: str | None) -> KeptRun:
    """Return the kept run whose id begins with `prefix`, or the last one.

    In a repository the last one of this repository. Raises ConfigurationError.
    """
    from agent.results.kept import find_run, list_runs, runs_folder

    root = work_tree_of(Path.cwd())
    if prefix is not None or not (root / ".git").exists():
        return find_run(runs_folder(), prefix)
    own = (run for run in list_runs(runs_folder()) if run.origin.repository == str(root))
    if (last := next(own, None)) is None:
        raise ConfigurationError(f"no run of {root} is kept yet: name one of `agent runs`")
    return last


def load_settings(flags: Mapping[str, Any], *, repository: Path | None = None) -> Settings:
    """Load the settings of a command, and print what was ignored. Raises ConfigurationError.

    From then on no program of the repository, or of the work tree that this runs in, is on PATH.
    """
    from sandbox import hide_programs

    for folder in filter(None, (Path.cwd(), repository)):
        hide_programs(work_tree_of(folder))
    return load(flags, repository=repository, note=_say_once)


@lru_cache
def _say_once(note: str) -> None:
    """Print a note to stderr once, because some commands load their settings twice."""
    say(f"note: {note}")


def own_file(source: Any) -> Path | None:
    """Return the path if the value of an option names a file, else None."""
    try:
        return Path(source) if source and source != "-" and Path(source).exists() else None
    except (OSError, ValueError):  # the text of an issue
        return None


def refuse_overwriting(output: Path, inputs: Mapping[str, Path | None]) -> None:
    """Check that `output` is not one of the input files, also under another name.

    `inputs` maps an option such as `--dataset` to its path. Raises ConfigurationError.
    """
    for option, path in inputs.items():
        if path is not None and output.resolve() == path.resolve():
            raise ConfigurationError(
                f"--output is the {option} ({path}), which would be lost: give another --output"
            )


def load_snapshot(
    given: Mapping[str, Any], settings: Settings, reporter: Reporter, ledger: Ledger | None = None
) -> Snapshot:
    """Read the repository that the options name, and report what was found.

    Files of the command itself do not count as files of the project: the inputs and outputs that it
    was given, the file that stdout goes to, a report of this program, and untracked diffs.
    """
    from agent.repository import skipped_in_words, take_snapshot

    repo, commit = given["repo"], given.get("commit")
    with StageTimer(reporter, ledger or Ledger()).stage("snapshot", str(repo)) as summary:
        if commit is None:
            finish_writes(repo, reporter)
        own = (own_file(given.get(name)) for name in _OWN_FILES)
        snapshot = take_snapshot(
            repo,
            commit=commit,
            dirty=given.get("dirty", "include"),
            max_file_bytes=round(settings.max_file_mb * 1e6),
            exclude=[path.resolve() for path in (*own, *_own_outputs(repo)) if path is not None],
            scope=given.get("path", Path()),
        )
        state = "with uncommitted changes" if snapshot.dirty else "clean"
        why = skipped_in_words(snapshot.skipped)
        skipped = f", {len(snapshot.skipped):,} skipped ({why})" if why else ""
        summary.append(f"{len(snapshot.files):,} files{skipped} at {snapshot.commit[:10]} {state}")
    for note in snapshot.notes:
        reporter(Notice(note))
    return snapshot


def _own_outputs(repo: Path) -> Iterator[Path]:
    """Yield the file that stdout goes to, and reports and diffs of earlier commands."""
    from agent.shared.files import is_report

    with suppress(OSError, ValueError):  # a stdout without a descriptor
        if stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode):
            yield Path(f"/proc/self/fd/{sys.stdout.fileno()}").readlink()
    for folder in (repo, Path()):
        if is_report(folder / "report.html"):
            yield folder / "report.html"
        yield from (*folder.glob("*.diff"), *folder.glob("*.patch"))


def finish_writes(repo: Path, reporter: Reporter) -> None:
    """Finish or take back what an interrupted `--apply` or `undo` left half-written."""
    from agent.results import journal_folder

    if not journal_folder().is_dir():
        return
    from agent.repository import locate_repository
    from agent.results.work_tree import finish_interrupted

    for note in finish_interrupted(locate_repository(repo).root, journal_folder()):
        reporter(Notice(note, "warning"))


def in_words(record: RunRecord, *, has_patch: bool) -> str:
    """Return the last line of output: the verdict, its evidence, and the cost."""
    usage, total = record.usage, ""
    if usage.calls:
        cost = "" if usage.cost_usd is None else f", ${usage.cost_usd:.4f}"
        tokens = usage.input_tokens + usage.output_tokens
        total = f" [{counted(usage.calls, 'call')}, {tokens:,} tokens{cost}]"
    if record.status is Status.ACCEPTED:
        return f"{record.headline}: {record.message}{total}"
    rest = "; the diff is the best so far, not an accepted one" if has_patch else ""
    if record.status is Status.UNVERIFIED:
        rest = "; the diff applies, but nothing shows that it is right"
    first, second, *_ = [*record.message.strip().split("\n", 2), ""]
    if first.endswith(":"):  # it announces the next line
        first = f"{first} {second}"
    status = record.status.value
    words = status if first in ("", status) else f"{status}: {first.removesuffix('.')}"
    return f"agent: {words}{rest}{total}"
