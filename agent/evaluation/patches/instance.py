"""Judge one prediction: apply the patches, prepare the environment, run the tests. Synchronous.

The tests run on the base with the test patch and the prediction. To check the row, they also run
without the prediction and with the row's own patch. The files of the test patch are written last,
so that no prediction replaces them.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from agent.datasets import Prediction, ScoringInstance
from agent.errors import ConfigurationError, RepositoryError
from agent.evaluation.patches.given_tests import (
    Findings,
    GivenTests,
    Trees,
    why_no_tests,
)
from agent.evaluation.patches.report import (
    ErrorKind,
    PatchOutcome,
    ResultFolder,
    Scored,
    key_of,
)
from agent.repository import (
    CommitTree,
    GitRepository,
    Patched,
    PatchError,
    apply_patch,
    open_repository,
    take_snapshot,
)
from agent.types.protocols import Snapshot
from agent.verify import (
    SuiteExecutor,
    ValidationOptions,
    group_changes,
    import_roots,
)
from agent.verify.environments import (
    Environment,
    Environments,
    Prepared,
    digest_environment,
)
from sandbox import Sandbox, SandboxError, WorkspaceError, check_isolation, hide_programs


@dataclass(frozen=True, slots=True)
class Means:
    """Options and tools that all instances share. Without `environments`, tests use this machine's.

    `options` are those of a validation.
    """

    sandboxes: Sandboxes
    options: ValidationOptions
    environments: Environments | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """One prediction to judge. `repository` is None if this machine has no copy of the project."""

    case: ScoringInstance
    prediction: Prediction
    repository: Path | None


class _Setback(Exception):
    """Ends nested steps with an outcome. It is always caught in this module."""

    def __init__(
        self, outcome: PatchOutcome, reason: str, error: ErrorKind = "", log: str = ""
    ) -> None:
        super().__init__(reason)
        self.outcome: PatchOutcome = outcome
        self.reason = reason
        self.error: ErrorKind = error
        self.log = log


def score(order: Order, means: Means, folder: ResultFolder, cancel: threading.Event) -> Scored:
    """Judge one prediction, or return the kept result of the same prediction.

    Problems with the instance or its environment are in the result. Raises OSError if the result
    cannot be written.
    """
    started = time.monotonic()
    try:
        scored, log = _scored(order, means, folder, cancel)
    except _Setback as back:
        log = back.log
        error: ErrorKind = "stopped" if back.outcome == "error" and cancel.is_set() else back.error
        scored = _result(order, back.outcome, error=error, reason=back.reason)
    if log is not None and scored.error != "stopped":
        seconds = round(time.monotonic() - started, 3)
        scored = scored.model_copy(update={"seconds": seconds})
        folder.write(scored, order.prediction.patch, log)
    return scored


def _scored(
    order: Order, means: Means, folder: ResultFolder, cancel: threading.Event
) -> tuple[Scored, str | None]:
    """Return the result and the log of its runs; no log for the kept result of an earlier run."""
    if not order.prediction.patch:
        raise _Setback("empty-patch", "no patch")
    with _commit(order) as (git, commit):
        trees = _trees(order, CommitTree(git, commit), commit)
    environment, case = None, order.case
    if means.environments is not None:
        environment = means.environments.environment(case.repo, case.version)
    image = means.sandboxes.image(order.case.instance_id, order.case.repo, order.case.version)
    key = _key(order, means, environment, image)
    kept = folder.read(key)
    if kept is not None:
        return kept.model_copy(update={"kept": True}), None
    snapshot = _snapshot(order, commit)
    findings, words = _run(order, means, trees, snapshot, environment, image, cancel)
    if cancel.is_set():
        raise _Setback("error", "stopped before its end", "stopped")
    return _of_findings(order, findings, key, words), findings.log


# ------------------------------------------------------------------------------------ preparation


@contextmanager
def _commit(order: Order) -> Iterator[tuple[GitRepository, str]]:
    """Open the repository. Yield it and the full id of the base commit."""
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
    """Return the changes of a patch, or why it does not apply."""
    if not text or not text.strip():
        return Patched(())
    try:
        return apply_patch(text.encode("utf-8", "surrogatepass"), tree)
    except PatchError as error:
        return str(error)


def _key(order: Order, means: Means, environment: Environment | None, image: str) -> str:
    options = means.options
    return key_of(
        {
            "patch": order.prediction.patch,
            "row": order.case.model_dump(mode="json"),
            "environment": digest_environment(environment) if environment else "",
            "image": image,
            "python": [str(options.python or ""), options.virtual_env or ""],
            "test_cmd": options.test_cmd or "",
            "timeout": options.timeout,
        }
    )


def _snapshot(order: Order, commit: str) -> Snapshot:
    assert order.repository is not None
    hide_programs(order.repository)
    try:
        return take_snapshot(order.repository, commit=commit)
    except RepositoryError as error:
        raise _Setback("error", str(error), "repository") from None


def _without_steering(
    trees: Trees, snapshot: Snapshot, modules: Sequence[str]
) -> tuple[Trees, tuple[str, ...]]:
    """Leave out the changes that steer the tests: of tests, of configuration, and start-up files.

    What configures the tests stays if the row's own patch changes it too. `modules` are those of
    the interpreter.
    """
    patch, gold = trees.patch, trees.gold
    allow = {c.path for c in gold.changes} if isinstance(gold, Patched) else set[str]()
    roots = import_roots(snapshot, patch.changes)
    groups = group_changes(patch.changes, snapshot, roots, allow=allow, installed=modules)
    own = {change.path for change in trees.tests.changes}
    why = {change.path: "would run by itself" for change in groups.excluded}
    why.update(groups.hiding)
    why.update({change.path: "belongs to the tests" for change in groups.tests})
    why.update({path: f"steers the tests ({reason})" for path, reason in groups.held.items()})
    notes = [f"left out of the run: {path} {why[path]}" for path in sorted(why.keys() - own)]
    notes += [f"left out of the run: {what}" for what in patch.left_out]
    lifted = groups.lifted.items()
    notes += [f"the row's own patch changes {path} too: {reason}" for path, reason in lifted]
    notes += [
        f"{change.path} of the patch gave way to the test patch"
        for change in patch.changes
        if change.path in own
    ]
    return replace(trees, patch=Patched(groups.source)), tuple(notes)


# --------------------------------------------------------------------------------------- the runs


def _run(
    order: Order,
    means: Means,
    trees: Trees,
    snapshot: Snapshot,
    environment: Environment | None,
    image: str,
    cancel: threading.Event,
) -> tuple[Findings, str]:
    """Run the tests. Return the findings and a description of the environment."""
    try:
        sandbox = means.sandboxes.get(image)
        options, words = _options(order.case, means, snapshot, environment, image)
    except (ConfigurationError, SandboxError) as error:
        raise _Setback("error", str(error), "environment") from None
    changed = [change.path for change in trees.patch.changes]
    try:
        with closing(SuiteExecutor(snapshot, sandbox, options, lambda _: None)) as executor:
            suite, tools = executor.suite(changed, cancel)
            problem = why_no_tests(suite, tools, named=environment is not None)
            if problem:
                raise _Setback("error", problem, "environment")
            trees, notes = _without_steering(trees, snapshot, tools.modules)
            findings = GivenTests(
                executor, snapshot, suite, tools, order.case, trees, cancel
            ).findings()
    except WorkspaceError as error:
        raise _Setback("not-applied", str(error)) from None
    except ConfigurationError as error:
        raise _Setback("error", str(error), "environment") from None
    except SandboxError as error:
        raise _Setback("error", str(error), "sandbox") from None
    if findings.blame:
        raise _Setback("error", findings.blame, "environment", findings.log)
    return replace(findings, notes=(*notes, *findings.notes)), words


def _options(
    case: ScoringInstance,
    means: Means,
    snapshot: Snapshot,
    environment: Environment | None,
    image: str,
) -> tuple[ValidationOptions, str]:
    options = means.options
    if environment is None or means.environments is None:
        return options, f"image {image}" if image else "found on this machine"
    if image:
        around = means.environments.surroundings(environment, snapshot, case.version)
        return replace(options, setup=around), f"image {image}"
    prepared: Prepared = means.environments.prepare(environment, snapshot, case.version)
    chosen = replace(options, python=prepared.python, setup=prepared.surroundings)
    return chosen, prepared.words


# ------------------------------------------------------------------------------------- the result


def _result(order: Order, outcome: PatchOutcome, **more: object) -> Scored:
    prediction = order.prediction
    values = {
        "instance_id": order.case.instance_id,
        "model": prediction.model_name_or_path,
        "outcome": outcome,
        "patch_is_None": prediction.model_patch is None,
        "patch_exists": bool(prediction.patch),
        **more,
    }
    return Scored.model_validate(values)


def _of_findings(order: Order, findings: Findings, key: str, words: str) -> Scored:
    resolved = findings.judged.resolved and not findings.suspicion
    return _result(
        order,
        "resolved" if resolved else "unresolved",
        reason=findings.reason,
        patch_successfully_applied=True,
        resolved=resolved,
        tests_status=findings.judged.status,
        absent=findings.judged.absent,
        suspicion=findings.suspicion,
        ended=findings.ended,
        environment=words,
        runner=findings.runner,
        notes=findings.notes,
        key=key,
    )


_FIELD = re.compile(r"\{([^{}]*)\}")
_FIELDS = ("instance_id", "id_1776", "repo", "version")


class Sandboxes:
    """Provides sandboxes whose isolation was checked: one for all instances, or one for each image.

    Thread-safe.
    """

    def __init__(self, make: Callable[[str | None], Sandbox], template: str | None = None) -> None:
        """`make` takes an image or None. Raises ConfigurationError for an unknown field."""
        for name in _FIELD.findall(template or ""):
            if name not in _FIELDS:
                raise ConfigurationError(
                    f"--image-template {template}: no field {{{name}}}; there are "
                    + ", ".join(f"{{{field}}}" for field in _FIELDS)
                )
        self._make = make
        self._template = template
        self._lock = threading.Lock()
        self._one_for_all = not _FIELD.search(template or "")
        self._known: dict[str, Sandbox] = {}

    def image(self, instance_id: str, repo: str = "", version: str = "") -> str:
        """Return the lower-case image name of an instance, "" for none."""
        name = instance_id.lower()
        values = {
            "instance_id": name,
            "id_1776": name.replace("__", "_1776_"),  # the names of SWE-bench's own images
            "repo": repo.lower().replace("/", "__"),
            "version": version,
        }
        return _FIELD.sub(lambda match: values[match[1]], self._template or "")

    def get(self, image: str) -> Sandbox:
        """Return the sandbox of an image; "" stands for none.

        Raises ConfigurationError and SandboxError if it cannot be used here.
        """
        if not self._one_for_all:
            return check_isolation(self._make(image))
        with self._lock:
            if image not in self._known:
                self._known[image] = check_isolation(self._make(image or None))
            return self._known[image]
