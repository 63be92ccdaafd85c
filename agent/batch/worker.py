"""The worker: one instance in a process of its own, started by `agent.batch.local`.

It reads a `Job`, solves it as `agent solve` does, and reports on its standard output. Its standard
error is the instance's log. Without a driver (its input ends) it finishes the call that is under
way, keeps the reply, and goes.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import signal
import ssl
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from pydantic import BaseModel

from agent.batch import folder as files
from agent.batch.guard import Guard
from agent.batch.messages import (
    ANSWERS,
    Answer,
    Ask,
    Blame,
    Dropped,
    Ended,
    Job,
    OnTape,
    Pace,
    Paid,
    StageDone,
    Turn,
    TurnOver,
    line_of,
)
from agent.batch.tape import Tape
from agent.batch.turn_taking import TurnTakingSandbox
from agent.durable import locked
from agent.errors import PatchshotError, ProblemError, RepositoryError, Status
from agent.events import Event, Notice, StageFinished
from agent.llm.exchange import ChatExchange, format_exchange
from agent.result import Ledger, SolveResult, summarise
from agent.types import Usage

if TYPE_CHECKING:
    from agent.protocols import Reporter, Snapshot
    from agent.settings import Settings
    from agent.types import AppliedPatch, Problem

# What a rerun may put right without anything being wrong with the instance.
_ENVIRONMENT = (Status.PROVIDER, Status.SANDBOX, Status.USAGE)


_OOM_SCORE = "500"  # of 1000, added to the share of memory that a process has


_MODEL_VARIABLE = "PATCHSHOT_MODEL"

# What a solve imports where it needs it, and what libraries import at their first use.
_NEEDED = (
    "agent.console",
    "agent.llm.call_log",
    "agent.llm.chat",
    "agent.llm.choice",
    "agent.llm.http",
    "agent.llm.models",
    "agent.llm.redaction",
    "agent.llm.remote_budget",
    "agent.pipeline",
    "agent.problem",
    "agent.repository.history",
    "agent.repository.snapshot",
    "agent.retrieval.chunking",
    "agent.retrieval.explain",
    "agent.retrieval.history_store",
    "agent.retrieval.index",
    "agent.retrieval.presets",
    "agent.retrieval.ranking",
    "agent.retrieval.stages",
    "agent.services",
    "agent.validation.validator",
    "anyio._backends._asyncio",
    "certifi",
    "defusedxml.ElementTree",
    "git",
    "h2.connection",
    "httpcore",
    "jinja2",
    "numpy.ma",
    "prompts",
    "sandbox.choose",
    "snowballstemmer",
    "tree_sitter_python",
)


class PipeDesk:
    """The driver at the other end of two pipes (`agent.batch.guard.Desk`)."""

    def __init__(self, source: BinaryIO, descriptor: int, *, remote: bool) -> None:
        self.source = source
        self._descriptor = descriptor
        self._remote = remote
        self._alone = asyncio.Event()
        self._lock = threading.Lock()
        self._turn = asyncio.Lock()  # one question at a time
        self._answers: asyncio.Queue[Answer] = asyncio.Queue()
        self._turns: asyncio.Queue[None] = asyncio.Queue()

    async def listen(self, source: asyncio.StreamReader) -> None:
        """Take answers until the driver has closed its end, or is gone."""
        try:
            while line := await source.readline():
                answer = ANSWERS.validate_json(line)
                if isinstance(answer, Answer):
                    self._answers.put_nowait(answer)
                else:
                    self._turns.put_nowait(None)
        finally:
            self._alone.set()

    async def ask(self, sha256: str, worst_usd: float | None) -> str:
        """Waits for leave to pay a call; why there is none, or ""."""
        answer = await self._question(Ask(sha256=sha256, worst_usd=worst_usd))
        return "" if answer.granted else answer.reason

    async def pace(self) -> None:
        """Waits until one more request may be sent."""
        await self._question(Pace())

    async def turn(self) -> None:
        """Waits until one more run of tests may start."""
        self.send(Turn())
        await self._turns.get()

    def turn_over(self) -> None:
        """A run that might start has ended."""
        self.send(TurnOver())

    async def paid(self, exchange: ChatExchange, usage: Usage) -> None:
        """A reply is on the disk; where that is another machine's, it goes to the driver's too.

        Without a driver it stays here, and the next run asks for it.
        """
        paid = Paid(
            sha256=exchange.sha256,
            cost_usd=usage.cost_usd,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            exchange=format_exchange(exchange).decode() if self._remote else None,
        )
        if not self._remote:
            self.send(paid)
            return
        answered = asyncio.ensure_future(self._question(paid))
        alone = asyncio.ensure_future(self._alone.wait())
        await asyncio.wait({answered, alone}, return_when=asyncio.FIRST_COMPLETED)
        answered.cancel()
        alone.cancel()

    def dropped(self, sha256: str, *, charged: bool) -> None:
        """A call with leave has given no reply."""
        self.send(Dropped(sha256=sha256, charged=charged))

    def send(self, message: BaseModel) -> None:
        """One message; nothing where nobody listens any more. From any thread."""
        data = memoryview(line_of(message))
        with self._lock, contextlib.suppress(BrokenPipeError):
            while data:
                data = data[os.write(self._descriptor, data) :]

    async def _question(self, message: BaseModel) -> Answer:
        async with self._turn:
            self.send(message)
            return await self._answers.get()


def main() -> None:
    """Serve one job from standard input, if one comes, in a process that has loaded nothing yet."""
    get_ready()
    serve()


def serve() -> None:
    """Serve one job from standard input, if one comes."""
    descriptor = os.dup(1)
    os.dup2(2, 1)  # a stray print must not become a message
    source = _own_input()
    _die_first()
    line = source.readline()
    if not line:
        return
    job = Job.model_validate_json(line)
    folder = Path(job.folder)
    _log_to(folder)
    with locked(folder / files.LOCK, wait=True):
        asyncio.run(_serve(job, folder, PipeDesk(source, descriptor, remote=job.remote)))


def _own_input() -> BinaryIO:
    """Standard input, kept from the processes that this one starts: they find it empty."""
    source = os.fdopen(os.dup(0), "rb")
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    return source


def _die_first() -> None:
    """Where memory runs out, the kernel shall take this process, not the driver."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)


