"""`agent apply`: apply a kept run or a saved model reply, without a call and without tests."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from agent.cli.commands.common import (
    fail,
    guarded,
    load_settings,
    load_snapshot,
    own_file,
    print_json,
    reporting,
    write_diff,
)
from agent.cli.commands.output import (
    PatchFile,
    asked_publication,
    check_work_tree,
    publish_patch,
    write_into_work_tree,
)
from agent.cli.options import (
    PATCH_SETTINGS,
    branch_options,
    json_option,
    patch_output_option,
    quiet_option,
    repo_options,
    write_option,
)
from agent.cli.options import (
    command as declare,
)
from agent.errors import ConfigurationError, RepositoryError, Status, UsageError
from agent.run.attempts import Attempt
from agent.run.record import Ledger, make_record
from agent.shared.terminal import say
from agent.types import AppliedPatch, Problem, ValidationReport, Verdict

if TYPE_CHECKING:
    from agent.cli.commands.output import Delivery
    from agent.repository import TreeFile
    from agent.results.kept import KeptRun
    from agent.results.publishing import Publication
    from agent.settings import Settings
    from agent.types import FileChange
    from agent.types.protocols import Snapshot

# The largest models write replies under 1 MB, so a larger file is not a reply.
MAX_REPLY_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ApplyRequest:
    """Arguments of `agent apply` that are not settings."""

    reply: str | None
    repo: Path | None
    commit: str | None
    dirty: str
    output: Path | None
    write: bool
    json: bool
    quiet: bool
    run: str | None = None
    branch: str | None = None
    commit_message: str | None = None
    pr: bool = False


def run(request: ApplyRequest, flags: Mapping[str, Any]) -> int:
    """Apply the run or the reply, print the result, and return the exit code."""
    if (request.run is None) == (request.reply is None):
        message = "name a kept run (see `agent runs`), or give --reply"
        return fail(Status.USAGE, message, json=request.json)
    apply = _apply_reply if request.run is None else _apply_run
    return guarded(lambda: apply(request, flags), json=request.json, flags=flags)


def _apply_run(request: ApplyRequest, flags: Mapping[str, Any]) -> int:
    """Write the patch of a kept run into the work tree, for any verdict."""
    from agent.results.kept import find_run, runs_folder

    kept = find_run(runs_folder(), request.run)
    if request.commit or request.output or request.dirty != "include":
        raise ConfigurationError("a run is applied to the work tree: give --repo and --allow only")
    if kept.diff is None:
        why = "held a secret, which is not kept" if kept.result and kept.result.diff else "is empty"
        raise ConfigurationError(f"the patch of run {kept.id} {why}: there is nothing to apply")
    repo = request.repo or Path(kept.origin.repository)
    settings = load_settings(flags, repository=repo)
    wanted = asked_publication(request.branch, request.commit_message, pr=request.pr)
    with reporting(quiet=request.quiet) as reporter:
        snapshot = load_snapshot(repo, None, "include", reporter, settings=settings)
        if wanted is None:
            check_work_tree(snapshot.root, reporter, without_edits=False)
    patch = AppliedPatch(_changes(kept, kept.diff, snapshot, settings.allow), kept.diff, ())
    if wanted is not None:
        delivery = _publish(kept, patch, snapshot, wanted)
    else:
        delivery = write_into_work_tree(patch, snapshot.root, run=kept.id)
    status = Status.NOT_APPLIED if delivery.failed else Status.ACCEPTED
    if request.json:
        result = make_record(
            Ledger(),
            status=status,
            message=delivery.message,
            commit=snapshot.commit,
            dirty=snapshot.dirty,
        )
        written = {"written": list(delivery.written), "diff": kept.diff.decode("utf-8", "replace")}
        print_json(result.model_copy(update={**written, "published": delivery.published}))
    if delivery.failed:
        say(f"agent: {status.value}: {delivery.message}")
    elif not request.quiet:
        ended = kept.result.status if kept.result else Status.INTERRUPTED
        note = "" if ended is Status.ACCEPTED else f" (its run ended as {ended.value})"
        say(f"{delivery.message}{note}")
    return status.exit_code


def _publish(
    kept: KeptRun, patch: AppliedPatch, snapshot: Snapshot, wanted: Publication
) -> Delivery:
    """Commit the patch on top of the commit of its run, whatever its verdict was."""
    from agent.results.publishing import prepare

    plan = prepare(wanted, snapshot.root, kept.origin.commit, resumed=True)
    issue = Problem(kept.origin.title, "", kept.origin.source)
    result = kept.result or make_record(Ledger(), status=Status.INTERRUPTED, message="not finished")
    result = result.model_copy(update={"issue": issue, "dirty": kept.origin.dirty})
    return publish_patch(plan, patch, result, run=kept.id)


def _changes(
    kept: KeptRun, diff: bytes, snapshot: Snapshot, allow: Collection[str]
) -> tuple[FileChange, ...]:
    """Return the changes of a diff, on the files of the run's commit if it fits them.

    Otherwise it is made for the uncommitted changes of the work tree. A kept diff is as little
    trusted as a reply: the same paths are refused. Raises RepositoryError, ConfigurationError.
    """
    from agent.patching import RefusedPath, check_path
    from agent.repository import CommitTree, PatchError, apply_patch, open_repository

    try:
        with open_repository(snapshot.root) as git:
            changes = apply_patch(diff, CommitTree(git, kept.origin.commit)).changes
    except (PatchError, RepositoryError):
        try:
            changes = apply_patch(diff, _WorkTree(snapshot)).changes
        except PatchError as error:
            raise RepositoryError(
                f"the patch of run {kept.id} does not fit {snapshot.root} ({error})"
            ) from None
    for change in changes:
        checked = check_path(change.path, allow=allow, new=change.before is None)
        if isinstance(checked, RefusedPath):
            raise ConfigurationError(f"{change.path}: {checked.reason} (--allow permits it)")
    return changes


class _WorkTree:
    """The files of a snapshot as what a diff is applied to."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def get(self, path: str) -> TreeFile | None:
        from agent.repository import EXECUTABLE_MODE, TreeFile

        if path not in self._snapshot.files:
            return None
        data = self._snapshot.read(path)
        executable = (self._snapshot.root / path).lstat().st_mode & 0o100
        return TreeFile(data, EXECUTABLE_MODE) if executable else TreeFile(data)

    def is_folder(self, path: str) -> bool:
        return any(name.startswith(f"{path}/") for name in self._snapshot.files)


