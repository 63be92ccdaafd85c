"""The conversation of the step-by-step mode: what the next prompt repeats, and what it leaves out.

It only grows, so that a provider's prompt cache has its beginning. When it becomes too long, the
oldest results are left out in one go, and stay out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from agent.iterative.actions import ReadActions
from agent.iterative.working_copy import ActionResult
from agent.run.attempts import Attempt
from agent.run.prompting import as_data, describe_failure, make_prompt, render
from agent.types import Message, Prompt, ToolCall, ToolDialogue, ToolTurn
from agent.types.protocols import TokenCounter

# Share of the limit to which a conversation is shortened: further steps then find room, and the
# prompt cache keeps its prefix for several of them.
_SHORTENED_TO = 0.6

_ELIDED = "[this result was elided to save space]"

# Names that providers take for tools.
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(slots=True)
class _Result:
    answer: ActionResult
    note: str = ""
    elided: bool = False

    def render(self) -> str:
        text = _ELIDED if self.elided else self.answer.text
        shown = render("iterative_result", result=as_data(text))
        return f"{shown}\n{as_data(self.note)}" if self.note else shown


@dataclass(slots=True)
class _Turn:
    text: str
    said: str
    calls: tuple[ToolCall, ...]
    results: list[_Result]


class Conversation:
    """The opening and the turns so far. `plain` describes the actions for servers without tools."""

    def __init__(self, plain: str, opening: ToolDialogue, counter: TokenCounter) -> None:
        self._plain = plain
        self._opening = opening
        self._counter = counter
        self._turns: list[_Turn] = []

    def add(self, text: str, read: ReadActions, answers: Sequence[ActionResult], note: str) -> None:
        """Add a reply and what answers it: one answer for each action, or one for the reply."""
        text = text.strip() or "(an empty reply)"
        results = [_Result(answer) for answer in answers]
        results[-1].note = note
        calls = _calls(read, len(self._turns))
        self._turns.append(_Turn(text, read.said if calls else text, calls, results))

    def prompt(self, limit: int) -> Prompt:
        """The next prompt, of at most `limit` tokens as far as results can be left out."""
        prompt = self._prompt()
        if prompt.tokens <= limit:
            return prompt
        surplus = prompt.tokens - int(limit * _SHORTENED_TO)
        for result in self._shortenable():
            if surplus <= 0:
                break
            surplus -= self._counter.count(result.answer.text)
            result.elided = True
        return self._prompt()

    def _shortenable(self) -> list[_Result]:
        """The results that may be left out, oldest first.

        The last turn, what edits did, and the last run of tests and of a command stay.
        """
        results = [result for turn in self._turns for result in turn.results]
        runs = {one.answer.kind: id(one) for one in results if one.answer.kind in ("tests", "run")}
        stay = {*runs.values(), *map(id, self._turns[-1].results)}
        stay |= {id(one) for one in results if one.elided or one.answer.kind == "edit"}
        return [one for one in results if id(one) not in stay]

    def _prompt(self) -> Prompt:
        messages = [Message("system", self._plain), Message("user", self._opening.opening)]
        turns: list[ToolTurn] = []
        for turn in self._turns:
            results = tuple(result.render() for result in turn.results)
            messages.append(Message("assistant", turn.text))
            messages.append(Message("user", "\n\n".join(results)))
            turns.append(
                ToolTurn(turn.said, turn.calls, results if turn.calls else ("\n\n".join(results),))
            )
        return make_prompt(messages, self._counter, replace(self._opening, turns=tuple(turns)))


def _calls(read: ReadActions, turn: int) -> tuple[ToolCall, ...]:
    """The actions of a reply as calls of tools; none where one has no usable name."""
    names = [asked.written.get("action") for asked in read.asked]
    if not all(isinstance(name, str) and _NAME.fullmatch(name) for name in names):
        return ()
    return tuple(
        ToolCall(
            f"call{turn % 1000:03}{position:02}",
            str(asked.written["action"]),
            {key: value for key, value in asked.written.items() if key != "action"},
        )
        for position, asked in enumerate(read.asked)
    )


def describe_attempts(attempts: Sequence[Attempt], counter: TokenCounter) -> str:
    """The thought, the diff, the test and the reason of each attempt."""
    return "\n\n".join(
        f"Reply {number}: {_describe(attempt, counter)}"
        for number, attempt in enumerate(attempts, 1)
    )


def _describe(attempt: Attempt, counter: TokenCounter) -> str:
    if attempt.asks_for_code:
        return f"no edit: {attempt.reason}."
    if attempt.parse_failure is not None:
        return f"no usable patch ({attempt.parse_failure.kind})."
    parts = []
    proposal = attempt.proposal
    if proposal is not None and proposal.thought:
        parts.append(proposal.thought)
    if attempt.patch is not None:
        parts.append(attempt.patch.diff.decode("utf-8", "replace").strip())
    test = proposal.reproduction_test if proposal else None
    if test is not None:
        parts.append(f"Its reproduction test:\n\n{test.path}:\n{test.content.strip()}\n")
    parts.append(describe_failure(attempt, counter))
    return "\n".join(parts)
