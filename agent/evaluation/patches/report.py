"""The report of an evaluation: the shape of the SWE-bench harness, and further fields.

An instance has `patch_is_None`, `patch_exists`, `patch_successfully_applied`, `resolved` and
`tests_status`. A run has counts, lists of ids, and `schema_version` 2. Source: the reports that
`swebench.harness.run_evaluation` writes, by their field names.

The folder with the results of an evaluation, which a later one continues.

FOLDER/instances/ID/result.json       the result (`Scored`), with the key of its inputs
FOLDER/instances/ID/report.json       the report of one instance in the shape of the harness
FOLDER/instances/ID/patch.diff        the prediction
FOLDER/instances/ID/test_output.txt   the output of the test runs
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent.datasets import InputProblem, folder_name
from agent.errors import Status
from agent.results.kept import PATCH, read_result
from agent.shared.files import replace_file
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


class OwnVerdict(_Value):
    """Status and verdict of `agent batch` for an instance, as in its verdict.json.

    `same_patch` says whether the prediction is the patch that `agent batch` judged.
    """

    status: str
    verdict: str | None
    same_patch: bool = True


_OF_HARNESS = (
    "patch_is_None", "patch_exists", "patch_successfully_applied", "resolved", "tests_status",
)  # fmt: skip


class Scored(_Value):
    """The result of one instance, with the fields that the harness has for it.

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
    patch_is_None: bool = False
    patch_exists: bool = False
    patch_successfully_applied: bool = False
    resolved: bool = False
    tests_status: GivenStatus | None = None
    own: OwnVerdict | None = None
    absent: tuple[str, ...] = ()
    suspicion: str = ""
    ended: str = ""
    environment: str = ""
    runner: str = ""
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    key: str = ""
    kept: bool = Field(default=False, exclude=True)

    def of_harness(self) -> dict[str, Any]:
        """Return the report as the harness writes it, without tests if none could run."""
        return self.model_dump(mode="json", include=set(_OF_HARNESS), exclude_none=True)


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
    pending_ids: tuple[str, ...] = ()
    problems: tuple[InputProblem, ...] = ()
    instances: Mapping[str, Scored] = Field(default_factory=dict)
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
    record = read_result(folder)
    if record is None:
        return None
    try:
        judged = (folder / PATCH).read_bytes().decode("utf-8", "replace")
    except OSError:
        judged = ""
    same = judged.strip() == patch.strip()
    return OwnVerdict(status=record.status.value, verdict=record.verdict, same_patch=same)


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
        pending_ids=tuple(name for name in sent if name not in done),
        problems=tuple(problems),
        instances={
            one.instance_id: one.model_copy(update={"own": (own or {}).get(one.instance_id)})
            for one in ordered
        },
        confusion=None if own is None else confusion(ordered, own),
        resolved_share=share(
            len(names("resolved")),
            len(names("resolved", "unresolved", "not-applied", "empty-patch")),
        ),
        seconds=round(seconds, 3),
    )


# ---------------------------------------------------------------------------------- as text

_MOST_LINES = 40
_REASON = 140
_MARKS = {"resolved": "✓", "unresolved": "✗", "not-applied": "✗", "empty-patch": "–", "error": "!"}


