"""The actions of the iterative mode: how the model writes them, and what each one does.

A reply is one JSON object, which `prompts/iterative_system.md.j2` explains to the model.
`read_action` reads it and `WorkingCopy` carries it out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from agent.patching import (
    OverlayFiles,
    apply_proposal,
    load_json,
    parse_reply,
    unified_diff,
    wrong_tests,
)
from agent.prompting import describe_failure
from agent.protocols import Services, Snapshot
from agent.result import Attempt
from agent.secrets import is_secret_path, mask_secrets
from agent.types import (
    AppliedEdit,
    AppliedPatch,
    ApplyFailure,
    Completion,
    CreateFile,
    FileChange,
    MatchTier,
    Outcome,
    ParseFailure,
    PatchProposal,
    Problem,
    Repair,
    ReproductionTest,
    TestRun,
)
from agent.validation import known_secrets

MAX_READ_LINES = 250  # lines that one `read` shows: about 2,500 tokens
MAX_LIST_ENTRIES = 200  # entries that one `list` shows
MAX_SEARCH_HITS = 12  # hits of one ranked `search`
MAX_EXACT_HITS = 40  # hits of one exact `search`
_SHOWN_OF_A_LINE = 160  # characters of a hit


class _Action(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class ListFiles(_Action):
    """List the files below a folder."""

    action: Literal["list"]
    path: str = ""


class Search(_Action):
    """Rank functions for a query; with `exact`, list the lines that hold the query."""

    action: Literal["search"]
    query: str = Field(min_length=1, max_length=4000)
    exact: bool = False


class Find(_Action):
    """Rank functions for each of several intents, each function once.

    With `keywords`, one model call first asks for words that such code would hold.
    """

    action: Literal["find"]
    intents: list[str] = Field(min_length=1, max_length=6)
    keywords: bool = False


class Region(_Action):
    """Lines of one file, 1-based and inclusive; without `end`, up to the end of the file."""

    path: str
    start: int = Field(1, ge=1)
    end: int | None = Field(None, ge=1)


class Read(_Action):
    """Show lines of files. One file may also be named directly."""

    action: Literal["read"]
    files: list[Region] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _one_file(cls, value: Any) -> Any:
        if isinstance(value, dict) and "files" not in value and "path" in value:
            return {**value, "files": [value]}
        return value


class EditFiles(_Action):
    """Apply edits, all or none. `agent.patching.parse_reply` checks their form."""

    action: Literal["edit"]
    edits: list[Any] = Field(min_length=1)


class RunTests(_Action):
    """Run test files on the edited copy."""

    action: Literal["run_tests"]
    paths: list[str] = []


class ReproductionModel(_Action):
    """The reproduction test of `finish`."""

    path: str
    content: str | None = None  # None: the content of a file that the model has created


class Finish(_Action):
    """End the iterative mode."""

    action: Literal["finish"]
    thought: str = ""
    reproduction_test: ReproductionModel | None = None
    wrong_tests: Any = None  # read by `agent.patching.wrong_tests`


Action = ListFiles | Search | Find | Read | EditFiles | RunTests | Finish
_ACTIONS: TypeAdapter[Action] = TypeAdapter(Annotated[Action, Field(discriminator="action")])


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


class WorkingCopy:
    """The snapshot with the edits that the model has made so far, in memory only.

    `perform` carries out one action and returns the text that answers it. `attempt` is the result.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        services: Services,
        *,
        allow: Sequence[str] = (),
        no_repair: Sequence[str] = (),
        include_test: bool = False,
    ) -> None:
        """`allow` and `no_repair` as in `apply_proposal`."""
        self._snapshot = snapshot
        self._known = known_secrets(snapshot)
        self._services = services
        self._allow = tuple(allow)
        self._no_repair = tuple(no_repair)
        self._include_test = include_test
        self._changes: dict[str, FileChange] = {}
        self._repairs: list[Repair] = []
        self._last_failure: ApplyFailure | None = None
        self.edits: list[AppliedEdit] = []

    async def perform(self, action: Action | ParseFailure) -> str:
        """Carry out one action, or say why the reply was none."""
        return self._known.masked(await self._perform(action))

    async def _perform(self, action: Action | ParseFailure) -> str:
        match action:
            case ListFiles():
                return self._list_files(action.path)
            case Search(exact=True):
                return self._lines_with(action.query)
            case Search():
                return await self._search(action.query)
            case Find():
                return await self._find_intents(action)
            case Read():
                return self._read(action.files)
            case EditFiles():
                return self._edit(action)
            case RunTests():
                run = await self._services.validator.run_tests(self._patch(), action.paths)
                return _describe_run(run)
            case ParseFailure():
                return f"That was not one JSON action: {action.told}"
            case Finish():
                raise AssertionError("finish ends the loop before it is carried out")

    def attempt(
        self,
        completion: Completion,
        finish: Finish | None = None,
        failure: ParseFailure | None = None,
        ended: str = "",
    ) -> Attempt:
        """The patch made so far, or the reason why there is none.

        `failure`: the reply that ended the work because it was not an action. `ended`: why the work
        ended without `finish`.
        """
        test = self._reproduction(finish.reproduction_test if finish else None)
        if test and self._changes and self._include_test:
            self._add_test(test)
        patch = self._patch()
        if patch is None and self._last_failure is not None:
            return Attempt("iterative", completion, apply_failure=self._last_failure, ended=ended)
        if patch is None:
            failure = failure or ParseFailure("no-edit", "the model edited nothing")
            return Attempt("iterative", completion, parse_failure=failure, ended=ended)
        proposal = PatchProposal(
            (),
            finish.thought if finish else "",
            test,
            reader="iterative",
            wrong_tests=wrong_tests(finish.wrong_tests if finish else None),
        )
        return Attempt("iterative", completion, proposal, patch=patch, ended=ended)

    # --- looking at code

    def _list_files(self, folder: str) -> str:
        prefix = folder.strip("/")
        prefix = "" if prefix in ("", ".") else f"{prefix}/"
        paths = sorted(p for p in self._paths() if p.startswith(prefix))
        return _list_entries(paths, prefix) if paths else f"no files below {folder!r}"

    async def _search(self, query: str) -> str:
        title, _, body = query.partition("\n")
        ranking = await self._services.retriever.rank(Problem(title, body), self._snapshot)
        hits = [
            f"{c.path}:L{c.start}-{c.end} {c.symbol or c.kind.value}"
            for c in (scored.chunk for scored in ranking.chunks[:MAX_SEARCH_HITS])
        ]
        return "\n".join(hits) or "nothing found"

    async def _find_intents(self, action: Find) -> str:
        finder = self._services.finder
        if finder is None:
            return "there is no action `find` here; use `search`"
        return await finder.find(action.intents, self._snapshot, keywords=action.keywords)

    def _lines_with(self, text: str) -> str:
        found = [
            f"{path}:{number}: {line.strip()[:_SHOWN_OF_A_LINE]}"
            for path in sorted(self._paths())
            for number, line in enumerate(self._lines(path, holding=text) or (), 1)
            if text in line
        ]
        return "\n".join(_at_most(found, MAX_EXACT_HITS)) or "no line holds this text"

    def _read(self, regions: Sequence[Region]) -> str:
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
                parts.append(_show_region(region, lines, end, wanted))
        return "\n\n".join(parts)

    def _lines(self, path: str, *, holding: str = "") -> list[str] | None:
        """A file's lines; None if it may not be shown or does not exist.

        Secrets are masked in the whole file first: one line may not show what makes it a secret.
        """
        content = None if is_secret_path(path) else self._files.read(path)
        if content is None:
            return None
        text = content.decode("utf-8", "replace").replace("\r\n", "\n")
        return mask_secrets(text).text.split("\n") if holding in text else []

    def _paths(self) -> set[str]:
        deleted = {c.path for c in self._changes.values() if c.after is None}
        return ({*self._snapshot.files} | {*self._changes}) - deleted

    # --- changing code

    @property
    def _files(self) -> OverlayFiles:
        return OverlayFiles(self._snapshot, self._changes)

    def _edit(self, action: EditFiles) -> str:
        proposal = parse_reply(json.dumps({"edits": action.edits}))
        if isinstance(proposal, ParseFailure):
            return f"not applied: {proposal.reason}"
        applied = apply_proposal(
            proposal, self._files, allow=self._allow, no_repair=self._no_repair
        )
        if isinstance(applied, ApplyFailure):
            self._last_failure = applied
            failed = Attempt("iterative", proposal=proposal, apply_failure=applied)
            return f"not applied:\n{describe_failure(failed, self._services.counter)}"
        self._last_failure = None
        self._add(applied)
        return "\n".join(["applied:", *map(_describe_edit, applied.edits)])

    def _add(self, applied: AppliedPatch) -> None:
        for change in applied.changes:
            first = self._changes.get(change.path)
            before = first.before if first else change.before
            self._changes[change.path] = FileChange(
                change.path, before, change.after, change.executable
            )
            if before == change.after:
                del self._changes[change.path]
        self.edits.extend(applied.edits)
        self._repairs.extend(applied.repairs)

    def _patch(self) -> AppliedPatch | None:
        if not self._changes:
            return None
        changes = tuple(self._changes[path] for path in sorted(self._changes))
        return AppliedPatch(changes, unified_diff(changes), tuple(self.edits), tuple(self._repairs))

    def _reproduction(self, named: ReproductionModel | None) -> ReproductionTest | None:
        """The test of `finish`. A test file that the model created is taken out of the fix."""
        if named is None:
            return None
        made = self._changes.get(named.path)
        content = named.content
        if made is not None and made.before is None and made.after is not None:
            content = made.after.decode("utf-8", "replace") if content is None else content
            del self._changes[named.path]
        return ReproductionTest(named.path, content) if content is not None else None

    def _add_test(self, test: ReproductionTest) -> None:
        """Make the test part of the patch, unless its path is taken or protected."""
        proposal = PatchProposal((CreateFile(test.path, test.content),))
        applied = apply_proposal(proposal, self._files, allow=self._allow)
        if isinstance(applied, AppliedPatch):
            self._add(applied)


