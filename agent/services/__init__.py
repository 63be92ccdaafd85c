"""The composition root: builds the real parts from settings and passes them in.

One module a kind of part. Everything heavy is imported in the function that needs it, so that a
command pays only for what it uses.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from agent.protocols import Reporter, Services, Snapshot
from agent.services.context import make_counter, packing_options
from agent.services.embedding import make_embedder
from agent.services.model import Client, Gate, Tapes, make_chat_model, make_clock, within_budget
from agent.services.retrieval import make_retriever, retrieval_options
from agent.services.validation import open_validator
from agent.services.widening import make_widener
from agent.settings import Settings

if TYPE_CHECKING:
    from agent.pipeline import SolveOptions
    from agent.result import Ledger
    from agent.types import Problem
    from sandbox.types import Sandbox


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
    gate: Gate | None = None,
    sandbox_tried: bool = False,
    trial: Callable[[], Sandbox] | None = None,
    around: Callable[[Sandbox], Sandbox] | None = None,
) -> AsyncIterator[Services]:
    """All parts of one `solve`. Closes connections, files and private copies at the end.

    `gate`: what each model call has to pass, where several runs share what they may spend.
    `sandbox_tried`: a run of the same settings has just made sure of the sandbox on this machine.
    `trial`: waits for a trial of it that was begun before (`ahead.Ahead`).
    `around`: what is put around the sandbox, where runs of several programs share the machine.
    Raises ConfigurationError or SandboxUnavailable before anything is paid for.
    """
    from agent.llm.call_log import LoggedChatModel
    from agent.retrieval.chunking import TreeSitterChunker

    async with AsyncExitStack() as stack:
        validator = await open_validator(
            stack,
            settings,
            problem,
            snapshot,
            reporter,
            sandbox_tried=sandbox_tried,
            trial=trial,
            around=around,
        )
        time_left = make_clock(settings.timeout, lambda: ledger.waited)
        tapes = Tapes(stack, record, replay, reporter)
        client = Client(stack)
        chosen = await make_chat_model(stack, settings, client, reporter, time_left, tapes, gate)
        budgeted = within_budget(settings, chosen, gate)
        ledger.usage = lambda: budgeted.usage
        embedder = await make_embedder(stack, settings, client, reporter, time_left, tapes)
        chat = LoggedChatModel(budgeted, reporter, bodies=settings.log_bodies)
        yield Services(
            retriever=make_retriever(settings, embedder, reporter),
            chunker=TreeSitterChunker(),
            counter=make_counter(budgeted.model),
            chat=chat,
            validator=validator,
            reporter=reporter,
            widener=make_widener(settings, chat, reporter),
        )


def solve_options(settings: Settings) -> SolveOptions:
    """What the pipeline decides itself, from the settings."""
    from agent.iterative import IterativeOptions
    from agent.patching.repair import switched_off
    from agent.pipeline import SolveOptions
    from agent.policy import PolicyOptions

    # Names that there are not are said before a call is paid.
    switched_off(settings.no_repair)
    retrieval_options(settings)
    return SolveOptions(
        packing=packing_options(settings),
        policy=PolicyOptions(repairs=settings.repairs, iterative=settings.iterative),
        iterative=IterativeOptions(
            max_steps=settings.max_steps,
            max_output_tokens=settings.max_output_tokens,
            allow=settings.allow,
            no_repair=settings.no_repair,
            include_test=settings.include_test,
            find=settings.find_action,
        ),
        max_output_tokens=settings.max_output_tokens,
        timeout=settings.timeout,
        allow=settings.allow,
        no_repair=settings.no_repair,
        include_test=settings.include_test,
        wider_tokens=None if settings.widening == "off" else settings.wider_tokens,
    )
