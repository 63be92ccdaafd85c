"""`agent solve`, and `agent retry`, which goes on from a kept run with a comment."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agent.cli.commands.common import (
    as_given,
    describe_crash,
    in_words,
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
    check_work_tree,
    prepare_publication,
    publish_patch,
    requested_publication,
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
from agent.cli.options import command as declare
from agent.errors import ConfigurationError, Status, UsageError
from agent.run.record import Ledger, RunRecord, make_record
from agent.shared.terminal import say

if TYPE_CHECKING:
    from agent.cli.commands.output import Delivery
    from agent.llm.recording import ChatExchange
    from agent.results.kept import KeptRun, RunKeeper
    from agent.results.publishing import PublicationPlan
    from agent.run.pipeline import OpenPrompt
    from agent.settings import Settings
    from agent.types import Problem
    from agent.types.protocols import Reporter, Snapshot
    from agent.wiring import Ahead

# What a kept run needs to be repeated, beside its settings.
_TASK = ("path", "project", "fail_to_pass", "pass_to_pass", "tests_from")

# Settings that a retry takes over from the command line of its run. Those that lift a protection,
# name a server or write files are left out: a file is not what gives leave for them.
_TAKEN_OVER = (
    "model", "include_test", "tests", "test_cmd", "test_timeout", "setup_cmd", "python",
    "environments", "image",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of the pipeline. `arguments` are those of the command that are no settings."""

    problem: Problem
    snapshot: Snapshot
    settings: Settings
    arguments: Mapping[str, Any]
    ledger: Ledger
    reporter: Reporter
    ahead: Ahead
    retried: KeptRun | None
    comment: str

    def solve_and_keep(self, flags: Mapping[str, Any]) -> tuple[RunRecord, str]:
        """Solve, and return the record and the id of the kept run, else "". `flags` are kept."""
        if not self.settings.keep:
            return self._record(None), ""
        from agent.results.kept import keep_run, make_origin, runs_folder

        task = {name: self.arguments.get(name) for name in _TASK}
        task["path"] = self.snapshot.scope
        kept = {**flags, **{name: value for name, value in task.items() if value}}
        origin = make_origin(
            self.problem,
            self.snapshot,
            self.settings.temperature,
            self.arguments.get("replay"),
            self.comment,
            settings=json.loads(json.dumps(kept, default=str)),
            retry_of=self.retried.id if self.retried else "",
        )
        with keep_run(runs_folder(), origin, self.problem.text, self.reporter) as keeper:
            record = self._record(keeper)
            if keeper is not None:
                keeper.end(record, self.ledger.best.patch if self.ledger.best else None)
        return record, keeper.id if keeper else ""

    def _record(self, keeper: RunKeeper | None) -> RunRecord:
        """Run the pipeline. After a crash, the record has what the ledger holds."""
        try:
            import asyncio

            record = asyncio.run(self._solve(keeper))
        except KeyboardInterrupt:
            message = "stopped by a signal"
            record = make_record(self.ledger, status=Status.INTERRUPTED, message=message)
        except Exception as error:
            if self.ledger.best is None:
                raise
            message = describe_crash(error)
            record = make_record(self.ledger, status=Status.CRASHED, message=message)
        accept = self.settings.accept_unverified
        return record.as_printed(accept_unverified=accept, redact=make_redactor())

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
            record=self.arguments.get("record"),
            replay=self.arguments.get("replay"),
            announce=True,
            trial=self.ahead.sandbox,
            gate=keeper.gate if keeper else None,
            streaming=sys.stderr.isatty() and not self.arguments["quiet"],
            project=self.arguments.get("project"),
        ) as services:
            return await solve(
                self.problem,
                self.snapshot,
                services,
                solve_options(self.settings, self.problem, another_test=self.retried is None),
                self.ledger,
                going_on=_opening(self.retried, self.comment) if self.retried else None,
            )


