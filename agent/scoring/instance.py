"""One instance: its trees, its runs, and what they say of the prediction. Synchronous.

Trees: the base with the test patch (for checks), that with the row's own patch (for checks), that
with the prediction. The files of the test patch are written last: no prediction brings its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from agent.environments.history import history_of
from agent.environments.preparing import Environments, Prepared, digest_of
from agent.environments.spec import Environment
from agent.errors import ConfigurationError, RepositoryError
from agent.protocols import Snapshot
from agent.repository.git import GitRepository, open_repository
from agent.repository.snapshot import take_snapshot
from agent.scoring.applying import Patched, apply_patch
from agent.scoring.keeping import Keeper, key_of
from agent.scoring.predictions import Prediction
from agent.scoring.recording import RecordingSandbox
from agent.scoring.report import ErrorKind, InstanceReport, Outcome, Scored
from agent.scoring.rows import Case
from agent.scoring.runs import Findings, Trees, judge_runs
from agent.scoring.sandboxes import Sandboxes
from agent.scoring.trees import CommitTree
from agent.scoring.unidiff import PatchError
from agent.scoring.workbench import open_workbench
from agent.validation.layout import steers_tests
from agent.validation.running.bench import ValidationOptions
from agent.validation.running.held import share_out
from agent.validation.running.plan import import_roots
from sandbox.types import SandboxError
from sandbox.workspace import WorkspaceError


@dataclass(frozen=True, slots=True)
class Means:
    """What all instances share. `environments` None: tests run in what is found on this machine.

    `options` are those of a validation. `check`: the rows themselves are checked too.
    """

    sandboxes: Sandboxes
    options: ValidationOptions
    environments: Environments | None = None
    check: bool = False


@dataclass(frozen=True, slots=True)
class Order:
    """One prediction to judge. `repository` None: there is none of the project."""

    case: Case
    prediction: Prediction
    repository: Path | None


class _Setback(Exception):
    """A way out of nested steps; it never leaves this module."""

    def __init__(self, outcome: Outcome, reason: str, error: ErrorKind = "") -> None:
        super().__init__(reason)
        self.outcome: Outcome = outcome
        self.reason = reason
        self.error: ErrorKind = error


def score(order: Order, means: Means, keeper: Keeper, cancel: threading.Event) -> Scored:
    """Judge one prediction, or give what was kept of the same one.

    What is wrong with the instance or its environment is in the result. Raises OSError when the
    result cannot be kept.
    """
    started = time.monotonic()
    try:
        scored, fresh = _scored(order, means, keeper, cancel)
    except _Setback as back:
        fresh = True
        error: ErrorKind = "stopped" if back.outcome == "error" and cancel.is_set() else back.error
        scored = _result(order, back.outcome, error=error, reason=back.reason)
    if fresh and scored.error != "stopped":
        seconds = round(time.monotonic() - started, 3)
        scored = scored.model_copy(update={"seconds": seconds})
        keeper.write(scored, order.prediction.patch)
    return scored


def _scored(
    order: Order, means: Means, keeper: Keeper, cancel: threading.Event
) -> tuple[Scored, bool]:
    """The result, and whether it is new."""
    if not order.prediction.patch:
        raise _Setback("empty-patch", "no patch")
    with _commit(order) as (git, commit):
        trees = _trees(order, CommitTree(git, commit), commit)
        environment = _environment(order.case, means, git, commit)
    image = means.sandboxes.image(order.case.instance_id, order.case.repo, order.case.version)
    key = _key(order, means, environment, image)
    kept = keeper.read(key)
    if kept is not None:
        return kept.model_copy(update={"kept": True}), False
    snapshot = _snapshot(order, commit)
    trees, notes = _without_startup_files(trees, snapshot)
    log = keeper.open_log()
    findings, words = _run(order, means, trees, snapshot, environment, image, log, cancel)
    if cancel.is_set():
        raise _Setback("error", "stopped before its end", "stopped")
    return _of_findings(order, findings, key, words, (*notes, *findings.notes)), True


# ------------------------------------------------------------------------------------ preparation


@contextmanager
def _commit(order: Order) -> Iterator[tuple[GitRepository, str]]:
    """The repository and the full id of the base commit."""
    if order.repository is None:
        raise _Setback("error", f"no repository of {order.case.repo} in --repos", "repository")
    try:
        with open_repository(order.repository) as git:
            yield git, git.resolve(order.case.base_commit)
    except RepositoryError as error:
        raise _Setback("error", str(error), "repository") from None


def _trees(order: Order, tree: CommitTree, commit: str) -> Trees:
    case = order.case
    tests = _applied(case.test_patch, tree)
    if isinstance(tests, str):
        raise _Setback(
            "error", f"test_patch does not apply to {commit[:10]}: {tests}", "test-patch"
        )
    patch = _applied(order.prediction.patch, tree)
    if isinstance(patch, str):
        raise _Setback("not-applied", patch)
    gold = _applied(case.patch, tree) if case.patch else None
    return Trees(tests, patch, gold, tree.has)


def _applied(text: str | None, tree: CommitTree) -> Patched | str:
    """The changes of a patch, or why it does not apply."""
    if not text or not text.strip():
        return Patched(())
    try:
        return apply_patch(text.encode("utf-8", "surrogatepass"), tree)
    except PatchError as error:
        return str(error)


def _environment(case: Case, means: Means, git: GitRepository, commit: str) -> Environment | None:
    if means.environments is None:
        return None
    holds = history_of(git, commit)
    return means.environments.environment(case.repo, case.version, holds=holds)


def _key(order: Order, means: Means, environment: Environment | None, image: str) -> str:
    options = means.options
    return key_of(
        {
            "patch": order.prediction.patch,
            "row": order.case.model_dump(mode="json"),
            "environment": digest_of(environment) if environment else "",
            "image": image,
            "python": [str(options.python or ""), options.virtual_env or ""],
            "test_cmd": options.test_cmd or "",
            "timeout": options.timeout,
            "check": means.check,
        }
    )


def _snapshot(order: Order, commit: str) -> Snapshot:
    assert order.repository is not None
    try:
        return take_snapshot(order.repository, commit=commit)
    except RepositoryError as error:
        raise _Setback("error", str(error), "repository") from None


def _without_startup_files(trees: Trees, snapshot: Snapshot) -> tuple[Trees, tuple[str, ...]]:
    """What would run by itself in any process is in no run; what steers tests is told."""
    changes = trees.patch.changes
    shares = share_out(changes, snapshot.exists, import_roots(snapshot, changes))
    left_out = {change.path for change in shares.never}
    notes = [f"left out of the run: {path} would run by itself" for path in sorted(left_out)]
    notes += [f"left out of the run: {what}" for what in trees.patch.left_out]
    steering = sorted(c.path for c in changes if steers_tests(c.path) and c.path not in left_out)
    notes += [f"the patch changes how tests are run: {path}" for path in steering]
    own = {change.path for change in trees.tests.changes}
    notes += [
        f"{change.path} of the patch gave way to the test patch"
        for change in changes
        if change.path in own
    ]
    kept = tuple(change for change in changes if change.path not in left_out)
    return replace(trees, patch=Patched(kept)), tuple(notes)


# --------------------------------------------------------------------------------------- the runs


def _run(
    order: Order,
    means: Means,
    trees: Trees,
    snapshot: Snapshot,
    environment: Environment | None,
    image: str,
    log: Path,
    cancel: threading.Event,
) -> tuple[Findings, str]:
    """What the runs say, and the environment in words."""
    try:
        sandbox = means.sandboxes.get(image)
        options, words = _options(order.case, means, snapshot, environment, image)
    except (ConfigurationError, SandboxError) as error:
        raise _Setback("error", str(error), "environment") from None
    recording = RecordingSandbox(sandbox, log)
    changed = [change.path for change in trees.patch.changes]
    try:
        with open_workbench(snapshot, trees.exists, recording, options, changed, cancel) as bench:
            problem = bench.problem(named=environment is not None)
            if problem:
                raise _Setback("error", problem, "environment")
            findings = judge_runs(bench, order.case, trees, recording.say, check=means.check)
    except WorkspaceError as error:
        raise _Setback("not-applied", str(error)) from None
    except ConfigurationError as error:
        raise _Setback("error", str(error), "environment") from None
    except SandboxError as error:
        raise _Setback("error", str(error), "sandbox") from None
    if findings.blame:
        raise _Setback("error", findings.blame, "environment")
    return findings, words


def _options(
    case: Case, means: Means, snapshot: Snapshot, environment: Environment | None, image: str
) -> tuple[ValidationOptions, str]:
    options = means.options
    if environment is None or means.environments is None:
        return options, f"image {image}" if image else "found on this machine"
    if image:
        around = means.environments.surroundings(environment, snapshot, case.version)
        return replace(options, surroundings=around), f"image {image}"
    prepared: Prepared = means.environments.prepare(environment, snapshot, case.version)
    chosen = replace(options, python=prepared.python, surroundings=prepared.surroundings)
    return chosen, prepared.words


# ------------------------------------------------------------------------------------- the result


def _result(order: Order, outcome: Outcome, **more: object) -> Scored:
    prediction = order.prediction
    report = InstanceReport(
        patch_is_None=prediction.model_patch is None, patch_exists=bool(prediction.patch)
    )
    values = {
        "instance_id": order.case.instance_id,
        "model": prediction.model_name_or_path,
        "outcome": outcome,
        "report": report,
        **more,
    }
    return Scored.model_validate(values)


def _of_findings(
    order: Order, found: Findings, key: str, words: str, notes: Sequence[str]
) -> Scored:
    resolved = found.judged.resolved and not found.suspicion
    report = InstanceReport(
        patch_is_None=False,
        patch_exists=True,
        patch_successfully_applied=True,
        resolved=resolved,
        tests_status=found.judged.status,
    )
    return _result(
        order,
        "resolved" if resolved else "unresolved",
        reason=found.reason,
        report=report,
        check=found.check,
        absent=found.judged.absent,
        suspicion=found.suspicion,
        ended=found.ended,
        environment=words,
        runner=found.runner,
        notes=tuple(notes),
        key=key,
    )
