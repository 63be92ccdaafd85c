"""The iterative mode: the model works step by step on a private copy of the snapshot.

The policy reaches it when the one call and its repairs have failed. Every reply is one JSON action
(`agent.actions`). Nothing is written except in memory and in the validator's sandboxed copies. The
mode ends with `finish`, at the step limit, when the model repeats one action, or when replies stop
being actions; the edits made by then become the attempt's patch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from agent.actions import (
    MAX_READ_LINES,
    Action,
    Find,
    Finish,
    Read,
    Search,
    WorkingCopy,
    read_action,
)
from agent.errors import ContextTooLong
from agent.events import Notice
from agent.prompting import describe_failure, iterative_result, iterative_start, make_prompt
from agent.protocols import Services, Snapshot
from agent.result import Attempt
from agent.settings import HISTORY_TOKENS, MAX_OUTPUT_TOKENS
from agent.types import Completion, ContextBundle, Message, ParseFailure, Problem, Prompt

# After so many replies in a row that are not actions, the model is taken to be lost.
MAX_NONSENSE = 3

_LOST = f"{MAX_NONSENSE} replies in a row were no action"

# The same action so many times, with no edit in between, gives nothing new.
MAX_SAME = 3

# Shares of the context window: for the reply, and for differences between tokenizers.
_REPLY_SHARE = 0.25
_MARGIN = 0.1
# Share of the conversation that the context may take; the rest is for what the steps find.
_CONTEXT_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class IterativeOptions:
    """Limits. `history_tokens`: older results are left out once the conversation is longer."""

    max_steps: int = 12
    history_tokens: int = HISTORY_TOKENS
    max_output_tokens: int = MAX_OUTPUT_TOKENS
    allow: tuple[str, ...] = ()
    no_repair: tuple[str, ...] = ()
    include_test: bool = False


def fit_window(options: IterativeOptions, window: int | None) -> IterativeOptions:
    """The options for a model whose window, reply included, is `window` tokens (None: unknown)."""
    if window is None:
        return options
    output = min(options.max_output_tokens, int(window * _REPLY_SHARE))
    history = int((window - output) * (1 - _MARGIN))
    return replace(
        options,
        max_output_tokens=output,
        history_tokens=min(options.history_tokens, history),
    )


def room_for_context(wanted: int, options: IterativeOptions, window: int | None) -> int:
    """How many of the `wanted` tokens of context the conversation has room for."""
    return min(wanted, int(fit_window(options, window).history_tokens * _CONTEXT_SHARE))


async def run(
    problem: Problem,
    snapshot: Snapshot,
    bundle: ContextBundle,
    earlier: Sequence[Attempt],
    services: Services,
    options: IterativeOptions,
    keep: Callable[[Attempt], None],
) -> Attempt:
    """Let the model work until it finishes or a limit is reached.

    `keep` receives the attempt as it stands after each edit, so that nothing is lost when the chat
    model or the validator raises, or when the run is cut off.
    """
    copy = WorkingCopy(
        snapshot,
        services,
        allow=options.allow,
        no_repair=options.no_repair,
        include_test=options.include_test,
    )
    messages = _first_messages(problem, bundle, earlier, services, options)
    nonsense = 0
    done: Counter[str] = Counter()
    for step in range(1, options.max_steps + 1):
        completion = await _ask(messages, services, options)
        action = read_action(completion)
        if isinstance(action, Finish):
            services.reporter(Notice(f"step {step}: finish"))
            return copy.attempt(completion, action)
        edits = len(copy.edits)
        result = await copy.perform(action)
        if len(copy.edits) > edits:
            done.clear()
            keep(copy.attempt(completion))
        services.reporter(Notice(f"step {step}: {_describe(action)} -> {_first_line(result)}"))
        nonsense = nonsense + 1 if isinstance(action, ParseFailure) else 0
        if isinstance(action, ParseFailure):
            if nonsense == MAX_NONSENSE:
                return copy.attempt(completion, failure=action, ended=_LOST)
        else:
            done[action.model_dump_json()] += 1
        if max(done.values(), default=0) == MAX_SAME:
            ended = f"the model repeated one action {MAX_SAME} times ({_describe(action)})"
            return copy.attempt(completion, ended=ended)
        messages.append(Message("assistant", completion.text.strip() or "(an empty reply)"))
        messages.append(iterative_result(result, steps_left=options.max_steps - step))
    limit = f"the limit of {options.max_steps} steps was reached (--max-steps)"
    return copy.attempt(completion, ended=limit)


def _first_messages(
    problem: Problem,
    bundle: ContextBundle,
    earlier: Sequence[Attempt],
    services: Services,
    options: IterativeOptions,
) -> list[Message]:
    history = "\n\n".join(_describe_attempt(attempt, services) for attempt in earlier)
    return list(
        iterative_start(
            problem,
            bundle,
            history,
            max_steps=options.max_steps,
            max_read_lines=MAX_READ_LINES,
            find=services.finder is not None,
        )
    )


async def _ask(
    messages: list[Message], services: Services, options: IterativeOptions
) -> Completion:
    """One step's call. A conversation that the server finds too long is shortened once."""
    prompt = _shorten(messages, services, options)
    limit = options.max_output_tokens
    try:
        return await services.chat.complete(prompt, max_output_tokens=limit)
    except ContextTooLong as error:
        shorter = fit_window(options, error.limit or prompt.tokens // 2 + limit)
        services.reporter(Notice(f"older results are left out: {error}", "warning"))
        prompt = _shorten(messages, services, shorter)
        return await services.chat.complete(prompt, max_output_tokens=shorter.max_output_tokens)


def _shorten(messages: list[Message], services: Services, options: IterativeOptions) -> Prompt:
    """The conversation without its oldest results, as far as `history_tokens` demands."""
    kept = list(messages)
    prompt = make_prompt(kept, services.counter)
    for index in range(3, len(kept) - 1, 2):  # results stand at 3, 5, ...; the last one stays
        if prompt.tokens <= options.history_tokens:
            break
        kept[index] = Message("user", "[this result was elided to save space]")
        prompt = make_prompt(kept, services.counter)
    return prompt


def _describe_attempt(attempt: Attempt, services: Services) -> str:
    if attempt.asks_for_code:
        return f"A reply without an edit: {attempt.reason}."
    if attempt.parse_failure is not None:
        return f"A reply that was no usable patch ({attempt.parse_failure.kind})."
    diff = attempt.patch.diff.decode("utf-8", "replace") if attempt.patch else ""
    return f"{diff}\n{describe_failure(attempt, services.counter)}".strip()


def _describe(action: Action | ParseFailure) -> str:
    match action:
        case ParseFailure():
            return "no action"
        case Read():
            return "read " + ", ".join(region.path for region in action.files)
        case Search():
            return f"search {action.query[:60]!r}"
        case Find():
            return f"find {action.intents[0][:60]!r}" + " and others" * (len(action.intents) > 1)
        case _:
            return action.action


def _first_line(text: str) -> str:
    return text.split("\n", 1)[0][:100]
