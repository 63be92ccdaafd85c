"""What happens after an attempt: a pure function from what was tried to what is done next.

accept      the tests speak for the patch, or nothing can speak (a paid call would not change that)
repair      one more call, with the precise reason, while repairs are left
iterate     the tool-using mode, once
give up     with the status of the best attempt
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from agent.errors import Status
from agent.result import Attempt


class Step(enum.Enum):
    """What to do next."""

    ACCEPT = "accept"
    REPAIR = "repair"
    ITERATE = "iterate"
    GIVE_UP = "give-up"


@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """How much may be spent on failures. A reply cut off at the output limit is repaired too."""

    repairs: int = 1
    iterative: bool = True


_FINAL = (Status.ACCEPTED, Status.UNVERIFIED)


def next_step(attempts: Sequence[Attempt], options: PolicyOptions) -> Step:
    """Decide after at least one attempt."""
    if attempts[-1].status in _FINAL:
        return Step.ACCEPT
    kinds = [attempt.kind for attempt in attempts]
    if "iterative" in kinds:
        return Step.GIVE_UP
    if kinds.count("repair") < options.repairs:
        return Step.REPAIR
    return Step.ITERATE if options.iterative else Step.GIVE_UP
