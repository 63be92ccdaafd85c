"""Deliver patches: to a file, with `--apply` to the work tree, and with `--branch` to a branch."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.cli.commands.common import find_kept, make_redactor
from agent.errors import ConfigurationError, PatchshotError, RepositoryError, Status
from agent.shared.files import replace_file
from agent.shared.terminal import counted, listed
from agent.types.events import Notice

if TYPE_CHECKING:
    from agent.results.publishing import PublicationPlan
    from agent.results.work_tree import WriteOutcome
    from agent.run.record import Published, RunRecord
    from agent.settings import Settings
    from agent.types import AppliedPatch, FileChange
    from agent.types.protocols import Reporter, Snapshot

_PRINTED = "the diff is in what was printed"


class PatchFile:
    """The file of `--output`, replaced atomically with each better patch.

    `problem` says why the last write failed, "" if it succeeded. A full disk does not end the run.
    """

    def __init__(self, path: Path | None) -> None:
        """Raises ConfigurationError if `path` cannot be written."""
        if path is not None and not path.parent.is_dir():
            raise ConfigurationError(f"--output {path}: there is no folder {path.parent}")
        if path is not None and path.is_dir():
            raise ConfigurationError(f"--output {path}: is a folder, not a file")
        self._path = path
        self.problem = ""

    def write(self, patch: AppliedPatch) -> None:
        """Replace the file. A failure is recorded in `problem`."""
        path, self.problem = self._path, ""
        try:
            if path is not None and path.exists() and not path.is_file():
                path.write_bytes(patch.diff)  # a pipe or /dev/stderr cannot be replaced
            elif path is not None:
                replace_file(path, (patch.diff,))
        except OSError as error:
            self.problem = f"--output {path} could not be written: {error.strerror}"


@dataclass(frozen=True, slots=True)
class Delivery:
    """What became of a patch that was to be written: the files or the branch, and a sentence."""

    message: str
    written: tuple[str, ...] = ()
    failed: bool = False
    published: Published | None = None

    def described(self, record: RunRecord) -> RunRecord:
        """Return the record with what became of its patch."""
        update: dict[str, object] = {"written": self.written, "published": self.published}
        if self.failed:
            status = Status.NOT_APPLIED
            update |= {"status": status, "exit_code": status.exit_code, "message": self.message}
        return record.model_copy(update=update)


def includes_test(settings: Settings, given: Mapping[str, Any]) -> bool:
    """Whether the reproduction test joins the patch: by default only on a branch."""
    if "include_test" in settings.model_fields_set:
        return settings.include_test
    return given.get("branch") is not None


def check_publication(given: Mapping[str, Any]) -> None:
    """Raise ConfigurationError for options of a branch that do not fit together."""
    message = given.get("commit_message")
    if given.get("branch") is None and (message is not None or given.get("pr")):
        option = "--pr" if given.get("pr") else "--commit-message"
        raise ConfigurationError(f"{option} needs a name for the branch: give --branch too")
    if message is not None and not message.strip():
        raise ConfigurationError("--commit-message is empty: leave it out for one of the issue")


def prepare_publication(
    given: Mapping[str, Any], root: Path, commit: str, *, resumed: bool = False
) -> PublicationPlan | None:
    """Find out before a model call is paid whether the patch can be published as asked for.

    Raises ConfigurationError, RepositoryError and ForgeError.
    """
    if given.get("branch") is None:
        return None
    from agent.results.publishing import Publication, prepare

    message = given["commit_message"]
    text = f"{message.strip()}\n" if message else ""
    return prepare(Publication(given["branch"], text, given["pr"]), root, commit, resumed=resumed)


def announce_publication(plan: PublicationPlan, snapshot: Snapshot, reporter: Reporter) -> None:
    """Say what the commit will not have, and where a pull request goes."""
    if snapshot.dirty:
        names = listed(sorted(snapshot.overlay()))
        text = f"the commit will not have your uncommitted edits ({names}); see --dirty ignore"
        reporter(Notice(text, "warning"))
    if plan.forge is not None:
        target = f"{plan.forge.place}, branch {plan.target}"
        reporter(Notice(f"an accepted patch becomes a pull request to {target}"))


def publish_patch(
    plan: PublicationPlan, patch: AppliedPatch, result: RunRecord, *, run: str
) -> Delivery:
    """Commit a patch on a branch, and push and request it if the plan says so. Never raises."""
    from agent.results.publishing import publish

    shown = result.model_copy(update={"thought": make_redactor()(result.thought)})
    outcome = publish(plan, patch.changes, shown)
    made, failure = outcome.published, make_redactor()(outcome.failure)
    if made is None:
        return Delivery(f"{failure}; {_PRINTED}", failed=True)
    message = f"committed {made.commit[:10]} on branch {made.branch}"
    if made.pull_request and run:
        with contextlib.suppress(OSError, PatchshotError):  # `agent retry --pr` finds it there
            find_kept(run).keep_pull_request(made.pull_request)
    if failure:
        again = shlex.join(["agent", "apply", run, "--branch", made.branch, "--pr"])
        how = f"; to go on: {again}" if run else ""
        return Delivery(f"{message}, but {failure}{how}", failed=True, published=made)
    opened = f"; opened {made.pull_request}" if made.pull_request else ""
    return Delivery(f"{message}{opened}", published=made)


def check_work_tree(root: Path, reporter: Reporter, *, without_edits: bool) -> None:
    """Find out before a model call is paid whether `--apply` can write.

    `without_edits`: the patch is made without the uncommitted edits. Raises RepositoryError
    or ConfigurationError.
    """
    from agent.repository import changed_paths
    from agent.results import journal_folder

    if not os.access(root, os.W_OK):
        raise RepositoryError(f"--apply: {root} cannot be written; leave --apply out for the diff")
    journal = journal_folder()
    with contextlib.suppress(OSError):
        journal.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not os.access(journal, os.W_OK):
        raise ConfigurationError(
            f"--apply keeps what `agent undo` needs in {journal}, which cannot be written: "
            "set XDG_STATE_HOME to a folder that can"
        )
    if without_edits and (edited := changed_paths(root)):
        text = (
            f"the patch will be made without your uncommitted edits ({listed(edited)}); --apply "
            "merges it with them, and writes nothing if they overlap"
        )
        reporter(Notice(text, "warning"))


def write_into_work_tree(patch: AppliedPatch, root: Path, *, run: str = "") -> Delivery:
    """Write a patch into the work tree, all files or none. Never raises an `Exception`."""
    from agent.results import journal_folder
    from agent.results.work_tree import apply_changes

    try:
        outcome = apply_changes(patch.changes, root, journal_folder(), run=run)
    except Exception as error:  # noqa: BLE001  (a bug must not lose a diff that was paid for)
        why = str(error) if isinstance(error, PatchshotError) else repr(error)
        return Delivery(f"{why}; {_PRINTED}", failed=True)
    if outcome.conflicts:
        message = f"{conflicts_in_words(outcome)}; {_PRINTED}"
        return Delivery(message, outcome.written, failed=True)
    if not outcome.written:
        return Delivery("the files have this content already")
    undo = "agent undo"
    if not Path.cwd().is_relative_to(root):
        undo += f" --repo {shlex.quote(str(root))}"
    message = f"wrote {_files(outcome.written)}; undo with {undo}"
    if outcome.merged:
        names = listed(outcome.merged)
        message += f"; your own edits in {names} are kept, and no test ran with them"
    return Delivery(message, outcome.written)


def conflicts_in_words(outcome: WriteOutcome) -> str:
    """Return why nothing was written, or what is half-written."""
    reasons = "; ".join(f"{conflict.path} {conflict.reason}" for conflict in outcome.conflicts)
    if outcome.written:
        return f"only {_files(outcome.written)} could be written: {reasons}"
    return f"nothing was written: {reasons}"


def changed_lines(patch: AppliedPatch) -> str:
    """Return the files of a patch with how many lines it adds and removes in each."""
    from agent.patching import unified_diff

    def described(change: FileChange) -> str:
        starts = [line[:1] for line in unified_diff((change,)).split(b"\n@@", 1)[-1].splitlines()]
        return f"{change.path} +{starts.count(b'+')} -{starts.count(b'-')}"

    return listed([described(change) for change in patch.changes])


def _files(paths: Sequence[str]) -> str:
    return f"{counted(len(paths), 'file')}: {listed(paths)}"
