"""Commands about a patch that is there already: `agent apply`, `agent verify`, `agent undo`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from agent.cli import options
from agent.cli.commands import common, output
from agent.errors import ConfigurationError, RepositoryError, Status, UsageError
from agent.run.attempts import Attempt
from agent.run.record import Ledger, make_record
from agent.shared.terminal import listed, say
from agent.types import AppliedPatch, FileChange, Problem, ValidationReport, Verdict

if TYPE_CHECKING:
    from agent.repository import TreeFile
    from agent.results.kept import KeptRun
    from agent.run.record import RunRecord
    from agent.settings import Settings
    from agent.types.protocols import Snapshot

# The largest models write replies under 1 MB, so a larger file is not a reply.
MAX_REPLY_BYTES = 16 * 1024 * 1024


@options.command(
    "apply",
    settings=options.PATCH_SETTINGS,
    prints_record=True,
    ending="""
    Example:
      agent apply 3f2a --branch fix-123 --pr
      agent apply --reply reply.json --repo ./target | git apply
    """,
)
@click.argument("run", required=False)
@options.text("--reply", "TEXT", "A saved model reply; `-` for stdin.")
@options.base
@options.delivery
@options.as_json
@options.quiet
def apply_command(
    flags: Mapping[str, Any], run: str | None, reply: str | None, **given: Any
) -> int:
    """Apply a kept run or a saved model reply; no model call, no tests.

    RUN is the beginning of an id in `agent runs`: its patch is written into the work tree that it
    was made for, or into --repo; with --branch it is committed instead. A reply (--reply) is read
    and applied, its syntax is checked, and the diff is printed; --apply writes it.
    """
    if run is not None and reply is None:
        source = click.get_current_context().get_parameter_source("repo")
        repo = None if source is ParameterSource.DEFAULT else given["repo"]
        return _apply_run(run, repo, flags, given)
    if run is not None or reply is None:
        raise UsageError("name a kept run (see `agent runs`), or give --reply")
    return _apply_reply(reply, flags, given)


def _apply_run(
    name: str, repo: Path | None, flags: Mapping[str, Any], given: Mapping[str, Any]
) -> int:
    """Write the patch of a kept run into the work tree or on a branch, for any verdict."""
    kept = common.find_kept(name)
    if given["commit"] or given["output"] or given["dirty"] != "include":
        raise ConfigurationError("a run is applied to the work tree: give --repo and --allow only")
    if kept.diff is None:
        why = "held a secret, which is not kept" if kept.result and kept.result.diff else "is empty"
        raise ConfigurationError(f"the patch of run {kept.id} {why}: there is nothing to apply")
    repo = repo or Path(kept.origin.repository)
    settings = common.load_settings(flags, repository=repo)
    output.check_publication(given)
    with common.reporting(quiet=given["quiet"]) as reporter:
        snapshot = common.load_snapshot({"repo": repo}, settings, reporter)
        if given["branch"] is None:
            output.check_work_tree(snapshot.root, reporter, without_edits=False)
    with_test = output.includes_test(settings, given)
    patch = _kept_patch(kept, kept.diff, snapshot, settings.allow, with_test=with_test)
    ended = kept.result or make_record(Ledger(), status=Status.INTERRUPTED, message="not finished")
    commit = kept.origin.commit
    plan = output.prepare_publication(given, snapshot.root, commit, resumed=True)
    if plan is not None:
        issue = Problem(kept.origin.title, "", kept.origin.source)
        shown = ended.model_copy(update={"issue": issue, "dirty": kept.origin.dirty})
        delivery = output.publish_patch(plan, patch, shown, run=kept.id)
    else:
        delivery = output.write_into_work_tree(patch, snapshot.root, run=kept.id)
    record = delivery.described(_record(Ledger(), Status.ACCEPTED, delivery.message, snapshot))
    if given["json"]:
        diff = kept.diff.decode("utf-8", "replace")
        common.print_record(record.model_copy(update={"diff": diff}))
    if delivery.failed:
        say(f"agent: {record.status.value}: {delivery.message}")
    elif not given["quiet"]:
        accepted = ended.status is Status.ACCEPTED
        note = "" if accepted else f" (its run ended as {ended.status.value})"
        say(f"{delivery.message}{note}")
    return record.exit_code


def _record(ledger: Ledger, status: Status, message: str, snapshot: Snapshot) -> RunRecord:
    return make_record(
        ledger, status=status, message=message, commit=snapshot.commit, dirty=snapshot.dirty
    )


def _kept_patch(
    kept: KeptRun, diff: bytes, snapshot: Snapshot, allow: Collection[str], *, with_test: bool
) -> AppliedPatch:
    """Return the patch of a diff, on the files of the run's commit if it fits them.

    Otherwise it is made for the uncommitted changes of the work tree. A kept diff is as little
    trusted as a reply: the same paths are refused. Raises RepositoryError, ConfigurationError.
    """
    from agent.patching import RefusedPath, check_path
    from agent.repository import CommitTree, PatchError, apply_patch, open_repository

    with open_repository(snapshot.root) as git:
        for tree in (CommitTree(git, kept.origin.commit), _WorkTree(snapshot)):
            try:
                changes = apply_patch(diff, tree).changes
                break
            except (PatchError, RepositoryError) as error:
                reason = error
        else:
            raise RepositoryError(
                f"the patch of run {kept.id} does not fit {snapshot.root} ({reason})"
            )
    test = kept.result.reproduction_test if kept.result is not None and with_test else None
    if test is not None and not {test.path} & {*snapshot.files, *(one.path for one in changes)}:
        changes = (*changes, FileChange(test.path, None, test.content.encode()))
    for change in changes:
        checked = check_path(change.path, allow=allow, new=change.before is None)
        if isinstance(checked, RefusedPath):
            raise ConfigurationError(f"{change.path}: {checked.reason} (--allow permits it)")
    return AppliedPatch(changes, diff, ())


class _WorkTree:
    """The files of a snapshot as what a diff is applied to."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def get(self, path: str) -> TreeFile | None:
        from agent.repository import EXECUTABLE_MODE, TreeFile

        if path not in self._snapshot.files:
            return None
        data, executable = self._snapshot.read(path), self._snapshot.files[path].executable
        return TreeFile(data, EXECUTABLE_MODE) if executable else TreeFile(data)

    def is_folder(self, path: str) -> bool:
        return any(name.startswith(f"{path}/") for name in self._snapshot.files)


