"""`agent solve`, `agent retry`, which goes on from a kept run with a comment, and `agent demo`."""

from __future__ import annotations

import contextlib
import json as json_module
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agent.cli import options
from agent.cli.commands import common, output
from agent.errors import ConfigurationError, Status
from agent.run.record import Ledger, RunRecord, make_record
from agent.shared.terminal import say

if TYPE_CHECKING:
    from agent.llm.recording import ChatExchange, ReplyGate
    from agent.results.kept import KeptRun, RunKeeper
    from agent.results.publishing import PublicationPlan
    from agent.run.pipeline import OpenPrompt
    from agent.settings import Settings
    from agent.types import Problem
    from agent.types.protocols import Snapshot

# What a kept run needs to be repeated, beside its settings.
_TASK = ("path", "project", "fail_to_pass", "pass_to_pass", "tests_from")

# Settings that a retry takes over from the command line of its run. Those that lift a protection,
# name a server or write files are left out: a file is not what gives leave for them.
_TAKEN_OVER = (
    "model", "include_test", "tests", "test_cmd", "test_timeout", "setup_cmd", "python",
    "environments", "image", "check",
)  # fmt: skip


_RARE = (
    "problem", "commit", "dirty", "output", "commit_message", "files", "record", "replay",
    "verbose", "no_iterative", *_TASK,
)  # fmt: skip


@options.command(
    "solve",
    settings=options.SOLVE_SETTINGS,
    rare=_RARE,
    prints_record=True,
    ending="""
    Examples:
      agent solve issue.md --repo ./target > fix.diff
      agent solve owner/name#123 --branch fix-123 --pr
      agent solve "Cart.total leaves out the first price" --repo ./target

    ISSUE is a file, `-` for stdin, a URL, OWNER/REPO#N on GitHub (GITHUB_TOKEN
    for private ones), or the text itself. A run makes one call, and at most 2
    more with code that the model asks for. If its patch fails, it makes at most
    1 repair call (--repairs) and 40 steps (--max-steps).

    --pr needs GITHUB_TOKEN. The pull request is a draft unless
    the patch is verified. Commits are signed if your own git configuration says
    so (commit.gpgsign).

    Exit codes: 0 accepted, 2 usage, 3 no edit, 4 unparseable, 5 does not apply,
    6 breaks syntax or tests or is suspect, 7 time limit, 8 budget, 9 provider,
    10 sandbox, 11 unverified (no test could be run), 130 interrupted.
    """,
)
@click.argument("issue", required=False)
@options.text("--problem", "TEXT", "The issue, as ISSUE but not as text.")
@options.base
@options.delivery
@options.as_record
@options.quiet
@options.verbose
@options.scope
@options.text("--file files", "PATH", "Show this file, or PATH:NAME of it too.", multiple=True)
@options.tests
@options.path("--record", "Save every model exchange to this file.")
@options.path("--replay", "Answer from a recorded file, offline.")
def solve_command(
    flags: Mapping[str, Any], issue: str | None, problem: str | None, **given: Any
) -> int:
    """Solve an issue: retrieve, one model call, apply, validate; the diff goes to stdout."""
    source = common.one_of("the issue", "agent solve ISSUE, or --problem", issue, problem)
    text = common.load_problem(source, text=issue is not None)
    return solve_problem(text, flags, {**given, "problem": source})


