"""From results to the report of a run. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent.scoring.problems import Problem
from agent.scoring.report import InstanceEntry, OwnVerdict, RunReport, Scored
from agent.scoring.verdicts import confusion, share

_OURS = (
    "outcome", "error", "reason", "check", "absent", "suspicion", "notes", "environment", "runner",
    "seconds",
)  # fmt: skip


def make_report(
    ids: Sequence[str],
    submitted: Sequence[str],
    scored: Sequence[Scored],
    problems: Sequence[Problem],
    own: Mapping[str, OwnVerdict] | None,
    seconds: float,
) -> RunReport:
    """The report of the selected rows `ids`, in their order.

    `submitted` are the predictions that count; `scored` what was evaluated of them, in any order.
    `own`: our verdicts by id, None where there is no run to compare with.
    """
    place = {name: number for number, name in enumerate(ids)}
    ordered = sorted(scored, key=lambda one: place[one.instance_id])

    def names(*outcomes: str) -> tuple[str, ...]:
        return tuple(one.instance_id for one in ordered if one.outcome in outcomes)

    done = {one.instance_id for one in ordered}
    sent = sorted(submitted, key=place.__getitem__)
    completed, empty = names("resolved", "unresolved"), names("empty-patch")
    errors = names("not-applied", "error")  # as the harness counts what it could not apply
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