def get_ready() -> None:
    """What every job needs and takes time to load: modules, models, tokens' ranks, certificates."""
    from agent.llm.http import usual_trust
    from agent.retrieval.options import RetrievalOptions
    from agent.retrieval.shipped import load_shipped
    from agent.secrets.masking import mask_secrets
    from agent.services.context import make_counter
    from agent.settings import environment

    for name in _NEEDED:
        with contextlib.suppress(ImportError):  # a library may rename its parts: then it costs time
            importlib.import_module(name)
    make_counter(environment((_MODEL_VARIABLE,)).get(_MODEL_VARIABLE)).count("ready")
    load_shipped(RetrievalOptions())
    mask_secrets("ready")
    with contextlib.suppress(OSError, ssl.SSLError):  # each job says it in its own words
        usual_trust()


def _log_to(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / files.LOG).open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)


async def _serve(job: Job, folder: Path, desk: PipeDesk) -> None:
    started = time.monotonic()
    ended = await _attempt(job, folder, desk)
    desk.send(ended.model_copy(update={"seconds": round(time.monotonic() - started, 3)}))


async def _attempt(job: Job, folder: Path, desk: PipeDesk) -> Ended:
    """The job with everything that can go wrong, as a message."""
    print(f"attempt {job.attempt}", file=sys.stderr, flush=True)  # noqa: T201
    try:
        with contextlib.closing(Tape(folder / files.TAPE)) as tape:
            desk.send(OnTape(replies=tuple(tape.costs())))
            return await _solve(job, folder, Guard(tape, desk), desk)
    except (RepositoryError, ProblemError) as error:
        return _ended(error.status, "row", str(error))
    except PatchshotError as error:
        return _ended(error.status, "environment", str(error))
    except OSError as error:
        reason = f"{error.strerror or error}{f' ({error.filename})' if error.filename else ''}"
        return _ended(Status.SANDBOX, "environment", f"{reason}: see to it, then run again")
    except asyncio.CancelledError:
        return _ended(Status.INTERRUPTED, "stopped", "stopped before it had begun")
    except Exception as error:  # noqa: BLE001  (the last line: a bug must end in one line too)
        print(_redactor()(traceback.format_exc()), file=sys.stderr)  # noqa: T201
        return _ended(Status.CRASHED, "crash", f"{type(error).__name__}: {error}")


def _ended(status: Status, blame: Blame, message: str) -> Ended:
    return Ended(status=status, blame=blame, message=_redactor()(message))