def solve_problem(
    problem: Problem,
    flags: Mapping[str, Any],
    arguments: Mapping[str, Any],
    retried: KeptRun | None = None,
    comment: str = "",
    *,
    reproduces: bool = False,
) -> int:
    """Solve, print, deliver and keep the result, and return the exit code.

    `arguments` are those of `agent solve` that are no settings. `reproduces`: make a test instead.
    """
    from agent.wiring import Ahead, known_tests, solve_options

    given, quiet = arguments.get, arguments["quiet"]
    for one, other in (("record", "replay"), ("apply", "commit"), ("apply", "branch")):
        if given(one) and given(other):
            raise ConfigurationError(f"--{one} and --{other} exclude each other: give one of them")
    if (tape := given("record")) and tape.exists() and tape.stat().st_size:
        raise ConfigurationError(f"--record {tape}: the file exists; name another one")
    settings = common.load_settings(flags, repository=arguments["repo"])
    update = {"include_test": output.includes_test(settings, arguments)}
    settings = settings.model_copy(update=update)
    _check_model(settings, given("replay"))
    output.check_publication(arguments)
    tests = (given("fail_to_pass", ()), given("pass_to_pass", ()), given("tests_from"))
    problem = replace(problem, known=known_tests(*tests))
    ahead = Ahead(settings)
    file = output.PatchFile(given("output"))
    ledger = Ledger(on_better=file.write)
    with common.reporting(quiet=quiet, verbose=arguments["verbose"]) as reporter:
        snapshot = common.load_snapshot(arguments, settings, reporter, ledger)
        if given("apply"):
            without_edits = given("dirty") == "ignore"
            output.check_work_tree(snapshot.root, reporter, without_edits=without_edits)
        plan = output.prepare_publication(arguments, snapshot.root, snapshot.commit)
        if plan is not None:
            output.announce_publication(plan, snapshot, reporter)
        limits = solve_options(settings, problem, another_test=retried is None)
        limits = replace(limits, files=given("files", ()), reproduces=reproduces)
        opening = _opening(retried, comment) if retried else None

        async def solve(gate: ReplyGate | None) -> RunRecord:
            from agent.run.pipeline import solve
            from agent.wiring import open_services

            async with open_services(
                settings,
                problem,
                snapshot,
                reporter,
                ledger,
                record=given("record"),
                replay=given("replay"),
                announce=True,
                gate=gate,
                trial=ahead.sandbox,
                streaming=sys.stderr.isatty() and not quiet,
                project=given("project"),
            ) as parts:
                return await solve(problem, snapshot, parts, limits, ledger, going_on=opening)

        with contextlib.ExitStack() as stack:
            keeper: RunKeeper | None = None
            if settings.keep:
                from agent.results.kept import keep_run, make_origin, runs_folder

                task = {name: given(name) for name in _TASK} | {"path": snapshot.scope}
                asked = {**flags, **{name: value for name, value in task.items() if value}}
                origin = make_origin(
                    problem,
                    snapshot,
                    settings.temperature,
                    given("replay"),
                    comment,
                    *(["reproduce"] if reproduces else []),
                    settings=json_module.loads(json_module.dumps(asked, default=str)),
                    retry_of=retried.id if retried else "",
                )
                kept = keep_run(runs_folder(), origin, problem.text, reporter)
                keeper = stack.enter_context(kept)
            record = _finished(solve(keeper.gate if keeper else None), ledger)
            record = record.as_printed(
                accept_unverified=settings.accept_unverified, redact=common.make_redactor()
            )
            if keeper is not None:
                keeper.end(record, ledger.best.patch if ledger.best else None)
    code = _deliver(record, snapshot, arguments, ledger, keeper.id if keeper else "", plan)
    if file.problem:
        say(f"note: {file.problem}; the diff is in what was printed")
    return code


def _check_model(settings: Settings, replay: Path | None) -> None:
    """Check what can be checked before the repository is read. Raises ConfigurationError."""
    from agent.wiring import endpoint

    if replay is None:
        try:
            endpoint(settings)
        except ConfigurationError as error:
            hint = "; `agent demo` needs no model" if settings.model is None else ""
            raise ConfigurationError(f"{error}{hint}") from None


def _finished(solving: Coroutine[Any, Any, RunRecord], ledger: Ledger) -> RunRecord:
    """Run the pipeline. After a crash or a signal, the record has what the ledger holds."""
    import asyncio

    async def until_terminated() -> RunRecord:
        task = asyncio.current_task()
        assert task is not None
        with contextlib.suppress(NotImplementedError):
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await solving

    try:
        return asyncio.run(until_terminated())
    except KeyboardInterrupt:
        return make_record(ledger, status=Status.INTERRUPTED, message="stopped by a signal")
    except Exception as error:
        if ledger.best is None:
            raise
        return make_record(ledger, status=Status.CRASHED, message=common.describe_crash(error))


def _deliver(
    record: RunRecord,
    snapshot: Snapshot,
    arguments: Mapping[str, Any],
    ledger: Ledger,
    run: str,
    plan: PublicationPlan | None,
) -> int:
    """Write the result to its destinations and return the exit code."""
    best = ledger.best
    patch = best.patch if best else None
    last_line = common.in_words(record, has_patch=patch is not None)
    delivery: output.Delivery | None = None
    if record.status is Status.ACCEPTED and patch is not None:
        if plan is not None:
            delivery = output.publish_patch(plan, patch, record, run=run)
        elif arguments.get("apply"):
            delivery = output.write_into_work_tree(patch, snapshot.root, run=run)
    if delivery is not None:
        record = delivery.described(record)
    if arguments["json"]:
        common.print_record(record)
    elif patch is not None:
        common.write_diff(patch.diff)
    if arguments["verbose"] and record.receipt is not None:
        from agent.retrieval.context import render_receipt

        width = shutil.get_terminal_size().columns if sys.stderr.isatty() else None
        for line in render_receipt(record.receipt).splitlines():
            say(line[:width])
    if not arguments["quiet"]:
        for note in best.report.notes if best and best.report else ():
            say(f"note: {note}")
        if patch is not None:
            say(f"changed: {output.changed_lines(patch)}")
    _say_end(record, last_line, delivery, run if patch else "", arguments)
    return record.status.exit_code


