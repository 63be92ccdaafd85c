"""The worker: one instance in a process of its own, started by `agent.batch.local.local_engine`.

It reads a `SolveJob`, solves it as `agent solve` does, and reports on its standard output. Its
standard error is the log of the instance. If its input ends, the driver is gone: it finishes the
call under way, records the reply, and exits.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import signal
import ssl
import threading
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from pydantic import BaseModel

from agent.batch.local.cpu_slots import SlotSandbox
from agent.batch.messages import (
    ANSWERS,
    Answer,
    Ask,
    AttemptEnded,
    Blame,
    Dropped,
    EarlierReplies,
    Pace,
    Paid,
    SlotReleased,
    SlotRequest,
    SolveJob,
    StageDone,
    encode_line,
)
from agent.errors import PatchshotError, ProblemError, RepositoryError, Status
from agent.llm.paid_replies import ReplyGate, ReplyRecording
from agent.llm.recording import ChatExchange, format_exchange
from agent.results import kept as files
from agent.run.record import Ledger, RunRecord, make_record
from agent.shared.files import locked
from agent.shared.terminal import say
from agent.types import Usage
from agent.types.events import Event, Notice, StageFinished

if TYPE_CHECKING:
    from agent.settings import Settings
    from agent.types import AppliedPatch, Problem
    from agent.types.protocols import Reporter, Snapshot

# Failures that say nothing about the instance and that another run may not have.
_ENVIRONMENT = (Status.PROVIDER, Status.SANDBOX, Status.USAGE)

_OOM_SCORE = "500"  # of 1000, added to the share of memory that a process has

_MODEL_VARIABLE = "PATCHSHOT_MODEL"

# Modules that a solve, or a library at its first use, imports late.
_NEEDED = (
    "agent.shared.console",
    "agent.llm",
    "agent.run.pipeline",
    "agent.run.problem",
    "agent.retrieval.history.commits",
    "agent.repository.snapshot",
    "agent.retrieval.index.chunking",
    "agent.retrieval.history.table",
    "agent.retrieval.index.index",
    "agent.retrieval.ranking.ranker",
    "agent.retrieval.ranking.retriever",
    "agent.retrieval.ranking.stages",
    "agent.wiring",
    "agent.verify.validator",
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
    "Stemmer",
    "tree_sitter_python",
)


class DriverPipe:
    """The driver at the other end of two pipes: a `Payer` and a `SlotClient`."""

    def __init__(self, source: BinaryIO, descriptor: int, *, remote: bool) -> None:
        self.source = source
        self._descriptor = descriptor
        self._remote = remote
        self._alone = asyncio.Event()
        self._lock = threading.Lock()
        self._question_lock = asyncio.Lock()  # one question at a time
        self._answers: asyncio.Queue[Answer] = asyncio.Queue()
        self._slots: asyncio.Queue[None] = asyncio.Queue()

    async def listen(self, source: asyncio.StreamReader) -> None:
        """Take answers until the driver closes its end or dies."""
        try:
            while line := await source.readline():
                answer = ANSWERS.validate_json(line)
                if isinstance(answer, Answer):
                    self._answers.put_nowait(answer)
                else:
                    self._slots.put_nowait(None)
        finally:
            self._alone.set()

    async def ask(self, sha256: str, worst_usd: float | None) -> str:
        """Wait for permission to pay a call. Return "" or the reason for a refusal."""
        ask = Ask(sha256=sha256, worst_usd=worst_usd)
        answer = await self._question(ask)
        while answer.later:  # a call of another sample may have to be settled first
            answer = await self._question(ask.model_copy(update={"again": True}))
        return "" if answer.granted else answer.reason

    async def pace(self) -> None:
        """Wait until one more request may be sent."""
        await self._question(Pace())

    async def take_slot(self) -> None:
        """Wait until a run of tests may start."""
        self.send(SlotRequest())
        await self._slots.get()

    def release_slot(self) -> None:
        """Give the slot back."""
        self.send(SlotReleased())

    async def paid(self, exchange: ChatExchange, usage: Usage) -> None:
        """Report a reply that is on the disk, and send it along if the disk is not the driver's.

        If the driver is gone, the reply stays here, and the next run asks for it.
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
        """Report that a permitted call has given no reply."""
        self.send(Dropped(sha256=sha256, charged=charged))

    def reused(self, exchange: ChatExchange) -> None:
        """Say so in the log; the driver has counted the reply before."""
        say("a reply that was paid before is used again")

    def send(self, message: BaseModel) -> None:
        """Send a message, from any thread; do nothing if the driver is gone."""
        data = memoryview(encode_line(message))
        with self._lock, contextlib.suppress(BrokenPipeError):
            while data:
                data = data[os.write(self._descriptor, data) :]

    async def _question(self, message: BaseModel) -> Answer:
        async with self._question_lock:
            self.send(message)
            return await self._answers.get()