def _apply_reply(reply: str, flags: Mapping[str, Any], given: Mapping[str, Any]) -> int:
    if given["branch"] is not None or given["commit_message"] is not None or given["pr"]:
        raise ConfigurationError("--branch needs a kept run: name one of `agent runs`")
    repo, write = given["repo"], given["apply"]
    if write and given["commit"]:
        raise ConfigurationError("--apply needs the work tree as its base: leave out --commit")
    settings = common.load_settings(flags, repository=repo)
    text = _read_reply(reply, "--reply")
    file = output.PatchFile(given["output"])
    ledger = Ledger(on_better=file.write)
    with common.reporting(quiet=given["quiet"]) as reporter:
        snapshot = common.load_snapshot({**given, "reply": reply}, settings, reporter, ledger)
        if write:
            without_edits = given["dirty"] == "ignore"
            output.check_work_tree(snapshot.root, reporter, without_edits=without_edits)
        attempt = _attempt(text, snapshot, settings)
    ledger.record(attempt)
    # A patch that applies and parses is accepted: no test is run.
    accepted = attempt.patch is not None and attempt.report is None
    status = Status.ACCEPTED if accepted else attempt.status
    record = _record(ledger, status, attempt.reason, snapshot)
    delivery = None
    if write and accepted and attempt.patch is not None:
        delivery = output.write_into_work_tree(attempt.patch, snapshot.root)
        record = delivery.described(record)
    if given["json"]:
        common.print_record(record)
    elif attempt.patch is not None:
        common.write_diff(attempt.patch.diff)
    if file.problem:
        say(f"note: {file.problem}")
    if record.status is not Status.ACCEPTED:
        say(f"agent: {record.status.value}: {record.message}")
    elif delivery is not None and not given["quiet"]:
        say(delivery.message)
    return record.exit_code


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


