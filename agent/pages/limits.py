"""How much of each text a report holds: less the more instances there are."""

from __future__ import annotations

from dataclasses import dataclass

# 500 instances that fill their shares make a file below 30 MB, which phones still open.
_TOTAL = 13 * 1024 * 1024
_LEAST, _MOST = 4 * 1024, 512 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes of HTML for the texts of one instance; `diff` is in bytes of the diff (a quarter)."""

    issue: int
    diff: int
    prompts: int
    replies: int
    log: int
    names: int  # of tests, in one list
    pieces: int  # rows of the receipt


def limits_for(instances: int) -> Limits:
    """The shares of one of so many instances."""
    share = min(_MOST, max(_LEAST, _TOTAL // max(1, instances)))
    return Limits(
        issue=share // 8,
        diff=share // 5,
        prompts=share // 4,
        replies=share // 5,
        log=share // 8,
        names=max(5, min(100, share // 800)),
        pieces=max(4, min(60, share // 1600)),
    )
