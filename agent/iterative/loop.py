"""Asks the model for its next actions until it finishes or a limit is reached.

The limits are steps, the budget, replies without actions, and one action that gives one result
again and again. The edits made by then become the attempt's patch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from agent.errors import BudgetExceeded, ContextTooLong
from agent.iterative.actions import (
    MAX_ACTIONS,
    Action,
    Asked,
    Find,
    Finish,
    Read,
    RunCommand,
    Search,
    offered,
    read_actions,
)
from agent.iterative.conversation import Conversation, describe_attempts
from agent.iterative.working_copy import MAX_READ_LINES, ActionResult, WorkingCopy
from agent.run.attempts import Attempt
from agent.run.policy import SolveOptions
from agent.run.prompting import iterative_start, render
from agent.types import (
    AppliedPatch,
    Completion,
    ContextBundle,
    ParseFailure,
    Problem,
    ToolDialogue,
    Verdict,
)
from agent.types.events import Notice
from agent.types.protocols import Services, Snapshot

_MAX_NONSENSE = 3
_LOST = f"{_MAX_NONSENSE} replies in a row were no action"

_TOO_MANY = ActionResult(f"not carried out: {MAX_ACTIONS} actions are the most")

# The same action with the same result on the same files so many times is a loop.
_MAX_SAME = 3

# Shares of the context window: for the reply, and for differences between tokenizers.
_REPLY_SHARE = 0.25
_MARGIN = 0.1
# Share of the conversation that the context may take; the rest is for what the steps find.
_CONTEXT_SHARE = 0.5


def fit_window(options: SolveOptions, window: int | None) -> SolveOptions:
    """The options for a model whose window, reply included, is `window` tokens (None: unknown)."""
    if window is None:
        return options
    output = min(options.max_output_tokens, int(window * _REPLY_SHARE))
    history = int((window - output) * (1 - _MARGIN))
    return replace(
        options, max_output_tokens=output, history_tokens=min(options.history_tokens, history)
    )


def room_for_context(wanted: int, options: SolveOptions) -> int:
    """How many of the `wanted` tokens of context the conversation has room for."""
    return min(wanted, int(options.history_tokens * _CONTEXT_SHARE))


async def run(
    problem: Problem,
    snapshot: Snapshot,
    bundle: ContextBundle,
    earlier: Sequence[Attempt],
    services: Services,
    options: SolveOptions,
    keep: Callable[[Attempt], None],
) -> Attempt:
    """Let the model work until it finishes or a limit is reached.

    `keep` receives the attempt as it stands after each edit, so that nothing is lost.
    """
    start = kept_patch(earlier)
    copy = WorkingCopy(snapshot, services, options, start)
    applied = 0 if start is None else len(earlier)
    find, commands = services.finder is not None, not services.validator.why_no_commands
    tools, words = offered(find=find, run=commands, lines=MAX_READ_LINES)
    plain, system = (
        render(
            "iterative_system",
            actions=actions,
            max_steps=options.max_steps,
            max_actions=MAX_ACTIONS,
        )
        for actions in (words, "")
    )
    history = describe_attempts(earlier, services.counter)
    opening = ToolDialogue(system, iterative_start(problem, bundle, history, applied), tools)
    conversation = Conversation(plain, opening, services.counter)
    return await _Loop(copy, conversation, services, options, keep).run()


def kept_patch(earlier: Sequence[Attempt]) -> AppliedPatch | None:
    """Return the patch of the last attempt if the work starts with it: where tests fail with it."""
    last = earlier[-1] if earlier else None
    if last is None or last.report is None or last.report.verdict is not Verdict.REGRESSED:
        return None
    return last.patch


@dataclass(slots=True)
class _Loop:
    copy: WorkingCopy
    conversation: Conversation
    services: Services
    options: SolveOptions
    keep: Callable[[Attempt], None]
    seen: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    nonsense: int = 0

    async def run(self) -> Attempt:
        completion = None
        for step in range(1, self.options.max_steps + 1):
            try:
                completion = await self.ask()
            except BudgetExceeded as error:
                if completion is None or not self.copy.edited:
                    raise
                return self.copy.attempt(completion, ended=str(error))
            done = await self.step(step, completion)
            if done is not None:
                return done
        assert completion is not None, "there is at least one step"
        limit = f"the limit of {self.options.max_steps} steps was reached (--max-steps)"
        return self.copy.attempt(completion, ended=limit)

    async def step(self, step: int, completion: Completion) -> Attempt | None:
        """Carry out one reply; return the attempt if that ends the work."""
        read = read_actions(completion)
        answers: list[ActionResult] = []
        for asked in read.asked[:MAX_ACTIONS]:
            answer = await self.perform(step, completion, asked)
            if answer is None:
                assert isinstance(asked.read, Finish)
                return self.copy.attempt(completion, asked.read)
            answers.append(answer)
        left_out = len(read.asked) - len(answers)
        answers.extend([_TOO_MANY] * left_out)
        failures = [asked.read for asked in read.asked if isinstance(asked.read, ParseFailure)]
        self.nonsense = self.nonsense + 1 if len(failures) == len(read.asked) else 0
        if self.nonsense == _MAX_NONSENSE:
            return self.copy.attempt(completion, failure=failures[-1], ended=_LOST)
        self.conversation.add(completion.text, read, answers, self.note(step))
        (most, times), *_ = self.seen.most_common(1) or [(("", "", 0), 0)]
        if times >= _MAX_SAME:
            ended = f"the model repeated one action {_MAX_SAME} times ({most[0]})"
            return self.copy.attempt(completion, ended=ended)
        return None

    async def perform(self, step: int, completion: Completion, asked: Asked) -> ActionResult | None:
        """Carry out one action; None for a `finish` whose edits apply."""
        before = len(self.copy.edits)
        answer = await self.copy.perform(asked.read)
        if len(self.copy.edits) != before:
            self.keep(self.copy.attempt(completion))
        finished = isinstance(asked.read, Finish) and answer.kind == "edit"
        line = "finish" if finished else f"{_describe(asked.read)} -> {_first_line(answer.text)}"
        self.services.reporter(Notice(f"step {step}: {line}"))
        if finished:
            return None
        self.seen[_describe(asked.read), f"{asked.written!r} {answer.text}", before] += 1
        return answer

    def note(self, step: int) -> str:
        left = self.options.max_steps - step
        urge = " Finish now." if left == 1 else ""
        return f"Turns left: {left}.{urge} {self.copy.state()}"

    async def ask(self) -> Completion:
        options, chat = self.options, self.services.chat
        prompt = self.conversation.prompt(options.history_tokens)
        limit = options.max_output_tokens
        try:
            return await chat.complete(prompt, max_output_tokens=limit)
        except ContextTooLong as error:
            shorter = fit_window(options, error.limit or prompt.tokens // 2 + limit)
            self.services.reporter(Notice(f"older results are left out: {error}", "warning"))
            self.options = shorter
            prompt = self.conversation.prompt(shorter.history_tokens)
            return await chat.complete(prompt, max_output_tokens=shorter.max_output_tokens)


def _describe(action: Action | ParseFailure) -> str:
    match action:
        case ParseFailure():
            return "no action"
        case Read():
            return "read " + ", ".join(region.path for region in action.files)
        case Search():
            return f"search {action.query[:60]!r}"
        case Find():
            others = " and others" if len(action.intents) > 1 else ""
            return f"find {action.intents[0][:60]!r}{others}"
        case RunCommand():
            return f"run {action.command[:60]!r}"
        case _:
            return action.action


def _first_line(text: str) -> str:
    return text.split("\n", 1)[0][:100]
