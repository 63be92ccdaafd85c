"""The iterative mode: the model acts step by step on a private overlay of the snapshot.

Reached when the one call and its repair have failed. Every reply is one JSON action (see
`prompts/iterative_system.md.j2`); nothing is written anywhere but in memory and in the validator's
sandboxed copies. Ends with `finish`, at the step limit, or when replies stop being actions; what
has been edited by then becomes the attempt's patch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from agent.events import Notice
from agent.patching.applying import OverlayFiles, apply_proposal
from agent.patching.diff import unified_diff
from agent.patching.parsing import load_json, parse_reply
from agent.prompting import describe_failure, iterative_result, iterative_start, make_prompt
from agent.protocols import Services, Snapshot
from agent.result import Attempt
from agent.types import (
    AppliedEdit,
    AppliedPatch,
    ApplyFailure,
    Completion,
    ContextBundle,
    CreateFile,
    FileChange,
    Message,
    Outcome,
    ParseFailure,
    PatchProposal,
    Problem,
    Prompt,
    ReproductionTest,
    TestRun,
)

# Lines that one `read` shows: about 2,500 tokens, a screen or three.
MAX_READ_LINES = 250

# Entries that one `list` shows.
MAX_LIST_ENTRIES = 200

# Hits that one `search` shows.
MAX_SEARCH_HITS = 12

# Replies in a row that are no action, after which the model is taken to be lost.
MAX_NONSENSE = 3


@dataclass(frozen=True, slots=True)
class IterativeOptions:
    """Limits. `history_tokens`: older results are elided once the conversation is longer."""

    max_steps: int = 12
    history_tokens: int = 32_000
    max_output_tokens: int = 4096
    allow: tuple[str, ...] = ()
    include_test: bool = False


# ----------------------------------------------------------------------------------------- actions


class _Action(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class ListFiles(_Action):
    """List the files below a folder."""

    action: Literal["list"]
    path: str = ""


class Search(_Action):
    """Rank functions for a query."""

    action: Literal["search"]
    query: str = Field(min_length=1, max_length=4000)


class Read(_Action):
    """Show lines of a file."""

    action: Literal["read"]
    path: str
    start: int = Field(1, ge=1)
    end: int | None = Field(None, ge=1)


class EditFiles(_Action):
    """Apply edits, all or none. Their form is checked by the reader of replies."""

    action: Literal["edit"]
    edits: list[Any] = Field(min_length=1)


class RunTests(_Action):
    """Run test files on the edited copy."""

    action: Literal["run_tests"]
    paths: list[str] = []


class ReproductionModel(_Action):
    """The reproduction test of `finish`."""

    path: str
    content: str


class Finish(_Action):
    """End the work."""

    action: Literal["finish"]
    thought: str = ""
    reproduction_test: ReproductionModel | None = None


Action = ListFiles | Search | Read | EditFiles | RunTests | Finish
_ACTIONS: TypeAdapter[Action] = TypeAdapter(Annotated[Action, Field(discriminator="action")])


# -------------------------------------------------------------------------------------------- loop


async def run(
    problem: Problem,
    snapshot: Snapshot,
    bundle: ContextBundle,
    earlier: Sequence[Attempt],
    services: Services,
    options: IterativeOptions,
) -> Attempt:
    """Let the model work until it finishes or a limit is reached.

    Raises what the chat model and the validator raise; what was edited until then is lost only if
    it was never applied: the caller's ledger holds the earlier attempts.
    """
    desk = _Desk(problem, snapshot, services, options)
    history = "\n\n".join(_tried(attempt, services) for attempt in earlier)
    messages = list(
        iterative_start(
            problem, bundle, history, max_steps=options.max_steps, max_read_lines=MAX_READ_LINES
        )
    )
    nonsense = 0
    for step in range(1, options.max_steps + 1):
        completion = await services.chat.complete(
            _fitted(messages, services, options), max_output_tokens=options.max_output_tokens
        )
        action = read_action(completion)
        if isinstance(action, Finish):
            services.reporter(Notice(f"step {step}: finish"))
            return desk.attempt(completion, action)
        nonsense = nonsense + 1 if isinstance(action, ParseFailure) else 0
        result = await desk.do(action)
        services.reporter(Notice(f"step {step}: {_in_words(action)} -> {_first_line(result)}"))
        if nonsense == MAX_NONSENSE:
            return desk.attempt(completion, None, lost=action)
        messages.append(Message("assistant", completion.text.strip() or "(an empty reply)"))
        messages.append(iterative_result(result, steps_left=options.max_steps - step))
    return desk.attempt(completion, None)


def read_action(completion: Completion) -> Action | ParseFailure:
    """Read one action. A whole patch in the format of the one call counts as an edit."""
    value = load_json(completion.text, finish_reason=completion.finish_reason)
    if isinstance(value, ParseFailure):
        return value
    if "action" not in value and "edits" in value:
        value = {**value, "action": "edit"}
    try:
        return _ACTIONS.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "action"
        return ParseFailure("schema", f"not an action: {place}: {first['msg']}")


@dataclass(slots=True)
class _Desk:
    """The model's working place: the edits so far, and what each action does."""

    problem: Problem
    snapshot: Snapshot
    services: Services
    options: IterativeOptions
    changes: dict[str, FileChange] = field(default_factory=dict)
    edits: list[AppliedEdit] = field(default_factory=list)
    last_failure: ApplyFailure | None = None

    @property
    def files(self) -> OverlayFiles:
        return OverlayFiles(self.snapshot, self.changes)

    async def do(self, action: Action | ParseFailure) -> str:
        match action:
            case ListFiles():
                return self.list(action.path)
            case Search():
                return await self.search(action.query)
            case Read():
                return self.read(action)
            case EditFiles():
                return self.edit(action)
            case RunTests():
                return await self.run_tests(action.paths)
            case ParseFailure():
                return f"That was not one JSON action: {action.reason}"
            case Finish():
                raise AssertionError("finish ends the loop before it is carried out")

    def list(self, folder: str) -> str:
        prefix = folder.strip("/")
        prefix = "" if prefix in ("", ".") else f"{prefix}/"
        paths = sorted(p for p in self._paths() if p.startswith(prefix))
        if not paths:
            return f"no files below {folder!r}"
        return _entries(paths, prefix)

    async def search(self, query: str) -> str:
        title, _, body = query.partition("\n")
        ranking = await self.services.retriever.rank(Problem(title, body), self.snapshot)
        hits = [
            f"{c.path}:L{c.start}-{c.end} {c.symbol or c.kind.value}"
            for c in (scored.chunk for scored in ranking.chunks[:MAX_SEARCH_HITS])
        ]
        return "\n".join(hits) or "nothing found"

    def read(self, action: Read) -> str:
        content = self.files.read(action.path)
        if content is None:
            return f"no such file: {action.path}"
        lines = content.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")
        end = min(action.end or len(lines), action.start + MAX_READ_LINES - 1, len(lines))
        if action.start > len(lines):
            return f"{action.path} has {len(lines)} lines"
        shown = "\n".join(lines[action.start - 1 : end])
        return f"### {action.path}:L{action.start}-{end} of {len(lines)}\n{shown}"

    def edit(self, action: EditFiles) -> str:
        proposal = parse_reply(_as_reply(action))
        if isinstance(proposal, ParseFailure):
            return f"not applied: {proposal.reason}"
        applied = apply_proposal(proposal, self.files, allow=self.options.allow)
        if isinstance(applied, ApplyFailure):
            self.last_failure = applied
            failed = Attempt("iterative", proposal=proposal, apply_failure=applied)
            return f"not applied:\n{describe_failure(failed, self.services.counter)}"
        self.last_failure = None
        self._merge(applied)
        return "applied: " + ", ".join(f"{e.path}:L{e.line}" for e in applied.edits)

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
        wanted = finish.reproduction_test if finish else None
        if wanted and self.changes and self.options.include_test:
            self._include(wanted)
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
        test = ReproductionTest(wanted.path, wanted.content) if wanted else None
        proposal = PatchProposal((), finish.thought if finish else "", test, reader="iterative")
        return Attempt("iterative", completion, proposal, patch=patch)

    def _include(self, test: ReproductionModel) -> None:
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

    def _patch(self) -> AppliedPatch | None:
        if not self.changes:
            return None
        changes = tuple(self.changes[path] for path in sorted(self.changes))
        return AppliedPatch(changes, unified_diff(changes), tuple(self.edits))

    def _paths(self) -> set[str]:
        gone = {c.path for c in self.changes.values() if c.after is None}
        return ({*self.snapshot.files} | {*self.changes}) - gone


# ---------------------------------------------------------------------------------------- in words


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


def _tried(attempt: Attempt, services: Services) -> str:
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
    lines = [f"{outcomes.count(Outcome.PASSED)} passed, {len(bad)} failed ({run.ended})"]
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
            return f"read {action.path}"
        case Search():
            return f"search {action.query[:60]!r}"
        case _:
            return action.action


def _first_line(text: str) -> str:
    return text.split("\n", 1)[0][:100]
