"""The worker: one task of the contract in a process of its own, started by `agent.miner.front`.

It imports other modules late, so that it can report what a broken environment lacks.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.errors import (
    BudgetExceeded,
    ConfigurationError,
    PatchshotError,
    ProblemError,
    ProviderError,
    RepositoryError,
    SandboxUnavailable,
    Status,
    TimeLimitExceeded,
)

if TYPE_CHECKING:
    from agent.run.attempts import Attempt
    from agent.run.record import RunRecord
    from agent.settings import Settings
    from agent.types import Problem
    from agent.types.events import Event
    from agent.types.protocols import Reporter, Services, Snapshot

# The repository in the first three versions of the contract; the fourth starts in it.
CONTRACT_REPOSITORY = Path("/sandbox/repo")

# Ends of a chat call for which its server is responsible.
_UNANSWERED = frozenset({"cancelled", "provider-error", "provider-unreachable"})

# The least time for retrieval, the first call and its checks.
_LEAST_SECONDS = 1.0

_ERRORS: Mapping[Status, type[PatchshotError]] = {
    Status.PROVIDER: ProviderError,
    Status.TIME_LIMIT: TimeLimitExceeded,
    Status.BUDGET: BudgetExceeded,
    Status.SANDBOX: SandboxUnavailable,
    Status.USAGE: ConfigurationError,
}


@dataclass(slots=True)
class Channel:
    """The way back to the front: JSON lines on a descriptor."""

    descriptor: int
    unsendable: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _sent: str | None = None

    def patch(self, diff: bytes | None) -> None:
        """Report the best patch if that is news; one that is not UTF-8 is `unsendable`, so none."""
        try:
            text = diff.decode("utf-8") if diff else None
        except UnicodeDecodeError:
            text, self.unsendable = None, True
        if text != self._sent:
            self._sent = text
            self._send({"patch": text})

    def end(self, error: str, message: str) -> None:
        """Send the last message. The closing of the input no longer counts as an interrupt."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._send({"end": {"error": error, "message": message}})

    def _send(self, value: Mapping[str, object]) -> None:
        data = json.dumps(value).encode("ascii") + b"\n"
        with self._lock, contextlib.suppress(BrokenPipeError):
            while data:
                data = data[os.write(self.descriptor, data) :]


@dataclass(slots=True)
class AnswerWatch:
    """A reporter that passes events on and notes whether the model was asked and never answered."""

    forward: Reporter
    is_dead: bool = False
    _answered: bool = False

    def __call__(self, event: Event, /) -> None:
        """Look at how a call of the chat model ended."""
        if getattr(event, "kind", "") == "chat":
            status = getattr(event, "status", "")
            self._answered |= status in ("ok", "cut-off")
            self.is_dead = not self._answered and (self.is_dead or status in _UNANSWERED)
        self.forward(event)


def main(header: Mapping[str, Any], descriptor: int) -> None:
    """Solve the task in the front's line and report on `descriptor`."""
    channel = Channel(descriptor)
    # A process started in the background of a shell ignores SIGINT, and its children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=_end_with_parent, name="life-line", daemon=True).start()
    try:
        solve(header, channel)
    except PatchshotError as error:
        channel.end(type(error).__name__, str(error))
    except KeyboardInterrupt:
        channel.end("TimeLimitExceeded", "the worker was asked to end")
    except Exception as error:  # noqa: BLE001  (the last line: the caller must be told of a bug too)
        traceback.print_exc()
        channel.end("PatchshotError", f"internal error: {type(error).__name__}: {error}")
    finally:
        if os.getppid() != header["caller"]:  # it was killed and removes nothing
            shutil.rmtree(header["folder"], ignore_errors=True)


def _end_with_parent() -> None:
    """Interrupt the worker when its standard input ends: the caller has closed it or died."""
    # Not through `sys.stdin`: its lock, held by this thread, would be fatal to a normal exit.
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGINT)


def say_end(channel: Channel, result: RunRecord, seconds: float, *, is_dead: bool) -> None:
    """Send the reason why there is no patch. `is_dead`: the model never answered."""
    status = Status(result.status)
    reason = result.message.strip()
    if status is Status.TIME_LIMIT:
        clock = "AGENT_TIMEOUT less a reserve, else PATCHSHOT_TIMEOUT or 1500 s"
        reason = f"the {seconds:.0f} s of the run are over ({clock})"
        if is_dead:
            status = Status.PROVIDER
            reason = f"the model did not answer, and {reason}: check its server"
    error = _ERRORS.get(status, PatchshotError).__name__
    if channel.unsendable:
        reason = "its lines are no UTF-8, and the contract carries text only"
    channel.end(error, f"no valid patch ({status.value}): {reason}")


