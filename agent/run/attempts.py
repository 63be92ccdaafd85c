"""Attempts: one reply each, how far it came, and what a run that ends with them says."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from posixpath import relpath
from typing import Literal

from agent.errors import Status
from agent.patching import OverlayFiles, adopt_files, unified_diff
from agent.shared.terminal import counted
from agent.types import (
    AppliedPatch,
    ApplyFailure,
    CommandRun,
    Completion,
    Edit,
    FileChange,
    Outcome,
    ParseFailure,
    PatchProposal,
    ReplaceSymbol,
    ReproductionTest,
    ValidationReport,
    Verdict,
    WrongTest,
)
from agent.types.protocols import Snapshot

AttemptKind = Literal[
    "one-shot", "more-code", "repair", "iterative", "another-test", "reproduction", "saved-reply"
]
"""`more-code`: the reply to a call with the code that the reply before had asked for.
`another-test`: the patch of the attempt before it, with another reproduction test.
"""


_VERDICT_STATUS = {
    Verdict.VERIFIED: Status.ACCEPTED,
    Verdict.NOT_REGRESSED: Status.ACCEPTED,
    Verdict.UNVERIFIED: Status.UNVERIFIED,
    Verdict.REGRESSED: Status.BROKEN,
    Verdict.BROKEN_SYNTAX: Status.BROKEN,
    Verdict.SUSPECT: Status.SUSPECT,
}
_VERDICT_RANK = {
    Verdict.BROKEN_SYNTAX: 1,
    Verdict.SUSPECT: 2,  # below an honest failure
    Verdict.REGRESSED: 3,
    Verdict.UNVERIFIED: 4,
    Verdict.NOT_REGRESSED: 5,
    Verdict.VERIFIED: 6,
}
# Broken tests whose source the next prompt shows.
_TESTS_SHOWN = 3

# Characters of the reason why a reply takes a test back.
_REASON_SHOWN = 300

_FAILURE_RANK = {
    Status.ALREADY_FIXED: -1,
    Status.NOT_APPLIED: -1,
    Status.UNPARSEABLE: -2,
    Status.NO_EDIT: -3,
}


@dataclass(frozen=True, slots=True)
class Attempt:
    """One reply and how far it came. Later fields are None where an earlier step failed.

    `ended`: why the iterative mode ended, "" where the model finished it.
    """

    kind: AttemptKind
    completion: Completion | None = None
    proposal: PatchProposal | None = None
    parse_failure: ParseFailure | None = None
    apply_failure: ApplyFailure | None = None
    patch: AppliedPatch | None = None
    report: ValidationReport | None = None
    ended: str = ""

    @property
    def status(self) -> Status:
        """The status of the run if this attempt were its last."""
        if self.report is not None:
            return _VERDICT_STATUS[self.report.verdict]
        if self.apply_failure is not None:
            there = self.apply_failure.is_already_there
            return Status.ALREADY_FIXED if there else Status.NOT_APPLIED
        if self.parse_failure is not None:
            no_edit = self.parse_failure.kind in ("empty", "no-edit", "needs-code")
            return Status.NO_EDIT if no_edit else Status.UNPARSEABLE
        return Status.UNVERIFIED  # the patch applies, but its validation was cut off

    @property
    def reason(self) -> str:
        """Why the attempt was rejected, or the reason of the verdict. A repair prompt quotes it."""
        if self.report is not None:
            return self.report.reason
        if self.apply_failure is not None:
            return self.apply_failure.reason
        if self.parse_failure is not None:
            return self.parse_failure.reason
        return "the patch applies; it was not validated"

    @property
    def summary(self) -> str:
        """The outcome before validation, such as "2 edits in 1 file"."""
        if self.asks_for_code:
            return f"asks for code ({counted(len(self.missing), 'name')})"
        if self.parse_failure is not None:
            return f"{self.parse_failure.kind} reply"
        if self.patch is None:
            return "does not apply"
        edits, files = len(self.patch.edits), len(self.patch.changes)
        return f"{counted(edits, 'edit')} in {counted(files, 'file')}"

    @property
    def missing(self) -> tuple[str, ...]:
        """The code that the reply said it was not shown."""
        said = self.proposal or self.parse_failure
        return said.missing if said else ()

    @property
    def broken_tests(self) -> tuple[str, ...]:
        """A few old tests that the patch breaks, as `path:Class.method`, for the next prompt."""
        failing = self.report.newly_failing if self.report else ()
        names = (f"{path}:{symbol}" for path, symbol in map(_place_of, failing) if symbol)
        return tuple(dict.fromkeys(names))[:_TESTS_SHOWN]

    @property
    def asks_for_code(self) -> bool:
        """Whether the reply asks for code before it edits, which is not a failure."""
        return self.parse_failure is not None and self.parse_failure.kind == "needs-code"

    @property
    def is_cut_off(self) -> bool:
        """Whether the reply ends in the middle of its answer, so that it can be continued."""
        from agent.patching import can_continue

        failure, said = self.parse_failure, self.completion
        cut = failure is not None and failure.kind == "truncated"
        return cut and said is not None and can_continue(said.text)

    @property
    def wrong_tests(self) -> tuple[WrongTest, ...]:
        """The tests of earlier replies that the reply takes back."""
        return self.proposal.wrong_tests if self.proposal else ()

    @property
    def rank(self) -> tuple[int, int, bool]:
        """Sort key of attempts: the verdict, the number of new failures, the independent test."""
        if self.patch is None:
            return (_FAILURE_RANK[self.status], 0, False)
        if (report := self.report) is None:
            return (0, 0, False)
        independent = report.evidence == "independent"
        return (_VERDICT_RANK[report.verdict], -len(report.newly_failing), independent)


def lasting_tests(attempts: Sequence[Attempt]) -> tuple[ReproductionTest, ...]:
    """Return the reproduction tests of all replies but the last, newest first.

    A test lasts until a later reply takes its path back with a reason.
    """
    found: list[ReproductionTest] = []
    refuted: set[str] = set()
    for attempt in reversed(attempts):
        test = attempt.proposal.reproduction_test if attempt.proposal else None
        if attempt is not attempts[-1] and test is not None and test.path not in refuted:
            found.append(test)
        refuted.update(wrong.path for wrong in attempt.wrong_tests)
    return tuple(found)


def last_proposal(attempts: Sequence[Attempt]) -> PatchProposal | None:
    """Return the last proposal, whose edits the next reply may keep."""
    made = (attempt.proposal for attempt in reversed(attempts))
    return next((proposal for proposal in made if proposal is not None), None)


def with_kept_test(proposal: PatchProposal, earlier: Sequence[Attempt]) -> PatchProposal:
    """Return the proposal with the test of an earlier reply that only asked for code.

    A test of the proposal itself comes first. Tests of replies with edits are `lasting_tests`.
    """
    if proposal.reproduction_test is not None or any(one.proposal for one in earlier):
        return proposal
    refuted = {wrong.path for wrong in proposal.wrong_tests}
    for attempt in reversed(earlier):
        test = attempt.parse_failure.reproduction_test if attempt.parse_failure else None
        if test is not None and test.path not in refuted:
            return replace(proposal, reproduction_test=test)
    return proposal


def with_edited_tests(proposal: PatchProposal) -> PatchProposal:
    """Return the proposal with the edited versions of its outdated tests as further edits."""
    edits: list[Edit] = []
    for test in proposal.outdated_tests:
        path, symbol = _place_of(test.id)
        edits += test.edits
        if symbol and test.replacement.strip() and not test.edits:
            edits.append(ReplaceSymbol(path, symbol, test.replacement))
    return replace(proposal, edits=(*proposal.edits, *dict.fromkeys(edits)))


def check_script(command: str, patch: AppliedPatch, scope: str) -> str:
    """Return a command with the patch's files in the place of `{files}`; "" if none is left."""
    paths = [relpath(c.path, scope or ".") for c in patch.changes if c.after is not None]
    names = (f"./{path}" if path.startswith("-") else path for path in paths)
    return command.replace("{files}", shlex.join(names)) if paths else ""