# ----------------------------------------------------------------------------- answers to the model


def _list_entries(paths: Sequence[str], prefix: str) -> str:
    """All paths if they are few, else the next level only, with counts."""
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
    return "\n".join(_at_most(lines, MAX_LIST_ENTRIES))


def _at_most(lines: list[str], limit: int) -> list[str]:
    more = len(lines) - limit
    return lines if more <= 0 else [*lines[:limit], f"... and {more} more"]


def _show_region(region: Region, lines: Sequence[str], end: int, wanted: int) -> str:
    if end < region.start:
        return f"{region.path}: not shown, {MAX_READ_LINES} lines are the most; read it next"
    shown = "\n".join(lines[region.start - 1 : end])
    cut = f"\n[cut: go on at line {end + 1}]" if end < wanted else ""
    return f"### {region.path}:L{region.start}-{end} of {len(lines)}\n{shown}{cut}"


def _describe_edit(edit: AppliedEdit) -> str:
    if edit.tier in (MatchTier.CREATED, MatchTier.DELETED):
        return f"{edit.tier.value} {edit.path}"
    if edit.tier is MatchTier.RENAMED:
        return f"renamed {edit.path_as_written} to {edit.path}"
    if edit.tier is MatchTier.ALREADY_APPLIED:
        return f"left {edit.path} as it is: line {edit.line} has this change already"
    return f"changed {edit.path} at line {edit.line}"


def _describe_run(run: TestRun) -> str:
    outcomes = list(run.outcomes.values())
    bad = [i for i, o in sorted(run.outcomes.items()) if o in (Outcome.FAILED, Outcome.ERROR)]
    ended = "" if run.ended == "exited" else f" (the run ended early: {run.ended})"
    lines = [f"{outcomes.count(Outcome.PASSED)} passed, {len(bad)} failed{ended}"]
    for test in bad[:5]:
        lines.append(f"--- {test}\n{run.failures.get(test, '')}")
    if not outcomes:
        lines.append(run.output_tail)
    return "\n".join(lines)
