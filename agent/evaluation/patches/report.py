"""The report of an evaluation: the shape of the SWE-bench harness, and further fields.

An instance has `patch_is_None`, `patch_exists`, `patch_successfully_applied`, `resolved` and
`tests_status`. A run has counts, lists of ids, and `schema_version` 2. Source: the reports that
`swebench.harness.run_evaluation` writes, by their field names.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from agent.datasets import InputProblem, folder_name
from agent.errors import Status
from agent.results.kept import PATCH, VERDICT
from agent.types import Verdict

PatchOutcome = Literal["resolved", "unresolved", "empty-patch", "not-applied", "error"]

# "stopped" means stopped by the user. Such a result is not saved.
ErrorKind = Literal[
    "", "row", "repository", "test-patch", "environment", "sandbox", "crash", "stopped"
]

# The version number that the harness gives to reports of this shape.
SCHEMA_VERSION = 2


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class GivenIds(_Value):
    """The ids that met and that missed the expectation, in the order of the row."""

    success: tuple[str, ...] = ()
    failure: tuple[str, ...] = ()


class GivenStatus(_Value):
    """The given tests. The last two lists are always empty, as in the harness."""

    FAIL_TO_PASS: GivenIds = GivenIds()
    PASS_TO_PASS: GivenIds = GivenIds()
    FAIL_TO_FAIL: GivenIds = GivenIds()
    PASS_TO_FAIL: GivenIds = GivenIds()


class InstanceReport(_Value):
    """The fields of the harness for an instance."""

    patch_is_None: bool
    patch_exists: bool
    patch_successfully_applied: bool = False
    resolved: bool = False
    tests_status: GivenStatus | None = None


class DatasetCheck(_Value):
    """A check of the row itself, with its `problems` in words.

    `not_failing` are FAIL_TO_PASS ids that pass without any patch, `not_passing` PASS_TO_PASS ids
    that do not, `gold_failing` given ids that fail with the row's own patch. `gold` is None if the
    row has no patch.
    """

    not_failing: tuple[str, ...] = ()
    not_passing: tuple[str, ...] = ()
    gold: bool | None = None
    gold_failing: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class Scored(_Value):
    """The result of one instance.

    If `outcome` is "error", `error` is the kind of problem, and the patch was not judged. `absent`
    are given ids that are not in the run. `suspicion` says why the run is not credible; such an
    instance is not resolved. `key` identifies the inputs of the result. `kept` marks a result of an
    earlier run and is not written.
    """

    instance_id: str
    model: str = ""
    outcome: PatchOutcome
    error: ErrorKind = ""
    reason: str = ""
    report: InstanceReport
    check: DatasetCheck | None = None
    absent: tuple[str, ...] = ()
    suspicion: str = ""
    ended: str = ""
    environment: str = ""
    runner: str = ""
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    key: str = ""
    kept: bool = Field(default=False, exclude=True)


class OwnVerdict(_Value):
    """Status and verdict of `agent batch` for an instance, as in its verdict.json.

    `same_patch` says whether the prediction is the patch that `agent batch` judged.
    """

    status: str
    verdict: str | None
    same_patch: bool = True


class ShareWithInterval(_Value):
    """`count` of `total`, with Wilson's 95% interval of the share; None if `total` is 0."""

    count: int
    total: int
    share: float | None = None
    low: float | None = None
    high: float | None = None


class Confusion(_Value):
    """Our verdicts against the outcomes of the tests.

    `counts` has a row for each verdict and a column for each outcome. `verified_right` is the share
    of resolved among VERIFIED, `accepted_right` among accepted; `resolved_verified` is that of
    VERIFIED among resolved. Errors are in no share; a patch that does not apply or is empty is not
    resolved.
    """

    counts: Mapping[str, Mapping[str, int]] = Field(default_factory=dict)
    verified_right: ShareWithInterval
    accepted_right: ShareWithInterval
    resolved_verified: ShareWithInterval
    other_patches: int = 0


class InstanceEntry(InstanceReport):
    """The fields of the harness for an instance, and fields of this program."""

    outcome: PatchOutcome
    error: ErrorKind = ""
    reason: str = ""
    own: OwnVerdict | None = None
    check: DatasetCheck | None = None
    absent: tuple[str, ...] = ()
    suspicion: str = ""
    notes: tuple[str, ...] = ()
    environment: str = ""
    runner: str = ""
    seconds: float = 0.0


class RunReport(_Value):
    """The report of a run. The fields up to `schema_version` are those of the harness."""

    total_instances: int
    submitted_instances: int
    completed_instances: int
    resolved_instances: int
    unresolved_instances: int
    empty_patch_instances: int
    error_instances: int
    completed_ids: tuple[str, ...]
    incomplete_ids: tuple[str, ...]
    empty_patch_ids: tuple[str, ...]
    submitted_ids: tuple[str, ...]
    resolved_ids: tuple[str, ...]
    unresolved_ids: tuple[str, ...]
    error_ids: tuple[str, ...]
    schema_version: int = SCHEMA_VERSION
    not_applied_ids: tuple[str, ...] = ()
    invalid_ids: tuple[str, ...] = ()
    pending_ids: tuple[str, ...] = ()
    problems: tuple[InputProblem, ...] = ()
    instances: Mapping[str, InstanceEntry] = Field(default_factory=dict)
    confusion: Confusion | None = None
    resolved_share: ShareWithInterval
    seconds: float = 0.0


# 95% of the normal distribution is within this many standard deviations.
_Z = 1.959963984540054

