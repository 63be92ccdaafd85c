"""Decides what happens after an attempt, and after a prompt that was too long. Pure functions.

accept      the tests support the patch, or no test could run (another call would not help)
send code   one more call with the code that the reply asks for, while rounds are left; no repair
repair      one more call, with the precise reason, while repairs are left; a reply that was cut off
            is continued instead, after the repairs while rounds for code are left
iterate     the iterative mode; again, with the steps that are left, where what it finished fails
test        one call for another reproduction test, where nothing but that keeps an accepted patch
            from being verified; then the run ends
give up     end with the status of the best attempt; also where the issue seems fixed already, or a
            reply repeats the patch before it and the same tests fail

After a failure, what is left and has solved most per dollar comes first (`MEASURED`). More samples
are only drawn with the first call (`--samples`): after a failure they solve less for more tokens.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from agent.errors import ContextTooLong, Status
from agent.run.attempts import Attempt, is_repeated
from agent.settings import CODE_ROUNDS, MIN_CONTEXT_TOKENS


class NextStep(enum.Enum):
    """What the pipeline does after an attempt."""

    ACCEPT = "accept"
    SEND_CODE = "send-code"
    REPAIR = "repair"
    ITERATE = "iterate"
    ANOTHER_TEST = "another-test"
    GIVE_UP = "give-up"


# Tokens of a prompt that cost as much as one of a reply: the median of `agent/llm/prices.toml`.
_REPLY_PRICE = 5


@dataclass(frozen=True, slots=True)
class Measured:
    """How often a step ended a run with an accepted patch, and its mean tokens."""

    solved: int
    tries: int
    tokens_in: int
    tokens_out: int

    @property
    def gain(self) -> float:
        """Accepted patches per dollar; the unit is one over the price of a prompt's token."""
        return self.solved / self.tries / (self.tokens_in + _REPLY_PRICE * self.tokens_out)


MEASURED = {
    NextStep.REPAIR: Measured(5, 8, 14_600, 550),
    NextStep.ITERATE: Measured(4, 6, 54_400, 2_400),
}
"""The steps after a failed patch, on 28 larger fixes of 2026 (docs/design/benchmarks.md).

Two more samples of the same prompt solved 1 of 5 at 21,800 and 3,600 tokens: less per dollar than
either, so they are never drawn after a failure.
"""


@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """What a run may cost beyond its first call.

    `code_rounds`: calls with code that a reply asked for. `repairs`: calls after a failure.
    `iterative`: whether to iterate after them. `another_test`: whether to ask for another test.
    """

    repairs: int = 1
    iterative: bool = True
    code_rounds: int = CODE_ROUNDS
    another_test: bool = True


# Times that the iterative mode may say that it has finished.
_ITERATIONS = 3

_FINAL = (Status.ACCEPTED, Status.UNVERIFIED)


def next_step(attempts: Sequence[Attempt], options: PolicyOptions) -> NextStep:
    """Decide what follows the last attempt. There is at least one attempt."""
    last = attempts[-1]
    if last.status in _FINAL:
        lacks = last.report is not None and last.report.lacks_test
        return NextStep.ANOTHER_TEST if lacks and options.another_test else NextStep.ACCEPT
    kinds = [attempt.kind for attempt in attempts]
    if "iterative" in kinds:
        finished = last.report is not None and not last.ended and not is_repeated(attempts)
        again = finished and kinds.count("iterative") < _ITERATIONS
        return NextStep.ITERATE if again else NextStep.GIVE_UP
    if attempts[-1].asks_for_code and code_rounds_left(attempts, options):
        return NextStep.SEND_CODE
    if _is_fixed_already(attempts) or is_repeated(attempts):
        return NextStep.GIVE_UP
    unfinished = last.is_cut_off and last.completion and last.completion.finish_reason == "length"
    if unfinished and code_rounds_left(attempts, options):
        return NextStep.REPAIR
    left = [NextStep.REPAIR] * (kinds.count("repair") < options.repairs)
    left += [NextStep.ITERATE] * options.iterative
    return max(left, key=lambda step: MEASURED[step].gain, default=NextStep.GIVE_UP)


def code_rounds_left(attempts: Sequence[Attempt], options: PolicyOptions) -> int:
    """Return how many more calls may send code, or continue a reply after the repairs."""
    kinds = [attempt.kind for attempt in attempts]
    continued = max(0, kinds.count("repair") - options.repairs)
    return max(0, options.code_rounds - kinds.count("more-code") - continued)


def _is_fixed_already(attempts: Sequence[Attempt]) -> bool:
    """Whether two replies in a row say that nothing is left to edit, one by its replacements."""
    said = {attempt.status for attempt in attempts[-2:]}
    nothing = {Status.ALREADY_FIXED, Status.NO_EDIT}
    return len(attempts) > 1 and Status.ALREADY_FIXED in said and said <= nothing


@dataclass(frozen=True, slots=True)
class Room:
    """What a smaller prompt may hold, in tokens: the context, and the reply."""

    context: int
    output: int

    def explain(self, error: ContextTooLong) -> str:
        """Say that `error` left this room."""
        limit = (
            "the model" if error.limit is None else f"the model's window of {error.limit:,} tokens"
        )
        return (
            f"the prompt was too long for {limit}: the context now has at most {self.context:,} "
            f"tokens, the reply {self.output:,}"
        )


# Share of the window for the reply: most patches take a few hundred tokens.
_REPLY_SHARE = 0.25
# No tokenizer counts so much less than ours: a smaller share means that something else was counted.
_LEAST_SCALE = 0.4
# Share left free for differences between tokenizers and for what chat templates add.
_MARGIN = 0.05


def room_after(
    error: ContextTooLong, *, prompt_tokens: int, context_tokens: int, max_output_tokens: int
) -> Room | None:
    """What the prompt may hold after a refusal; None if too little context would be left.

    The prompt has `prompt_tokens` by our count, of which `context_tokens` are context. If the
    server states its own count, the result is scaled to it. If it states no limit, the context is
    halved.
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
    return room if room.context >= MIN_CONTEXT_TOKENS else None
