"""Judge one prediction: apply the patches, prepare the environment, run the tests. Synchronous.

The tests run on the base with the test patch and the prediction. The files of the test patch are
written last, so that no prediction replaces them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from agent.datasets import InputProblem, Prediction, ScoringInstance
from agent.errors import ConfigurationError, RepositoryError
from agent.evaluation.patches.given_tests import Findings, GivenTests, Trees
from agent.evaluation.patches.report import (
    ErrorKind,
    PatchOutcome,
    Scored,
    key_of,
    read_scored,
    write_scored,
)
from agent.repository import (
    CommitTree,
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
    missing_tool,
)
from agent.verify.environments import Environment, Environments, surroundings
from sandbox import Sandbox, SandboxError, WorkspaceError, check_isolation, hide_programs


@dataclass(frozen=True, slots=True)
class Means:
    """Options and tools that all instances share. Without `environments`, tests use this machine's.

    `options` are those of a validation.
    """

    sandboxes: Sandboxes
    options: ValidationOptions
    environments: Environments | None = None

    def image(self, case: ScoringInstance) -> str:
        """Return the name of the image of an instance, "" for none."""
        return self.sandboxes.image(case.instance_id, case.repo, case.version)


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


def build_environments(
    orders: Iterable[Order | InputProblem], means: Means, cancel: threading.Event
) -> None:
    """Build what the instances need, so that none is judged if something cannot be built.

    Raises ConfigurationError, which names the table of the environments file.
    """
    for order in orders:
        if isinstance(order, InputProblem) or means.environments is None or cancel.is_set():
            continue
        environment = _environment(order.case, means)
        if environment is None or means.image(order.case):
            continue
        try:
            means.environments.build(environment)
        except ConfigurationError as error:
            if not cancel.is_set():
                table = f'[projects."{order.case.repo}"] (or its ranges, or [default])'
                raise ConfigurationError(f"--environments: {table}: {error}") from None


def score(order: Order, means: Means, folder: Path, cancel: threading.Event) -> Scored | None:
    """Judge one prediction, or return the result of the same prediction in its `folder`.

    Problems with the instance or its environment are in the result; None if `cancel` ended it.
    Raises OSError if the result cannot be written.
    """
    started = time.monotonic()
    try:
        scored, log = _scored(order, means, folder, cancel)
    except _Setback as back:
        scored, log = _result(order, back.outcome, error=back.error, reason=back.reason), back.log
    if scored.kept:
        return scored
    if cancel.is_set():
        return None
    scored = scored.model_copy(update={"seconds": round(time.monotonic() - started, 3)})
    write_scored(folder, scored, order.prediction.patch, log)
    return scored


def _scored(
    order: Order, means: Means, folder: Path, cancel: threading.Event
) -> tuple[Scored, str]:
    """Return the result and the log of its runs."""
    if not order.prediction.patch:
        raise _Setback("empty-patch", "no patch")
    if order.repository is None:
        raise _Setback("error", f"no repository of {order.case.repo} in --repos", "repository")
    try:
        with open_repository(order.repository) as git:
            commit = git.resolve(order.case.base_commit)
            trees = _trees(order, CommitTree(git, commit), commit)
        hide_programs(order.repository)
        snapshot = take_snapshot(order.repository, commit=commit)
    except RepositoryError as error:
        raise _Setback("error", str(error), "repository") from None
    environment = _environment(order.case, means)
    key = _key(order, means, environment)
    if (earlier := read_scored(folder, key)) is not None:
        return earlier, ""
    findings, words = _run(order, means, trees, snapshot, environment, cancel)
    return _of_findings(order, findings, key, words), findings.log


# ------------------------------------------------------------------------------------ preparation


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
    return Trees(tests, patch, gold if isinstance(gold, Patched) else None, tree.has)


def _applied(text: str, tree: CommitTree) -> Patched | str:
    """Return the changes of a patch, or why it does not apply."""
    if not text.strip():
        return Patched(())
    try:
        return apply_patch(text.encode("utf-8", "surrogatepass"), tree)
    except PatchError as error:
        return str(error)


def _environment(case: ScoringInstance, means: Means) -> Environment | None:
    if means.environments is None:
        return None
    return means.environments.environment(case.repo, case.version)


def _key(order: Order, means: Means, environment: Environment | None) -> str:
    options = means.options
    return key_of(
        {
            "patch": order.prediction.patch,
            "row": order.case.model_dump(mode="json"),
            "environment": environment.model_dump() if environment else "",
            "image": means.image(order.case),
            "python": [str(options.python or ""), options.virtual_env or ""],
            "test_cmd": options.test_cmd or "",
            "timeout": options.timeout,
        }
    )


def _without_steering(
    trees: Trees, snapshot: Snapshot, modules: Sequence[str]
) -> tuple[Trees, tuple[str, ...]]:
    """Leave out the changes that steer the tests: of tests, of configuration, and start-up files.

    What configures the tests stays if the row's own patch changes it too. `modules` are those of
    the interpreter.
    """
    patch = trees.patch
    allow = {change.path for change in trees.gold.changes} if trees.gold else set[str]()
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
    replaced = [change.path for change in patch.changes if change.path in own]
    notes += [f"{path} of the patch gave way to the test patch" for path in replaced]
    return replace(trees, patch=Patched(groups.source)), tuple(notes)


# --------------------------------------------------------------------------------------- the runs


def _run(
    order: Order,
    means: Means,
    trees: Trees,
    snapshot: Snapshot,
    environment: Environment | None,
    cancel: threading.Event,
) -> tuple[Findings, str]:
    """Run the tests. Return the findings and a description of the environment."""
    image = means.image(order.case)
    changed = [change.path for change in trees.patch.changes]
    try:
        sandbox = means.sandboxes.get(image)
        options, words = _options(order.case, means, snapshot, environment, image)
    except (ConfigurationError, SandboxError) as error:
        raise _Setback("error", str(error), "environment") from None
    try:
        with closing(SuiteExecutor(snapshot, sandbox, options, lambda _: None)) as executor:
            suite, tools = executor.suite(changed, cancel)
            problem = missing_tool(suite, tools)
            if problem:
                raise _Setback("error", problem, "environment")
            trees, notes = _without_steering(trees, snapshot, tools.modules)
            tests = GivenTests(executor, snapshot, suite, tools, order.case, trees, cancel)
            findings = tests.findings()
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
    options = replace(options, setup=surroundings(environment, snapshot, case.version))
    if image:
        return options, f"image {image}"
    python, words = means.environments.build(environment)
    return replace(options, python=python), words


# ------------------------------------------------------------------------------------- the result


def _result(order: Order, outcome: PatchOutcome, **more: object) -> Scored:
    values = {
        "instance_id": order.case.instance_id,
        "outcome": outcome,
        "patch_is_None": order.prediction.model_patch is None,
        "patch_exists": bool(order.prediction.patch),
        **more,
    }
    return Scored.model_validate(values)


def _of_findings(order: Order, findings: Findings, key: str, words: str) -> Scored:
    resolved = findings.tests_status.resolved and not findings.suspicion
    outcome: PatchOutcome = "resolved" if resolved else "unresolved"
    found = asdict(findings)
    del found["blame"], found["log"]
    more = {"resolved": resolved, "environment": words, "key": key, **found}
    return _result(order, outcome, patch_successfully_applied=True, **more)


class Sandboxes:
    """Provides a sandbox for each image, whose isolation was checked. Thread-safe."""

    def __init__(self, make: Callable[[str | None], Sandbox], template: str | None = None) -> None:
        """`make` takes an image or None. Raises ConfigurationError for an unknown field."""
        self._make = make
        self._template = template or ""
        self._lock = threading.Lock()
        self._checked: dict[str, Sandbox] = {}
        try:
            self.image("")
        except (LookupError, ValueError, AttributeError) as error:
            raise ConfigurationError(
                f"--image-template {template}: no field {error}; there are {{instance_id}}, "
                "{id_1776}, {repo} and {version}"
            ) from None

    def image(self, instance_id: str, repo: str = "", version: str = "") -> str:
        """Return the lower-case image name of an instance, "" for none."""
        name = instance_id.lower()
        return self._template.format(
            instance_id=name,
            id_1776=name.replace("__", "_1776_"),  # the names of SWE-bench's own images
            repo=repo.lower().replace("/", "__"),
            version=version,
        )

    def get(self, image: str) -> Sandbox:
        """Return the sandbox of an image; "" stands for none.

        Raises ConfigurationError and SandboxError if it cannot be used here.
        """
        with self._lock:
            if image not in self._checked:
                self._checked[image] = check_isolation(self._make(image or None))
            return self._checked[image]
