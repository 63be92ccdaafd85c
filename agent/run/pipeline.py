"""From an issue to a validated patch. Read this page first.

    Problem + Snapshot
     -> rank       lexical, evidence and cosine scores      agent.retrieval.ranking -> Ranking
     -> locate     where that is unlikely to suffice, a     agent.run.locating     -> Ranking
                   model names code from a map
     -> pack       the best chunks within a token budget    agent.retrieval.context -> ContextBundle
     -> prompt     templates in prompts/                    agent.run.prompting    -> Prompt
     -> call       one completion, within the cost budget;  agent.llm          -> Completion
                   packed once more if it is too long
     -> parse      JSON, and other shapes models answer in  agent.patching     -> PatchProposal
     -> apply      all edits or none, exact and unique      agent.patching     -> AppliedPatch
     -> validate   tests before and after, in a sandbox     agent.verify   -> ValidationReport
     -> next_step  accept, send code, repair, iterate or    agent.run.policy       -> NextStep
                   give up

`agent.run.context_steps` runs the steps up to the packed context, `agent.run.calls` sends the
prompts. Every step returns a value, also when it fails; the policy decides what follows a failure.
Exceptions are for broken environments. However a run ends, its result holds the best patch so far.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from agent.errors import BrokenBase, PatchshotError, Status
from agent.patching import apply_proposal, joined_reply, parse_reply, read_test, schema_of_test
from agent.retrieval.context import CodeRequests
from agent.run.attempts import (
    Attempt,
    AttemptKind,
    check_script,
    describe_wrong_test,
    last_proposal,
    lasting_tests,
    outcome,
    with_another_test,
    with_checked_files,
    with_edited_tests,
    with_kept_test,
)
from agent.run.calls import BuildPrompt, Calls
from agent.run.context_steps import ContextSteps
from agent.run.policy import NextStep, SolveOptions, code_rounds_left, next_step
from agent.run.prompting import (
    another_test_prompt,
    code_prompt,
    repair_prompt,
    solve_prompt,
    with_code,
)
from agent.run.record import Ledger, RunRecord, StageTimer, make_record
from agent.run.reproducing import Reproduction, as_patch, can_be_graded, grade, reproduce
from agent.settings import WIDER_TOKENS
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
)
from agent.types.events import Notice
from agent.types.protocols import Services, Snapshot, TokenCounter
from agent.verify import NullValidator, find_broken_module, find_test_hints

# Names of a request that a message repeats.
_NAMES_SHOWN = 10

# Last lines of the output of a check that fails, which are shown.
_CHECK_LINES = 5

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
) -> RunRecord:
    """Run all steps. The errors of `agent.errors` end as a status, not as an exception.

    `going_on` replaces the prompt of the first call; its attempt counts as a repair.
    """
    timer = StageTimer(services.reporter, ledger)
    context = ContextSteps(problem, snapshot, snapshot, services, options.packing, ledger, timer)
    requests = CodeRequests(snapshot, services.counter, services.chunker, WIDER_TOKENS)
    calls = Calls(services, context, requests, options.max_output_tokens, going_on is not None)
    run = _Run(problem, snapshot, options, ledger, timer, context, calls, going_on)
    try:
        async with asyncio.timeout(options.timeout) as limit:
            ledger.on_wait = partial(_extend, limit)
            if options.reproduces:
                return run.result(*await run.write_test())
            await run.attempt_until_done()
        return run.result(*outcome(ledger.attempts))
    except TimeoutError:
        if any(attempt.status is Status.ACCEPTED for attempt in ledger.attempts):
            return run.result(*outcome(ledger.attempts))
        return run.result(
            Status.TIME_LIMIT, f"the time limit of {options.timeout:g} s ran out (--timeout)"
        )
    except asyncio.CancelledError:
        return run.result(Status.INTERRUPTED, "interrupted")
    except PatchshotError as error:
        return run.result(error.status, str(error))
    finally:
        ledger.on_wait = None
        calls.stop_preparing()


def _extend(limit: asyncio.Timeout, seconds: float) -> None:
    end = limit.when()
    if end is not None and not limit.expired():
        limit.reschedule(end + seconds)


@dataclass(slots=True)
class _Run:
    """One run. Its methods are the steps above, in their order, and share these values."""

    problem: Problem
    snapshot: Snapshot
    options: SolveOptions
    ledger: Ledger
    timer: StageTimer
    context: ContextSteps
    calls: Calls
    going_on: OpenPrompt | None = None
    steps_left: int = field(init=False)

    def __post_init__(self) -> None:
        self.steps_left = self.options.max_steps

    @property
    def services(self) -> Services:
        """The parts of the run, with the model that makes the calls from here on."""
        return self.calls.services

    async def attempt_until_done(self) -> None:
        """Make one call, and after each attempt do what the policy decides."""
        await self.services.validator.check()
        await self.make_context()
        build: BuildPrompt = self.first_prompt
        attempt = await self.attempt("one-shot" if self.going_on is None else "repair", build)
        while True:
            match next_step(self.ledger.attempts, self.options):
                case NextStep.ACCEPT | NextStep.ANOTHER_TEST if self.options.independent:
                    await self.ask_independently(build, self.ledger.attempts[-1])
                    return
                case NextStep.SEND_CODE:
                    build = self.code_prompt(build, attempt)
                    attempt = await self.attempt("more-code", build)
                case NextStep.REPAIR:
                    if attempt.is_cut_off:  # the same model continues it
                        self.announce(attempt, "one call continues the reply")
                    else:
                        self.calls.escalate()
                        self.announce(attempt, "one repair call")
                    build = self.repair_prompt(build, attempt)
                    attempt = await self.attempt("repair", build)
                case NextStep.ITERATE if self.steps_left > 0:
                    self.calls.escalate()
                    self.announce(attempt, "the iterative mode")
                    await self.iterate()
                case NextStep.ANOTHER_TEST:
                    await self.ask_for_test(self.ledger.attempts[-1])
                    return
                case NextStep.ACCEPT | NextStep.GIVE_UP | NextStep.ITERATE:
                    return

    async def make_context(self) -> None:
        """Rank, search what stands beside the code, locate and pack."""
        context, packing = self.context, self.options.packing
        await context.rank()
        await asyncio.to_thread(self.refuse_broken_base)
        if self.going_on is None:
            await context.find_background()
            packing = await context.locate(self.options.locate)
            if self.options.files:
                packing = await context.put_first(self.options.files, packing)
        await context.pack(packing)
        if not packing.allow_empty:
            context.refuse_empty()

    def refuse_broken_base(self) -> None:
        """Raise BrokenBase for a module that does not parse: tests would blame the patch for it."""
        ranking = self.context.ranking
        broken = find_broken_module(self.problem, ranking, self.snapshot)
        if broken is not None and not isinstance(self.services.validator, NullValidator):
            raise BrokenBase(
                f"the base does not import: {broken.path}:{broken.line} SyntaxError"
                f" ({broken.message}); correct it, or name another --commit"
            )

    async def attempt(self, kind: AttemptKind, build: BuildPrompt) -> Attempt:
        """Prompt, call, parse, apply and validate. The ledger holds a patch once it applies."""
        begun = self.ledger.attempts[-1] if kind == "repair" and self.ledger.attempts else None
        completion = await self.calls.call(build)
        if begun is not None and begun.is_cut_off:
            completion = self.continued(begun, completion)
        with self.timer.stage("apply") as note:
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
            earlier=last_proposal(self.ledger.attempts),
        )
        return replace(completion, text=text)

    # --- prompts

    def first_prompt(self, bundle: ContextBundle) -> Prompt:
        counter = self.services.counter
        if self.going_on is not None:
            return self.going_on(counter)
        tests = find_test_hints(self.problem, self.context.ranking, self.context.view, counter)
        return solve_prompt(self.problem, bundle, tests, counter, self.options.outdated_tests)

    def repair_prompt(self, build: BuildPrompt, attempt: Attempt) -> BuildPrompt:
        """The conversation so far and why it failed, with the code that the reply asked for."""
        code = self.calls.request(attempt)
        counter = self.services.counter
        offered = self.options.outdated_tests != "refuse"
        left = code_rounds_left(self.ledger.attempts, self.options)
        return lambda bundle: repair_prompt(
            build(bundle), attempt, code(bundle), counter, rounds_left=left, outdated=offered
        )

    def code_prompt(self, build: BuildPrompt, attempt: Attempt) -> BuildPrompt:
        """The conversation so far, and the code that the reply asked for."""
        rounds = self.options.code_rounds
        left = code_rounds_left(self.ledger.attempts, self.options) - 1
        names = ", ".join(attempt.missing[:_NAMES_SHOWN])
        note = (
            f"{attempt.kind}: the reply asks for code ({names}); round {rounds - left} of {rounds}"
        )
        self.services.reporter(Notice(note))
        code = self.calls.request(attempt)
        counter = self.services.counter
        return lambda bundle: code_prompt(build(bundle), attempt, code(bundle), left, counter)

    # --- parse, apply and validate

    def parse_and_apply(self, kind: AttemptKind, completion: Completion) -> Attempt:
        proposal = parse_reply(
            completion.text,
            finish_reason=completion.finish_reason,
            earlier=last_proposal(self.ledger.attempts),
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
            shown=self.context.bundle.shown_lines if kind == "one-shot" else None,
        )

    async def validate(self, attempt: Attempt) -> Attempt:
        """Validate with the reply's test and those of earlier replies."""
        for command in self.options.checks:
            attempt = await self.run_check(command, attempt)
        assert attempt.patch is not None
        test = attempt.proposal.reproduction_test if attempt.proposal else None
        with self.timer.stage("validate") as note:
            earlier = lasting_tests(self.ledger.attempts)
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

    async def run_check(self, command: str, attempt: Attempt) -> Attempt:
        """Run the user's command on the patch's files; what it changes in them joins the patch."""
        assert attempt.patch is not None
        validator = self.services.validator
        script = check_script(command, attempt.patch, self.snapshot.scope)
        if validator.why_no_commands or not script:
            why = validator.why_no_commands or "the patch leaves no file"
            self.services.reporter(Notice(f"--check {command!r} is not run: {why}", "warning"))
            return attempt
        with self.timer.stage("check", command) as note:
            done = await validator.run_command(attempt.patch, script)
            checked = with_checked_files(attempt, done, self.snapshot, self.options.allow)
            same = checked.patch is not None and checked.patch.diff == attempt.patch.diff
            note.append("no change" if same else "its changes join the patch")
        if done.exit_code != 0:
            end = f"exit code {done.exit_code}" if done.ended == "exited" else done.ended
            last = "; ".join(done.output.strip().splitlines()[-_CHECK_LINES:])
            text = f"--check {command!r}: {end}: {last}"
            self.services.reporter(Notice(text, "warning"))
            assert checked.patch is not None
            patch = replace(checked.patch, notes=(*checked.patch.notes, text))
            checked = replace(checked, patch=patch)
        return checked

    def outdated_of(self, attempt: Attempt) -> tuple[OutdatedTest, ...]:
        """Return the tests that a reply calls outdated, if such a claim may count."""
        if attempt.proposal is None or self.options.outdated_tests == "refuse":
            return ()
        return attempt.proposal.outdated_tests

    # --- another test

    async def ask_for_test(self, done: Attempt) -> None:
        """Ask once for another reproduction test of an accepted patch. A failure costs nothing."""
        self.announce(done, "one call for another reproduction test")
        counter = self.services.counter
        hints = find_test_hints(self.problem, self.context.ranking, self.context.view, counter)
        prompt = another_test_prompt(self.problem, done, hints, counter)
        try:
            completion = await self.calls.send(prompt, schema_of_test())
            test, include = read_test(completion.text), self.options.include_test
            attempt = with_another_test(done, completion, test, include=include)
            self.ledger.record(attempt)
            if attempt.patch is not None:
                await self.validate(attempt)
        except PatchshotError as error:
            self.services.reporter(Notice(f"no other reproduction test: {error}", "warning"))

    async def ask_independently(self, build: BuildPrompt, done: Attempt) -> None:
        """Grade an accepted patch by a test from the issue alone. A failure costs nothing.

        One that fails with the patch is told to one repair call, if one is left.
        """
        if not can_be_graded(done):
            return
        self.announce(done, "one call for an independent test")
        try:
            found = await reproduce(self.calls)
            refuted = await self.graded(done, found)
            kinds = [attempt.kind for attempt in self.ledger.attempts]
            left = kinds.count("repair") < self.options.repairs and "iterative" not in kinds
            if refuted is None or not left:
                return
            said = "an independent test fails with the patch; one repair call next"
            self.services.reporter(Notice(said, "warning"))
            repaired = await self.attempt("repair", self.repair_prompt(build, refuted))
            if repaired.status is Status.ACCEPTED:
                await self.graded(repaired, found)
        except PatchshotError as error:
            self.services.reporter(Notice(f"no independent test: {error}", "warning"))

    async def graded(self, attempt: Attempt, found: Reproduction) -> Attempt | None:
        """Record what the independent test shows; return what a repair is told, if it fails."""
        outdated = self.outdated_of(attempt)
        after, refuted = await grade(attempt, found, self.services.validator, outdated)
        self.ledger.record(after, replacing_last=True)
        return refuted

    async def write_test(self) -> tuple[Status, str]:
        """Ask for a test of the issue. The ledger holds it as a patch that adds it."""
        await self.services.validator.check()
        await self.make_context()
        found = await reproduce(self.calls)
        if found.test is not None:
            proposal = PatchProposal((), reproduction_test=found.test)
            patch = as_patch(found.test)
            self.ledger.record(Attempt("reproduction", proposal=proposal, patch=patch))
        return found.status, found.reason

    # --- iterate

    async def iterate(self) -> None:
        from agent import iterative  # most runs end before it

        limits = replace(self.options, max_steps=self.steps_left)
        iterating = iterative.fit_window(limits, self.calls.window)
        self.calls.requests.add(self.ledger.attempts[-1].broken_tests)
        keep = partial(self.keep_draft, len(self.ledger.attempts))
        before = self.ledger.usage().calls
        earlier = tuple(self.ledger.attempts)
        if iterative.kept_patch(earlier) is None:
            await self.widen(iterating)  # else the context sufficed to make a patch
        with self.timer.stage("iterate") as note:
            made = await iterative.run(
                self.problem,
                self.snapshot,
                await asyncio.to_thread(self.shown_so_far, iterating),
                earlier,
                self.services,
                iterating,
                keep,
            )
            note.append(made.summary if made.patch is not None else made.ended or made.reason)
        if made.proposal is not None:
            kept = with_kept_test(made.proposal, self.ledger.attempts)
            made = replace(made, proposal=kept)
        keep(made)
        self.steps_left -= max(1, self.ledger.usage().calls - before)
        if made.patch is not None:
            await self.validate(made)

    def shown_so_far(self, limits: SolveOptions) -> ContextBundle:
        """The context, and the code that was sent beside it as far as there is room."""
        from agent.iterative import room_for_context

        bundle = self.context.bundle
        most = bundle.tokens + self.calls.requests.budget
        code = self.calls.asked_code(room_for_context(most, limits) - bundle.tokens)
        return bundle if code is None else with_code(bundle, code)

    async def widen(self, limits: SolveOptions) -> None:
        """Pack more context, if the model's window allows it."""
        from agent.iterative import room_for_context

        sent = sum(self.calls.asked_tokens)
        room = room_for_context(WIDER_TOKENS + sent, limits)
        await self.context.widen(room - sent)

    def keep_draft(self, earlier: int, draft: Attempt) -> None:
        """Record the attempt after `earlier` ones as it stands; a draft replaces the one before."""
        self.ledger.record(draft, replacing_last=len(self.ledger.attempts) > earlier)

    # --- reports

    def announce(self, attempt: Attempt, then: str) -> None:
        first_line = attempt.reason.strip().partition("\n")[0]
        self.services.reporter(
            Notice(f"{attempt.kind}: {attempt.status.value} ({first_line}); {then} next", "warning")
        )

    def result(self, status: Status, message: str) -> RunRecord:
        ledger = self.ledger
        return make_record(
            ledger,
            status=status,
            message=message,
            model=self.calls.models or self.services.chat.model,
            commit=self.snapshot.commit,
            dirty=self.snapshot.dirty,
            receipt=self.context.receipt(),
            notes=ledger.ranking.notes if ledger.ranking else (),
            issue=self.problem,
        )
