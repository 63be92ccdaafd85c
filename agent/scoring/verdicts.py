"""Our own verdicts beside what the tests say: how often VERIFIED was right."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path

from agent.errors import Status
from agent.scoring.keeping import PATCH, folder_name
from agent.scoring.report import Confusion, Outcome, OwnVerdict, Scored, Share
from agent.types import Verdict

_VERDICT = "verdict.json"

# Of the normal distribution: 95% of it lie within this many standard deviations.
_Z = 1.959963984540054

NONE = "none"
"""The row of patches without a verdict."""

_ROWS = (*(verdict.value for verdict in Verdict), NONE)
_COLUMNS: tuple[Outcome, ...] = ("resolved", "unresolved", "not-applied", "empty-patch", "error")


def read_own(run: Path, instance_id: str, patch: str) -> OwnVerdict | None:
    """What a run of `agent batch` said of an instance; None where it said nothing readable."""
    folder = run / "instances" / folder_name(instance_id)
    try:
        data = json.loads((folder / _VERDICT).read_bytes())
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
    """Verdicts against outcomes; only where the verdict is of the patch that was evaluated."""
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


def share(count: int, total: int) -> Share:
    """A share with its 95% score interval.

    Source: Wilson, "Probable Inference, the Law of Succession, and Statistical Inference" (1927).
    """
    if not total:
        return Share(count=count, total=total)
    part, square = count / total, _Z * _Z
    middle = (part + square / (2 * total)) / (1 + square / total)
    spread = part * (1 - part) / total + square / (4 * total * total)
    half = _Z * math.sqrt(spread) / (1 + square / total)
    return Share(
        count=count,
        total=total,
        share=round(part, 6),
        low=round(max(0.0, middle - half), 6),
        high=round(min(1.0, middle + half), 6),
    )
