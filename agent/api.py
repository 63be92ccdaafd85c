"""The Python interface, imported as `patchshot`.

    import patchshot

    result = patchshot.solve("Discounts start one piece too late ...", "./shop", model="gpt-5.4")
    print(result.verdict, result.diff)

Results are those of `--json`. Keyword arguments are settings (`agent config` lists them); they win
over the environment and the user's file. Nothing is printed: `on_event` receives the progress.
Folders inside the repository are taken off PATH, so that no program of it runs outside the sandbox.
Each function has an `_async` twin for programs that run an event loop.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from agent.errors import ConfigurationError, PatchshotError, Status
from agent.run.attempts import Attempt
from agent.run.record import Ledger, RunRecord, make_record
from agent.types import AppliedPatch, Dirty, PatchProposal, Problem, ReproductionTest
from agent.types.events import Event, ModelCall, Notice, StageFinished, StageStarted

if TYPE_CHECKING:
    from agent.retrieval.context import Receipt
    from agent.settings import Settings
    from agent.types import Ranking, ScoredChunk
    from agent.types.protocols import Snapshot

__all__ = [
    "ConfigurationError",
    "Context",
    "Event",
    "ModelCall",
    "Notice",
    "PatchshotError",
    "RunRecord",
    "StageFinished",
    "StageStarted",
    "Status",
    "context",
    "context_async",
    "search",
    "search_async",
    "solve",
    "solve_async",
    "verify",
    "verify_async",
]

OnEvent = Callable[[Event], None]
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Context:
    """The code that a model would be shown, and the receipt that says why each piece is there."""

    text: str
    receipt: Receipt


@dataclass(frozen=True, slots=True)
class _Target:
    settings: Settings
    snapshot: Snapshot
    report: OnEvent


async def solve_async(
    problem: str,
    repo: str | os.PathLike[str] = ".",
    *,
    commit: str | None = None,
    dirty: Dirty = "include",
    path: Path | None = None,
    project: str | None = None,
    fail_to_pass: Sequence[str] = (),
    pass_to_pass: Sequence[str] = (),
    tests_from: Path | None = None,
    on_event: OnEvent | None = None,
    **settings: Any,
) -> RunRecord:
    """Solve an issue as `agent solve` does. Nothing is written to the repository.

    `problem` is the issue's text. Tests that are given decide alone. A run that fails is a result
    too. Raises PatchshotError if it could not start.
    """
    from agent.run.pipeline import solve as run
    from agent.wiring import known_tests, open_services, solve_options

    issue = replace(_problem(problem), known=known_tests(fail_to_pass, pass_to_pass, tests_from))
    target = await _open(repo, commit, dirty, on_event, settings, path)
    ledger = Ledger()
    async with open_services(
        target.settings, issue, target.snapshot, target.report, ledger, project=project
    ) as services:
        options = solve_options(target.settings, issue)
        return await run(issue, target.snapshot, services, options, ledger)


async def verify_async(
    patch: str | AppliedPatch,
    repo: str | os.PathLike[str] = ".",
    *,
    problem: str = "",
    test: str | None = None,
    commit: str | None = None,
    dirty: Dirty = "include",
    path: Path | None = None,
    project: str | None = None,
    fail_to_pass: Sequence[str] = (),
    pass_to_pass: Sequence[str] = (),
    tests_from: Path | None = None,
    on_event: OnEvent | None = None,
    **settings: Any,
) -> RunRecord:
    """Apply a patch in a sandbox, run the project's tests before and after, and judge it.

    `test` names the test file of the patch that shows the fault, if there are several. Only
    `evidence="independent"` calls a model, if the patch is accepted. Nothing is written to the
    repository. Raises PatchshotError if it could not start.
    """
    from agent.run.reproducing import grade_by_model
    from agent.wiring import apply_reply, known_tests, open_services, open_validator, solve_options

    issue = _problem(problem) if problem.strip() else Problem("", "")
    issue = replace(issue, known=known_tests(fail_to_pass, pass_to_pass, tests_from))
    target = await _open(repo, commit, dirty, on_event, settings, path)
    ledger = Ledger()
    if isinstance(patch, AppliedPatch):
        attempt = Attempt("saved-reply", proposal=PatchProposal(()), patch=patch)
    else:
        attempt = await asyncio.to_thread(apply_reply, patch, target.snapshot, target.settings)
    ledger.record(attempt)
    options = solve_options(target.settings, issue)
    if attempt.patch is not None:
        parts = (target.settings, issue, target.snapshot, target.report)
        async with AsyncExitStack() as stack:
            services = None
            if options.independent and problem.strip():
                opened = open_services(*parts, ledger, project=project)
                services = await stack.enter_async_context(opened)
                validator = services.validator
            else:
                validator = await open_validator(stack, *parts, project=project)
            report = await validator.validate(attempt.patch, _shown_by(attempt, test))
            attempt = replace(attempt, report=report)
            ledger.record(attempt, replacing_last=True)
            if services is not None:
                attempt = await grade_by_model(
                    attempt, issue, target.snapshot, services, options, ledger
                )
                ledger.record(attempt, replacing_last=True)
    return make_record(
        ledger,
        status=attempt.status,
        message=attempt.reason,
        commit=target.snapshot.commit,
        dirty=target.snapshot.dirty,
    )


async def context_async(
    problem: str,
    repo: str | os.PathLike[str] = ".",
    *,
    commit: str | None = None,
    dirty: Dirty = "include",
    on_event: OnEvent | None = None,
    **settings: Any,
) -> Context:
    """Return the code that a model would be shown for an issue. No chat model is called.

    Raises PatchshotError.
    """
    from agent.retrieval.context import make_receipt, pack
    from agent.retrieval.index import TreeSitterChunker
    from agent.retrieval.ranking import in_scope
    from agent.wiring import make_counter, packing_options

    issue = _problem(problem)
    target = await _open(repo, commit, dirty, on_event, settings)
    target = replace(target, snapshot=await asyncio.to_thread(in_scope, issue, target.snapshot))
    ranking = await _ranked(issue, target)
    bundle = await asyncio.to_thread(
        pack,
        issue,
        ranking,
        target.snapshot,
        make_counter(target.settings.model),
        packing_options(target.settings),
        chunker=TreeSitterChunker(),
    )
    return Context(bundle.text, make_receipt(ranking, bundle))


async def search_async(
    query: str,
    repo: str | os.PathLike[str] = ".",
    *,
    limit: int = 10,
    commit: str | None = None,
    dirty: Dirty = "include",
    on_event: OnEvent | None = None,
    **settings: Any,
) -> tuple[ScoredChunk, ...]:
    """Return the functions and pieces of files that rank highest for a query, the best first.

    Raises PatchshotError.
    """
    from agent.search import matching_chunks, named_first

    asked = _problem(query)
    target = await _open(repo, commit, dirty, on_event, settings)
    ranking = await _ranked(asked, target)
    return tuple(named_first(asked.text, matching_chunks(asked.text, ranking))[:limit])


def _blocking(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Return a function that runs a coroutine to its end, with the same arguments."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        name = function.__name__
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            raise ConfigurationError(f"an event loop is running here: await {name}(...) instead")
        return asyncio.run(function(*args, **kwargs))

    call.__name__ = call.__qualname__ = function.__name__.removesuffix("_async")
    return call


solve = _blocking(solve_async)
verify = _blocking(verify_async)
context = _blocking(context_async)
search = _blocking(search_async)


def _problem(text: str) -> Problem:
    from agent.run.problem import problem_from_text

    return problem_from_text(text, "<text>")


async def _open(
    repo: str | os.PathLike[str],
    commit: str | None,
    dirty: Dirty,
    on_event: OnEvent | None,
    settings: dict[str, Any],
    path: Path | None = None,
) -> _Target:
    from agent.repository import locate_repository, take_snapshot
    from agent.results import journal_folder
    from agent.results.work_tree import finish_interrupted
    from agent.settings import load, work_tree_of
    from sandbox import hide_programs

    report = on_event or (lambda _: None)
    root = Path(repo)
    hide_programs(work_tree_of(root))
    loaded = load(settings, repository=root, note=lambda line: report(Notice(line, "warning")))
    if commit is None:
        for done in finish_interrupted(locate_repository(root).root, journal_folder()):
            report(Notice(done, "warning"))
    take = partial(take_snapshot, root, commit=commit, dirty=dirty, scope=path)
    most = round(loaded.max_file_mb * 1e6)
    snapshot = await asyncio.to_thread(take, max_file_bytes=most)
    return _Target(loaded, snapshot, report)


async def _ranked(problem: Problem, target: _Target) -> Ranking:
    from agent.wiring import open_retriever

    async with open_retriever(target.settings, target.report) as retriever:
        return await retriever.rank(problem, target.snapshot)


def _shown_by(attempt: Attempt, test: str | None) -> ReproductionTest | None:
    """Return the test that shows the fault. Raises ConfigurationError without such a file."""
    from agent.verify import is_test_file

    assert attempt.patch is not None
    assert attempt.proposal is not None
    if test is None and attempt.proposal.reproduction_test is not None:
        return attempt.proposal.reproduction_test
    tests = [
        ReproductionTest(change.path, change.after.decode("utf-8", "replace"))
        for change in attempt.patch.changes
        if change.after is not None and is_test_file(change.path)
    ]
    if test is None:
        return tests[0] if len(tests) == 1 else None
    for one in tests:
        if one.path == test.removeprefix("./"):
            return one
    names = ", ".join(one.path for one in tests) or "none"
    raise ConfigurationError(
        f"{test} is not a test file that the patch adds or changes; it has {names}"
    )
