"""The results of an evaluation, and its report in the shape of the SWE-bench harness.

Source of the shape: the reports that `swebench.harness.run_evaluation` writes, by their field
names. docs/reference/data-formats.md has the files of an instance's folder.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, Field

from agent.datasets import InputProblem, folder_name
from agent.results.kept import PATCH, read_model, read_patch, read_result
from agent.shared.files import replace_file
from agent.shared.terminal import markdown_table
from agent.types import Verdict

PatchOutcome = Literal["resolved", "unresolved", "not-applied", "empty-patch", "error"]
ErrorKind = Literal["", "row", "repository", "test-patch", "environment", "sandbox", "crash"]


class GivenIds(BaseModel, frozen=True, extra="forbid"):
    """The ids that met and that missed the expectation, in the order of the row."""

    success: tuple[str, ...] = ()
    failure: tuple[str, ...] = ()


class GivenStatus(BaseModel, frozen=True, extra="forbid"):
    """The given tests. The last two lists are always empty, as in the harness."""

    FAIL_TO_PASS: GivenIds = GivenIds()
    PASS_TO_PASS: GivenIds = GivenIds()
    FAIL_TO_FAIL: GivenIds = GivenIds()
    PASS_TO_FAIL: GivenIds = GivenIds()

    @property
    def resolved(self) -> bool:
        """Whether every given test succeeds."""
        return not (self.FAIL_TO_PASS.failure or self.PASS_TO_PASS.failure)


class OwnVerdict(BaseModel, frozen=True, extra="forbid"):
    """Status and verdict of `agent batch`; `same_patch`: of the prediction, not of another one."""

    status: str
    verdict: str | None
    same_patch: bool = True


class Scored(BaseModel, frozen=True, extra="forbid"):
    """The result of one instance, with the fields that the harness has for it.

    If `outcome` is "error", `error` is the kind of problem, and the patch was not judged. `absent`
    are given ids that are not in the run. `suspicion` says why the run is not credible; such an
    instance is not resolved. `key` identifies the inputs; `kept` marks a result of an earlier run.
    """

    instance_id: str
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
        names = {"patch_is_None", "patch_exists", "patch_successfully_applied", "resolved"}
        return self.model_dump(mode="json", include=names | {"tests_status"}, exclude_none=True)


class ShareWithInterval(BaseModel, frozen=True, extra="forbid"):
    """`count` of `total`, with Wilson's 95% interval of the share; None if `total` is 0."""

    count: int
    total: int
    share: float | None = None
    low: float | None = None
    high: float | None = None

    def in_words(self) -> str:
        """Return such as "3 of 4 (75.0%, 95% interval 30.1–95.4%)"."""
        text = f"{self.count} of {self.total}"
        if self.share is None or self.low is None or self.high is None:
            return text
        low, high = 100 * self.low, 100 * self.high
        return f"{text} ({100 * self.share:.1f}%, 95% interval {low:.1f}–{high:.1f}%)"


class Confusion(BaseModel, frozen=True, extra="forbid"):
    """Our verdicts against the outcomes of the tests.

    `counts` has a row for each verdict and a column for each outcome. `verified_right` is the share
    of resolved among VERIFIED, without errors.
    """

    counts: Mapping[str, Mapping[str, int]]
    verified_right: ShareWithInterval
    other_patches: int


class RunReport(BaseModel, frozen=True, extra="forbid"):
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
    schema_version: int = 2
    not_applied_ids: tuple[str, ...]
    pending_ids: tuple[str, ...]
    problems: tuple[InputProblem, ...]
    instances: Mapping[str, Scored]
    confusion: Confusion | None
    resolved_share: ShareWithInterval
    seconds: float


def read_own(run: Path, instance_id: str, patch: str) -> OwnVerdict | None:
    """Return the verdict of a run of `agent batch`, None if there is none that can be read."""
    folder = run / "instances" / folder_name(instance_id)
    record = read_result(folder)
    if record is None:
        return None
    same = read_patch(folder).strip() == patch.strip()
    return OwnVerdict(status=record.status.value, verdict=record.verdict, same_patch=same)


def _confusion(scored: Sequence[Scored]) -> Confusion:
    """Count verdicts against outcomes, for verdicts of the patch that was evaluated."""
    same = [one for one in scored if one.own is None or one.own.same_patch]
    counts = Counter(((one.own and one.own.verdict) or "none", one.outcome) for one in same)
    columns = get_args(PatchOutcome)
    rows = {
        row: {column: counts[row, column] for column in columns}
        for row in (*(verdict.value for verdict in Verdict), "none")
    }
    verified = rows[Verdict.VERIFIED]
    return Confusion(
        counts={row: cells for row, cells in rows.items() if any(cells.values())},
        verified_right=share(verified["resolved"], sum(verified.values()) - verified["error"]),
        other_patches=len(scored) - len(same),
    )


