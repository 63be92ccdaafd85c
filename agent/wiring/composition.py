"""Composes the parts of one run. Functions import heavy packages only where they use them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.errors import ConfigurationError
from agent.settings import Settings
from agent.types.events import Notice
from agent.types.protocols import (
    BackgroundFinder,
    ChatModel,
    Reporter,
    Retriever,
    Services,
    Snapshot,
    TokenCounter,
)
from agent.wiring.model import (
    Connections,
    make_clock,
    make_counter,
    may_ask_for_test,
    plan_in_words,
)
from agent.wiring.retrieval import (
    make_embedder,
    make_index,
    make_retriever,
    packing_options,
    retrieval_options,
)
from agent.wiring.validation import open_validator

if TYPE_CHECKING:
    from agent.llm.recording import ReplyGate
    from agent.run.attempts import Attempt
    from agent.run.policy import SolveOptions
    from agent.run.record import Ledger
    from agent.search import Pool
    from agent.search.plans import Planner
    from agent.shared.secrets import KnownSecrets
    from agent.types import Completion, Problem, Prompt
    from sandbox import Sandbox


def make_planner(
    settings: Settings, counter: TokenCounter, reporter: Reporter, *, beam: int | None = None
) -> Planner:
    """Make the plan search: best-first, or with a `beam`. Raises ConfigurationError if missing."""
    try:
        from agent.search.plans import Planner
    except ModuleNotFoundError:  # the miner bundle leaves plan search out
        text = "plan search is not in this bundle; leave out PATCHSHOT_PLAN"
        raise ConfigurationError(text) from None
    from agent.search import Label
    from agent.wiring.search import open_pool

    def intents(snapshot: Snapshot) -> AbstractAsyncContextManager[Pool]:
        return open_pool(settings, snapshot, reporter, (Label.INTENT,))

    return Planner(make_index(settings, reporter), counter, width=beam, intents=intents)


@dataclass(frozen=True, slots=True)
class LateFinder:
    """The action `find`. Its package is imported when the model uses it first."""

    retriever: Retriever

    async def find(self, intents: Sequence[str], snapshot: Snapshot) -> str:
        """Answer as `find_places` does."""
        from agent.search.plans import find_places

        return await find_places(intents, self.retriever, snapshot)


def make_background(
    settings: Settings, counter: TokenCounter, reporter: Reporter
) -> tuple[BackgroundFinder, ...]:
    """Make what finds the text beside the code. Raises ConfigurationError."""
    found: list[BackgroundFinder] = []
    if settings.plan:
        found.append(make_planner(settings, counter, reporter))
    if settings.corpora:
        from agent.wiring.search import PassageBackground

        found.append(PassageBackground(settings, reporter, counter))
    return tuple(found)


class MaskingChatModel:
    """A `ChatModel` whose inner one gets prompts without the values that are known to be secret."""

    def __init__(self, inner: ChatModel, known: KnownSecrets, counter: TokenCounter) -> None:
        self._inner = inner
        self._known = known
        self._counter = counter

    @property
    def model(self) -> str:
        """The inner model's name."""
        return self._inner.model

    async def complete(
        self, prompt: Prompt, *, max_output_tokens: int, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        """Ask the inner model. Raises what it raises."""
        from agent.run.prompting import make_prompt

        messages = [replace(m, content=self._known.masked(m.content)) for m in prompt.messages]
        if tuple(messages) != prompt.messages:
            dialogue = prompt.dialogue and prompt.dialogue.mapped(self._known.masked)
            prompt = make_prompt(messages, self._counter, dialogue)
        return await self._inner.complete(
            prompt, max_output_tokens=max_output_tokens, schema=schema
        )


@asynccontextmanager
async def open_services(
    settings: Settings,
    problem: Problem,
    snapshot: Snapshot,
    reporter: Reporter,
    ledger: Ledger,
    *,
    record: Path | None = None,
    replay: Path | None = None,
    announce: bool = False,
    gate: ReplyGate | None = None,
    trial: Callable[[], Sandbox] | None = None,
    around: Callable[[Sandbox], Sandbox] | None = None,
    streaming: bool = False,
    project: str | None = None,
) -> AsyncIterator[Services]:
    """Open all parts of one `solve`. Closes connections, files and private copies at the end.

    `gate`: what each model call passes, if replies are kept or runs share a budget.
    `announce`: report the most that the run may use, unless its replies are recorded ones.
    `trial`: waits for a sandbox test that was started earlier (`validation.Ahead`).
    `around`: wraps the sandbox when runs of several programs share the machine.
    `streaming`: show how long a reply is while it is being written.
    `project`: the target's name in the file of environments.
    Raises ConfigurationError or SandboxUnavailable before the first paid call.
    """
    from agent.llm import LoggedChatModel
    from agent.retrieval.index import TreeSitterChunker
    from agent.verify import known_secrets

    async with AsyncExitStack() as stack:
        validator = await open_validator(
            stack,
            settings,
            problem,
            snapshot,
            reporter,
            trial=trial,
            around=around,
            project=project,
        )
        connections = Connections(
            stack,
            reporter,
            make_clock(settings.timeout, lambda: ledger.waited),
            record=record,
            replay=replay,
            gate=gate,
            streaming=streaming,
        )
        budgeted = await connections.budgeted(settings)
        ledger.usage = lambda: budgeted.usage
        escalation = await connections.escalation(settings, budgeted)
        if announce and replay is None:
            models = [budgeted] if escalation is None else [budgeted, escalation]
            budgets = [model.budget for model in models]
            reporter(Notice(plan_in_words(settings, problem, budgets)))
        embedder = await make_embedder(settings, connections)

        def masked(model: ChatModel) -> ChatModel:
            logged = LoggedChatModel(model, reporter)
            return MaskingChatModel(logged, known_secrets(snapshot), make_counter(model.model))

        chat = masked(budgeted)
        locator = await connections.locator(settings, budgeted)
        retriever = make_retriever(settings, embedder, reporter)
        yield Services(
            retriever=retriever,
            chunker=TreeSitterChunker(),
            counter=make_counter(budgeted.model),
            chat=chat,
            validator=validator,
            reporter=reporter,
            # the miner bundle leaves the package out; `find_spec` imports only `agent`
            finder=LateFinder(retriever) if find_spec("agent.search") else None,
            escalation=None if escalation is None else masked(escalation),
            locator=None if locator is None else masked(locator),
            background=make_background(settings, make_counter(chat.model), reporter),
        )


def solve_options(
    settings: Settings,
    problem: Problem | None = None,
    *,
    another_test: bool = True,
    files: Sequence[str] = (),
) -> SolveOptions:
    """Return the pipeline options of the settings; `another_test`: a call for one may follow.

    `files`: code that the user puts into the context.
    """
    from agent.run.policy import SolveOptions

    retrieval_options(settings)  # unknown names are rejected before the first model call
    return SolveOptions(
        packing=packing_options(settings),
        locate=settings.locate,
        repairs=settings.repairs,
        another_test=another_test and may_ask_for_test(settings, problem),
        independent=settings.evidence == "independent" and may_ask_for_test(settings, problem),
        max_steps=settings.max_steps,
        max_output_tokens=settings.max_output_tokens,
        timeout=settings.timeout,
        allow=settings.allow,
        include_test=settings.include_test,
        outdated_tests=settings.outdated_tests,
        checks=settings.check,
        files=tuple(files),
    )


def apply_reply(
    text: str, snapshot: Snapshot, settings: Settings, *, include_test: bool = False
) -> Attempt:
    """Read a saved reply or a diff and apply it in memory; the attempt says how far it came."""
    from agent.patching import apply_proposal, parse_reply
    from agent.run.attempts import Attempt
    from agent.types import ApplyFailure, ParseFailure

    proposal = parse_reply(text)
    if isinstance(proposal, ParseFailure):
        return Attempt("saved-reply", parse_failure=proposal)
    applied = apply_proposal(proposal, snapshot, allow=settings.allow, include_test=include_test)
    if isinstance(applied, ApplyFailure):
        return Attempt("saved-reply", proposal=proposal, apply_failure=applied)
    return Attempt("saved-reply", proposal=proposal, patch=applied)