def _read_reply(source: str, option: str) -> str:
    """Read a reply or a diff from a file or, for `-`, from stdin. Raises UsageError."""
    try:
        with click.open_file(source, "rb") as file:
            data: bytes = file.read(MAX_REPLY_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{option} {source}: {error.strerror or error}") from None
    if len(data) > MAX_REPLY_BYTES:
        raise UsageError(f"{option} {source}: larger than {MAX_REPLY_BYTES >> 20} MB")
    return data.decode("utf-8", "replace")


@options.command(
    "verify",
    settings=options.CHECK_SETTINGS,
    prints_record=True,
    ending="""
    Examples, the first with a diff made by `git diff main > fix.diff`:
      agent verify fix.diff --commit main --problem issue.md
      agent verify --base main --head HEAD --problem owner/name#123

    --evidence independent, with a model and --problem, adds a test that a model
    writes from the issue alone. The patch may bring the test that shows the
    fault. --test names it if there are several. Exit codes are those of
    `agent solve`.
    """,
)
@click.argument("patch", metavar="DIFF", required=False)
@options.text("--diff", "TEXT", "The patch, as DIFF: a file, or `-` for stdin.")
@options.text("--base", "REF", "In place of DIFF: judge what --head changed since it left REF.")
@options.text(
    "--head", "REF", "The commit to judge with --base.", default="HEAD", show_default=True
)
@options.text("--problem", "TEXT", "The issue, which helps to choose tests: a file, `-`, or a URL.")
@options.text("--test", "PATH", "The test file of the patch that shows the fault.")
@options.base
@options.scope
@options.tests
@options.as_json
@options.quiet
def verify_command(
    flags: Mapping[str, Any],
    patch: str | None,
    diff: str | None,
    base: str | None,
    head: str,
    problem: str | None,
    json: bool,
    quiet: bool,
    **given: Any,
) -> int:
    """Judge a patch: apply it in the sandbox and run the tests before and after."""
    from agent.api import verify

    source = common.one_of("the patch", "agent verify DIFF, or --diff or --base", patch, diff, base)
    if source == "-" == problem:
        raise ConfigurationError("--diff and --problem cannot both be read from stdin")
    if base is None:
        judged: str | AppliedPatch = _read_reply(source, "--diff")
    elif given["commit"]:
        raise ConfigurationError("--base says what the patch begins at: leave out --commit")
    else:
        judged, given["commit"] = _range(given["repo"], base, head)
    text = common.load_problem(problem).text if problem else ""
    with common.reporting(quiet=quiet) as reporter:
        record = verify(judged, problem=text, on_event=reporter, **given, **flags)
    accept = bool(flags.get("accept_unverified"))
    record = record.as_printed(accept_unverified=accept, redact=common.make_redactor())
    if json:
        common.print_record(record)
    if not quiet:
        for attempt in record.attempts:
            for note in attempt.validation.notes if attempt.validation is not None else ():
                say(f"note: {note}")
    if not quiet or record.status is not Status.ACCEPTED:
        say(common.in_words(record, has_patch=False))
    return record.exit_code


def _range(repo: Path, base: str, head: str) -> tuple[AppliedPatch, str]:
    """Return what `head` changed since it left `base`, and that commit. Raises RepositoryError."""
    from agent.patching import unified_diff
    from agent.repository import changes_between, open_repository

    with open_repository(repo) as git:
        start, changes = changes_between(git, base, head)
    if not changes:
        raise RepositoryError(f"{head} changes no file since it left {base}: nothing to judge")
    return AppliedPatch(changes, unified_diff(changes), ()), start


@options.command(
    "undo",
    ending="""
    Example:
      agent undo 3f2a
    """,
)
@click.argument("run", required=False, default="", metavar="[RUN]")
@options.repo
@options.as_json
@options.quiet
def undo_command(run: str, repo: Path, json: bool, quiet: bool) -> int:
    """Take back what the last --apply, or that of RUN, wrote; files changed since are not touched.

    If one has changed since, nothing is written.
    """
    from agent.repository import locate_repository
    from agent.results import journal_folder
    from agent.results.work_tree import undo_changes

    root = locate_repository(repo).root
    with common.reporting(quiet=quiet) as reporter:
        common.finish_writes(root, reporter)
    outcome = undo_changes(root, journal_folder(), run=run)
    conflicts = {conflict.path: conflict.reason for conflict in outcome.conflicts}
    words = f"restored {listed(outcome.written)}\n"
    if conflicts:
        words = f"{output.conflicts_in_words(outcome)}\n"
    facts = {"restored": list(outcome.written), "conflicts": conflicts}
    common.print_result(facts, words, json=json)
    return Status.NOT_APPLIED.exit_code if outcome.conflicts else 0
