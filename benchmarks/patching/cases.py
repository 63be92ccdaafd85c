"""What one test of an applier is: a reply, the files it is about, and what must come of it."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

Files = Mapping[str, bytes]
Result = Mapping[str, bytes | None]  # changed paths only; None: the file is gone


class Wanted(enum.StrEnum):
    """What a careful person would do with the reply."""

    APPLY = "apply"  # the place is clear: a refusal is a miss
    REFUSE = "refuse"  # no single place, or nothing to do: any change is wrong
    EITHER = "either"  # recoverable with luck: a refusal is as good as the right result
    UNKNOWN = "unknown"  # no truth is stored and the oracle does not decide


class Outcome(enum.StrEnum):
    """What an applier did, measured against the truth."""

    RIGHT = "right"
    WRONG = "wrong"
    REFUSED = "refused"
    MISSED = "wrongly refused"
    UNJUDGED = "unjudged"  # applied, and nothing tells whether that was right


class Likeness(enum.StrEnum):
    """How closely a result must agree with the truth."""

    BYTES = "bytes"
    BLANK = "but for blank lines"  # the reply left them out: where they belong is a guess
    SPACE = "but for white space"  # the truth is what an oracle made of a sloppy reply


@dataclass(frozen=True, slots=True)
class Case:
    """One reply. `after` is the truth where there is one; with UNKNOWN, a result known as right.

    `finish_reason` as in `agent.types.Completion`.
    """

    id: str
    corpus: str
    kind: str
    shape: str
    reply: str
    files: Files
    wanted: Wanted
    after: Result | None = None
    likeness: Likeness = Likeness.BYTES
    finish_reason: str = "stop"


@dataclass(frozen=True, slots=True)
class Attempt:
    """What an applier made of a case: the changed files, or why not."""

    changed: Result | None
    tiers: tuple[str, ...] = ()
    reader: str = ""
    reason: str = ""


def outcome(case: Case, attempt: Attempt) -> Outcome:
    """Judge an attempt. A result that changes nothing counts as a refusal."""
    changed = None
    if attempt.changed is not None:
        changes = {p: c for p, c in attempt.changed.items() if case.files.get(p) != c}
        changed = changes or None
    if changed is None:
        return Outcome.MISSED if case.wanted is Wanted.APPLY else Outcome.REFUSED
    if case.wanted is Wanted.REFUSE:
        return Outcome.WRONG
    if case.after is not None and _agrees(changed, case.after, case.likeness):
        return Outcome.RIGHT
    return Outcome.UNJUDGED if case.wanted is Wanted.UNKNOWN else Outcome.WRONG


def _agrees(changed: Result, truth: Result, likeness: Likeness) -> bool:
    if changed == truth:
        return True
    if likeness is Likeness.BYTES or changed.keys() != truth.keys():
        return False
    return all(
        _significant(changed[path], likeness) == _significant(truth[path], likeness)
        for path in truth
    )


def _significant(content: bytes | None, likeness: Likeness) -> list[bytes] | None:
    """Non-blank lines, without white space where that does not count."""
    if content is None:
        return None
    lines = content.split(b"\n")
    if likeness is Likeness.SPACE:
        lines = [b"".join(line.split()) for line in lines]
    return [line for line in lines if line.strip()]
