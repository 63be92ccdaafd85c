"""What happens after an attempt, and after a prompt that was too long: pure functions.

accept      the tests speak for the patch, or nothing can speak (a paid call would not change that)
repair      one more call, with the precise reason, while repairs are left
iterate     the tool-using mode, once
give up     with the status of the best attempt
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from agent.errors import ContextTooLong, Status
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


@dataclass(frozen=True, slots=True)
class Room:
    """What a smaller prompt may hold: tokens of context, and of the reply."""

    context: int
    output: int


# Below this a context shows no whole function; it is also the least that may be set.
_LEAST_CONTEXT = 200
# Of the window, for the reply: most patches take a few hundred tokens.
_REPLY_SHARE = 0.25
# Tokenizers differ less: a count below this share of ours counts something else.
_LEAST_SCALE = 0.4
# Left free: tokenizers differ, and so does what chat templates add.
_MARGIN = 0.05


def room_after(
    error: ContextTooLong, *, prompt_tokens: int, context_tokens: int, max_output_tokens: int
) -> Room | None:
    """How a refused prompt is made smaller; None where too little context would be left.

    `prompt_tokens` of which `context_tokens` are context, by our count; where the server told its
    own, its tokens are the measure. Without a limit told, the context is halved.
    """
    if error.limit is None:
        return _enough(Room(context_tokens // 2, max_output_tokens))
    output = min(max_output_tokens, int(error.limit * _REPLY_SHARE))
    scale = (error.counted or prompt_tokens) / max(1, prompt_tokens)
    if scale < _LEAST_SCALE:
        scale = 1.0
    room = int((error.limit - output) * (1 - _MARGIN) / scale)
    context = min(context_tokens, room - (prompt_tokens - context_tokens))
    if (context, output) == (context_tokens, max_output_tokens):  # it should have fitted
        context //= 2
    return _enough(Room(context, output))


def _enough(room: Room) -> Room | None:
    return room if room.context >= _LEAST_CONTEXT else None