def with_checked_files(
    attempt: Attempt, done: CommandRun, base: Snapshot, allow: Collection[str]
) -> Attempt:
    """Return the attempt with what a check wrote into the files of its patch, and only those."""
    assert attempt.patch is not None
    patch, first = attempt.patch, {change.path: change for change in attempt.patch.changes}
    written = {path: data for path, data in done.written.items() if data and path in first}
    adopted = adopt_files(written, OverlayFiles(base, patch.changes), allow=allow).patch
    later = {change.path: change.after for change in adopted.changes}
    checked = (replace(c, after=later.get(c.path, c.after)) for c in patch.changes)
    changes = tuple(change for change in checked if change.before != change.after)
    if not later or not changes:
        return attempt
    patch = replace(patch, changes=changes, diff=unified_diff(changes))
    proposal = attempt.proposal
    test = proposal.reproduction_test if proposal is not None else None
    if proposal is not None and test is not None and (content := later.get(test.path)):
        test = replace(test, content=content.decode())
        proposal = replace(proposal, reproduction_test=test)
    return replace(attempt, patch=patch, proposal=proposal)


def _place_of(test: str) -> tuple[str, str]:
    """Return the path and the symbol (`Class.method`, "" for a whole file) of a test's id."""
    path, _, name = test.partition("[")[0].partition("::")
    return path, name.replace("::", ".")