def _apply_reply(request: ApplyRequest, flags: Mapping[str, Any]) -> int:
    assert request.reply is not None
    if request.branch is not None or request.commit_message is not None or request.pr:
        raise ConfigurationError("--branch needs a kept run: name one of `agent runs`")
    repo = request.repo or Path()
    if request.write and request.commit:
        raise ConfigurationError("--apply needs the work tree as its base: leave out --commit")
    settings = load_settings(flags, repository=repo)
    text = read_reply(request.reply, "--reply")
    output = PatchFile(request.output)
    ledger = Ledger(on_better=output.write)
    with reporting(quiet=request.quiet) as reporter:
        own = (own_file(request.reply), request.output)
        snapshot = load_snapshot(
            repo,
            request.commit,
            request.dirty,
            reporter,
            ledger,
            settings=settings,
            exclude=own,
        )
        if request.write:
            check_work_tree(snapshot.root, reporter, without_edits=request.dirty == "ignore")
        attempt = _attempt(text, snapshot, settings)
    ledger.record(attempt)
    status = _status(attempt)
    reason, delivery = attempt.reason, None
    if request.write and status is Status.ACCEPTED and attempt.patch is not None:
        delivery = write_into_work_tree(attempt.patch, snapshot.root, output=request.output)
        if delivery.failed:
            status, reason = Status.NOT_APPLIED, delivery.message
    if request.json:
        print_json(
            make_record(
                ledger,
                status=status,
                message=reason,
                commit=snapshot.commit,
                dirty=snapshot.dirty,
            ).model_copy(update={"written": list(delivery.written if delivery else ())})
        )
    elif attempt.patch is not None:
        write_diff(attempt.patch.diff)
    if output.problem:
        say(f"note: {output.problem}")
    if status is not Status.ACCEPTED:
        say(f"agent: {status.value}: {reason}")
    elif delivery is not None and not request.quiet:
        say(delivery.message)
    return status.exit_code


def _attempt(text: str, snapshot: Snapshot, settings: Settings) -> Attempt:
    from agent.patching import check_syntax
    from agent.wiring import apply_reply

    attempt = apply_reply(text, snapshot, settings, include_test=settings.include_test)
    problems = check_syntax(attempt.patch.changes) if attempt.patch is not None else ()
    if problems:
        reason = "; ".join(f"{p.path}:{p.line}: {p.message}" for p in problems)
        report = ValidationReport(Verdict.BROKEN_SYNTAX, reason, "none", problems)
        return replace(attempt, report=report)
    return attempt


def _status(attempt: Attempt) -> Status:
    """Return the exit status: the command accepts a patch that applies and parses, and runs no
    tests.
    """
    return Status.ACCEPTED if attempt.patch and attempt.report is None else attempt.status


def read_reply(source: str, option: str) -> str:
    """Read a reply or a diff from a file or, for `-`, from stdin. Raises UsageError."""
    try:
        if source == "-":
            data = sys.stdin.buffer.read(MAX_REPLY_BYTES + 1)
        else:
            with Path(source).open("rb") as file:
                data = file.read(MAX_REPLY_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{option} {source}: {error.strerror or error}") from None
    if len(data) > MAX_REPLY_BYTES:
        raise UsageError(f"{option} {source}: larger than {MAX_REPLY_BYTES >> 20} MB")
    return data.decode("utf-8", "replace")


@declare(
    "apply",
    settings=PATCH_SETTINGS,
    ending="""
    Example:
      agent apply 3f2a
      agent apply 3f2a --branch fix-123 --pr
      agent apply --reply reply.json --repo ./target | git apply
    """,
)
@click.argument("run", required=False)
@click.option("--reply", help="A saved model reply; `-` for stdin.")
@repo_options
@patch_output_option
@write_option
@branch_options
@json_option
@quiet_option
def command(flags: Mapping[str, Any], apply: bool, repo: Path, **given: Any) -> int:
    """Apply a kept run or a saved model reply; no model call, no tests.

    RUN is the beginning of an id in `agent runs`: its patch is written into the work tree that it
    was made for, or into --repo; with --branch it is committed instead. A reply (--reply) is read
    and applied, its syntax is checked, and the diff is printed; --apply writes it.
    """
    named = click.get_current_context().get_parameter_source("repo") is not ParameterSource.DEFAULT
    return run(ApplyRequest(write=apply, repo=repo if named else None, **given), flags)