def render(report: RunReport) -> str:
    """Return the report as text."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: RunReport) -> Iterator[str]:
    yield (
        f"{report.submitted_instances} predictions for {report.total_instances} instances: "
        f"{report.resolved_instances} resolved, {report.unresolved_instances} unresolved, "
        f"{len(report.not_applied_ids)} did not apply, "
        f"{report.empty_patch_instances} without a patch, "
        f"{report.error_instances - len(report.not_applied_ids)} could not be evaluated"
        + (f", {len(report.pending_ids)} still to be done" if report.pending_ids else "")
    )
    if report.resolved_share.total:
        yield f"resolved: {in_words(report.resolved_share)} of all that could be evaluated"
    yield ""
    yield from _instances(report)
    if report.confusion is not None:
        yield ""
        yield from _verdicts(report.confusion)
    if report.problems:
        yield ""
        yield f"entries that do not count ({len(report.problems)}):"
        yield from (f"  {p.place}: {p.reason}" for p in report.problems[:_MOST_LINES])
        yield from _more(len(report.problems))


def _instances(report: RunReport) -> Iterator[str]:
    shown = list(report.instances.items())[:_MOST_LINES]
    width = max((len(name) for name, _ in shown), default=0)
    for name, entry in shown:
        verdict = f" [{entry.own.verdict or entry.own.status}]" if entry.own else ""
        reason = entry.reason if len(entry.reason) <= _REASON else entry.reason[:_REASON] + "…"
        yield f"{_MARKS[entry.outcome]} {name.ljust(width)}  {entry.outcome}{verdict}  {reason}"
    yield from _more(len(report.instances))


def _more(total: int) -> Iterator[str]:
    if total > _MOST_LINES:
        yield f"  and {total - _MOST_LINES} more (the report has all)"


def _verdicts(found: Confusion) -> Iterator[str]:
    columns = [
        c for c in ("resolved", "unresolved", "not-applied", "empty-patch", "error")
        if any(row.get(c) for row in found.counts.values())
    ]  # fmt: skip
    rows = [[row, *(str(counts[c]) for c in columns)] for row, counts in found.counts.items()]
    yield from _table(["our verdict", *columns], rows)
    yield f"VERIFIED and resolved: {in_words(found.verified_right)}"
    yield f"accepted and resolved: {in_words(found.accepted_right)}"
    yield f"resolved and VERIFIED: {in_words(found.resolved_verified)}"
    if found.other_patches:
        yield f"{found.other_patches} verdicts are of other patches than these and are left out"


def in_words(share: ShareWithInterval) -> str:
    """Return the share as text, such as "3 of 4 (75.0%, 95% interval 30.1–95.4%)"."""
    if share.share is None or share.low is None or share.high is None:
        return f"{share.count} of {share.total}"
    low, high = 100 * share.low, 100 * share.high
    return (
        f"{share.count} of {share.total} ({100 * share.share:.1f}%, "
        f"95% interval {low:.1f}–{high:.1f}%)"
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for cells in (head, ["-" * width for width in widths], *rows):
        first, *rest = (
            cell.rjust(width) if number else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        yield "  ".join((first, *rest)).rstrip()


RESULT, REPORT, LOG = "result.json", "report.json", "test_output.txt"

# A new number makes all earlier results invalid.
_FORMAT = 1


def key_of(parts: Mapping[str, Any]) -> str:
    """Return a key of everything that a result depends on: the SHA-256 of `parts`, hex."""
    text = json.dumps({**parts, "format": _FORMAT}, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class ResultFolder:
    """The results of one instance. Writing creates the folder. Methods raise OSError."""

    def __init__(self, folder: Path, instance_id: str, *, fresh: bool = False) -> None:
        """With `fresh`, earlier results are ignored."""
        self._folder = folder / "instances" / folder_name(instance_id)
        self._fresh = fresh

    def read(self, key: str) -> Scored | None:
        """Return the result of an earlier run with this key, None if there is none."""
        if self._fresh:
            return None
        try:
            found = Scored.model_validate_json((self._folder / RESULT).read_bytes())
        except (OSError, ValidationError):
            return None
        return found if found.key == key else None

    def write(self, scored: Scored, patch: str, log: str = "") -> None:
        """Write a result, `result.json` last. `log` is the output of the test runs."""
        self._folder.mkdir(parents=True, exist_ok=True)
        replace_file(self._folder / LOG, [log.encode("utf-8", "replace")])
        replace_file(self._folder / PATCH, [patch.encode("utf-8", "surrogatepass")])
        report = {scored.instance_id: scored.of_harness()}
        replace_file(self._folder / REPORT, [_json(report)])
        replace_file(self._folder / RESULT, [_json(scored.model_dump(mode="json"))])


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode("ascii")