def describe_wrong_test(wrong: WrongTest) -> str:
    """Return the note by which the user learns that a reply takes a test back."""
    reason = " ".join(wrong.reason.split())[:_REASON_SHOWN]
    return f"the earlier test {wrong.path} no longer counts: {reason}"


def with_another_test(
    done: Attempt, completion: Completion, test: ReproductionTest | None, *, include: bool
) -> Attempt:
    """Return an accepted attempt with the test of a further reply, which changes no code.

    `include`: the diff holds the test. A test that could not be run stops counting.
    """
    if test is None:
        failure = ParseFailure("no-edit", "the reply holds no test")
        return Attempt("another-test", completion, parse_failure=failure)
    assert done.patch is not None
    proposal = done.proposal or PatchProposal(())
    before = proposal.reproduction_test
    run = done.report.reproduction_after if done.report else None
    unrun = before is not None and run is not None and Outcome.PASSED not in run.outcomes.values()
    wrong = (WrongTest(before.path, "it could not be run"),) if before and unrun else ()
    patch = _with_test_file(done.patch, before, test) if include else done.patch
    proposal = replace(proposal, reproduction_test=test, wrong_tests=wrong)
    return Attempt("another-test", completion, proposal, patch=patch)


def _with_test_file(
    patch: AppliedPatch, before: ReproductionTest | None, test: ReproductionTest
) -> AppliedPatch:
    from agent.patching import unified_diff

    gone = before.path if before else None
    kept = {c.path: c for c in patch.changes if c.path != gone or c.before is not None}
    new = FileChange(test.path, None, test.content.encode("utf-8", "surrogateescape"))
    files = kept | {new.path: kept.get(new.path, new)}
    changes = tuple(change for _, change in sorted(files.items()))
    return replace(patch, changes=changes, diff=unified_diff(changes))


def furthest(attempts: Sequence[Attempt]) -> Attempt | None:
    """Return the attempt with the highest rank; of equal ones the later."""
    ranked = max(enumerate(attempts), key=lambda pair: (pair[1].rank, pair[0]), default=None)
    return None if ranked is None else ranked[1]


def outcome(attempts: Sequence[Attempt]) -> tuple[Status, str]:
    """Return the status and the message of a run that ended by itself: those of its best patch."""
    last, best = attempts[-1], furthest(attempts)
    assert best is not None
    if best.patch is None:
        return _without_patch(attempts)
    if best.status is Status.ACCEPTED:
        return best.status, best.reason + _other_test(last, best)
    if is_repeated(attempts):
        return (
            best.status,
            f"two replies gave the same patch, and the same tests fail; {best.reason}",
        )
    if best is last and not last.ended:
        return best.status, best.reason
    end = last.ended or f"the last attempt ({last.kind}) failed: {_first_line(last.reason)}"
    return best.status, f"{end}; the best patch: {best.reason}"


def _other_test(last: Attempt, best: Attempt) -> str:
    if last is best or last.kind != "another-test":
        return ""
    return f"\nAnother reproduction test was asked for: {_first_line(last.reason)}."


def is_repeated(attempts: Sequence[Attempt]) -> bool:
    """Whether the last attempt is a patch that was refused before for the same failing tests."""
    last = attempts[-1]
    if last.patch is None or last.report is None or not last.report.newly_failing:
        return False
    return any(
        one.patch is not None
        and one.report is not None
        and one.patch.changes == last.patch.changes
        and one.report.newly_failing == last.report.newly_failing
        for one in attempts[:-1]
    )


def _without_patch(attempts: Sequence[Attempt]) -> tuple[Status, str]:
    last = attempts[-1]
    there = [attempt for attempt in attempts if attempt.status is Status.ALREADY_FIXED]
    if there and last.status in (Status.ALREADY_FIXED, Status.NO_EDIT):
        failure = there[-1].apply_failure
        assert failure is not None
        first = failure.failures[0]
        return (
            Status.ALREADY_FIXED,
            f"the issue seems to be fixed already ({first.path}: {first.reason})",
        )
    if last.ended and last.parse_failure is None:
        return last.status, f"{last.ended}; {last.reason}"
    return last.status, last.ended or last.reason


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0].removesuffix(".")
