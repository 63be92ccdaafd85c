"""The worker: one task of the contract in a process of its own, started by `agent.miner.front`.

It solves as `agent solve` does and reports each better patch at once. Nothing is imported here that
a broken environment could lack before it can be said in words.
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
from collections.abc import Callable, Iterator, Mapping
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
    from agent.events import Event
    from agent.protocols import Reporter, Services, Snapshot
    from agent.result import SolveResult
    from agent.settings import Settings
    from agent.types import Problem

# Where the first three versions of the contract put the repository; the fourth starts in it.
CONTRACT_REPOSITORY = Path("/sandbox/repo")

# How a call of the chat model ends (`agent.events.ModelCall.status`) where its server, not we,
# had the time: under way when the clock ran out, or failed before.
_UNANSWERED = frozenset({"cancelled", "provider-error", "provider-unreachable"})

# What the retrieval, the first call and its checks need at the very least.
_LEAST_SECONDS = 1.0

_ERRORS: Mapping[Status, type[PatchshotError]] = {
    Status.PROVIDER: ProviderError,
    Status.TIME_LIMIT: TimeLimitExceeded,
    Status.BUDGET: BudgetExceeded,
    Status.SANDBOX: SandboxUnavailable,
    Status.USAGE: ConfigurationError,
}


@dataclass(frozen=True, slots=True)
class Task:
    """One call of `agent_main`: what its input says. `seconds` is what is left of the clock."""

    problem_statement: str
    instance_id: str | None
    run_id: str | None
    base_commit: str | None
    seconds: float

    @classmethod
    def of(cls, header: Mapping[str, Any]) -> Task:
        """From the line that the front sent."""
        return cls(
            header["problem_statement"] or "",
            header["instance_id"],
            header["run_id"],
            header["base_commit"],
            header["seconds"],
        )


@dataclass(slots=True)
class Channel:
    """The way back to the front: JSON lines on a descriptor."""

    descriptor: int
    unsendable: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _sent: str | None = None

    def patch(self, diff: bytes | None) -> None:
        """Report the best patch, or that there is none (any more); nothing where that is known.

        The contract carries text: a diff that is no UTF-8 counts as none, and is `unsendable`.
        """
        try:
            text = diff.decode("utf-8") if diff else None
        except UnicodeDecodeError:
            text, self.unsendable = None, True
        if text != self._sent:
            self._sent = text
            self._send({"patch": text})

    def end(self, error: str, message: str) -> None:
        """The last word. What the front closes upon it is no interrupt any more."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._send({"end": {"error": error, "message": message}})

    def _send(self, value: Mapping[str, object]) -> None:
        data = json.dumps(value).encode("ascii") + b"\n"
        with self._lock, contextlib.suppress(BrokenPipeError):
            while data:
                data = data[os.write(self.descriptor, data) :]


@dataclass(slots=True)
class Watch:
    """A reporter that passes all on and knows whether the chat model has ever answered."""

    forward: Reporter
    unanswered: int = 0
    answered: int = 0

    def __call__(self, event: Event, /) -> None:
        """Count the calls of the chat model by how they ended."""
        if getattr(event, "kind", "") == "chat":
            status = getattr(event, "status", "")
            self.unanswered += status in _UNANSWERED
            self.answered += status in ("ok", "cut-off")
        self.forward(event)

    @property
    def is_dead(self) -> bool:
        """Whether the model was asked and never answered."""
        return self.unanswered > 0 and self.answered == 0


def main(header: Mapping[str, Any], descriptor: int) -> None:
    """Solve the task of the front's line; report on `descriptor`."""
    channel = Channel(descriptor)
    # Whoever was started in the background of a shell ignores it, and hands that on.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=_end_with_parent, name="life-line", daemon=True).start()
    try:
        solve(Task.of(header), channel)
    except PatchshotError as error:
        channel.end(type(error).__name__, str(error))
    except KeyboardInterrupt:
        channel.end("TimeLimitExceeded", "the worker was asked to end")
    except Exception as error:  # noqa: BLE001  (the last line: the caller must be told of a bug too)
        traceback.print_exc()
        channel.end("PatchshotError", f"internal error: {type(error).__name__}: {error}")
    finally:
        if os.getppid() != header["caller"]:  # it was killed, and nobody else tidies up
            shutil.rmtree(header["folder"], ignore_errors=True)


def _end_with_parent() -> None:
    """Standard input ends when the caller has had enough, or is gone."""
    # Not through `sys.stdin`: its lock, held by this thread, would be fatal to a normal exit.
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGINT)


def say_end(channel: Channel, result: SolveResult, seconds: float, *, is_dead: bool) -> None:
    """Why there is no patch; where there is one, nobody reads it.

    `is_dead`: the model never answered, so that a run out of time is its server's failure.
    """
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


