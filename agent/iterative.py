"""The iterative mode: the model acts step by step on a private overlay of the snapshot.

Reached when the one call and its repair have failed. Every reply is one JSON action (see
`prompts/iterative_system.md.j2`); nothing is written anywhere but in memory and in the validator's
sandboxed copies. Ends with `finish`, at the step limit, or when replies stop being actions; what
has been edited by then becomes the attempt's patch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from agent.actions import (
    Action,
    EditFiles,
    Find,
    Finish,
    ListFiles,
    Read,
    Region,
    ReproductionModel,
    RunTests,
    Search,
    read_action,
)
from agent.errors import ContextTooLong
from agent.events import Notice
from agent.patching.applying import OverlayFiles, apply_proposal
from agent.patching.diff import unified_diff
from agent.patching.parsing import parse_reply
from agent.prompting import describe_failure, iterative_result, iterative_start, make_prompt
from agent.protocols import Services, Snapshot
from agent.result import Attempt
from agent.secrets.files import is_secret_path
from agent.secrets.masking import mask_secrets
from agent.types import (
    AppliedEdit,
    AppliedPatch,
    ApplyFailure,
    Completion,
    ContextBundle,
    CreateFile,
    FileChange,
    MatchTier,
    Message,
    Outcome,
    ParseFailure,
    PatchProposal,
    Problem,
    Prompt,
    Repair,
    ReproductionTest,
    TestRun,
)

# Lines that one `read` shows: about 2,500 tokens, a screen or three.
MAX_READ_LINES = 250

# Entries that one `list` shows.
MAX_LIST_ENTRIES = 200

# Hits that one `search` shows, ranked or exact.
MAX_SEARCH_HITS = 12
MAX_EXACT_HITS = 40
_SHOWN_OF_A_LINE = 160

# Replies in a row that are no action, after which the model is taken to be lost.
MAX_NONSENSE = 3


@dataclass(frozen=True, slots=True)
class IterativeOptions:
    """Limits. `history_tokens`: older results are elided once the conversation is longer."""

    max_steps: int = 12
    history_tokens: int = 32_000
    max_output_tokens: int = 4096
    allow: tuple[str, ...] = ()
    no_repair: tuple[str, ...] = ()
    include_test: bool = False
    find: bool = False  # offer the action `find`


# Of the window, for the reply and for what another tokenizer counts differently.
_REPLY_SHARE = 0.25
_MARGIN = 0.1


def within(options: IterativeOptions, window: int | None) -> IterativeOptions:
    """The options for a model that takes `window` tokens, its reply included; None: not known."""
    if window is None:
        return options
    output = min(options.max_output_tokens, int(window * _REPLY_SHARE))
    history = int((window - output) * (1 - _MARGIN))
    return replace(
        options,
        max_output_tokens=output,
        history_tokens=min(options.history_tokens, history),
    )


# Of the history: more context would leave no room for what the steps find out.
_CONTEXT_SHARE = 0.5


def room_for_context(wanted: int, options: IterativeOptions, window: int | None) -> int:
    """How many of the `wanted` tokens of context the conversation has room for."""
    return min(wanted, int(within(options, window).history_tokens * _CONTEXT_SHARE))


# -------------------------------------------------------------------------------------------- loop


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

    `keep` is given the attempt as it stands after each edit, so that nothing is lost when the chat
    model or the validator raises, or the run is cut off.
    """
    desk = _Desk(problem, snapshot, services, options)
    history = "\n\n".join(_tried(attempt, services) for attempt in earlier)
    messages = list(
        iterative_start(
            problem,
            bundle,
            history,
            max_steps=options.max_steps,
            max_read_lines=MAX_READ_LINES,
            find=options.find,
        )
    )
    nonsense = 0
    for step in range(1, options.max_steps + 1):
        completion = await _ask(messages, services, options)
        action = read_action(completion)
        if isinstance(action, Finish):
            services.reporter(Notice(f"step {step}: finish"))
            return desk.attempt(completion, action)
        nonsense = nonsense + 1 if isinstance(action, ParseFailure) else 0
        edits = len(desk.edits)
        result = await desk.do(action)
        if len(desk.edits) > edits:
            keep(desk.attempt(completion, None))
        services.reporter(Notice(f"step {step}: {_in_words(action)} -> {_first_line(result)}"))
        if nonsense == MAX_NONSENSE:
            return desk.attempt(completion, None, lost=action)
        messages.append(Message("assistant", completion.text.strip() or "(an empty reply)"))
        messages.append(iterative_result(result, steps_left=options.max_steps - step))
    return desk.attempt(completion, None)


