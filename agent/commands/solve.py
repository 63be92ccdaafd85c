"""`agent solve`: the main job."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.commands.common import (
    describe_crash,
    guarded,
    load_problem,
    load_snapshot,
    make_redactor,
    own_file,
    print_json,
    reporting,
    say,
    write_stdout,
)
from agent.commands.output import PatchFile, write_into_work_tree
from agent.errors import ConfigurationError, Status
from agent.result import Ledger, SolveResult, summarise

if TYPE_CHECKING:
    from agent.protocols import Reporter, Snapshot
    from agent.services.ahead import Ahead
    from agent.settings import Settings
    from agent.types import Problem


@dataclass(frozen=True, slots=True)
class SolveRequest:
    """What is asked of one invocation, beside the settings."""

    problem: str
    repo: Path
    commit: str | None = None
    dirty: str = "include"
    output: Path | None = None
    apply: bool = False
    json: bool = False
    quiet: bool = False
    verbose: bool = False
    record: Path | None = None
    replay: Path | None = None


def run(request: SolveRequest, flags: Mapping[str, Any]) -> int:
    """Solve, print, and give the exit code."""
    return guarded(lambda: _run(request, flags), json=request.json)


def _run(request: SolveRequest, flags: Mapping[str, Any]) -> int:
    from agent.services.ahead import Ahead
    from agent.settings import load

    _check(request)
    settings = load(flags, repository=request.repo)
    if settings.python is not None and not settings.python.expanduser().exists():
        raise ConfigurationError(
            f"--python {settings.python}: there is no such file; name an interpreter"
        )
    if settings.log_bodies and settings.log_file is None:
        raise ConfigurationError("--log-bodies needs a place: give --log-file too")
    problem = load_problem(request.problem)
    ahead = Ahead(settings)
    output = PatchFile(request.output)
    ledger = Ledger(on_better=output.write)
    own = (
        own_file(request.problem),
        request.output,
        request.record,
        request.replay,
        settings.tests_from,  # what decides must not be found by retrieval
    )
    with reporting(
        quiet=request.quiet, verbose=request.verbose, log_file=settings.log_file
    ) as reporter:
        snapshot = load_snapshot(
            request.repo,
            request.commit,
            request.dirty,
            reporter,
            ledger,
            exclude=(*own, settings.log_file),
        )
        result = solve_with(problem, snapshot, settings, request, ledger, reporter, ahead)
    code = finish(result, snapshot, settings, request, ledger)
    if settings.remember and code == 0:
        _remember(problem, snapshot, settings, ledger)
    if output.problem:
        say(f"note: {output.problem}; the diff is in what was printed")
    return code


def _remember(problem: Problem, snapshot: Snapshot, settings: Settings, ledger: Ledger) -> None:
    """Keep the accepted patch for the corpus `memory`; a full disk must not cost the patch."""
    from agent.services.corpora import memory_of

    if ledger.best is None or ledger.best.patch is None:
        return
    memory = memory_of(settings, snapshot)
    try:
        memory.remember(problem, ledger.best.patch.diff, snapshot.commit)
    except OSError as error:
        say(f"note: the patch could not be remembered in {memory.path}: {error.strerror}")


def _check(request: SolveRequest) -> None:
    if request.record and request.replay:
        raise ConfigurationError("--record and --replay exclude each other: give one of them")
    if request.apply and request.commit:
        raise ConfigurationError("--apply needs the work tree as its base: leave out --commit")


def solve_with(
    problem: Problem,
    snapshot: Snapshot,
    settings: Settings,
    request: SolveRequest,
    ledger: Ledger,
    reporter: Reporter,
    ahead: Ahead,
) -> SolveResult:
    """Build the services and run the pipeline; a crash keeps what the ledger holds."""
    try:
        return asyncio.run(_solve(problem, snapshot, settings, request, ledger, reporter, ahead))
    except KeyboardInterrupt:
        return summarise(ledger, status=Status.INTERRUPTED, message="stopped by a signal")
    except Exception as error:
        if ledger.best is None:
            raise
        return summarise(ledger, status=Status.CRASHED, message=describe_crash(error))


async def _solve(
    problem: Problem,
    snapshot: Snapshot,
    settings: Settings,
    request: SolveRequest,
    ledger: Ledger,
    reporter: Reporter,
    ahead: Ahead,
) -> SolveResult:
    from agent.pipeline import solve
    from agent.services import open_services, solve_options

    task = asyncio.current_task()
    assert task is not None
    with contextlib.suppress(NotImplementedError):
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with open_services(
        settings,
        problem,
        snapshot,
        reporter,
        ledger,
        record=request.record,
        replay=request.replay,
        trial=ahead.sandbox,
    ) as services:
        return await solve(problem, snapshot, services, solve_options(settings), ledger)


def finish(
    result: SolveResult,
    snapshot: Snapshot,
    settings: Settings,
    request: SolveRequest,
    ledger: Ledger,
) -> int:
    """Print the result where it belongs and give the exit code."""
    result = result.model_copy(update={"message": make_redactor()(result.message)})
    status = result.status
    if status is Status.UNVERIFIED and settings.accept_unverified:
        result = result.model_copy(update={"status": Status.ACCEPTED, "exit_code": 0})
        status = Status.ACCEPTED
    best = ledger.best
    if request.apply and status is Status.ACCEPTED and best is not None and best.patch is not None:
        write_into_work_tree(best.patch, snapshot)
    if request.json:
        print_json(result)
    elif best is not None and best.patch is not None:
        write_stdout(best.patch.diff)
    if request.verbose and ledger.ranking is not None and ledger.bundle is not None:
        from agent.context.receipt import make_receipt, render_receipt

        say(render_receipt(make_receipt(ledger.ranking, ledger.bundle)))
    if not request.quiet:
        for note in best.report.notes if best is not None and best.report is not None else ():
            say(f"note: {note}")
    if not request.quiet or status is not Status.ACCEPTED:
        say(in_words(result, has_patch=best is not None))
    return status.exit_code


def in_words(result: SolveResult, *, has_patch: bool) -> str:
    """The last line: the verdict, what it rests on, and what it cost."""
    spent = result.usage
    cost = "" if spent.cost_usd is None else f", ${spent.cost_usd:.4f}"
    calls = f"{spent.calls} call{'s' * (spent.calls != 1)}"
    total = f" [{calls}, {spent.input_tokens + spent.output_tokens:,} tokens{cost}]"
    if result.status is Status.USAGE and not spent.calls:
        total = ""
    if result.status is Status.ACCEPTED:
        return f"{(result.verdict or 'accepted').upper()}: {result.message}{total}"
    rest = "; the diff is the best so far, not an accepted one" if has_patch else ""
    if result.status is Status.UNVERIFIED:
        rest = "; the diff applies, but nothing shows that it is right"
    return f"agent: {result.status.value}: {_summary(result.message)}{rest}{total}"


def _summary(message: str) -> str:
    """Its first line, with the next where that ends in a colon; other words may follow it."""
    first, *others = message.strip().split("\n") or [""]
    return f"{first} {others[0]}" if first.endswith(":") and others else first.removesuffix(".")
