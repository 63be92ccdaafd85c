"""From an issue to a validated patch. Read this page first.

    Problem + Snapshot
     -> rank       lexical, evidence and cosine scores      agent.index, agent.ranking -> Ranking
     -> locate     where that is unlikely to suffice, a     agent.locating     -> Ranking
                   model names code from a map
     -> pack       the best chunks within a token budget    agent.context      -> ContextBundle
     -> prompt     templates in prompts/                    agent.prompting    -> Prompt
     -> call       one completion, within the cost budget;  agent.llm          -> Completion
                   packed once more if it is too long
     -> parse      JSON, and other shapes models answer in  agent.patching     -> PatchProposal
     -> apply      all edits or none, exact and unique      agent.patching     -> AppliedPatch
     -> validate   tests before and after, in a sandbox     agent.validation   -> ValidationReport
     -> next_step  accept, send code, repair, iterate or    agent.policy       -> NextStep
                   give up

Every step returns a value, also when it fails; the policy decides what follows a failure.
Exceptions are for broken environments. However a run ends, its result holds the best patch so far.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from agent import iterative, locating, samples
from agent.context import AskedCode, CodeRequests, PackingOptions, make_receipt, pack
from agent.errors import ConfigurationError, ContextTooLong, PatchshotError, Status
from agent.events import Notice, StageFinished, StageStarted
from agent.patching import apply_proposal, joined_reply, parse_reply, reply_schema
from agent.policy import NextStep, PolicyOptions, code_rounds_left, next_step, room_after
from agent.prompting import code_prompt, repair_prompt, solve_prompt, with_background, with_code
from agent.protocols import Services, Snapshot, TokenCounter
from agent.ranking import in_scope, no_words
from agent.result import (
    Attempt,
    AttemptKind,
    Ledger,
    SolveResult,
    describe_wrong_test,
    lasting_tests,
    outcome,
    summarise,
    with_edited_tests,
    with_kept_test,
)
from agent.settings import MAX_OUTPUT_TOKENS, TIMEOUT_SECONDS, WIDER_TOKENS, OutdatedMode
from agent.types import (
    AppliedPatch,
    ApplyFailure,
    Completion,
    ContextBundle,
    OutdatedTest,
    ParseFailure,
    PatchProposal,
    Problem,
    Prompt,
    Ranking,
    ReproductionTest,
    Verdict,
)
from agent.validation import find_test_hints


@dataclass(frozen=True, slots=True)
class SolveOptions:
    """The limits of `solve`. Times in seconds, sizes in tokens."""

    packing: PackingOptions = field(default_factory=PackingOptions)
    policy: PolicyOptions = field(default_factory=PolicyOptions)
    iterative: iterative.IterativeOptions = field(default_factory=iterative.IterativeOptions)
    max_output_tokens: int = MAX_OUTPUT_TOKENS
    samples: int = 1  # replies to the first prompt
    timeout: float = TIMEOUT_SECONDS
    allow: tuple[str, ...] = ()  # protected paths that edits may touch
    no_repair: tuple[str, ...] = ()  # repairs and match tiers that are switched off
    include_test: bool = False  # keep the reproduction test in the diff
    outdated_tests: OutdatedMode = "show"  # existing tests that assert what the issue calls wrong
    code_tokens: int = WIDER_TOKENS  # most code that is sent because one reply asks for it
    wider_tokens: int | None = None  # context budget of the iterative mode; None: not widened
    locate: locating.LocateWhen = "auto"


# Most of the context's budget that past changes, documents and a plan take together.
BACKGROUND_SHARE = 0.25

# Names of a request that a message repeats.
_NAMES_SHOWN = 10

BuildPrompt = Callable[[ContextBundle], Prompt]
OpenPrompt = Callable[[TokenCounter], Prompt]
"""Builds the prompt that goes on from an earlier run; it holds the context of that run."""


async def solve(
    problem: Problem,
    snapshot: Snapshot,
    services: Services,
    options: SolveOptions,
    ledger: Ledger,
    *,
    going_on: OpenPrompt | None = None,
) -> SolveResult:
    """Run all steps. The errors of `agent.errors` end as a status, not as an exception.

    `going_on` replaces the prompt of the first call; its attempt counts as a repair.
    """
    requests = CodeRequests(snapshot, services.counter, services.chunker, options.code_tokens)
    run = _Run(
        problem, snapshot, snapshot, services, options, ledger, options.max_output_tokens, requests
    )
    run.going_on = going_on
    try:
        async with asyncio.timeout(options.timeout) as limit:
            ledger.on_wait = partial(_extend, limit)
            await run.attempt_until_done()
        return run.result(*outcome(ledger.attempts))
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


def _extend(limit: asyncio.Timeout, seconds: float) -> None:
    end = limit.when()
    if end is not None and not limit.expired():
        limit.reschedule(end + seconds)


@dataclass(slots=True)
class _Run:
    """One run. Its methods are the steps above, in their order, and share these values.

    `view` has the files that retrieval sees: all, or those of the snapshot's scope.
    `max_output_tokens` and `window` (of the model, in tokens) change when a server says that a
    prompt was too long. `requests` has the code that replies ask for. `preparing` is the work of
    the validator that needs no patch.
    """

    problem: Problem
    snapshot: Snapshot
    view: Snapshot
    services: Services
    options: SolveOptions
    ledger: Ledger
    max_output_tokens: int
    requests: CodeRequests
    window: int | None = None
    preparing: asyncio.Task[None] | None = None
    going_on: OpenPrompt | None = None
    background: str = ""
    models: str = ""  # those that were called, once there are two

    async def attempt_until_done(self) -> None:
        """Make one call, and after each attempt do what the policy decides."""
        await self.services.validator.check()
        await self.rank()
        await self.find_background()
        await self.pack(await self.locate())
        self.refuse_empty_context()
        build: BuildPrompt = self.first_prompt
        if self.going_on is None and self.options.samples > 1:
            attempt = await self.best_of(build)
        else:
            attempt = await self.attempt("one-shot" if self.going_on is None else "repair", build)
        while True:
            match next_step(self.ledger.attempts, self.options.policy):
                case NextStep.SEND_CODE:
                    build = self.code_prompt(build, attempt)
                    attempt = await self.attempt("more-code", build)
                case NextStep.REPAIR:
                    self.escalate()
                    self.announce(attempt, "one repair call")
                    build = self.repair_prompt(build, attempt)
                    attempt = await self.attempt("repair", build)
                case NextStep.ITERATE:
                    self.escalate()
                    self.announce(attempt, "the iterative mode")
                    await self.iterate()
                case NextStep.ACCEPT | NextStep.GIVE_UP:
                    return

    def escalate(self) -> None:
        """Let the model for failures make the calls from here on, if there is one."""
        stronger = self.services.escalation
        if stronger is not None:
            self.models = f"{self.services.chat.model}, {stronger.model}"
            self.services = replace(self.services, chat=stronger, escalation=None)

    async def attempt(self, kind: AttemptKind, build: BuildPrompt) -> Attempt:
        """Prompt, call, parse, apply and validate. The ledger holds a patch once it applies."""
        begun = self.ledger.attempts[-1] if kind == "repair" and self.ledger.attempts else None
        completion = await self.call(build)
        if begun is not None and begun.is_cut_off:
            completion = self.continued(begun, completion)
        with self.stage("apply") as note:
            attempt = await asyncio.to_thread(self.parse_and_apply, kind, completion)
            note.append(attempt.summary)
        self.ledger.record(attempt)
        return await self.validate(attempt) if attempt.patch is not None else attempt

    def continued(self, begun: Attempt, completion: Completion) -> Completion:
        """Return a reply that was cut off, joined with what continues it."""
        assert begun.completion is not None
        text = joined_reply(
            begun.completion.text,
            completion.text,
            finish_reason=completion.finish_reason,
            earlier=self.earlier_proposal,
        )
        return replace(completion, text=text)

    @property
    def earlier_proposal(self) -> PatchProposal | None:
        """The last proposal, whose edits the next reply may keep."""
        made = (attempt.proposal for attempt in reversed(self.ledger.attempts))
        return next((proposal for proposal in made if proposal is not None), None)

    # --- several replies to the first prompt

    async def best_of(self, build: BuildPrompt) -> Attempt:
        """Draw replies, validate each different patch, and return the one that tests choose."""
        drawn = await self.draw(build)
        with self.stage("apply") as note:
            made = [await asyncio.to_thread(self.parse_and_apply, "one-shot", one) for one in drawn]
            note.append("; ".join(attempt.summary for attempt in made))
        first: dict[samples.Effect, Attempt] = {}
        tried = []
        for attempt in (replace(one, kind="sample") for one in made):
            self.ledger.record(attempt)
            effect = samples.effect_of(attempt)
            if attempt.patch is not None and effect not in first:
                first[effect] = await self.validate(attempt)
            same = first.get(effect)
            tried.append(attempt if same is None else replace(attempt, report=same.report))
            self.ledger.record(tried[-1], replacing_last=True)
        return await self.choose(tried)

    async def choose(self, tried: list[Attempt]) -> Attempt:
        """Choose by the tests of all replies, and record the chosen attempt last."""
        with self.stage("cross-evaluate") as note:
            validator = self.services.validator
            cross = await samples.cross_evaluate(tried, validator, self.snapshot)
            chosen = samples.best_sample(tried, cross)
            passes = cross.of(chosen)
            told = samples.describe(tried, chosen, cross)
            note.append(told)
        self.ledger.attempts.remove(chosen)
        attempt = replace(chosen, kind="one-shot")
        others = tuple(test for test in cross.tests if test.path in passes)
        if attempt.report is not None:
            if others and attempt.report.verdict is Verdict.NOT_REGRESSED:
                self.ledger.record(attempt)
                attempt = await self.validate(attempt, others)
                self.ledger.attempts.pop()
            assert attempt.report is not None
            report = replace(attempt.report, notes=(*attempt.report.notes, told))
            attempt = replace(attempt, report=report)
        self.ledger.record(attempt)
        return attempt

    async def draw(self, build: BuildPrompt) -> list[Completion]:
        """Send the prompt as often as there are samples, at once; smaller if it is too long.

        The replies are in the order of their texts: the same replies, the same choice.
        """
        prompt = await asyncio.to_thread(build, self.bundle)
        drawn = await self.call_at_once(prompt)
        error = next((one for one in drawn if isinstance(one, ContextTooLong)), None)
        if error is not None:
            await self.make_smaller(prompt, error)
            drawn = await self.call_at_once(await asyncio.to_thread(build, self.bundle))
        failed = [one for one in drawn if not isinstance(one, Completion)]
        got = [one for one in drawn if isinstance(one, Completion)]
        if not got:
            raise failed[0]
        if failed:
            note = f"{len(got)} of {len(drawn)} samples: {failed[0]}"
            self.services.reporter(Notice(note, "warning"))
        return sorted(got, key=lambda one: one.text)

    async def call_at_once(self, prompt: Prompt) -> list[Completion | PatchshotError]:
        calls = (self.call_or_error(prompt) for _ in range(self.options.samples))
        return list(await asyncio.gather(*calls))

    async def call_or_error(self, prompt: Prompt) -> Completion | PatchshotError:
        try:
            return await self.call_once(prompt)
        except PatchshotError as error:
            return error

    # --- rank and pack

    async def rank(self) -> None:
        with self.stage("retrieve") as note:
            self.view = await asyncio.to_thread(in_scope, self.problem, self.snapshot)
            ranking = await self.services.retriever.rank(self.problem, self.view)
            self.ledger.ranking = ranking
            note.append(f"{len(self.view.files):,} files, {ranking.total_chunks:,} chunks")
        for missing in no_words(ranking):
            self.services.reporter(Notice(missing, "warning"))

    async def locate(self) -> PackingOptions:
        """Let a model name code if that is wanted. Return the options to pack with."""
        packing, services = self.options.packing, self.services
        if services.locator is None or self.going_on is not None:
            return packing
        when, ranking = self.options.locate, self.ranking
        if not await asyncio.to_thread(
            locating.is_wanted, when, ranking, packing, services.counter
        ):
            return packing
        with self.stage("locate", services.locator.model) as note:
            found = await locating.locate(
                self.problem, self.view, self.ranking, packing, services, services.locator
            )
            note.append(found.summary)
        if found.failure:
            text = f"the locating call has failed ({found.failure}); the ordinary context is used"
            services.reporter(Notice(text, "warning"))
        self.ledger.ranking = found.ranking
        return found.packing

    async def find_background(self) -> None:
        """Search what stands beside the code in every context of this run."""
        room = int(self.options.packing.budget * BACKGROUND_SHARE)
        finders = self.services.background if self.going_on is None else ()
        for finder in finders:
            with self.stage("background") as note:
                used = self.services.counter.count(self.background)
                found = await finder.find(self.problem, self.view, self.ranking, room - used)
                self.background = f"{self.background}\n\n{found}".strip()
                note.append(f"{self.services.counter.count(found):,} tokens")

    async def pack(self, options: PackingOptions, *notes: str) -> None:
        beside = self.services.counter.count(self.background)
        options = replace(options, budget=max(options.budget - beside, beside))
        with self.stage("pack") as note:
            bundle = await asyncio.to_thread(
                pack,
                self.problem,
                self.ranking,
                self.view,
                self.services.counter,
                options,
                chunker=self.services.chunker,
            )
            bundle = replace(bundle, notes=(*bundle.notes, *notes))
            if self.background:
                bundle = with_background(bundle, self.background, beside)
            self.ledger.bundle = bundle
            tokens = f"{bundle.tokens:,} of {bundle.budget:,} tokens"
            note.append(f"{len(bundle.pieces)} piece{'s' * (len(bundle.pieces) != 1)}, {tokens}")
            if bundle.likely_complete is not None:
                note.append(f"likely complete: {bundle.likely_complete:.1f}")

    def refuse_empty_context(self) -> None:
        """Raise ConfigurationError if there is code and none of it fits: no call could succeed."""
        cut = any(dropped.cut_by == "budget" for dropped in self.bundle.dropped)
        if cut and not self.bundle.pieces:
            raise ConfigurationError(
                f"no code fits into the context of {self.bundle.budget:,} tokens: raise "
                "--context-tokens"
            )

    @property
    def ranking(self) -> Ranking:
        assert self.ledger.ranking is not None
        return self.ledger.ranking

    @property
    def bundle(self) -> ContextBundle:
        """The context as it was last packed."""
        assert self.ledger.bundle is not None
        return self.ledger.bundle

    # --- prompt and call

    def first_prompt(self, bundle: ContextBundle) -> Prompt:
        counter = self.services.counter
        if self.going_on is not None:
            return self.going_on(counter)
        tests = find_test_hints(self.problem, self.ranking, self.view, counter)
        return solve_prompt(self.problem, bundle, tests, counter)

    def repair_prompt(self, build: BuildPrompt, attempt: Attempt) -> BuildPrompt:
        """The conversation so far and why it failed, with the code that the reply asked for."""
        code = self.request(attempt)
        counter = self.services.counter
        offered = self.options.outdated_tests != "refuse"
        return lambda bundle: repair_prompt(
            build(bundle), attempt, code(bundle), counter, outdated=offered
        )

    def code_prompt(self, build: BuildPrompt, attempt: Attempt) -> BuildPrompt:
        """The conversation so far, and the code that the reply asked for."""
        rounds = self.options.policy.code_rounds
        left = code_rounds_left(self.ledger.attempts, self.options.policy) - 1
        names = ", ".join(attempt.missing[:_NAMES_SHOWN])
        note = (
            f"{attempt.kind}: the reply asks for code ({names}); round {rounds - left} of {rounds}"
        )
        self.services.reporter(Notice(note))
        code = self.request(attempt)
        counter = self.services.counter
        return lambda bundle: code_prompt(build(bundle), attempt, code(bundle), left, counter)

    def request(self, attempt: Attempt) -> Callable[[ContextBundle], AskedCode]:
        """Note what a reply asks for. The result finds it, beside a context and earlier code."""
        number = self.requests.add(attempt.missing)
        return lambda bundle: self.sent_code(bundle)[number]

    def sent_code(self, bundle: ContextBundle) -> list[AskedCode]:
        """The code of every request so far, without what stands in the conversation before it."""
        # A conversation that goes on from an earlier run has the context of that run.
        context = bundle if self.going_on is None else None
        return self.requests.answers(self.ranking, context)

    async def call(self, build: BuildPrompt) -> Completion:
        """Send the prompt; once more, made smaller, if the server finds it too long."""
        prompt = await asyncio.to_thread(build, self.bundle)
        try:
            return await self.call_once(prompt)
        except ContextTooLong as error:
            await self.make_smaller(prompt, error)
            return await self.call_once(await asyncio.to_thread(build, self.bundle))

    async def call_once(self, prompt: Prompt) -> Completion:
        if self.preparing is None:  # while the model thinks
            self.preparing = asyncio.create_task(self.services.validator.prepare())
        with self.stage("call", self.services.chat.model) as note:
            completion = await self.services.chat.complete(
                prompt, max_output_tokens=self.max_output_tokens, schema=self.schema()
            )
            note.append(completion.usage.summary)
        return completion

    def schema(self) -> dict[str, Any] | None:
        """Return the schema of the next reply; None for the rest of one that was cut off."""
        attempts = self.ledger.attempts
        if attempts and attempts[-1].is_cut_off:
            return None
        return reply_schema(partial=self.earlier_proposal is not None)

    async def make_smaller(self, prompt: Prompt, error: ContextTooLong) -> None:
        """Pack less context, for the rest of the run. Raises `error` if too little would be left.

        The server's stated window decides; without one the context is halved.
        """
        asked = [code.tokens for code in self.sent_code(self.bundle)]
        context, before = self.bundle.tokens, self.bundle.tokens + sum(asked)
        room = room_after(
            error,
            prompt_tokens=prompt.tokens,
            context_tokens=before,
            max_output_tokens=self.max_output_tokens,
        )
        if room is None:
            raise error
        self.max_output_tokens, self.window = room.output, error.limit
        note = room.explain(error)
        self.services.reporter(Notice(f"{note}; trying once more", "warning"))
        if room.context < before:
            if asked:
                self.requests.budget = max(asked) * room.context // before
            budget = context * room.context // before
            packing = replace(self.options.packing, budget=budget, automatic=False, reserve=0.0)
            await self.pack(packing, note)

    # --- parse, apply and validate

    def parse_and_apply(self, kind: AttemptKind, completion: Completion) -> Attempt:
        proposal = parse_reply(
            completion.text,
            finish_reason=completion.finish_reason,
            earlier=self.earlier_proposal,
        )
        if isinstance(proposal, ParseFailure):
            return Attempt(kind, completion, parse_failure=proposal)
        proposal = with_kept_test(proposal, self.ledger.attempts)
        applied = self.apply(kind, proposal)
        if isinstance(applied, ApplyFailure):
            return Attempt(kind, completion, proposal, apply_failure=applied)
        asked = proposal
        if self.options.outdated_tests == "edit" and proposal.outdated_tests:
            asked = with_edited_tests(proposal)
            applied = self.or_without(applied, self.apply(kind, asked), "the edited tests are")
        if self.options.include_test:
            both = self.apply(kind, asked, include_test=True)
            applied = self.or_without(applied, both, "the reproduction test is")
        return Attempt(kind, completion, proposal, patch=applied)

    def or_without(
        self, patch: AppliedPatch, more: AppliedPatch | ApplyFailure, what: str
    ) -> AppliedPatch:
        """Return the larger patch if it applies, else the patch without the addition."""
        if isinstance(more, AppliedPatch):
            return more
        note = f"{what} left out of the diff: {more.reason}"
        self.services.reporter(Notice(note, "warning"))
        return patch

    def apply(
        self, kind: AttemptKind, proposal: PatchProposal, *, include_test: bool = False
    ) -> AppliedPatch | ApplyFailure:
        return apply_proposal(
            proposal,
            self.snapshot,
            allow=self.options.allow,
            include_test=include_test,
            # A repair prompt has shown more than the bundle: nothing is known of its lines.
            shown=self.bundle.shown_lines if kind == "one-shot" else None,
            no_repair=self.options.no_repair,
        )

    async def validate(
        self, attempt: Attempt, others: tuple[ReproductionTest, ...] = ()
    ) -> Attempt:
        """Validate with the reply's test, those of earlier replies, and `others`."""
        assert attempt.patch is not None
        test = attempt.proposal.reproduction_test if attempt.proposal else None
        with self.stage("validate") as note:
            earlier = (*lasting_tests(self.ledger.attempts), *others)
            report = await self.services.validator.validate(
                attempt.patch, test, earlier, self.outdated_of(attempt)
            )
            note.append(report.verdict.value)
        taken_back = tuple(map(describe_wrong_test, attempt.wrong_tests))
        validated = replace(
            attempt,
            report=replace(report, notes=(*report.notes, *attempt.patch.notes, *taken_back)),
        )
        self.ledger.record(validated, replacing_last=True)
        return validated

    def outdated_of(self, attempt: Attempt) -> tuple[OutdatedTest, ...]:
        """Return the tests that a reply calls outdated, if such a claim may count."""
        if attempt.proposal is None or self.options.outdated_tests == "refuse":
            return ()
        return attempt.proposal.outdated_tests

    # --- iterate

    async def iterate(self) -> None:
        await self.widen()
        with self.stage("iterate") as note:
            made = await iterative.run(
                self.problem,
                self.snapshot,
                await asyncio.to_thread(self.shown_so_far),
                tuple(one for one in self.ledger.attempts if one.kind != "sample"),
                self.services,
                iterative.fit_window(self.options.iterative, self.window),
                self.keep_draft,
            )
            note.append(made.summary if made.patch is not None else made.ended or made.reason)
        if made.proposal is not None:
            kept = with_kept_test(made.proposal, self.ledger.attempts)
            made = replace(made, proposal=kept)
        self.keep_draft(made)
        if made.patch is not None:
            await self.validate(made)

    def shown_so_far(self) -> ContextBundle:
        """The context, and the code that was sent beside it as far as there is room."""
        most = self.bundle.tokens + self.requests.budget
        room = self.iterative_room(most) - self.bundle.tokens
        code = self.requests.together(self.ranking, self.bundle, room)
        return self.bundle if code is None else with_code(self.bundle, code)

    def iterative_room(self, wanted: int) -> int:
        return iterative.room_for_context(wanted, self.options.iterative, self.window)

    async def widen(self) -> None:
        """Pack more context for the iterative mode, if the options and the window allow it."""
        wanted = self.options.wider_tokens or 0
        sent = sum(code.tokens for code in self.sent_code(self.bundle))
        budget = self.iterative_room(wanted + sent) - sent
        if budget <= self.bundle.budget + self.bundle.reserve:
            return
        if self.services.widener is not None:
            lacking = dict.fromkeys(name for a in self.ledger.attempts for name in a.missing)
            with self.stage("plan"):
                self.ledger.ranking = await self.services.widener.widen(
                    self.problem, self.view, self.ranking, self.bundle, tuple(lacking)
                )
        note = f"widened to {budget:,} tokens for the iterative mode"
        await self.pack(replace(self.options.packing, budget=budget, automatic=False), note)

    def keep_draft(self, draft: Attempt) -> None:
        """Record the iterative attempt as it stands; each draft replaces the last one."""
        again = self.ledger.attempts[-1].kind == "iterative"
        self.ledger.record(draft, replacing_last=again)

    # --- reports

    def announce(self, attempt: Attempt, then: str) -> None:
        first_line = attempt.reason.strip().partition("\n")[0]
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
            model=self.models or self.services.chat.model,
            commit=self.snapshot.commit,
            dirty=self.snapshot.dirty,
            receipt=receipt,
            notes=ledger.ranking.notes if ledger.ranking else (),
            issue=self.problem,
        )

    @contextmanager
    def stage(self, name: str, detail: str = "") -> Iterator[list[str]]:
        """Report and time one stage. The caller appends a summary of what it made."""
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
