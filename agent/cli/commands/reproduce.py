"""`agent reproduce`: from an issue to a test that fails on the base for the issue's reason."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from agent.cli import options
from agent.cli.commands import common, output
from agent.cli.commands.solve import check_model, finished, kept_run
from agent.errors import ConfigurationError, Status
from agent.run.record import Ledger, RunRecord
from agent.run.reproducing import as_patch, write_test
from agent.shared.terminal import say
from agent.types import AppliedPatch

if TYPE_CHECKING:
    from agent.results.kept import RunKeeper
    from agent.types.protocols import Snapshot


@options.command(
    "reproduce",
    settings=options.REPRODUCE_SETTINGS,
    rare=("problem", "commit", "dirty", "output", "record", "replay", "verbose", "project"),
    prints_record=True,
    ending="""
    Examples:
      agent reproduce issue.md --repo ./target > test.diff
      agent reproduce owner/name#123 --apply

    One call, and a second one with what went wrong if the first test passes on
    the base or fails by a mistake of its own.

    Exit codes: 0 the test fails for the issue's reason, 2 usage, 3 no test in
    the reply, 6 no test that shows the issue, 7 time limit, 8 budget,
    9 provider, 10 sandbox, 11 no test could be run, 130 interrupted.
    """,
)
@click.argument("issue", required=False)
@options.text("--problem", "TEXT", "The issue, as ISSUE but not as text.")
@options.base
@options.path("--output -o", "Also write the diff here.")
@options.flag("--apply", "Write the test into the work tree, if it shows the issue.")
@options.as_record
@options.quiet
@options.verbose
@options.scope
@options.text("--project", "OWNER/NAME", "The target's name in the file of --environments.")
@options.path("--record", "Save every model exchange to this file.")
@options.path("--replay", "Answer from a recorded file, offline.")
def reproduce_command(
    flags: Mapping[str, Any], issue: str | None, problem: str | None, **given: Any
) -> int:
    """Write a test that fails for the issue's reason; a diff that adds it goes to stdout.

    ISSUE is as for `agent solve`. The model sees the issue and code, and no patch.
    """
    source = common.one_of("the issue", "agent reproduce ISSUE, or --problem", issue, problem)
    if given["apply"] and given["commit"]:
        raise ConfigurationError("--apply needs the work tree as its base: leave out --commit")
    text = common.load_problem(source, text=issue is not None)
    settings = common.load_settings(flags, repository=given["repo"])
    check_model(settings, given["replay"])
    file = output.PatchFile(given["output"])
    ledger = Ledger()
    with (
        common.reporting(quiet=given["quiet"], verbose=given["verbose"]) as reporter,
        ExitStack() as stack,
    ):
        snapshot = common.load_snapshot({**given, "problem": source}, settings, reporter, ledger)
        if given["apply"]:
            output.check_work_tree(snapshot.root, reporter, without_edits=False)
        keeper: RunKeeper | None = None
        if settings.keep:
            told = ("reproduce", settings.temperature, given["replay"])
            keeper = stack.enter_context(kept_run(text, snapshot, reporter, flags, given, *told))

        async def run() -> RunRecord:
            from agent.wiring import open_services, solve_options

            async with open_services(
                settings,
                text,
                snapshot,
                reporter,
                ledger,
                record=given["record"],
                replay=given["replay"],
                gate=keeper.gate if keeper else None,
                streaming=sys.stderr.isatty() and not given["quiet"],
                project=given["project"],
            ) as parts:
                return await write_test(text, snapshot, parts, solve_options(settings), ledger)

        record = finished(run(), ledger)
        record = record.as_printed(accept_unverified=False, redact=common.make_redactor())
        patch = as_patch(record.reproduction_test) if record.reproduction_test else None
        if keeper is not None:
            keeper.end(record, patch)
    return _deliver(record, patch, snapshot, given, keeper.id if keeper else "", file)


def _deliver(
    record: RunRecord,
    patch: AppliedPatch | None,
    snapshot: Snapshot,
    given: Mapping[str, Any],
    run: str,
    file: output.PatchFile,
) -> int:
    last_line = common.in_words(record, has_patch=patch is not None)
    if patch is not None:
        file.write(patch)
    if patch is not None and given["apply"] and record.status is Status.ACCEPTED:
        delivery = output.write_into_work_tree(patch, snapshot.root, run=run)
        record = delivery.described(record)
        say(delivery.message)
    if given["json"]:
        common.print_record(record)
    elif patch is not None:
        common.write_diff(patch.diff)
    if file.problem:
        say(f"note: {file.problem}; the diff is in what was printed")
    if not given["quiet"] or record.status is not Status.ACCEPTED:
        say(last_line)
    return record.exit_code
