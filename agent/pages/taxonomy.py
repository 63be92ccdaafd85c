"""Why an instance ended as it did: one group and one kind, from what its files say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agent.pages.records import AttemptRecord, ResultRecord

UNKNOWN_KIND = "kind not recorded"

# In the order of the pipeline: how far an instance came. The second value: how it is coloured.
GROUPS: tuple[tuple[str, str], ...] = (
    ("verified", "good"),
    ("not regressed", "fair"),
    ("unverified", "fair"),
    ("suspect", "bad"),
    ("tests red", "bad"),
    ("broken syntax", "bad"),
    ("not applied", "bad"),
    ("unparseable", "bad"),
    ("no edit", "bad"),
    ("not retrieved", "bad"),
    ("time limit", "bad"),
    ("budget", "bad"),
    ("provider", "bad"),
    ("sandbox", "bad"),
    ("crashed", "bad"),
    ("set aside", "bad"),
    ("unusable row", "bad"),
    ("under way", "idle"),
    ("stopped", "idle"),
    ("not begun", "idle"),
    ("other", "bad"),
)

_BY_STATUS = {
    "suspect": "suspect",
    "unparseable": "unparseable",
    "not-applied": "not applied",
    "no-edit": "no edit",
    "time-limit": "time limit",
    "budget": "budget",
    "provider": "provider",
    "sandbox": "sandbox",
    "crashed": "crashed",
    "unverified": "unverified",
    "interrupted": "stopped",
    "usage": "unusable row",
    "set-aside": "set aside",
    "row": "unusable row",
    "running": "under way",
    "cut-off": "stopped",
    "stopped": "stopped",
    "not-begun": "not begun",
}
_BY_VERDICT = {
    "verified": "verified",
    "not-regressed": "not regressed",
    "unverified": "unverified",
    "regressed": "tests red",
    "broken-syntax": "broken syntax",
    "suspect": "suspect",
}


@dataclass(frozen=True, slots=True)
class Cause:
    """`group` is a name of GROUPS; `kind` says it more closely, "" where there is no more."""

    group: str
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Share:
    """A group of a run: its count, and those of its kinds, most frequent first."""

    group: str
    tone: str
    count: int
    kinds: tuple[tuple[str, int], ...]


def cause_of(status: str, verdict: str | None, result: ResultRecord | None) -> Cause:
    """Why an instance has this status. `status` may be one of those that only a run knows."""
    attempts = result.attempts if result is not None else ()
    if status in ("accepted", "broken"):
        group = _BY_VERDICT.get(verdict or "", "other")
        return Cause(group, _validation_kind(group, attempts))
    group = _BY_STATUS.get(status, "other")
    if group in ("not applied", "unparseable", "no edit"):
        return _reply_cause(group, attempts, result)
    return Cause(group, status if group == "other" else "")


def _reply_cause(
    group: str, attempts: Sequence[AttemptRecord], result: ResultRecord | None
) -> Cause:
    """A reply that led to no patch: what it lacked, or the kind of its failure."""
    if result is not None and result.receipt is not None and not result.receipt.pieces:
        return Cause("not retrieved", "the context is empty")
    last = attempts[-1] if attempts else AttemptRecord()
    if group == "no edit" and last.missing:
        return Cause("not retrieved", "the reply names code it was not shown")
    kinds = sorted(set(last.failure_kinds))
    return Cause(group, ", ".join(kinds) if kinds else UNKNOWN_KIND)


def _validation_kind(group: str, attempts: Sequence[AttemptRecord]) -> str:
    judged = [a.validation for a in attempts if a.validation is not None]
    if group != "tests red" or not judged:
        return ""
    last = judged[-1]
    if last.newly_failing:
        return "tests fail newly"
    own = last.reproduction_after
    return "the reply's own test still fails" if own and own.failed else "other tests decide"


def shares(causes: Iterable[Cause]) -> tuple[Share, ...]:
    """How many instances there are of each group, in the order of GROUPS."""
    counts = Counter(causes)
    groups = Counter(cause.group for cause in counts.elements())
    return tuple(
        Share(group, tone, groups[group], _kinds(group, counts))
        for group, tone in GROUPS
        if groups[group]
    )


def _kinds(group: str, counts: Counter[Cause]) -> tuple[tuple[str, int], ...]:
    found = [(c.kind, number) for c, number in counts.items() if c.group == group and c.kind]
    return tuple(sorted(found, key=lambda pair: (-pair[1], pair[0])))