# 95% of the normal distribution is within this many standard deviations.
_Z = 1.959963984540054


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
    seconds: float,
    *,
    compared: bool = False,
) -> RunReport:
    """Return the report of the selected rows `ids`, in their order.

    `submitted` are the ids of predictions that count, in the order of `ids`; `scored` the results
    in any order; `compared`: they have our verdicts, if any.
    """
    by_id = {one.instance_id: one for one in scored}
    ordered = {name: by_id[name] for name in ids if name in by_id}

    def names(*outcomes: PatchOutcome) -> tuple[str, ...]:
        return tuple(name for name, one in ordered.items() if one.outcome in outcomes)

    lists = {
        "submitted": tuple(submitted),
        "completed": names("resolved", "unresolved"),
        "resolved": names("resolved"),
        "unresolved": names("unresolved"),
        "empty_patch": names("empty-patch"),
        "error": names("not-applied", "error"),  # the harness counts both as errors
    }
    values: dict[str, object] = {
        f"{kind}_instances": len(members) for kind, members in lists.items()
    }
    values |= {f"{kind}_ids": members for kind, members in lists.items()}
    values |= {
        "total_instances": len(ids),
        "incomplete_ids": tuple(name for name in ids if name not in set(submitted)),
        "not_applied_ids": names("not-applied"),
        "pending_ids": tuple(name for name in submitted if name not in ordered),
        "problems": tuple(problems),
        "instances": ordered,
        "confusion": _confusion(list(ordered.values())) if compared else None,
        "resolved_share": share(len(names("resolved")), len(ordered) - len(names("error"))),
        "seconds": round(seconds, 3),
    }
    return RunReport.model_validate(values)


# ---------------------------------------------------------------------------------- as text

_REASON = 140
_MARKS = {"resolved": "✓", "unresolved": "✗", "not-applied": "✗", "empty-patch": "–", "error": "!"}


def render(report: RunReport) -> str:
    """Return the report as text."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: RunReport) -> Iterator[str]:
    counts = Counter(one.outcome for one in report.instances.values())
    outcomes = ", ".join(f"{counts[outcome]} {outcome}" for outcome in get_args(PatchOutcome))
    pending = f", {len(report.pending_ids)} still to be done" if report.pending_ids else ""
    total = f"{report.submitted_instances} predictions for {report.total_instances} instances"
    yield f"{total}: {outcomes}{pending}"
    yield f"resolved: {report.resolved_share.in_words()} of all that could be evaluated\n"
    width = max(map(len, report.instances), default=0)
    for name, one in report.instances.items():
        verdict = f" [{one.own.verdict or one.own.status}]" if one.own else ""
        reason = one.reason if len(one.reason) <= _REASON else one.reason[:_REASON] + "…"
        yield f"{_MARKS[one.outcome]} {name.ljust(width)}  {one.outcome}{verdict}  {reason}"
    if report.confusion is not None:
        head = ["our verdict", *get_args(PatchOutcome)]
        rows = [[row, *map(str, c.values())] for row, c in report.confusion.counts.items()]
        yield from ("", *markdown_table(head, rows, head[1:]), "")
        yield f"VERIFIED and resolved: {report.confusion.verified_right.in_words()}"
        if report.confusion.other_patches:
            yield f"{report.confusion.other_patches} verdicts are of other patches"
    if report.problems:
        yield f"\nentries that do not count ({len(report.problems)}):"
        yield from (f"  {problem.place}: {problem.reason}" for problem in report.problems)


# ------------------------------------------------------------------------------------ as files

RESULT, REPORT, LOG = "result.json", "report.json", "test_output.txt"

# A new number makes all earlier results invalid.
_FORMAT = 2


def key_of(parts: Mapping[str, Any]) -> str:
    """Return a key of everything that a result depends on: the SHA-256 of `parts`, hex."""
    text = json.dumps({**parts, "format": _FORMAT}, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def read_scored(folder: Path, key: str) -> Scored | None:
    """Return the result in an instance's folder if it has this key."""
    scored = read_model(Scored, folder / RESULT)
    if scored is None or scored.key != key:
        return None
    return scored.model_copy(update={"kept": True})


def write_scored(folder: Path, scored: Scored, patch: str, log: str = "") -> None:
    """Write a result, `result.json` last; `log` is the output of the test runs. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / LOG, [log.encode("utf-8", "replace")])
    replace_file(folder / PATCH, [patch.encode("utf-8", "surrogatepass")])
    replace_file(folder / REPORT, [as_json({scored.instance_id: scored.of_harness()})])
    replace_file(folder / RESULT, [as_json(scored.model_dump(mode="json"))])


def as_json(value: Any) -> bytes:
    """Return indented JSON in ASCII."""
    return (json.dumps(value, indent=2) + "\n").encode("ascii")