async def _solve(job: Job, folder: Path, guard: Guard, desk: PipeDesk) -> Ended:
    from agent.problem import problem_from_text
    from agent.repository.snapshot import take_snapshot
    from agent.settings import load

    settings = load({**job.flags, "project": job.task.repo})
    problem = problem_from_text(job.task.problem_statement, job.task.instance_id)
    ledger = Ledger(on_better=lambda patch: files.write_patch(folder, patch.diff))
    with _reporting(settings, desk) as reporter:
        before = time.monotonic()
        snapshot = take_snapshot(Path(job.repository), commit=job.task.base_commit)
        ledger.spend("snapshot", time.monotonic() - before)
        async with _watched(guard, desk):
            result = await _run(problem, snapshot, settings, reporter, ledger, guard, desk, job)
    result = _accepted(result, settings)
    best = ledger.best.patch if ledger.best else None
    files.write_result(folder, result, _diff(best), guard.tape.exchanges)
    return Ended(
        status=result.status,
        blame=_blame(result, guard),
        message=result.message,
        verdict=result.verdict,
        usage=result.usage,
    )


async def _run(
    problem: Problem,
    snapshot: Snapshot,
    settings: Settings,
    reporter: Reporter,
    ledger: Ledger,
    guard: Guard,
    desk: PipeDesk,
    job: Job,
) -> SolveResult:
    """The pipeline. Cancelled before it has begun, it ends like one that was interrupted."""
    from agent.pipeline import solve
    from agent.services import open_services, solve_options

    loop = asyncio.get_running_loop()
    try:
        async with open_services(
            settings,
            problem,
            snapshot,
            reporter,
            ledger,
            gate=guard,
            sandbox_tried=job.sandbox_tried,
            around=lambda inner: TurnTakingSandbox(
                inner, desk, loop, waited=ledger.wait, note=lambda text: reporter(Notice(text))
            ),
        ) as services:
            return await solve(problem, snapshot, services, solve_options(settings), ledger)
    except asyncio.CancelledError:
        return summarise(ledger, status=Status.INTERRUPTED, message="interrupted")


@contextlib.asynccontextmanager
async def _watched(guard: Guard, desk: PipeDesk) -> AsyncIterator[None]:
    """Cancels the block when it is asked to end, or when the driver is gone."""
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    source = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(source), desk.source
    )

    def alone(_: asyncio.Task[None]) -> None:
        guard.salvage = True
        task.cancel()

    listening = asyncio.create_task(desk.listen(source))
    listening.add_done_callback(alone)
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        yield
    finally:
        listening.remove_done_callback(alone)
        listening.cancel()
        loop.remove_signal_handler(signal.SIGTERM)
        transport.close()


@contextlib.contextmanager
def _reporting(settings: Settings, desk: PipeDesk) -> Iterator[Reporter]:
    """Lines in the instance's log, PATCHSHOT_LOG_FILE where it is set, and stages to the driver."""
    from agent.console import PlainReporter

    redact = _redactor()
    with ExitStack() as stack:
        plain = cast("Reporter", PlainReporter(verbose=True, redact=redact))
        if settings.log_file is not None:
            from agent.llm.call_log import LogFile

            plain = stack.enter_context(LogFile(settings.log_file, plain, redact))

        def report(event: Event, /) -> None:
            plain(event)
            if isinstance(event, StageFinished):
                summary = redact(event.summary)
                seconds = round(event.seconds, 3)
                desk.send(StageDone(stage=event.stage, seconds=seconds, summary=summary))

        yield report


def _redactor() -> Callable[[str], str]:
    from agent.llm.redaction import Redactor
    from agent.settings import secret_values

    return Redactor(secret_values())


def _accepted(result: SolveResult, settings: Settings) -> SolveResult:
    """The result as `agent solve` would give it out."""
    update: dict[str, object] = {"message": _redactor()(result.message)}
    if result.status is Status.UNVERIFIED and settings.accept_unverified:
        update |= {"status": Status.ACCEPTED, "exit_code": 0}
    return result.model_copy(update=update)


def _diff(patch: AppliedPatch | None) -> bytes:
    return patch.diff if patch else b""


def _blame(result: SolveResult, guard: Guard) -> Blame:
    if guard.refused:
        return "budget"
    if result.status is Status.INTERRUPTED:
        return "stopped"
    if result.status is Status.CRASHED:
        return "crash"
    return "environment" if guard.broke or result.status in _ENVIRONMENT else "none"


if __name__ == "__main__":
    main()