def solve(task: Mapping[str, Any], channel: Channel) -> None:
    """Run the task and send the last message. Raises PatchshotError when it cannot begin."""
    from agent.run.problem import problem_from_text
    from agent.settings import environment, load

    seconds: float = task["seconds"]
    deadline = time.monotonic() + seconds
    statement = task["problem_statement"] or ""
    if not statement.strip():
        raise ProblemError("the input has no problem_statement; there is nothing to solve")
    problem = problem_from_text(statement, task["instance_id"] or "<problem_statement>")
    chosen = environment(("PATCHSHOT_REPO",)).get("PATCHSHOT_REPO")
    repository = find_repository(chosen, Path.cwd())
    if task["run_id"]:  # the protocol reads it there; the container's own name wins
        os.environ.setdefault("EVALUATION_RUN_ID", task["run_id"])
    settings = load({"timeout": max(seconds, _LEAST_SECONDS)}, repository=repository)
    watch = AnswerWatch(make_reporter())
    snapshot = _snapshot(repository, task["base_commit"], settings, watch)
    result = asyncio.run(_solve(problem, snapshot, settings, watch, channel, deadline))
    say_end(channel, result, seconds, is_dead=watch.is_dead)


def make_reporter() -> Reporter:
    """Lines on stderr, with keys masked."""
    from agent.llm import own_redactor
    from agent.shared.console import PlainReporter

    return PlainReporter(verbose=True, redact=own_redactor())


def _snapshot(
    repository: Path, base_commit: str | None, settings: Settings, reporter: Reporter
) -> Snapshot:
    """The work tree as it is, committed or not: the caller checks the patch against it."""
    from agent.repository import take_snapshot
    from agent.types.events import Notice
    from sandbox import hide_programs

    hide_programs(repository)
    snapshot = take_snapshot(repository, max_file_bytes=round(settings.max_file_mb * 1e6))
    if base_commit and not snapshot.commit.startswith(base_commit.lower()):
        note = f"HEAD is {snapshot.commit[:10]}, not the input's base_commit; the tree counts"
        reporter(Notice(note, "warning"))
    return snapshot


def find_repository(
    chosen: str | None, working_directory: Path, agreed: Path = CONTRACT_REPOSITORY
) -> Path:
    """PATCHSHOT_REPO, else the contract's folder, else the working directory."""
    from agent.repository import locate_repository

    if chosen:
        return locate_repository(Path(chosen)).root
    for place in (agreed, working_directory):
        with contextlib.suppress(RepositoryError):
            return locate_repository(place).root
    raise RepositoryError(
        f"no git repository at {agreed} nor at the working directory {working_directory}; "
        "set PATCHSHOT_REPO to its place"
    )


async def _solve(
    problem: Problem,
    snapshot: Snapshot,
    settings: Settings,
    reporter: Reporter,
    channel: Channel,
    deadline: float,
) -> RunRecord:
    from dataclasses import replace

    from agent.run.pipeline import solve as run
    from agent.run.record import Ledger
    from agent.wiring import open_services, solve_options

    ledger = Ledger(on_record=lambda attempts: channel.patch(best_valid_diff(attempts)))

    def begin(settings: Settings) -> AbstractAsyncContextManager[Services]:
        return open_services(settings, problem, snapshot, reporter, ledger)

    async with AsyncExitStack() as stack:
        services = await open_best(stack, begin, settings, reporter)
        left = max(deadline - time.monotonic(), _LEAST_SECONDS)
        # The contract takes the patch alone, which another test does not change.
        options = replace(solve_options(settings, another_test=False), timeout=left)
        return await run(problem, snapshot, services, options, ledger)


def best_valid_diff(attempts: Sequence[Attempt]) -> bytes | None:
    """The best patch that does not break the syntax; a patch that was not checked yet counts."""
    from agent.run.attempts import furthest
    from agent.types import Verdict

    valid = [
        attempt
        for attempt in attempts
        if attempt.patch is not None
        and attempt.patch.diff
        and (attempt.report is None or attempt.report.verdict is not Verdict.BROKEN_SYNTAX)
    ]
    best = furthest(valid)
    return best.patch.diff if best is not None and best.patch is not None else None


async def open_best(
    stack: AsyncExitStack,
    begin: Callable[[Settings], AbstractAsyncContextManager[Services]],
    settings: Settings,
    reporter: Reporter,
) -> Services:
    """Open the services; without tests, and with a warning, if no sandbox works here.

    Only its owner may decide that the target's code runs unprotected (PATCHSHOT_UNSAFE_NO_SANDBOX).
    """
    from agent.types.events import Notice

    try:
        return await stack.enter_async_context(begin(settings))
    except SandboxUnavailable as error:
        reporter(Notice(f"no tests will be run, the syntax is checked only: {error}", "warning"))
    return await stack.enter_async_context(begin(settings.model_copy(update={"tests": False})))