@dataclass(slots=True)
class _Desk:
    """The model's working place: the edits so far, and what each action does."""

    problem: Problem
    snapshot: Snapshot
    services: Services
    options: IterativeOptions
    changes: dict[str, FileChange] = field(default_factory=dict)
    edits: list[AppliedEdit] = field(default_factory=list)
    repairs: list[Repair] = field(default_factory=list)
    last_failure: ApplyFailure | None = None

    @property
    def files(self) -> OverlayFiles:
        return OverlayFiles(self.snapshot, self.changes)

    async def do(self, action: Action | ParseFailure) -> str:
        match action:
            case ListFiles():
                return self.list_files(action.path)
            case Search():
                return self.lines_with(action.query) if action.exact else await self.search(action)
            case Find():
                return await self.find(action)
            case Read():
                return self.read(action.files)
            case EditFiles():
                return self.edit(action)
            case RunTests():
                return await self.run_tests(action.paths)
            case ParseFailure():
                return f"That was not one JSON action: {action.told}"
            case Finish():
                raise AssertionError("finish ends the loop before it is carried out")

    def list_files(self, folder: str) -> str:
        prefix = folder.strip("/")
        prefix = "" if prefix in ("", ".") else f"{prefix}/"
        paths = sorted(p for p in self._paths() if p.startswith(prefix))
        if not paths:
            return f"no files below {folder!r}"
        return _entries(paths, prefix)

    async def search(self, action: Search) -> str:
        title, _, body = action.query.partition("\n")
        ranking = await self.services.retriever.rank(Problem(title, body), self.snapshot)
        hits = [
            f"{c.path}:L{c.start}-{c.end} {c.symbol or c.kind.value}"
            for c in (scored.chunk for scored in ranking.chunks[:MAX_SEARCH_HITS])
        ]
        return "\n".join(hits) or "nothing found"

    async def find(self, action: Find) -> str:
        if not self.options.find:
            return "there is no action `find` here; use `search`"
        from agent.planning.tools import find_intents  # only where it is switched on

        return await find_intents(
            action.intents, self.services, self.snapshot, keywords=action.keywords
        )

    def lines_with(self, text: str) -> str:
        found = [
            f"{path}:{number}: {line.strip()[:_SHOWN_OF_A_LINE]}"
            for path in sorted(self._paths())
            for number, line in enumerate(self._lines(path, holding=text) or (), 1)
            if text in line
        ]
        more = len(found) - MAX_EXACT_HITS
        shown = found[:MAX_EXACT_HITS] + ([f"... and {more} more"] if more > 0 else [])
        return "\n".join(shown) or "no line holds this text"

    def read(self, regions: Sequence[Region]) -> str:
        parts: list[str] = []
        room = MAX_READ_LINES
        for region in regions:
            lines = self._lines(region.path)
            if is_secret_path(region.path):
                parts.append(f"{region.path} is not shown: such files hold secrets")
            elif lines is None:
                parts.append(f"no such file: {region.path}")
            elif region.start > len(lines):
                parts.append(f"{region.path} has {len(lines)} lines")
            else:
                wanted = min(region.end or len(lines), len(lines))
                end = min(wanted, region.start + room - 1)
                room -= max(0, end - region.start + 1)
                parts.append(_shown_region(region, lines, end, wanted))
        return "\n\n".join(parts)

    def _lines(self, path: str, *, holding: str = "") -> list[str] | None:
        """A file's lines, masked as a whole: a part may not show what makes it a secret."""
        content = None if is_secret_path(path) else self.files.read(path)
        if content is None:
            return None
        text = content.decode("utf-8", "replace").replace("\r\n", "\n")
        return mask_secrets(text).text.split("\n") if holding in text else []

    def edit(self, action: EditFiles) -> str:
        proposal = parse_reply(_as_reply(action))
        if isinstance(proposal, ParseFailure):
            return f"not applied: {proposal.reason}"
        applied = apply_proposal(
            proposal, self.files, allow=self.options.allow, no_repair=self.options.no_repair
        )
        if isinstance(applied, ApplyFailure):
            self.last_failure = applied
            failed = Attempt("iterative", proposal=proposal, apply_failure=applied)
            return f"not applied:\n{describe_failure(failed, self.services.counter)}"
        self.last_failure = None
        self._merge(applied)
        return "\n".join(["applied:", *map(_edit_in_words, applied.edits)])

    async def run_tests(self, paths: Sequence[str]) -> str:
        outcome = await self.services.validator.run_tests(self._patch(), paths)
        return _test_report(outcome)

    def attempt(
        self,
        completion: Completion,
        finish: Finish | None,
        lost: Action | ParseFailure | None = None,
    ) -> Attempt:
        """What the work comes to: a patch, or the reason why there is none."""
        test = self._reproduction(finish.reproduction_test if finish else None)
        if test and self.changes and self.options.include_test:
            self._include(test)
        patch = self._patch()
        if patch is None and self.last_failure is not None:
            return Attempt("iterative", completion, apply_failure=self.last_failure)
        if patch is None:
            failure = lost if isinstance(lost, ParseFailure) else None
            return Attempt(
                "iterative",
                completion,
                parse_failure=failure or ParseFailure("no-edit", "the model edited nothing"),
            )
        proposal = PatchProposal((), finish.thought if finish else "", test, reader="iterative")
        return Attempt("iterative", completion, proposal, patch=patch)

    def _reproduction(self, named: ReproductionModel | None) -> ReproductionTest | None:
        """The test of `finish`. One that the model has created by an edit is no part of the fix."""
        if named is None:
            return None
        made = self.changes.get(named.path)
        content = named.content
        if made is not None and made.before is None and made.after is not None:
            content = made.after.decode("utf-8", "replace") if content is None else content
            del self.changes[named.path]
        return ReproductionTest(named.path, content) if content is not None else None

    def _include(self, test: ReproductionTest) -> None:
        """Make the test part of the patch, where its place is free."""
        proposal = PatchProposal((CreateFile(test.path, test.content),))
        applied = apply_proposal(proposal, self.files, allow=self.options.allow)
        if isinstance(applied, AppliedPatch):
            self._merge(applied)

    def _merge(self, applied: AppliedPatch) -> None:
        for change in applied.changes:
            first = self.changes.get(change.path)
            before = first.before if first else change.before
            self.changes[change.path] = FileChange(
                change.path, before, change.after, change.executable
            )
            if before == change.after:
                del self.changes[change.path]
        self.edits.extend(applied.edits)
        self.repairs.extend(applied.repairs)

    def _patch(self) -> AppliedPatch | None:
        if not self.changes:
            return None
        changes = tuple(self.changes[path] for path in sorted(self.changes))
        return AppliedPatch(changes, unified_diff(changes), tuple(self.edits), tuple(self.repairs))

    def _paths(self) -> set[str]:
        gone = {c.path for c in self.changes.values() if c.after is None}
        return ({*self.snapshot.files} | {*self.changes}) - gone