def solve_problem(
    problem: Problem,
    flags: Mapping[str, Any],
    arguments: Mapping[str, Any],
    retried: KeptRun | None = None,
    comment: str = "",
) -> int:
    """Solve, print and keep the result, and return the exit code."""
    from agent.wiring import Ahead, known_tests

    given = arguments.get
    settings = load_settings(flags, repository=arguments["repo"])
    in_image = settings.image is not None  # then the interpreter is the image's
    if settings.python is not None and not in_image and not settings.python.expanduser().exists():
        raise ConfigurationError(
            f"--python {settings.python}: there is no such file; name an interpreter"
        )
    publication = requested_publication(
        given("branch"), given("commit_message"), pr=bool(given("pr"))
    )
    named = (given("fail_to_pass", ()), given("pass_to_pass", ()), given("tests_from"))
    problem = replace(problem, known=known_tests(*named))
    ahead = Ahead(settings)
    output = PatchFile(given("output"))
    ledger = Ledger(on_better=output.write)
    # `tests_from`: retrieval must not find the deciding tests.
    own = [given(name) for name in ("output", "record", "replay", "tests_from")]
    with reporting(
        quiet=arguments["quiet"], verbose=arguments["verbose"], log_file=settings.log_file
    ) as reporter:
        snapshot = load_snapshot(
            arguments["repo"],
            given("commit"),
            given("dirty", "include"),
            reporter,
            ledger,
            exclude=(own_file(given("problem")), *own, settings.log_file),
            scope=given("path"),
            max_file_mb=settings.max_file_mb,
        )
        if given("apply"):
            check_work_tree(snapshot.root, reporter, without_edits=given("dirty") == "ignore")
        plan = prepare_publication(publication, snapshot, reporter)
        run = _Run(
            problem, snapshot, settings, arguments, ledger, reporter, ahead, retried, comment
        )
        record, name = run.solve_and_keep(flags)
    record = record.model_copy(update={"message": as_given(record.message, flags)})
    code = _finish(record, snapshot, arguments, ledger, name, plan)
    if given("remember") and code == 0:
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


def _finish(
    record: RunRecord,
    snapshot: Snapshot,
    arguments: Mapping[str, Any],
    ledger: Ledger,
    run: str,
    plan: PublicationPlan | None,
) -> int:
    """Write the result to its destinations and return the exit code."""
    status, quiet = record.status, arguments["quiet"]
    patch = ledger.best.patch if ledger.best else None
    last_line = in_words(record, has_patch=patch is not None)
    delivery: Delivery | None = None
    if status is Status.ACCEPTED and patch is not None and plan is not None:
        delivery = publish_patch(plan, patch, record, run=run)
    elif status is Status.ACCEPTED and patch is not None and arguments.get("apply"):
        output = arguments.get("output")
        delivery = write_into_work_tree(patch, snapshot.root, output=output, run=run)
    if delivery is not None:
        record = delivery.described(record)
        status = record.status
    if arguments["json"]:
        print_json(record)
    elif patch is not None:
        write_diff(patch.diff)
    _say_details(ledger, verbose=arguments["verbose"], quiet=quiet)
    if delivery is not None and not delivery.failed and not quiet:
        say(delivery.message)
    if not quiet or record.status is not Status.ACCEPTED:
        say(last_line)
    if delivery is not None and delivery.failed:
        say(f"agent: {status.value}: {delivery.message}")
    elif plan is not None and delivery is None:
        again = f"; to do so all the same: agent apply {run} --branch {plan.wanted.branch}"
        how = again if run and patch is not None else ""
        say(f"nothing was committed on {plan.wanted.branch}{how}")
    return status.exit_code


def _say_details(ledger: Ledger, *, verbose: bool, quiet: bool) -> None:
    """Say why each chunk was in the context, and what validation noted."""
    if verbose and ledger.ranking is not None and ledger.bundle is not None:
        from agent.retrieval.context import make_receipt, render_receipt

        say(render_receipt(make_receipt(ledger.ranking, ledger.bundle)))
    report = ledger.best.report if ledger.best and not quiet else None
    for note in report.notes if report is not None else ():
        say(f"note: {note}")


@declare(
    "solve",
    settings=SOLVE_SETTINGS,
    rare=(
        "problem", "commit", "dirty", "output", "commit_message", "record", "replay", "verbose",
        "remember", "no_iterative", *_TASK,
    ),
    prints_record=True,
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
)  # fmt: skip
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
def solve_command(
    flags: Mapping[str, Any], issue: str | None, problem: str | None, **given: Any
) -> int:
    """Solve an issue: retrieve, one model call, apply, validate; the diff goes to stdout."""
    source = problem if issue is None else issue
    if source is None or None not in (issue, problem):
        raise UsageError("give the issue once: agent solve ISSUE, or --problem")
    if given["record"] and given["replay"]:
        raise ConfigurationError("--record and --replay exclude each other: give one of them")
    if given["record"] and given["record"].exists():
        raise ConfigurationError(
            f"--record {given['record']}: the file exists, and a recording is never overwritten; "
            "name another file"
        )
    if given["apply"] and given["commit"]:
        raise ConfigurationError("--apply needs the work tree as its base: leave out --commit")
    if given["apply"] and given["branch"] is not None:
        raise ConfigurationError("--apply and --branch exclude each other: give one of them")
    text = load_problem(source, text=issue is not None)
    return solve_problem(text, flags, {**given, "problem": source})


