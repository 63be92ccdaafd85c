"""The snapshot with the edits that the model has made so far, and what each action does to it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agent.iterative.actions import (
    Action,
    EditFiles,
    Find,
    Finish,
    ListFiles,
    Read,
    Region,
    ReproductionModel,
    RunCommand,
    RunTests,
    Search,
)
from agent.patching import (
    OverlayFiles,
    adopt_files,
    apply_proposal,
    outdated_tests,
    parse_reply,
    unified_diff,
    wrong_tests,
)
from agent.run.attempts import Attempt, with_edited_tests
from agent.run.policy import SolveOptions
from agent.run.prompting import describe_failure
from agent.shared.secrets import is_secret_path, mask_secrets
from agent.types import (
    BAD_OUTCOMES,
    AppliedEdit,
    AppliedPatch,
    ApplyFailure,
    CommandRun,
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
from agent.types.protocols import Services, Snapshot
from agent.verify import failure_texts, known_secrets

MAX_READ_LINES = 250  # lines that one `read` shows: about 2,500 tokens
MAX_LIST_ENTRIES = 200  # entries that one `list` shows
_OUTPUT_SHOWN = 8_000  # characters of a command's output: about 2,000 tokens
_PATHS_SHOWN = 3  # paths of one kind that a command changed

MAX_SEARCH_HITS = 12  # hits of one ranked `search`
MAX_EXACT_HITS = 40  # hits of one exact `search`
_SHOWN_OF_A_LINE = 160  # characters of a hit
_FILES_NAMED = 20  # edited files that the state names
_TESTS_NAMED = 3  # failing tests that the state names: the last result has all


@dataclass(frozen=True, slots=True)
class ActionResult:
    """The result of one action."""

    text: str
    kind: Literal["look", "tests", "run", "edit"] = "look"


class WorkingCopy:
    """The snapshot with the edits that the model has made so far, in memory only."""

    def __init__(
        self,
        snapshot: Snapshot,
        services: Services,
        options: SolveOptions,
        start: AppliedPatch | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._known = known_secrets(snapshot)
        self._services = services
        self._options = options
        changes = start.changes if start is not None else ()
        self._changes: dict[str, FileChange] = {change.path: change for change in changes}
        self._repairs: list[Repair] = []
        self._last_failure: ApplyFailure | None = None
        self._failing: Sequence[str] = ()
        self.edits: list[AppliedEdit] = list(start.edits if start is not None else ())

    @property
    def edited(self) -> Sequence[str]:
        """The paths that differ from the snapshot, sorted."""
        return sorted(self._changes)

    def state(self) -> str:
        """The edits so far and what fails."""
        paths = ", ".join(_list_lines(self.edited, _FILES_NAMED))
        edits = f"Edited so far: {paths}." if paths else "No edits."
        failing = ", ".join(_list_lines(self._failing, _TESTS_NAMED))
        return f"{edits} Failed in the last test run: {failing}." if failing else edits

    async def perform(self, action: Action | ParseFailure) -> ActionResult:
        """Carry out one action, or say why it was none. Of `finish` it makes the edits only."""
        answer = await self._perform(action)
        return ActionResult(self._known.masked(answer.text), answer.kind)

    async def _perform(self, action: Action | ParseFailure) -> ActionResult:
        match action:
            case ListFiles():
                return ActionResult(self._list_files(action.path))
            case Search(exact=True):
                return ActionResult(self._lines_with(action.query))
            case Search():
                return ActionResult(await self._search(action.query))
            case Find():
                return ActionResult(await self._find_intents(action))
            case Read():
                return ActionResult(self._read(action.files))
            case EditFiles() | Finish():
                return self._edit(action.edits)
            case RunTests():
                return ActionResult(await self._run_tests(action.paths), "tests")
            case RunCommand():
                return await self._run_command(action.command)
            case ParseFailure():
                return ActionResult(f"That was no action: {action.told}")

    def attempt(
        self,
        completion: Completion,
        finish: Finish | None = None,
        failure: ParseFailure | None = None,
        ended: str = "",
    ) -> Attempt:
        """The patch made so far, or the reason why there is none.

        `failure`: the reply that ended the work. `ended`: why it ended without `finish`.
        """
        test = self._reproduction(finish.reproduction_test if finish else None)
        outdated = outdated_tests(finish.outdated_tests if finish else None)
        if test and self._changes and self._options.include_test:
            self._add_edits(PatchProposal((CreateFile(test.path, test.content),)))
        if outdated and self._changes and self._options.outdated_tests == "edit":
            named = PatchProposal((), outdated_tests=outdated)
            self._add_edits(with_edited_tests(named))
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
            outdated_tests=outdated,
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
        return await finder.find(action.intents, self._snapshot)

    def _lines_with(self, text: str) -> str:
        hits = [
            f"{path}:{number}: {line.strip()[:_SHOWN_OF_A_LINE]}"
            for path in sorted(self._paths())
            for number, line in enumerate(self._lines(path, holding=text) or (), 1)
            if text in line
        ]
        return "\n".join(_list_lines(hits, MAX_EXACT_HITS)) or "no line holds this text"

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
                last = min(region.end or len(lines), len(lines))
                end = min(last, region.start + room - 1)
                room -= max(0, end - region.start + 1)
                parts.append(_show_region(region, lines, end, last))
        return "\n\n".join(parts)

    def _lines(self, path: str, *, holding: str = "") -> list[str] | None:
        """A file's lines with secrets masked; None if it may not be shown or is absent."""
        content = None if is_secret_path(path) else self._files.read(path)
        if content is None:
            return None
        text = content.decode("utf-8", "replace").replace("\r\n", "\n")
        return mask_secrets(text).text.split("\n") if holding in text else []

    def _paths(self) -> set[str]:
        deleted = {c.path for c in self._changes.values() if c.after is None}
        return ({*self._snapshot.files} | {*self._changes}) - deleted

    async def _run_tests(self, paths: Sequence[str]) -> str:
        run = await self._services.validator.run_tests(self._patch(), paths)
        self._failing = sorted(test for test, o in run.outcomes.items() if o in BAD_OUTCOMES)
        return _describe_test_run(run)

    async def _run_command(self, command: str) -> ActionResult:
        validator = self._services.validator
        if validator.why_no_commands:
            return ActionResult(f"no command is run: {validator.why_no_commands}")
        run = await validator.run_command(self._patch(), command)
        adopted = adopt_files(run.written, self._files, allow=self._options.allow)
        if adopted.patch.changes:
            self._add(adopted.patch)
        edits = [_describe_edit(edit) for edit in adopted.patch.edits]
        lost = {**adopted.refused, **dict.fromkeys(run.left_out, "it was not read: see the limits")}
        return ActionResult(_describe_command(run, edits, lost), "run")

    # --- changing code

    @property
    def _files(self) -> OverlayFiles:
        return OverlayFiles(self._snapshot, self._changes.values())

    def _edit(self, edits: Sequence[Any]) -> ActionResult:
        if not edits:
            return ActionResult("nothing to edit", "edit")
        proposal = parse_reply(json.dumps({"edits": edits}))
        if isinstance(proposal, ParseFailure):
            return ActionResult(f"not applied: {proposal.reason}")
        applied = apply_proposal(proposal, self._files, allow=self._options.allow)
        if isinstance(applied, ApplyFailure):
            self._last_failure = applied
            failed = Attempt("iterative", proposal=proposal, apply_failure=applied)
            return ActionResult(f"not applied:\n{describe_failure(failed, self._services.counter)}")
        self._last_failure = None
        self._add(applied)
        return ActionResult("\n".join(["applied:", *map(_describe_edit, applied.edits)]), "edit")

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

    def _add_edits(self, proposal: PatchProposal) -> None:
        applied = apply_proposal(proposal, self._files, allow=self._options.allow)
        if isinstance(applied, AppliedPatch):
            self._add(applied)


