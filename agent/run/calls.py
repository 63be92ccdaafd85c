"""The calls of one run: send a prompt, and make it smaller if the server finds it too long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from agent.errors import ContextTooLong
from agent.patching import reply_schema
from agent.retrieval.context import AskedCode, CodeRequests
from agent.run.attempts import Attempt, last_proposal
from agent.run.context_steps import ContextSteps
from agent.run.policy import room_after
from agent.types import Completion, ContextBundle, Prompt
from agent.types.events import Notice
from agent.types.protocols import Services

BuildPrompt = Callable[[ContextBundle], Prompt]


@dataclass(slots=True)
class Calls:
    """Sends prompts to the model, which may change during the run. Sizes are in tokens."""

    services: Services
    context: ContextSteps
    requests: CodeRequests
    max_output_tokens: int
    goes_on: bool = False
    window: int | None = None
    preparing: asyncio.Task[None] | None = None
    models: str = ""  # those that were called, once there are two

    def escalate(self) -> None:
        """Let the model for failures make the calls from here on, if there is one."""
        stronger = self.services.escalation
        if stronger is not None:
            self.models = f"{self.services.chat.model}, {stronger.model}"
            self.services = replace(self.services, chat=stronger, escalation=None)

    def stop_preparing(self) -> None:
        """Cancel the work that needs no patch, if it still runs."""
        if self.preparing is not None:
            self.preparing.cancel()

    async def call(self, build: BuildPrompt, schema: Mapping[str, Any] | None = None) -> Completion:
        """Send the prompt; once more, made smaller, if the server finds it too long."""
        prompt = await asyncio.to_thread(build, self.context.bundle)
        try:
            return await self.send(prompt, schema)
        except ContextTooLong as error:
            await self._make_smaller(prompt, error)
            return await self.send(await asyncio.to_thread(build, self.context.bundle), schema)

    async def send(self, prompt: Prompt, schema: Mapping[str, Any] | None = None) -> Completion:
        """Send a prompt once; without a `schema`, the reply is a patch."""
        if self.preparing is None:  # while the model thinks
            self.preparing = asyncio.create_task(self.services.validator.prepare())
        with self.context.timer.stage("call", self.services.chat.model) as note:
            completion = await self.services.chat.complete(
                prompt, max_output_tokens=self.max_output_tokens, schema=schema or self._schema()
            )
            note.append(completion.usage.summary)
        return completion

    def _schema(self) -> dict[str, Any] | None:
        """Return the schema of the next reply; None for the rest of one that was cut off."""
        attempts = self.context.ledger.attempts
        if attempts and attempts[-1].is_cut_off:
            return None
        return reply_schema(partial=last_proposal(attempts) is not None)

    # --- the code that replies ask for

    def request(self, attempt: Attempt) -> Callable[[ContextBundle], AskedCode]:
        """Note what a reply lacks. The result finds it, beside a context and earlier code."""
        number = self.requests.add((*attempt.missing, *attempt.broken_tests))
        return lambda bundle: self._answers(bundle)[number]

    def asked_code(self, room: int) -> AskedCode | None:
        """The code that was sent beside the context, as far as it fits in `room` tokens."""
        return self.requests.together(self.context.ranking, self.context.bundle, room)

    @property
    def asked_tokens(self) -> list[int]:
        """The size of the code that was sent for each request."""
        return [code.tokens for code in self._answers(self.context.bundle)]

    def _answers(self, bundle: ContextBundle) -> list[AskedCode]:
        return self.requests.answers(self.context.ranking, None if self.goes_on else bundle)

    async def _make_smaller(self, prompt: Prompt, error: ContextTooLong) -> None:
        """Pack less context, for the rest of the run. Raises `error` if too little would be left.

        The server's stated window decides; without one the context is halved.
        """
        asked = self.asked_tokens
        context = self.context.bundle.tokens
        before = context + sum(asked)
        room = room_after(
            error,
            prompt_tokens=prompt.tokens,
            context_tokens=before,
            max_output_tokens=self.max_output_tokens,
        )
        if room is None:
            raise error
        most, self.max_output_tokens = room
        self.window = error.limit
        window = "" if error.limit is None else f"'s window of {error.limit:,} tokens"
        note = (
            f"the prompt was too long for the model{window}: the context now has at most "
            f"{most:,} tokens, the reply {self.max_output_tokens:,}"
        )
        self.services.reporter(Notice(f"{note}; trying once more", "warning"))
        if most < before:
            if asked:
                self.requests.budget = max(asked) * most // before
            await self.context.shrink(context * most // before, note)
