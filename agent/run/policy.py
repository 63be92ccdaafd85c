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
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field

from agent.errors import ContextTooLong, Status
from agent.retrieval.context import PackingOptions
from agent.run.attempts import Attempt, is_repeated
from agent.run.locating import LocateWhen
from agent.settings import (
    CODE_ROUNDS,
    HISTORY_TOKENS,
    MAX_OUTPUT_TOKENS,
    MAX_STEPS,
    MIN_CONTEXT_TOKENS,
    TIMEOUT_SECONDS,
    OutdatedMode,
)


class NextStep(enum.Enum):
    """What the pipeline does after an attempt."""

    ACCEPT = enum.auto()
    SEND_CODE = enum.auto()
    REPAIR = enum.auto()
    ITERATE = enum.auto()
    ANOTHER_TEST = enum.auto()
    GIVE_UP = enum.auto()


@dataclass(frozen=True, slots=True)
class SolveOptions:
    """The limits of a run. Times in seconds, sizes in tokens. `max_steps` 0: no iterative mode."""

    packing: PackingOptions = field(default_factory=PackingOptions)
    repairs: int = 1
    code_rounds: int = CODE_ROUNDS  # calls with code that a reply asks for
    another_test: bool = True
    reproduces: bool = False  # make a test of the issue alone, and no patch
    independent: bool = False  # a test from the issue alone grades an accepted patch
    max_steps: int = MAX_STEPS  # of the iterative mode
    history_tokens: int = HISTORY_TOKENS  # of the conversation of the iterative mode
    max_output_tokens: int = MAX_OUTPUT_TOKENS
    timeout: float = TIMEOUT_SECONDS
    allow: tuple[str, ...] = ()  # protected paths that edits may touch
    include_test: bool = False  # keep the reproduction test in the diff
    outdated_tests: OutdatedMode = "show"  # existing tests that assert what the issue calls wrong
    locate: LocateWhen = "auto"
    files: tuple[str, ...] = ()  # code that the user puts into the context, as replies name it
    checks: tuple[str, ...] = ()  # shell commands that may change the patch's files before tests


# Times that the iterative mode may say that it has finished.
_ITERATIONS = 3

_FINAL = (Status.ACCEPTED, Status.UNVERIFIED)


def next_step(attempts: Sequence[Attempt], options: SolveOptions) -> NextStep:
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
    if kinds.count("repair") < options.repairs:
        return NextStep.REPAIR
    return NextStep.ITERATE if options.max_steps > 0 else NextStep.GIVE_UP


def code_rounds_left(attempts: Sequence[Attempt], options: SolveOptions) -> int:
    """Return how many more calls may send code, or continue a reply after the repairs."""
    kinds = [attempt.kind for attempt in attempts]
    continued = max(0, kinds.count("repair") - options.repairs)
    return max(0, options.code_rounds - kinds.count("more-code") - continued)


def _is_fixed_already(attempts: Sequence[Attempt]) -> bool:
    """Whether two replies in a row say that nothing is left to edit, one by its replacements."""
    last = {attempt.status for attempt in attempts[-2:]}
    nothing = {Status.ALREADY_FIXED, Status.NO_EDIT}
    return len(attempts) > 1 and Status.ALREADY_FIXED in last and last <= nothing


# Share of the window for the reply: most patches take a few hundred tokens.
_REPLY_SHARE = 0.25
# No tokenizer counts so much less than ours: a smaller share means that something else was counted.
_LEAST_SCALE = 0.4
# Share left free for differences between tokenizers and for what chat templates add.
_MARGIN = 0.05


def room_after(
    error: ContextTooLong, *, prompt_tokens: int, context_tokens: int, max_output_tokens: int
) -> tuple[int, int] | None:
    """The tokens of context and of reply, by our count, that a refused prompt may have; None if too
    little would be left.
    """
    if error.limit is None:
        context, output = context_tokens // 2, max_output_tokens
        return (context, output) if context >= MIN_CONTEXT_TOKENS else None
    output = min(max_output_tokens, int(error.limit * _REPLY_SHARE))
    scale = (error.counted or prompt_tokens) / max(1, prompt_tokens)
    if scale < _LEAST_SCALE:
        scale = 1.0
    room = int((error.limit - output) * (1 - _MARGIN) / scale)
    context = min(context_tokens, room - (prompt_tokens - context_tokens))
    if (context, output) == (context_tokens, max_output_tokens):  # it should have fitted
        context //= 2
    return (context, output) if context >= MIN_CONTEXT_TOKENS else None