# ---------------------------------------------------------------------------------------- in words


async def _ask(
    messages: list[Message], services: Services, options: IterativeOptions
) -> Completion:
    """One step's call; a conversation that the server finds too long is shortened once."""
    prompt = _fitted(messages, services, options)
    limit = options.max_output_tokens
    try:
        return await services.chat.complete(prompt, max_output_tokens=limit)
    except ContextTooLong as error:
        shorter = within(options, error.limit or prompt.tokens // 2 + limit)
        services.reporter(Notice(f"older results are left out: {error}", "warning"))
        prompt = _fitted(messages, services, shorter)
        return await services.chat.complete(prompt, max_output_tokens=shorter.max_output_tokens)


def _fitted(messages: list[Message], services: Services, options: IterativeOptions) -> Prompt:
    """The conversation, with the oldest results elided until it fits `history_tokens`."""
    fitted = list(messages)
    prompt = make_prompt(fitted, services.counter)
    for index in range(3, len(fitted) - 1, 2):  # results stand at 3, 5, ...; keep the last one
        if prompt.tokens <= options.history_tokens:
            break
        fitted[index] = Message("user", "[this result was elided to save space]")
        prompt = make_prompt(fitted, services.counter)
    return prompt


def _shown_region(region: Region, lines: Sequence[str], end: int, wanted: int) -> str:
    if end < region.start:
        return f"{region.path}: not shown, {MAX_READ_LINES} lines are the most; read it next"
    shown = "\n".join(lines[region.start - 1 : end])
    cut = f"\n[cut: go on at line {end + 1}]" if end < wanted else ""
    return f"### {region.path}:L{region.start}-{end} of {len(lines)}\n{shown}{cut}"


def _edit_in_words(edit: AppliedEdit) -> str:
    if edit.tier in (MatchTier.CREATED, MatchTier.DELETED):
        return f"{edit.tier.value} {edit.path}"
    if edit.tier is MatchTier.RENAMED:
        return f"renamed {edit.path_as_written} to {edit.path}"
    if edit.tier is MatchTier.ALREADY_APPLIED:
        return f"left {edit.path} as it is: line {edit.line} has this change already"
    return f"changed {edit.path} at line {edit.line}"


def _tried(attempt: Attempt, services: Services) -> str:
    if attempt.parse_failure is not None:
        return f"A reply that was no usable patch ({attempt.parse_failure.kind})."
    diff = attempt.patch.diff.decode("utf-8", "replace") if attempt.patch else ""
    return f"{diff}\n{describe_failure(attempt, services.counter)}".strip()


def _as_reply(action: EditFiles) -> str:
    import json

    return json.dumps({"edits": action.edits})


def _entries(paths: Sequence[str], prefix: str) -> str:
    """All paths when they are few, else the next level only, with counts."""
    if len(paths) <= MAX_LIST_ENTRIES:
        return "\n".join(paths)
    counts: dict[str, int] = {}
    for path in paths:
        head, slash, _ = path[len(prefix) :].partition("/")
        counts[head + slash] = counts.get(head + slash, 0) + 1
    lines = [
        f"{prefix}{name} ({count} files)" if name.endswith("/") else prefix + name
        for name, count in sorted(counts.items())
    ]
    more = len(lines) - MAX_LIST_ENTRIES
    return "\n".join(lines[:MAX_LIST_ENTRIES] + ([f"... and {more} more"] if more > 0 else []))


def _test_report(run: TestRun) -> str:
    outcomes = list(run.outcomes.values())
    bad = [i for i, o in sorted(run.outcomes.items()) if o in (Outcome.FAILED, Outcome.ERROR)]
    ended = "" if run.ended == "exited" else f" (the run ended early: {run.ended})"
    lines = [f"{outcomes.count(Outcome.PASSED)} passed, {len(bad)} failed{ended}"]
    for test in bad[:5]:
        lines.append(f"--- {test}\n{run.failures.get(test, '')}")
    if not outcomes:
        lines.append(run.output_tail)
    return "\n".join(lines)


def _in_words(action: Action | ParseFailure) -> str:
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
