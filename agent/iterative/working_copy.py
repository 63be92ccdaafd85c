"""The snapshot with the edits that the model has made so far, and what each action does to it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
from agent.iterative.answers import (
    MAX_READ_LINES,
    describe_command,
    describe_edit,
    describe_test_run,
    list_entries,
    list_lines,
    show_region,
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
from agent.run.prompting import describe_failure
from agent.shared.secrets import is_secret_path, mask_secrets
from agent.types import (
    BAD_OUTCOMES,
    AppliedEdit,
    AppliedPatch,
    ApplyFailure,
    Completion,
    CreateFile,
    FileChange,
    ParseFailure,
    PatchProposal,
    Problem,
    Repair,
    ReproductionTest,
)
from agent.types.protocols import Services, Snapshot
from agent.verify import known_secrets

MAX_SEARCH_HITS = 12  # hits of one ranked `search`
MAX_EXACT_HITS = 40  # hits of one exact `search`
_SHOWN_OF_A_LINE = 160  # characters of a hit
_HASH = 6  # hex digits that name the state of a file: it has few states in one run
_FILES_NAMED = 20  # edited files that the state names
_TESTS_NAMED = 3  # failing tests that the state names: the last result has all


@dataclass(frozen=True, slots=True)
class ActionResult:
    """The result of one action.

    `kind` and `paths` say what it is worth later: "look" for lists and searches, "read", "tests",
    "run" for commands, "edit"; and the files that it shows or changes.
    """

    text: str
    kind: str = "look"
    paths: frozenset[str] = frozenset()


class WorkingCopy:
    """The snapshot with the edits that the model has made so far, in memory only.

    `perform` carries out one action and returns what answers it. `attempt` is the result.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        services: Services,
        *,
        allow: Sequence[str] = (),
        include_test: bool = False,
        edit_tests: bool = False,
        start: AppliedPatch | None = None,
    ) -> None:
        """`allow` as in `apply_proposal`; `edit_tests`: those that are outdated.

        `start`: a patch of the snapshot whose edits are there from the beginning.
        """
        self._snapshot = snapshot
        self._known = known_secrets(snapshot)
        self._services = services
        self._allow = tuple(allow)
        self._include_test = include_test
        self._edit_tests = edit_tests
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

    @property
    def digest(self) -> str:
        """Names the state of all files."""
        state = hashlib.sha256()
        for path in self.edited:
            after = self._changes[path].after
            state.update(f"{path}\0{_hash_of(after)}\0".encode("utf-8", "surrogatepass"))
        return state.hexdigest()

    def state(self) -> str:
        """The edits so far and what fails."""
        paths = self.edited
        more = f" and {len(paths) - _FILES_NAMED} more" if len(paths) > _FILES_NAMED else ""
        edits = f"Edited so far: {', '.join(paths[:_FILES_NAMED])}{more}." if paths else "No edits."
        failing = len(self._failing)
        named = f": {', '.join(self._failing)}" if failing <= _TESTS_NAMED else ""
        tests = f"{failing} test{'' if failing == 1 else 's'} failed in the last test run{named}."
        return f"{edits} {tests}" if failing else edits

    async def perform(self, action: Action | ParseFailure) -> ActionResult:
        """Carry out one action, or say why it was none. Of `finish` it makes the edits only."""
        answer = await self._perform(action)
        return ActionResult(self._known.masked(answer.text), answer.kind, answer.paths)

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
                paths = frozenset(region.path for region in action.files)
                return ActionResult(self._read(action.files), "read", paths)
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

        `failure`: the reply that ended the work because it was not an action. `ended`: why the work
        ended without `finish`.
        """
        test = self._reproduction(finish.reproduction_test if finish else None)
        outdated = outdated_tests(finish.outdated_tests if finish else None)
        if test and self._changes and self._include_test:
            self._add_edits(PatchProposal((CreateFile(test.path, test.content),)))
        if outdated and self._changes and self._edit_tests:
            named = PatchProposal((), outdated_tests=outdated)
            self._add_edits(with_edited_tests(named, self._snapshot.files))
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
        return list_entries(paths, prefix) if paths else f"no files below {folder!r}"

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
        hits = [
            f"{path}:{number}: {line.strip()[:_SHOWN_OF_A_LINE]}"
            for path in sorted(self._paths())
            for number, line in enumerate(self._lines(path, holding=text) or (), 1)
            if text in line
        ]
        return "\n".join(list_lines(hits, MAX_EXACT_HITS)) or "no line holds this text"

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
                parts.append(show_region(region, lines, end, last, self._hash(region.path)))
        return "\n\n".join(parts)

    def _hash(self, path: str) -> str:
        return _hash_of(self._files.read(path))

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

    # --- running

    async def _run_tests(self, paths: Sequence[str]) -> str:
        run = await self._services.validator.run_tests(self._patch(), paths)
        self._failing = sorted(test for test, o in run.outcomes.items() if o in BAD_OUTCOMES)
        return describe_test_run(run)

    async def _run_command(self, command: str) -> ActionResult:
        validator = self._services.validator
        if validator.why_no_commands:
            return ActionResult(f"no command is run: {validator.why_no_commands}")
        run = await validator.run_command(self._patch(), command)
        adopted = adopt_files(run.written, self._files, allow=self._allow)
        if adopted.patch.changes:
            self._add(adopted.patch)
        adopted_edits = {edit.path: describe_edit(edit) for edit in adopted.patch.edits}
        lost = {**adopted.refused, **dict.fromkeys(run.left_out, "it was not read: see the limits")}
        return ActionResult(
            describe_command(run, list(adopted_edits.values()), lost),
            "run",
            frozenset(adopted_edits),
        )

    # --- changing code

    @property
    def _files(self) -> OverlayFiles:
        return OverlayFiles(self._snapshot, self._changes)

    def _edit(self, edits: Sequence[Any]) -> ActionResult:
        if not edits:
            return ActionResult("nothing to edit", "edit")
        written = [self._by_text(edit) for edit in edits]
        wrong = next((one for one in written if isinstance(one, str)), None)
        if wrong is not None:
            return ActionResult(f"not applied: {wrong}")
        proposal = parse_reply(json.dumps({"edits": written}))
        if isinstance(proposal, ParseFailure):
            return ActionResult(f"not applied: {proposal.reason}")
        applied = apply_proposal(proposal, self._files, allow=self._allow)
        if isinstance(applied, ApplyFailure):
            self._last_failure = applied
            failed = Attempt("iterative", proposal=proposal, apply_failure=applied)
            return ActionResult(f"not applied:\n{describe_failure(failed, self._services.counter)}")
        self._last_failure = None
        self._add(applied)
        done = [describe_edit(edit) for edit in applied.edits]
        hashes = [
            f"{change.path} is #{_hash_of(change.after)} now"
            for change in applied.changes
            if change.after is not None
        ]
        paths = frozenset(change.path for change in applied.changes)
        return ActionResult("\n".join(["applied:", *done, *hashes]), "edit", paths)

    def _by_text(self, edit: Any) -> Mapping[str, Any] | str:
        """An edit that names lines, as one that names their text; or why it does not fit."""
        if not isinstance(edit, dict) or "start" not in edit:
            return edit if isinstance(edit, dict) else "an edit is no object"
        path, start, replace = edit.get("path"), edit.get("start"), edit.get("replace")
        end = edit.get("end", start)
        if not (isinstance(path, str) and isinstance(replace, str)):
            return "an edit of lines needs path, start, end, hash and replace"
        lines = self._lines(path)
        if lines is None or lines != self._own_lines(path):
            return f"{path}: its lines are not shown as they are; name the text (search)"
        if str(edit.get("hash")).removeprefix("#") != self._hash(path):
            return f"{path} is #{self._hash(path)} now, not {edit.get('hash')!r}: read it again"
        if not (isinstance(start, int) and isinstance(end, int)):
            return f"{path}: start and end are line numbers"
        if not 1 <= start <= len(lines) or not start - 1 <= end <= len(lines):
            return f"{path} has {len(lines)} lines, not {start} to {end}"
        return _with_text(path, lines, start, end, replace)

    def _own_lines(self, path: str) -> list[str]:
        content = self._files.read(path) or b""
        return content.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")

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
        """Make edits of tests part of the patch, if they apply."""
        applied = apply_proposal(proposal, self._files, allow=self._allow)
        if isinstance(applied, AppliedPatch):
            self._add(applied)


def _hash_of(content: bytes | None) -> str:
    return hashlib.sha256(content or b"").hexdigest()[:_HASH]


def _with_text(
    path: str, lines: Sequence[str], start: int, end: int, replace: str
) -> Mapping[str, Any]:
    """The edit with the old lines as its search text, which needs one line that is not blank."""
    first, last = start, end
    while not any(line.strip() for line in lines[first - 1 : last]):
        if first > 1:
            first -= 1
        elif last < len(lines):
            last += 1
        else:
            return {"path": path, "create": replace}
    new = replace.removesuffix("\n").split("\n") if replace else []
    text = [*lines[first - 1 : start - 1], *new, *lines[end:last]]
    search = "\n".join(lines[first - 1 : last])
    if not text:  # the lines go with their line end
        return {"path": path, "search": f"{search}\n", "replace": "", "line": first}
    return {"path": path, "search": search, "replace": "\n".join(text), "line": first}