NONE = "none"
"""The row of patches without a verdict."""

_ROWS = (*(verdict.value for verdict in Verdict), NONE)
_COLUMNS: tuple[PatchOutcome, ...] = (
    "resolved",
    "unresolved",
    "not-applied",
    "empty-patch",
    "error",
)


def read_own(run: Path, instance_id: str, patch: str) -> OwnVerdict | None:
    """Return the verdict of a run of `agent batch`, None if there is none that can be read."""
    folder = run / "instances" / folder_name(instance_id)
    try:
        data = json.loads((folder / VERDICT).read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(data, dict) or not isinstance(data.get("status"), str):
        return None
    verdict = data.get("verdict")
    try:
        judged = (folder / PATCH).read_bytes().decode("utf-8", "replace")
    except OSError:
        judged = ""
    same = judged.strip() == patch.strip()
    text = verdict if isinstance(verdict, str) else None
    return OwnVerdict(status=data["status"], verdict=text, same_patch=same)


def confusion(scored: Iterable[Scored], own: Mapping[str, OwnVerdict]) -> Confusion:
    """Count verdicts against outcomes, for verdicts of the patch that was evaluated."""
    counts: dict[str, dict[str, int]] = {row: _none_yet() for row in _ROWS}
    others, pairs = 0, []
    for one in scored:
        verdict = own.get(one.instance_id)
        if verdict is not None and not verdict.same_patch:
            others += 1
            continue
        row = (verdict.verdict if verdict else None) or NONE
        counts.setdefault(row, _none_yet())[one.outcome] += 1
        if one.outcome != "error" and verdict is not None:
            pairs.append((row, verdict.status, one.outcome == "resolved"))
    verified = [right for row, _, right in pairs if row == Verdict.VERIFIED]
    accepted = [right for _, status, right in pairs if status == Status.ACCEPTED]
    resolved = [row == Verdict.VERIFIED for row, _, right in pairs if right]
    return Confusion(
        counts={row: found for row, found in counts.items() if any(found.values())},
        verified_right=share(sum(verified), len(verified)),
        accepted_right=share(sum(accepted), len(accepted)),
        resolved_verified=share(sum(resolved), len(resolved)),
        other_patches=others,
    )


def _none_yet() -> dict[str, int]:
    return {str(outcome): 0 for outcome in _COLUMNS}


def share(count: int, total: int) -> ShareWithInterval:
    """Return a share with its 95% score interval.

    Source: Wilson, "Probable Inference, the Law of Succession, and Statistical Inference" (1927).
    """
    if not total:
        return ShareWithInterval(count=count, total=total)
    part, square = count / total, _Z * _Z
    middle = (part + square / (2 * total)) / (1 + square / total)
    spread = part * (1 - part) / total + square / (4 * total * total)
    half = _Z * math.sqrt(spread) / (1 + square / total)
    return ShareWithInterval(
        count=count,
        total=total,
        share=round(part, 6),
        low=round(max(0.0, middle - half), 6),
        high=round(min(1.0, middle + half), 6),
    )


_OURS = (
    "outcome", "error", "reason", "check", "absent", "suspicion", "notes", "environment", "runner",
    "seconds",
)  # fmt: skip


def make_report(
    ids: Sequence[str],
    submitted: Sequence[str],
    scored: Sequence[Scored],
    problems: Sequence[InputProblem],
    own: Mapping[str, OwnVerdict] | None,
    seconds: float,
) -> RunReport:
    """Return the report of the selected rows `ids`, in their order.

    `submitted` are the ids of predictions that count, `scored` the results in any order, `own` our
    verdicts by id, None without a run to compare with.
    """
    place = {name: number for number, name in enumerate(ids)}
    ordered = sorted(scored, key=lambda one: place[one.instance_id])

    def names(*outcomes: str) -> tuple[str, ...]:
        return tuple(one.instance_id for one in ordered if one.outcome in outcomes)

    done = {one.instance_id for one in ordered}
    sent = sorted(submitted, key=place.__getitem__)
    completed, empty = names("resolved", "unresolved"), names("empty-patch")
    errors = names("not-applied", "error")  # the harness counts both as errors
    return RunReport(
        total_instances=len(ids),
        submitted_instances=len(sent),
        completed_instances=len(completed),
        resolved_instances=len(names("resolved")),
        unresolved_instances=len(names("unresolved")),
        empty_patch_instances=len(empty),
        error_instances=len(errors),
        completed_ids=completed,
        incomplete_ids=tuple(name for name in ids if name not in set(sent)),
        empty_patch_ids=empty,
        submitted_ids=tuple(sent),
        resolved_ids=names("resolved"),
        unresolved_ids=names("unresolved"),
        error_ids=errors,
        not_applied_ids=names("not-applied"),
        invalid_ids=tuple(o.instance_id for o in ordered if o.check and o.check.problems),
        pending_ids=tuple(name for name in sent if name not in done),
        problems=tuple(problems),
        instances={one.instance_id: _entry(one, own) for one in ordered},
        confusion=None if own is None else confusion(ordered, own),
        resolved_share=share(
            len(names("resolved")),
            len(names("resolved", "unresolved", "not-applied", "empty-patch")),
        ),
        seconds=round(seconds, 3),
    )


def _entry(one: Scored, own: Mapping[str, OwnVerdict] | None) -> InstanceEntry:
    ours = {name: getattr(one, name) for name in _OURS}
    verdict = None if own is None else own.get(one.instance_id)
    return InstanceEntry.model_validate({**dict(one.report), **ours, "own": verdict})
