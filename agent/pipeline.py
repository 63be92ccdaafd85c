"""From an issue to a validated patch: the page to read first.

    Problem + Snapshot
     -> rank       lexical, evidence, cosine               agent.retrieval   -> Ranking
     -> pack       the best chunks within the token budget agent.context     -> ContextBundle
     -> prompt     templates in prompts/                   agent.prompting   -> Prompt
     -> call       one completion, within the budget;      agent.llm         -> Completion
                   packed again, once, if it is too long
     -> parse      JSON and what models make of it         agent.patching    -> PatchProposal
     -> apply      all edits or none, exact and unique     agent.patching    -> AppliedPatch
     -> validate   tests before and after, in a sandbox    agent.validation  -> ValidationReport
     -> policy     accept, repair once, iterate, give up   agent.policy

What each step returns is a value, also when it failed; the policy decides what a failure costs.
Exceptions are for broken environments. Whatever ends a run, its result holds the best patch so far.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from agent import iterative
from agent.context.missing import missing_context
from agent.context.packing import PackingOptions, pack
from agent.context.receipt import make_receipt
from agent.errors import ContextTooLong, PatchshotError, Status
from agent.events import Notice, StageFinished, StageStarted
from agent.patching.applying import apply_proposal
from agent.patching.parsing import parse_reply
from agent.patching.schema import reply_schema
from agent.policy import PolicyOptions, Room, Step, next_step, room_after
from agent.prompting import repair_prompt, solve_prompt
from agent.protocols import Services, Snapshot
from agent.result import Attempt, AttemptKind, Ledger, SolveResult, furthest, summarise
from agent.retrieval.ranking import no_words
from agent.types import (
    AppliedPatch,
    ApplyFailure,
    Completion,
    ContextBundle,
    ParseFailure,
    PatchProposal,
    Problem,
    Prompt,
    Usage,
)
from agent.validation.choosing.hints import find_test_hints


@dataclass(frozen=True, slots=True)
class SolveOptions:
    """What `solve` decides itself. Times in seconds, sizes in tokens."""

    packing: PackingOptions = field(default_factory=PackingOptions)
    policy: PolicyOptions = field(default_factory=PolicyOptions)
    iterative: iterative.IterativeOptions = field(default_factory=iterative.IterativeOptions)
    max_output_tokens: int = 8192
    timeout: float = 1500.0
    allow: tuple[str, ...] = ()  # protected paths that edits may touch
    no_repair: tuple[str, ...] = ()  # repairs and match tiers that are left out
    include_test: bool = False  # keep the reproduction test in the diff
    wider_tokens: int | None = None  # budget of the iterative mode's context; None: as before


MakePrompt = Callable[[ContextBundle], Prompt]


async def solve(
    problem: Problem,
    snapshot: Snapshot,
    services: Services,
    options: SolveOptions,
    ledger: Ledger,
) -> SolveResult:
    """Run the whole path. Never raises for what `agent.errors` names: the status says it."""
    run = _Run(problem, snapshot, services, options, ledger, options.max_output_tokens)
    try:
        async with asyncio.timeout(options.timeout) as limit:
            ledger.on_wait = partial(_prolong, limit)
            await run.attempt_all()
        best = furthest(ledger.attempts)
        assert best is not None
        return run.result(best.status, best.reason)
    except TimeoutError:
        return run.result(
            Status.TIME_LIMIT, f"the time limit of {options.timeout:g} s ran out (--timeout)"
        )
    except asyncio.CancelledError:
        return run.result(Status.INTERRUPTED, "interrupted")
    except PatchshotError as error:
        return run.result(error.status, str(error))
    finally:
        ledger.on_wait = None
        if run.preparing is not None:
            run.preparing.cancel()


def _prolong(limit: asyncio.Timeout, seconds: float) -> None:
    end = limit.when()
    if end is not None and not limit.expired():
        limit.reschedule(end + seconds)


@dataclass(slots=True)
class _Run:
    """One run: the steps above as methods that share what was passed in."""

    problem: Problem
    snapshot: Snapshot
    services: Services
    options: SolveOptions
    ledger: Ledger
    max_output_tokens: int
    preparing: asyncio.Task[None] | None = None
    window: int | None = None  # tokens that the model takes, once a server has told

    async def attempt_all(self) -> None:
        await self.retrieve()
        build: MakePrompt = self.prompt
        attempt = await self.attempt("one-shot", build)
        while True:
            match next_step(self.ledger.attempts, self.options.policy):
                case Step.REPAIR:
                    self.say_why(attempt, "one repair call")
                    build = self.repair(build, attempt)
                    attempt = await self.attempt("repair", build)
                case Step.ITERATE:
                    self.say_why(attempt, "the iterative mode")
                    await self.iterate()
                case Step.ACCEPT | Step.GIVE_UP:
                    return

    @property
    def bundle(self) -> ContextBundle:
        """The context as it was last packed."""
        assert self.ledger.bundle is not None
        return self.ledger.bundle

    async def retrieve(self) -> None:
        with self.stage("retrieve") as note:
            ranking = await self.services.retriever.rank(self.problem, self.snapshot)
            self.ledger.ranking = ranking
            note.append(f"{len(self.snapshot.files):,} files, {ranking.total_chunks:,} chunks")
        for missing in no_words(ranking):
            self.services.reporter(Notice(missing, "warning"))
        await self.pack(self.options.packing)

    async def pack(self, options: PackingOptions, *notes: str) -> None:
        assert self.ledger.ranking is not None
        with self.stage("pack") as note:
            bundle = await asyncio.to_thread(
                pack,
                self.problem,
                self.ledger.ranking,
                self.snapshot,
                self.services.counter,
                options,
                chunker=self.services.chunker,
            )
            self.ledger.bundle = replace(bundle, notes=(*bundle.notes, *notes))
            tokens = f"{bundle.tokens:,} of {bundle.budget:,} tokens"
            note.append(f"{len(bundle.pieces)} piece{'s' * (len(bundle.pieces) != 1)}, {tokens}")

    def prompt(self, bundle: ContextBundle) -> Prompt:
        assert self.ledger.ranking is not None
        counter = self.services.counter
        tests = find_test_hints(self.problem, self.ledger.ranking, self.snapshot, counter)
        return solve_prompt(self.problem, bundle, tests, counter)

    def repair(self, build: MakePrompt, attempt: Attempt) -> MakePrompt:
        """The conversation so far, continued by the failure of its last reply."""
        extra = self.missing(attempt)
        return lambda bundle: repair_prompt(build(bundle), attempt, extra, self.services.counter)

    async def attempt(self, kind: AttemptKind, build: MakePrompt) -> Attempt:
        prompt = await asyncio.to_thread(build, self.bundle)
        try:
            completion = await self.call(prompt)
        except ContextTooLong as error:
            await self.make_smaller(prompt, error)
            completion = await self.call(await asyncio.to_thread(build, self.bundle))
        return await self.judge(kind, completion)

    async def call(self, prompt: Prompt) -> Completion:
        if self.preparing is None:  # while the model thinks
            self.preparing = asyncio.create_task(self.services.validator.prepare())
        with self.stage("call", self.services.chat.model) as note:
            completion = await self.services.chat.complete(
                prompt, max_output_tokens=self.max_output_tokens, schema=reply_schema()
            )
            note.append(_usage_in_words(completion.usage))
        return completion

    async def make_smaller(self, prompt: Prompt, error: ContextTooLong) -> None:
        """Pack the context again, for the window that the server told, or half of what it was.

        What is learnt holds for the rest of the run. Raises the error where too little is left.
        """
        before = self.bundle.tokens
        room = room_after(
            error,
            prompt_tokens=prompt.tokens,
            context_tokens=before,
            max_output_tokens=self.max_output_tokens,
        )
        if room is None:
            raise error
        self.max_output_tokens, self.window = room.output, error.limit
        told = _window_in_words(error, room)
        self.services.reporter(Notice(f"{told}; trying once more", "warning"))
        if room.context < before:
            await self.pack(replace(self.options.packing, budget=room.context, reserve=0.0), told)

    async def judge(self, kind: AttemptKind, completion: Completion) -> Attempt:
        """Parse, apply, validate; record the attempt as soon as it holds a patch."""
        with self.stage("apply") as note:
            proposal = parse_reply(completion.text, finish_reason=completion.finish_reason)
            if isinstance(proposal, ParseFailure):
                attempt = Attempt(kind, completion, parse_failure=proposal)
                note.append(f"{proposal.kind} reply")
            else:
                attempt = await asyncio.to_thread(self.apply, kind, completion, proposal)
                note.append(_edits_in_words(attempt))
        self.ledger.record(attempt)
        return await self.validate(attempt) if attempt.patch is not None else attempt

    def apply(self, kind: AttemptKind, completion: Completion, proposal: PatchProposal) -> Attempt:
        applied = self.applied(kind, proposal)
        if self.options.include_test and isinstance(applied, AppliedPatch):
            applied = self.with_test(kind, proposal, applied)
        if isinstance(applied, ApplyFailure):
            return Attempt(kind, completion, proposal, apply_failure=applied)
        return Attempt(kind, completion, proposal, patch=applied)

    def applied(
        self, kind: AttemptKind, proposal: PatchProposal, *, include_test: bool = False
    ) -> AppliedPatch | ApplyFailure:
        # A repair call has shown more than the bundle.
        shown = shown_lines(self.ledger.bundle) if kind == "one-shot" else None
        return apply_proposal(
            proposal,
            self.snapshot,
            allow=self.options.allow,
            include_test=include_test,
            shown=shown,
            no_repair=self.options.no_repair,
        )

    def with_test(
        self, kind: AttemptKind, proposal: PatchProposal, applied: AppliedPatch
    ) -> AppliedPatch:
        """The patch with its reproduction test, or without where the test has no place."""
        both = self.applied(kind, proposal, include_test=True)
        if isinstance(both, AppliedPatch):
            return both
        self.services.reporter(
            Notice(f"the reproduction test is left out of the diff: {both.reason}", "warning")
        )
        return applied

    async def validate(self, attempt: Attempt) -> Attempt:
        assert attempt.patch is not None
        test = attempt.proposal.reproduction_test if attempt.proposal else None
        with self.stage("validate") as note:
            report = await self.services.validator.validate(attempt.patch, test)
            note.append(report.verdict.value)
        validated = Attempt(
            attempt.kind,
            attempt.completion,
            attempt.proposal,
            patch=attempt.patch,
            report=report,
        )
        self.ledger.record(validated, replacing_last=True)
        return validated

    async def widen(self) -> None:
        """Pack a wider context for what follows, where there is room for it."""
        wanted = self.options.wider_tokens or 0
        budget = iterative.room_for_context(wanted, self.options.iterative, self.window)
        if budget <= self.options.packing.budget:
            return
        assert self.ledger.ranking is not None
        if self.services.widener is not None:
            with self.stage("plan"):
                self.ledger.ranking = await self.services.widener.widen(
                    self.problem, self.snapshot, self.ledger.ranking, self.bundle, self.lacked()
                )
        note = f"widened to {budget:,} tokens for the iterative mode"
        await self.pack(replace(self.options.packing, budget=budget), note)

    def lacked(self) -> tuple[str, ...]:
        """What the replies named as missing, each once."""
        told = (attempt.proposal or attempt.parse_failure for attempt in self.ledger.attempts)
        return tuple(dict.fromkeys(name for one in told if one for name in one.missing))

    async def iterate(self) -> None:
        await self.widen()
        with self.stage("iterate") as note:
            outcome = await iterative.run(
                self.problem,
                self.snapshot,
                self.bundle,
                tuple(self.ledger.attempts),
                self.services,
                iterative.within(self.options.iterative, self.window),
                self.keep_draft,
            )
            note.append(outcome.reason if outcome.patch is None else _edits_in_words(outcome))
        self.keep_draft(outcome)
        if outcome.patch is not None:
            await self.validate(outcome)

    def keep_draft(self, draft: Attempt) -> None:
        """The iterative mode's attempt as it stands; each draft takes the place of the last."""
        again = self.ledger.attempts[-1].kind == "iterative"
        self.ledger.record(draft, replacing_last=again)

    def missing(self, attempt: Attempt) -> str:
        """The code that the reply said it lacked, as far as it exists and fits."""
        told = attempt.proposal or attempt.parse_failure
        names = told.missing if told else ()
        assert self.ledger.ranking is not None
        return missing_context(
            names,
            self.problem,
            self.ledger.ranking,
            self.bundle,
            self.snapshot,
            self.services.counter,
            self.services.chunker,
        )

    def say_why(self, attempt: Attempt, then: str) -> None:
        first_line = attempt.reason.strip().splitlines()[0] if attempt.reason.strip() else ""
        self.services.reporter(
            Notice(f"{attempt.kind}: {attempt.status.value} ({first_line}); {then} next", "warning")
        )

    def result(self, status: Status, message: str) -> SolveResult:
        ledger = self.ledger
        receipt = None
        if ledger.ranking is not None and ledger.bundle is not None:
            receipt = make_receipt(ledger.ranking, ledger.bundle).as_json()
        return summarise(
            ledger,
            status=status,
            message=message,
            model=self.services.chat.model,
            commit=self.snapshot.commit,
            dirty=self.snapshot.dirty,
            receipt=receipt,
            notes=ledger.ranking.notes if ledger.ranking else (),
        )

    @contextmanager
    def stage(self, name: str, detail: str = "") -> Iterator[list[str]]:
        """Report and time one stage; the caller appends what it made."""
        started = time.perf_counter()
        summary: list[str] = []
        finished = False
        self.services.reporter(StageStarted(name, detail))
        try:
            yield summary
            finished = True
        finally:
            seconds = time.perf_counter() - started
            self.ledger.spend(name, seconds)
            self.services.reporter(StageFinished(name, seconds, "; ".join(summary), finished))


def shown_lines(bundle: ContextBundle | None) -> Mapping[str, Sequence[tuple[int, int]]]:
    """The line ranges that the model was shown, by path."""
    shown: dict[str, list[tuple[int, int]]] = {}
    for piece in bundle.pieces if bundle else ():
        shown.setdefault(piece.path, []).extend(piece.shown)
    return shown


def _window_in_words(error: ContextTooLong, room: Room) -> str:
    limit = "the model" if error.limit is None else f"the model's window of {error.limit:,} tokens"
    return (
        f"the prompt was too long for {limit}: the context now has at most {room.context:,} "
        f"tokens, the reply {room.output:,}"
    )


def _usage_in_words(usage: Usage) -> str:
    cost = "" if usage.cost_usd is None else f", ${usage.cost_usd:.4f}"
    return f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out{cost}"


def _edits_in_words(attempt: Attempt) -> str:
    if attempt.patch is None:
        return "does not apply"
    edits, files = len(attempt.patch.edits), len(attempt.patch.changes)
    return f"{edits} edit{'s' * (edits != 1)} in {files} file{'s' * (files != 1)}"
