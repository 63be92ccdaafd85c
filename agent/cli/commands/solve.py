"""`agent solve`: solve one issue."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agent.cli.commands.common import (
    as_given,
    describe_crash,
    guarded,
    load_problem,
    load_settings,
    load_snapshot,
    make_redactor,
    own_file,
    print_json,
    reporting,
    write_diff,
)
from agent.cli.commands.output import (
    PatchFile,
    asked_publication,
    check_work_tree,
    prepare_publication,
    publish_patch,
    write_into_work_tree,
)
from agent.cli.options import (
    SOLVE_SETTINGS,
    branch_options,
    json_option,
    known_options,
    patch_output_option,
    path_option,
    project_option,
    quiet_option,
    repo_options,
    scope_option,
    verbose_option,
    write_option,
)
from agent.cli.options import (
    command as declare,
)
from agent.errors import ConfigurationError, Status
from agent.run.record import Ledger, RunRecord, make_record
from agent.shared.terminal import say

if TYPE_CHECKING:
    from agent.cli.commands.output import Delivery
    from agent.results.kept import KeptRun, RunKeeper
    from agent.results.publishing import PublicationPlan
    from agent.run.pipeline import OpenPrompt
    from agent.settings import Settings
    from agent.types import Problem
    from agent.types.protocols import Reporter, Snapshot
    from agent.wiring import Ahead


@dataclass(frozen=True, slots=True)
class SolveRequest:
    """Arguments of `agent solve` that are not settings."""

    problem: str
    repo: Path
    is_argument: bool = False  # the problem is the argument ISSUE, which may be its text
    commit: str | None = None
    dirty: str = "include"
    output: Path | None = None
    apply: bool = False
    branch: str | None = None
    commit_message: str | None = None
    pr: bool = False
    json: bool = False
    quiet: bool = False
    verbose: bool = False
    record: Path | None = None
    replay: Path | None = None
    path: Path | None = None
    project: str | None = None
    fail_to_pass: tuple[str, ...] = ()
    pass_to_pass: tuple[str, ...] = ()
    tests_from: Path | None = None
    remember: bool = False


@dataclass(frozen=True, slots=True)
class GoingOn:
    """The kept run that a run goes on from, and the prompt that repeats it with a comment."""

    run: KeptRun
    comment: str
    prompt: OpenPrompt


def run(request: SolveRequest, flags: Mapping[str, Any]) -> int:
    """Solve, print the result, and return the exit code."""
    return guarded(lambda: _run(request, flags), json=request.json, flags=flags)


def _run(request: SolveRequest, flags: Mapping[str, Any]) -> int:
    _check(request)

    def load() -> Problem:
        return load_problem(request.problem, text=request.is_argument)

    return solve_problem(load, request, flags)


def solve_problem(
    load: Callable[[], Problem],
    request: SolveRequest,
    flags: Mapping[str, Any],
    going_on: GoingOn | None = None,
) -> int:
    """Solve, print and keep the result, and return the exit code."""
    from agent.wiring import Ahead, known_tests

    settings = load_settings(flags, repository=request.repo)
    in_image = settings.image is not None  # then the interpreter is the image's
    if settings.python is not None and not in_image and not settings.python.expanduser().exists():
        raise ConfigurationError(
            f"--python {settings.python}: there is no such file; name an interpreter"
        )
    publication = asked_publication(request.branch, request.commit_message, pr=request.pr)
    known = known_tests(request.fail_to_pass, request.pass_to_pass, request.tests_from)
    problem = replace(load(), known=known)
    ahead = Ahead(settings)
    output = PatchFile(request.output)
    ledger = Ledger(on_better=output.write)
    own = (
        own_file(request.problem),
        request.output,
        request.record,
        request.replay,
        request.tests_from,  # retrieval must not find the deciding tests
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
            settings=settings,
            exclude=(*own, settings.log_file),
            scope=request.path,
        )
        if request.apply:
            check_work_tree(snapshot.root, reporter, without_edits=request.dirty == "ignore")
        plan = prepare_publication(publication, snapshot, reporter)
        work = _Work(problem, snapshot, settings, request, ledger, reporter, ahead, going_on)
        result, run = work.solve_and_keep(flags)
    result = result.model_copy(update={"message": as_given(result.message, flags)})
    code = finish(result, snapshot, request, ledger, run, plan)
    if request.remember and code == 0:
        _remember(problem, snapshot, settings, ledger)
    if output.problem:
        say(f"note: {output.problem}; the diff is in what was printed")
    return code


def _remember(problem: Problem, snapshot: Snapshot, settings: Settings, ledger: Ledger) -> None:
    """Save the accepted patch for the corpus `memory`. A full disk does not lose the patch."""
    from agent.wiring.search import memory_of

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
    if request.record and request.record.exists():
        raise ConfigurationError(
            f"--record {request.record}: the file exists, and a recording is never overwritten; "
            "name another file"
        )
    if request.apply and request.commit:
        raise ConfigurationError("--apply needs the work tree as its base: leave out --commit")
    if request.apply and request.branch is not None:
        raise ConfigurationError("--apply and --branch exclude each other: give one of them")


@dataclass(frozen=True, slots=True)
class _Work:
    """One run of the pipeline."""

    problem: Problem
    snapshot: Snapshot
    settings: Settings
    request: SolveRequest
    ledger: Ledger
    reporter: Reporter
    ahead: Ahead
    going_on: GoingOn | None

    def solve_and_keep(self, flags: Mapping[str, Any]) -> tuple[RunRecord, str]:
        """Solve, and return the result as it is printed and the id of the kept run, else "".

        `flags` are kept with it.
        """
        settings = self.settings
        if not settings.keep:
            return self._result(None), ""
        from agent.results.kept import keep_run, make_origin, runs_folder

        request = self.request
        task = {
            "path": self.snapshot.scope or None,
            "project": request.project,
            "fail_to_pass": request.fail_to_pass,
            "pass_to_pass": request.pass_to_pass,
            "tests_from": request.tests_from,
        }
        kept = {**flags, **{name: value for name, value in task.items() if value}}
        origin = make_origin(
            self.problem,
            self.snapshot,
            settings.temperature,
            self.request.replay,
            self.going_on.comment if self.going_on else "",
            settings=json.loads(json.dumps(kept, default=str)),
            retry_of=self.going_on.run.id if self.going_on else "",
        )
        with keep_run(runs_folder(), origin, self.problem.text, self.reporter) as keeper:
            result = self._result(keeper)
            if keeper is not None:
                keeper.end(result, self.ledger.best.patch if self.ledger.best else None)
        return result, keeper.id if keeper else ""

    def _result(self, keeper: RunKeeper | None) -> RunRecord:
        """Run the pipeline. After a crash, the result keeps what the ledger holds."""
        try:
            import asyncio

            result = asyncio.run(self._solve(keeper))
        except KeyboardInterrupt:
            message = "stopped by a signal"
            result = make_record(self.ledger, status=Status.INTERRUPTED, message=message)
        except Exception as error:
            if self.ledger.best is None:
                raise
            message = describe_crash(error)
            result = make_record(self.ledger, status=Status.CRASHED, message=message)
        accept = self.settings.accept_unverified
        return result.as_printed(accept_unverified=accept, redact=make_redactor())

    async def _solve(self, keeper: RunKeeper | None) -> RunRecord:
        import asyncio

        from agent.run.pipeline import solve
        from agent.wiring import open_services, solve_options

        task = asyncio.current_task()
        assert task is not None
        with contextlib.suppress(NotImplementedError):
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        async with open_services(
            self.settings,
            self.problem,
            self.snapshot,
            self.reporter,
            self.ledger,
            record=self.request.record,
            replay=self.request.replay,
            announce=True,
            trial=self.ahead.sandbox,
            gate=keeper.gate if keeper else None,
            streaming=sys.stderr.isatty() and not self.request.quiet,
            project=self.request.project,
        ) as services:
            return await solve(
                self.problem,
                self.snapshot,
                services,
                solve_options(self.settings, self.problem, another_test=not self.going_on),
                self.ledger,
                going_on=self.going_on.prompt if self.going_on else None,
            )


def finish(
    result: RunRecord,
    snapshot: Snapshot,
    request: SolveRequest,
    ledger: Ledger,
    run: str,
    plan: PublicationPlan | None = None,
) -> int:
    """Write the result to its destinations and return the exit code."""
    status = result.status
    best = ledger.best
    last_line = in_words(result, has_patch=best is not None)
    delivery = _deliver(result, snapshot, request, ledger, run, plan)
    if delivery is not None:
        update = {"written": list(delivery.written), "published": delivery.published}
        result = result.model_copy(update=update)
    if delivery is not None and delivery.failed:
        status = Status.NOT_APPLIED
        changed = {"status": status, "exit_code": status.exit_code, "message": delivery.message}
        result = result.model_copy(update=changed)
    if request.json:
        print_json(result)
    elif best is not None and best.patch is not None:
        write_diff(best.patch.diff)
    if request.verbose and ledger.ranking is not None and ledger.bundle is not None:
        from agent.retrieval.context import make_receipt, render_receipt

        say(render_receipt(make_receipt(ledger.ranking, ledger.bundle)))
    if not request.quiet:
        for note in best.report.notes if best is not None and best.report is not None else ():
            say(f"note: {note}")
    if delivery is not None and not delivery.failed and not request.quiet:
        say(delivery.message)
    if not request.quiet or result.status is not Status.ACCEPTED:
        say(last_line)
    if delivery is not None and delivery.failed:
        say(f"agent: {status.value}: {delivery.message}")
    elif plan is not None and delivery is None:
        say(_not_committed(plan, run, has_patch=best is not None))
    return status.exit_code


def _deliver(
    result: RunRecord,
    snapshot: Snapshot,
    request: SolveRequest,
    ledger: Ledger,
    run: str,
    plan: PublicationPlan | None,
) -> Delivery | None:
    """Write or publish the accepted patch; None if there is none, or only its diff was wanted."""
    best = ledger.best
    if result.status is not Status.ACCEPTED or best is None or best.patch is None:
        return None
    if plan is not None:
        return publish_patch(plan, best.patch, result, run=run)
    if not request.apply:
        return None
    return write_into_work_tree(best.patch, snapshot.root, output=request.output, run=run)


def _not_committed(plan: PublicationPlan, run: str, *, has_patch: bool) -> str:
    """Return that nothing was committed, and how to do so in spite of the verdict."""
    branch = plan.wanted.branch
    how = f"; to do so all the same: agent apply {run} --branch {branch}" if run else ""
    return f"nothing was committed on {branch}{how * has_patch}"


def in_words(result: RunRecord, *, has_patch: bool) -> str:
    """Return the last line of output: the verdict, its evidence, and the cost."""
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
    """Return the first line of a message, and the second if the first ends in a colon."""
    first, *others = message.strip().split("\n") or [""]
    return f"{first} {others[0]}" if first.endswith(":") and others else first.removesuffix(".")


@declare(
    "solve",
    settings=SOLVE_SETTINGS,
    rare=(
        "problem",
        "commit",
        "dirty",
        "output",
        "commit_message",
        "record",
        "replay",
        "verbose",
        "path",
        "project",
        "fail_to_pass",
        "pass_to_pass",
        "tests_from",
        "remember",
        "no_iterative",
    ),
    ending="""
    Examples:
      agent solve issue.md --repo ./target > fix.diff
      agent solve owner/name#123 --repo ./target --apply
      agent solve owner/name#123 --branch fix-123 --pr
      agent solve "Cart.total leaves out the first price" --repo ./target

    ISSUE is a file, `-` for stdin, a URL, OWNER/REPO#N on GitHub (GITHUB_TOKEN
    for private ones), or the text itself. A run makes one call, and at most 2
    more with code that the model asks for. If its patch fails, it makes at most
    1 repair call (--repairs) and 40 steps (--max-steps).

    --pr needs GITHUB_TOKEN, GITLAB_TOKEN, or `gh` or `glab` signed in. The pull
    request is a draft unless the patch is verified. Commits are signed if your
    own git configuration says so (commit.gpgsign).

    Exit codes: 0 accepted, 2 usage, 3 no edit, 4 unparseable, 5 does not apply,
    6 breaks syntax or tests or is suspect, 7 time limit, 8 budget, 9 provider,
    10 sandbox, 11 unverified (no test could be run), 130 interrupted.
    """,
)
@click.argument("issue", required=False)
@click.option("--problem", help="The issue, as ISSUE but not as text.")
@repo_options
@patch_output_option
@write_option
@branch_options
@json_option
@quiet_option
@verbose_option
@scope_option
@known_options
@project_option
@click.option(
    "--remember", is_flag=True,
    help="Keep the accepted patch on this machine, for `agent search --corpus memory`.",
)  # fmt: skip
@path_option("--record", help="Save every model exchange to this file.")
@path_option("--replay", help="Answer from a recorded file, offline.")
def command(flags: Mapping[str, Any], issue: str | None, problem: str | None, **given: Any) -> int:
    """Solve an issue: retrieve, one model call, apply, validate; the diff goes to stdout."""
    source = problem if issue is None else issue
    if source is None or None not in (issue, problem):
        raise click.UsageError("Give the issue once: agent solve ISSUE, or --problem.")
    return run(SolveRequest(source, is_argument=issue is not None, **given), flags)