def solve(task: Task, channel: Channel) -> None:
    """The whole run, and its last word. Raises what `agent.errors` names when it cannot begin."""
    from agent.models.archive import MODELS
    from agent.models.texts import SUFFIX, restore
    from agent.problem import problem_from_text
    from agent.settings import environment, load

    deadline = time.monotonic() + task.seconds
    restore(MODELS)
    if not task.problem_statement.strip():
        raise ProblemError("the input has no problem_statement; there is nothing to solve")
    problem = problem_from_text(task.problem_statement, task.instance_id or "<problem_statement>")
    chosen = environment(("PATCHSHOT_REPO",)).get("PATCHSHOT_REPO")
    repository = find_repository(chosen, Path.cwd())
    flags = {"timeout": max(task.seconds, _LEAST_SECONDS), "run_id": task.run_id or None}
    settings = load(flags, repository=repository)
    if any(MODELS.glob(f"*{SUFFIX}")):  # a bundle: its static vectors are left out by design
        settings = settings.model_copy(update={"without": (*settings.without, "static")})
    with reporting(settings, repository) as reporter:
        snapshot = _snapshot(repository, task, reporter)
        watch = Watch(reporter)
        result = asyncio.run(_solve(problem, snapshot, settings, watch, channel, deadline))
    say_end(channel, result, task.seconds, is_dead=watch.is_dead)


@contextlib.contextmanager
def reporting(settings: Settings, repository: Path) -> Iterator[Reporter]:
    """Lines on stderr, and PATCHSHOT_LOG_FILE where it is set; keys are masked in both.

    Raises ConfigurationError for a log inside the repository: no leftover is allowed there.
    """
    from agent.console import PlainReporter
    from agent.llm.call_log import LogFile
    from agent.llm.redaction import Redactor
    from agent.settings import secret_values

    redact = Redactor(secret_values())
    plain = PlainReporter(verbose=True, redact=redact)
    log = settings.log_file
    if log is None:
        yield plain
    elif log.resolve().is_relative_to(repository):
        raise ConfigurationError(f"PATCHSHOT_LOG_FILE {log} lies in the repository; move it out")
    else:
        with LogFile(log, plain, redact) as both:
            yield both


def _snapshot(repository: Path, task: Task, reporter: Reporter) -> Snapshot:
    """The work tree as it is, committed or not: that is what the patch is checked against."""
    from agent.events import Notice
    from agent.repository.snapshot import take_snapshot

    snapshot = take_snapshot(repository)
    if task.base_commit and not snapshot.commit.startswith(task.base_commit.lower()):
        note = f"HEAD is {snapshot.commit[:10]}, not the input's base_commit; the tree counts"
        reporter(Notice(note, "warning"))
    return snapshot


def find_repository(
    chosen: str | None, working_directory: Path, agreed: Path = CONTRACT_REPOSITORY
) -> Path:
    """PATCHSHOT_REPO where it is set, else the contract's place, else the working directory.

    Raises RepositoryError, with the places that were looked at.
    """
    from agent.repository.location import locate

    if chosen:
        return locate(Path(chosen)).root
    for place in (agreed, working_directory):
        with contextlib.suppress(RepositoryError):
            return locate(place).root
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
) -> SolveResult:
    from dataclasses import replace

    from agent.miner.best import ValidLedger
    from agent.pipeline import solve as run
    from agent.services import open_services, solve_options

    ledger = ValidLedger(on_valid=channel.patch)
    async with AsyncExitStack() as stack:

        def begin(settings: Settings) -> AbstractAsyncContextManager[Services]:
            return open_services(settings, problem, snapshot, reporter, ledger)

        services = await open_best(stack, begin, settings, reporter)
        left = max(deadline - time.monotonic(), _LEAST_SECONDS)
        options = replace(solve_options(settings), timeout=left)
        return await run(problem, snapshot, services, options, ledger)


async def open_best(
    stack: AsyncExitStack,
    begin: Callable[[Settings], AbstractAsyncContextManager[Services]],
    settings: Settings,
    reporter: Reporter,
) -> Services:
    """The services; where nothing isolates, without tests, and that is said.

    A container of the contract often forbids what a sandbox needs. It is a border itself, but
    whether the target's code may run there unprotected is its owner's word to give
    (PATCHSHOT_UNSAFE_NO_SANDBOX), never ours.
    """
    from agent.events import Notice

    try:
        return await stack.enter_async_context(begin(settings))
    except SandboxUnavailable as error:
        reporter(Notice(f"no tests will be run, the syntax is checked only: {error}", "warning"))
    return await stack.enter_async_context(begin(settings.model_copy(update={"tests": False})))