def main() -> None:
    """Load all modules and serve one job from standard input, if one comes."""
    get_ready()
    serve()


def serve() -> None:
    """Serve one job from standard input, if one comes."""
    descriptor = os.dup(1)
    os.dup2(2, 1)  # a stray print must not become a message
    source = _take_input()
    _prefer_for_oom_kill()
    line = source.readline()
    if not line:
        return
    job = SolveJob.model_validate_json(line)
    folder = Path(job.folder)
    _log_to(folder)
    with locked(folder / files.LOCK, wait=True):
        asyncio.run(_serve(job, folder, DriverPipe(source, descriptor, remote=job.remote)))


def _take_input() -> BinaryIO:
    """Return standard input, and give the processes that this one starts an empty one."""
    source = os.fdopen(os.dup(0), "rb")
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    return source


def _prefer_for_oom_kill() -> None:
    """Make the kernel kill this process, not the driver, if memory runs out."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)


def get_ready() -> None:
    """Load everything that each job needs and that takes time: modules, models, certificates."""
    from agent.llm import usual_trust
    from agent.retrieval.ranking import RetrievalOptions, load_shipped
    from agent.settings import environment
    from agent.shared.secrets import mask_secrets
    from agent.wiring import make_counter

    for name in _NEEDED:
        with contextlib.suppress(
            ImportError
        ):  # a library may rename its parts, which only costs time
            importlib.import_module(name)
    make_counter(environment((_MODEL_VARIABLE,)).get(_MODEL_VARIABLE)).count("ready")
    load_shipped(RetrievalOptions())
    mask_secrets("ready")
    with contextlib.suppress(OSError, ssl.SSLError):  # each job reports it itself
        usual_trust()


def _log_to(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / files.LOG).open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)


async def _serve(job: SolveJob, folder: Path, driver: DriverPipe) -> None:
    started = time.monotonic()
    ended = await _attempt(job, folder, driver)
    driver.send(ended.model_copy(update={"seconds": round(time.monotonic() - started, 3)}))


async def _attempt(job: SolveJob, folder: Path, driver: DriverPipe) -> AttemptEnded:
    """Run the job, and turn every failure into a message."""
    say(f"attempt {job.attempt}")
    try:
        with contextlib.closing(ReplyRecording(folder / files.EXCHANGES)) as recording:
            driver.send(EarlierReplies(replies=tuple(recording.costs())))
            return await _solve(job, folder, ReplyGate(recording, driver), driver)
    except (RepositoryError, ProblemError) as error:
        return _ended(error.status, "row", str(error))
    except PatchshotError as error:
        return _ended(error.status, "environment", str(error))
    except OSError as error:
        reason = f"{error.strerror or error}{f' ({error.filename})' if error.filename else ''}"
        return _ended(Status.SANDBOX, "environment", f"{reason}: repair this and run again")
    except asyncio.CancelledError:
        return _ended(Status.INTERRUPTED, "stopped", "stopped before it began")
    except Exception as error:  # noqa: BLE001  (the last line: a bug must end in one line too)
        say(_redactor()(traceback.format_exc()))
        return _ended(Status.CRASHED, "crash", f"{type(error).__name__}: {error}")


def _ended(status: Status, blame: Blame, message: str) -> AttemptEnded:
    return AttemptEnded(status=status, blame=blame, message=_redactor()(message))


async def _solve(job: SolveJob, folder: Path, gate: ReplyGate, driver: DriverPipe) -> AttemptEnded:
    from agent.repository import take_snapshot
    from agent.run.problem import problem_from_text
    from agent.settings import load
    from sandbox import hide_programs

    hide_programs(Path(job.repository))
    settings = load(job.flags)
    problem = problem_from_text(job.task.problem_statement, job.task.instance_id)
    ledger = Ledger(on_better=lambda patch: files.write_patch(folder, patch.diff))
    with _reporting(settings, driver) as reporter:
        before = time.monotonic()
        snapshot = take_snapshot(
            Path(job.repository),
            commit=job.task.base_commit,
        )
        ledger.spend("snapshot", time.monotonic() - before)
        async with _watched(gate, driver):
            result = await _run(problem, snapshot, settings, reporter, ledger, gate, driver, job)
    result = result.as_printed(accept_unverified=settings.accept_unverified, redact=_redactor())
    best = ledger.best.patch if ledger.best else None
    files.write_texts(folder, gate.recording.exchanges)
    files.write_result(folder, result, _diff(best))
    return AttemptEnded(
        status=result.status,
        blame=_blame(result, gate),
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
    gate: ReplyGate,
    driver: DriverPipe,
    job: SolveJob,
) -> RunRecord:
    """Run the pipeline. Cancelled before it begins, it ends like an interrupted one."""
    from agent.run.pipeline import solve
    from agent.wiring import open_services, solve_options

    loop = asyncio.get_running_loop()
    try:
        async with open_services(
            settings,
            problem,
            snapshot,
            reporter,
            ledger,
            gate=gate,
            sandbox_tried=job.sandbox_tried,
            around=lambda inner: SlotSandbox(
                inner, driver, loop, waited=ledger.wait, note=lambda text: reporter(Notice(text))
            ),
            project=job.task.repo,
        ) as services:
            return await solve(problem, snapshot, services, solve_options(settings), ledger)
    except asyncio.CancelledError:
        return make_record(ledger, status=Status.INTERRUPTED, message="interrupted")


@contextlib.asynccontextmanager
async def _watched(gate: ReplyGate, driver: DriverPipe) -> AsyncIterator[None]:
    """Cancel the block on SIGTERM, or when the driver is gone."""
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    source = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(source), driver.source
    )

    def alone(_: asyncio.Task[None]) -> None:
        gate.salvage = True
        task.cancel()

    listening = asyncio.create_task(driver.listen(source))
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
def _reporting(settings: Settings, driver: DriverPipe) -> Iterator[Reporter]:
    """Report to the log of the instance, to PATCHSHOT_LOG_FILE if set, and stages to the driver."""
    from agent.shared.console import PlainReporter

    redact = _redactor()
    with ExitStack() as stack:
        plain = cast("Reporter", PlainReporter(verbose=True, redact=redact))
        if settings.log_file is not None:
            from agent.llm import LogFile

            plain = stack.enter_context(LogFile(settings.log_file, plain, redact))

        def report(event: Event, /) -> None:
            plain(event)
            if isinstance(event, StageFinished):
                summary = redact(event.summary)
                seconds = round(event.seconds, 3)
                driver.send(StageDone(stage=event.stage, seconds=seconds, summary=summary))

        yield report


def _redactor() -> Callable[[str], str]:
    from agent.llm import Redactor
    from agent.settings import secret_values

    return Redactor(secret_values())


def _diff(patch: AppliedPatch | None) -> bytes:
    return patch.diff if patch else b""


def _blame(result: RunRecord, gate: ReplyGate) -> Blame:
    if gate.refused:
        return "budget"
    if result.status is Status.INTERRUPTED:
        return "stopped"
    if result.status is Status.CRASHED:
        return "crash"
    return "environment" if gate.broke or result.status in _ENVIRONMENT else "none"


if __name__ == "__main__":
    main()