# --------------------------------------------------------------------------------- results in words


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
    return "\n".join(_list_lines(lines, MAX_LIST_ENTRIES))


def _list_lines(lines: Sequence[str], limit: int) -> list[str]:
    more = len(lines) - limit
    return [*lines] if more <= 0 else [*lines[:limit], f"... and {more} more"]


def _show_region(region: Region, lines: Sequence[str], end: int, wanted: int) -> str:
    if end < region.start:
        return f"{region.path}: not shown, {MAX_READ_LINES} lines are the most; read it next"
    numbered = enumerate(lines[region.start - 1 : end], region.start)
    shown = "\n".join(f"{number}\t{line}" for number, line in numbered)
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


def _describe_test_run(run: TestRun) -> str:
    outcomes = list(run.outcomes.values())
    ended = "" if run.ended == "exited" else f" (the run ended early: {run.ended})"
    if not outcomes:
        code = "" if run.exit_code is None else f" (exit code {run.exit_code})"
        unread = f"no outcome of a test could be read{code}{ended}; the output ends:"
        return f"{unread if run.command else 'nothing was run:'}\n{run.output_tail}"
    bad = [test for test, outcome in sorted(run.outcomes.items()) if outcome in BAD_OUTCOMES]
    head = f"{outcomes.count(Outcome.PASSED)} passed, {len(bad)} failed{ended}"
    silent = [test for test in bad if not run.failures.get(test)]
    return "\n".join(filter(None, (head, failure_texts(run, bad), *silent)))


def _describe_command(run: CommandRun, kept: Sequence[str], lost: Mapping[str, str]) -> str:
    end = f"exit code {run.exit_code}" if run.ended == "exited" else f"ended: {run.ended}"
    parts = [end, _cut_middle(run.output)] if run.output else [end, "(no output)"]
    if kept:
        parts.append("now edits: " + "; ".join(_list_lines(kept, _PATHS_SHOWN)))
    for why in sorted(set(lost.values())):
        paths = [ascii(path) for path, reason in sorted(lost.items()) if reason == why]
        parts.append(f"not kept ({why}): " + ", ".join(_list_lines(paths, _PATHS_SHOWN)))
    return "\n".join(parts)


def _cut_middle(text: str) -> str:
    if len(text) <= _OUTPUT_SHOWN:
        return text
    half = _OUTPUT_SHOWN // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters ...]\n{text[-half:]}"
