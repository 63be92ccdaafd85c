"""`agent apply`: reads and applies a saved model reply; no model call, no tests."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.commands.common import (
    guarded,
    load_snapshot,
    own_file,
    print_json,
    reporting,
    say,
    write_stdout,
)
from agent.commands.output import PatchFile, write_into_work_tree
from agent.errors import ConfigurationError, Status, UsageError
from agent.result import Attempt, Ledger, summarise
from agent.types import ApplyFailure, ParseFailure, ValidationReport, Verdict

if TYPE_CHECKING:
    from agent.protocols import Snapshot
    from agent.settings import Settings

# A reply larger than this is no reply; the largest models write under 1 MB.
MAX_REPLY_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ApplyRequest:
    """What is asked of one invocation, beside the settings."""

    reply: str
    repo: Path
    commit: str | None
    dirty: str
    output: Path | None
    write: bool
    json: bool
    quiet: bool


def run(request: ApplyRequest, flags: Mapping[str, Any]) -> int:
    """Apply, print, and give the exit code."""
    return guarded(lambda: _run(request, flags), json=request.json)


def _run(request: ApplyRequest, flags: Mapping[str, Any]) -> int:
    from agent.settings import load

    if request.write and request.commit:
        raise ConfigurationError("--apply needs the work tree as its base: leave out --commit")
    settings = load(flags, repository=request.repo)
    text = _read_reply(request.reply)
    output = PatchFile(request.output)
    ledger = Ledger(on_better=output.write)
    with reporting(quiet=request.quiet) as reporter:
        own = (own_file(request.reply), request.output)
        snapshot = load_snapshot(
            request.repo, request.commit, request.dirty, reporter, ledger, exclude=own
        )
        attempt = _attempt(text, snapshot, settings)
    ledger.record(attempt)
    status = _status(attempt)
    if request.write and status is Status.ACCEPTED and attempt.patch is not None:
        write_into_work_tree(attempt.patch, snapshot)
    if request.json:
        print_json(
            summarise(
                ledger,
                status=status,
                message=attempt.reason,
                commit=snapshot.commit,
                dirty=snapshot.dirty,
            )
        )
    elif attempt.patch is not None:
        write_stdout(attempt.patch.diff)
    if output.problem:
        say(f"note: {output.problem}")
    if status is not Status.ACCEPTED:
        say(f"agent: {status.value}: {attempt.reason}")
    return status.exit_code


def _attempt(text: str, snapshot: Snapshot, settings: Settings) -> Attempt:
    from agent.patching.applying import apply_proposal
    from agent.patching.parsing import parse_reply
    from agent.patching.syntax import check_syntax

    proposal = parse_reply(text)
    if isinstance(proposal, ParseFailure):
        return Attempt("saved-reply", parse_failure=proposal)
    applied = apply_proposal(
        proposal,
        snapshot,
        allow=settings.allow,
        include_test=settings.include_test,
        no_repair=settings.no_repair,
    )
    if isinstance(applied, ApplyFailure):
        return Attempt("saved-reply", proposal=proposal, apply_failure=applied)
    problems = check_syntax(applied.changes)
    if problems:
        reason = "; ".join(f"{p.path}:{p.line}: {p.message}" for p in problems)
        report = ValidationReport(Verdict.BROKEN_SYNTAX, reason, "none", problems)
        return Attempt("saved-reply", proposal=proposal, patch=applied, report=report)
    return Attempt("saved-reply", proposal=proposal, patch=applied)


def _status(attempt: Attempt) -> Status:
    """`apply` accepts what applies and parses: no test is part of the command."""
    return Status.ACCEPTED if attempt.patch and attempt.report is None else attempt.status


def _read_reply(source: str) -> str:
    try:
        if source == "-":
            data = sys.stdin.buffer.read(MAX_REPLY_BYTES + 1)
        else:
            with Path(source).open("rb") as file:
                data = file.read(MAX_REPLY_BYTES + 1)
    except OSError as error:
        raise UsageError(f"--reply {source}: {error.strerror or error}") from None
    if len(data) > MAX_REPLY_BYTES:
        raise UsageError(f"--reply {source}: larger than {MAX_REPLY_BYTES >> 20} MB")
    return data.decode("utf-8", "replace")