def _say_end(
    record: RunRecord,
    last_line: str,
    delivery: output.Delivery | None,
    run: str,
    arguments: Mapping[str, Any],
) -> None:
    """Say where the patch is, the verdict, and what to do next with the kept `run` ("": none)."""
    quiet, branch = arguments["quiet"], arguments.get("branch")
    if not quiet and delivery is not None and not delivery.failed:
        say(delivery.message)
    elif not quiet and run and branch is None:
        say(f"next: agent show {run}, agent apply {run}, agent retry {run} --comment TEXT")
    if not quiet or record.status is not Status.ACCEPTED:
        say(last_line)
    if delivery is not None and delivery.failed:
        say(f"agent: {record.status.value}: {delivery.message}")
    elif delivery is None and branch is not None:
        how = f"; to do so all the same: agent apply {run} --branch {branch}" if run else ""
        say(f"nothing was committed on {branch}{how}")


# -------------------------------------------------------------------------------------- agent retry


@options.command(
    "retry",
    settings=options.SOLVE_SETTINGS,
    prints_record=True,
    ending="""
    Example:
      agent retry 3f2a --comment "keep the signature of total()"
      agent retry 3f2a --pr

    --pr without --branch takes what reviewers wrote in the pull request of the
    run as the comment.
    """,
)
@click.argument("run")
@options.text("--comment", "TEXT", "What is to be different, in your words.")
@options.delivery
@options.as_record
@options.quiet
@options.verbose
def retry_command(run: str, comment: str | None, flags: Mapping[str, Any], **given: Any) -> int:
    """Go on from a kept run with a comment: the same context and replies, and one more call.

    RUN is the beginning of its id in `agent runs`. The work tree may have changed if the run began
    without uncommitted changes; its commit is then the base. Exit codes are those of `agent solve`.
    """
    kept = common.find_kept(run)
    origin = kept.origin
    if given["pr"] and given["branch"] is None:
        from agent.results.publishing import review_of

        if not kept.pull_request:
            raise ConfigurationError(f"--pr: no pull request of run {kept.id} is known")
        given["pr"] = False  # it names the comment, and nothing is published
        review = review_of(Path(origin.repository), kept.pull_request)
        comment = f"{comment or ''}\n\n{review}"
    if not comment or not comment.strip():
        raise ConfigurationError("give a --comment: say what is to be changed")
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
    # One call: the user judges what fails after it.
    flags = {"max_steps": 0, **taken, **flags}
    return solve_problem(kept.problem, flags, {**target, **task, **given}, kept, comment)


def _base(kept: KeptRun) -> str | None:
    """Return the commit to work on, None for the work tree if all that the model saw is the same.

    Raises ConfigurationError if that has changed and the base had uncommitted changes.
    """
    from agent.repository import take_snapshot
    from agent.results.kept import changed_files

    origin = kept.origin
    now = take_snapshot(Path(origin.repository), exclude=[Path(origin.source)])
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


# --------------------------------------------------------------------------------------- agent demo

# Name of the folder of the bundled project. Only its files are part of the recorded prompt.
PROJECT = "rota"

# Settings of the recording. Other settings of the user would change the prompt, and the recorded
# reply would not match.
_RECORDED = {
    "model": "recorded", "embed": "off", "preset": "default", "context_tokens": 6000,
    "max_chunks": 30, "repairs": 1, "max_steps": 0,
}  # fmt: skip


@options.command(
    "demo",
    prints_record=True,
    ending="""
    Example:
      agent demo
    """,
)
@options.as_json
@options.quiet
@options.verbose
def demo_command(json: bool, quiet: bool, verbose: bool) -> int:
    """Run the main job on a bundled project, offline, with a recorded model reply."""
    package = Path(__file__).resolve().parents[2]
    examples = package / "_examples"  # in a wheel; beside the package in a checkout
    examples = examples if examples.is_dir() else package.parent / "examples"
    issue = common.load_problem(str(examples / PROJECT / "ISSUE.md"))
    with tempfile.TemporaryDirectory(prefix="patchshot-demo-") as folder:
        target = Path(folder) / PROJECT
        _make_repository(examples / PROJECT, target)
        if not quiet:
            say(f'demo: project "{PROJECT}", issue: {issue.title}; the reply is a recorded one')
        arguments = {"repo": target, "json": json, "quiet": quiet, "verbose": verbose}
        arguments["replay"] = examples / f"{PROJECT}.recording.jsonl"
        return solve_problem(issue, {"keep": False, **_RECORDED}, arguments)


def _make_repository(source: Path, target: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__", ".pytest_cache", "ISSUE.md")
    shutil.copytree(source, target, ignore=ignored)
    git = ["git", "-c", "user.name=demo", "-c", "user.email=demo@example.invalid"]
    git += ["-c", "init.defaultBranch=main", "-c", "commit.gpgsign=false"]
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "rota 1.4.0"]):
        try:
            subprocess.run(
                [*git, *arguments], cwd=target, check=True, capture_output=True, timeout=60
            )
        except FileNotFoundError:
            raise ConfigurationError("git is not installed: install it and try again") from None