@declare(
    "retry",
    settings=SOLVE_SETTINGS,
    prints_record=True,
    ending="""
    Example:
      agent retry 3f2a --comment "keep the signature of total()"
    """,
)
@click.argument("run")
@click.option("--comment", required=True, help="What is to be different, in your words.")
@patch_output_option
@write_option
@branch_options
@json_option
@quiet_option
@verbose_option
def retry_command(run: str, comment: str, flags: Mapping[str, Any], **given: Any) -> int:
    """Go on from a kept run with a comment: the same context and replies, and one more call.

    RUN is the beginning of its id in `agent runs`. The work tree may have changed if the run began
    without uncommitted changes; its commit is then the base. Exit codes are those of `agent solve`.
    """
    from agent.results.kept import find_run, runs_folder

    if not comment.strip():
        raise ConfigurationError("--comment is empty: say what is to be changed")
    kept = find_run(runs_folder(), run)
    origin = kept.origin
    commit = _base(kept)
    if commit is not None and given["apply"]:
        raise ConfigurationError(
            f"{origin.repository} has changed since run {kept.id}: leave out --apply, and "
            "apply the result with `agent apply RUN`"
        )
    _last_whole_reply(kept)  # raises before anything is read
    taken = {name: value for name, value in origin.settings.items() if name in _TAKEN_OVER}
    task = {name: origin.settings[name] for name in _TASK if name in origin.settings}
    for name in {"path", "tests_from"} & task.keys():
        task[name] = Path(task[name])
    target = {"problem": origin.source, "repo": Path(origin.repository), "commit": commit}
    arguments = {**target, **task, **given}
    # One call: the user judges what fails after it.
    flags = {"max_steps": 0, **taken, **flags}
    return solve_problem(kept.problem, flags, arguments, kept, comment)


def _base(kept: KeptRun) -> str | None:
    """Return the commit to work on, None for the work tree if all that the model saw is the same.

    Raises ConfigurationError if that has changed and the base had uncommitted changes.
    """
    from agent.repository import take_snapshot
    from agent.results.kept import changed_files

    origin = kept.origin
    issue = own_file(origin.source)
    now = take_snapshot(Path(origin.repository), exclude=[issue] if issue is not None else [])
    differing = {path for path, _ in {*origin.changed.items()} ^ {*changed_files(now).items()}}
    if now.commit == origin.commit and not kept.concerns(differing):
        return None
    if origin.dirty:
        raise ConfigurationError(
            f"{origin.repository} has changed since run {kept.id}, which had uncommitted changes "
            "in its base: solve the issue again"
        )
    return origin.commit


def _opening(kept: KeptRun, comment: str) -> OpenPrompt:
    """Return what builds the prompt: the last whole reply of the run, its verdict, the comment."""
    from agent.run.prompting import retry_prompt

    last = _last_whole_reply(kept)
    result = kept.result
    made = result.attempts if result else ()
    attempts = [attempt for attempt in made if attempt.kind != "another-test"]
    stepwise = bool(attempts) and attempts[-1].kind == "iterative"
    return partial(
        retry_prompt,
        last.request.messages,
        last.reply.text,
        comment,
        status=attempts[-1].status if attempts else "",
        reason=attempts[-1].reason if attempts else "",
        diff=result.diff if result and stepwise else "",
    )


def _last_whole_reply(kept: KeptRun) -> ChatExchange:
    """Return the last exchange that is not a step of the iterative mode.

    Those have a system message of their own, other than the first exchange.
    """
    exchanges = kept.exchanges
    if not exchanges:
        raise ConfigurationError(f"run {kept.id} has no reply to go on from: solve again")
    system = exchanges[0].request.messages[:1]
    return [one for one in exchanges if one.request.messages[:1] == system][-1]
