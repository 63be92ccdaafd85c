"""`agent retry`: go on from a kept run with a comment of the user, for one call."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agent.cli.commands.common import guarded, own_file
from agent.cli.commands.solve import GoingOn, SolveRequest, solve_problem
from agent.cli.options import (
    SOLVE_SETTINGS,
    branch_options,
    json_option,
    patch_output_option,
    quiet_option,
    verbose_option,
    write_option,
)
from agent.cli.options import command as declare
from agent.errors import ConfigurationError

if TYPE_CHECKING:
    from agent.llm.recording import ChatExchange
    from agent.results.kept import KeptRun
    from agent.run.pipeline import OpenPrompt

# Settings that a retry takes over from the command line of its run. Those that lift a protection,
# name a server or write files are left out: a file is not what gives leave for them.
_TAKEN_OVER = (
    "model", "include_test", "tests", "test_cmd", "test_timeout", "setup_cmd", "python",
    "environments", "image",
)  # fmt: skip
_TASK = ("path", "project", "fail_to_pass", "pass_to_pass", "tests_from")


def retry(prefix: str, comment: str, request: Mapping[str, Any], flags: Mapping[str, Any]) -> int:
    """Go on from the run, print the result, and return the exit code."""
    json = bool(request["json"])
    return guarded(lambda: _run(prefix, comment, request, flags), json=json)


def _run(prefix: str, comment: str, request: Mapping[str, Any], flags: Mapping[str, Any]) -> int:
    from agent.results.kept import find_run, runs_folder

    if not comment.strip():
        raise ConfigurationError("--comment is empty: say what is to be changed")
    kept = find_run(runs_folder(), prefix)
    commit = _base(kept)
    if commit is not None and request["apply"]:
        raise ConfigurationError(
            f"{kept.origin.repository} has changed since run {kept.id}: leave out --apply, and "
            "apply the result with `agent apply RUN`"
        )
    going_on = GoingOn(kept, comment, _opening(kept, comment))
    before = kept.origin.settings
    taken = {name: value for name, value in before.items() if name in _TAKEN_OVER}
    task = {name: before[name] for name in _TASK if name in before}
    for name in ("path", "tests_from"):
        if name in task:
            task[name] = Path(task[name])
    solve = SolveRequest(
        problem=kept.origin.source,
        repo=Path(kept.origin.repository),
        commit=commit,
        **task,
        **request,
    )
    once = {"max_steps": 0}  # one call: the user judges what fails after it
    return solve_problem(
        lambda: kept.problem,
        solve,
        {**once, **taken, **flags},
        going_on,
    )


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
    from agent.types import Message

    last = _last_whole_reply(kept)
    result = kept.result
    made = result.attempts if result else []
    attempts = [attempt for attempt in made if attempt.kind != "another-test"]
    stepwise = bool(attempts) and attempts[-1].kind == "iterative"
    return partial(
        retry_prompt,
        tuple(Message(m.role, m.content) for m in last.request.messages),
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


@declare(
    "retry",
    settings=SOLVE_SETTINGS,
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
def command(run: str, comment: str, flags: Mapping[str, Any], **given: Any) -> int:
    """Go on from a kept run with a comment: the same context and replies, and one more call.

    RUN is the beginning of its id in `agent runs`. The work tree may have changed if the run began
    without uncommitted changes; its commit is then the base. Exit codes are those of `agent solve`.
    """
    return retry(run, comment, given, flags)
