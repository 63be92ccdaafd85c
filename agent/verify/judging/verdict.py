"""Reaches the verdict from the evidence. Pure.

`agent.types.Verdict` has the meaning of each verdict.

The first rule that applies decides:

    REGRESSED      a test is seen to fail that passed on the base, unless it is outdated
                   (`judging.outdated`) and all else is VERIFIED; the reply's own test still fails;
                   tests that pass without the patch's own changes to tests are gone, skipped or
                   red with them
    SUSPECT        with the patch the accounts of a run contradict each other, the test runner is
                   changed, or the patch adds what only serves to pass tests; the patch changes
                   or takes away a test that fails before and after
    REGRESSED      a test that passed on the base is gone
    UNVERIFIED     the base's own runs cannot be believed; nothing could be run; the command that
                   the user named runs no test, or gives nothing but the same failing exit code
    VERIFIED       a test fails on the base and passes with the fix, twice, and as plain code
                   (`judging.replays`); the patch changes more than tests and takes nothing away
                   from them
    NOT_REGRESSED  the rest

Where the deciding tests are given (`agent.verify.judging.compare`), they replace all rules but
the second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.types import (
    BAD_OUTCOMES,
    Outcome,
    TestRun,
    Verdict,
)
from agent.verify.judging.compare import (
    Comparison,
    KnownJudgement,
    doubtful_on_both,
    executed,
    is_command,
    is_whole,
    suspicion,
    to_blame,
)
from agent.verify.judging.outdated import OutdatedJudgement
from agent.verify.judging.replays import SecondRuns
from agent.verify.judging.reproduction import Judgement, Standing
from agent.verify.judging.wording import (
    bounded,
    failure_texts,
    first_error,
    first_failure,
    how_it_ended,
    listed,
    number,
    tail,
)
from agent.verify.reports import counts
from sandbox import Ended

# Values of `ended` that show nothing about the tests themselves.
_CUT = (Ended.SIGNALLED, Ended.CANCELLED)


# The number of files that a message names.
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class VerdictEvidence:
    """What the runs and the patch show.

    `comparison` is of the project's tests without failures that are excused as `outdated`. Of tests
    that pass newly, `proof` ones do so in the second runs `again` too, `flaky` ones do not, and
    `unrelated` ones for another reason. `lost` tests pass only without the patch's changes to
    tests, and `silenced` ones are red only without them. `tricks` say what makes the patch
    incredible, `weakened` what it takes away from existing tests, `held` what was as on the base.
    """

    before: TestRun | None = None
    after: TestRun | None = None
    comparison: Comparison | None = None
    proof: tuple[str, ...] = ()
    new_tests: Judgement | None = None
    whole: TestRun | None = None
    lost: tuple[str, ...] = ()
    tricks: tuple[str, ...] = ()
    known: KnownJudgement | None = None
    needs: str = ""
    silenced: tuple[str, ...] = ()
    only_tests: bool = False
    again: tuple[SecondRuns, ...] = ()
    named_command: bool = False
    edited_tests: tuple[str, ...] = ()
    weakened: str = ""
    held: Mapping[str, str] = field(default_factory=dict)
    outdated: OutdatedJudgement = field(default_factory=OutdatedJudgement)
    flaky: tuple[str, ...] = ()
    unrelated: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether a patch that no test shows to be right would be VERIFIED by one that does."""
        closed = self.only_tests or self.weakened or self.outdated.findings
        return self.known is None and not closed


def decide(evidence: VerdictEvidence) -> tuple[Verdict, str]:
    """Return the verdict and its reason, whose first line is a summary."""
    verdict, reason = _decide(evidence)
    about = "" if verdict is Verdict.VERIFIED else _about_held(evidence)
    return verdict, "\n\n".join(filter(None, (reason, about)))


def grade(evidence: VerdictEvidence) -> str:
    """Return how strong the evidence of a VERIFIED patch is: "given" or "own"."""
    named = evidence.known is not None or (evidence.proof and not _is_command(evidence))
    return "given" if named else "own"


def _about_held(evidence: VerdictEvidence) -> str:
    """Say which files of the patch took no part because they steer the tests, or ""."""
    if not evidence.held:
        return ""
    paths = sorted(evidence.held)
    why = "; ".join(f"{path}: {evidence.held[path]}" for path in paths[:_SHOWN])
    return (
        f"The tests were run with {listed(paths, _SHOWN)} as on the base ({why}). If the issue is "
        "about such a file, --allow PATH lets the patch's own take part."
    )


def _decide(evidence: VerdictEvidence) -> tuple[Verdict, str]:
    known, doubt = evidence.known, _suspicion(evidence)
    if known is not None:
        return _by_known(known, doubt)
    found = _regression(evidence, only_seen=bool(doubt))
    if found:
        return Verdict.REGRESSED, bounded(found)
    doubt = "\n\n".join(filter(None, (_silenced(evidence), doubt)))
    if doubt:
        return Verdict.SUSPECT, bounded(doubt)
    unknown = _unknown(evidence)
    if unknown and not evidence.outdated.accepted:
        return Verdict.UNVERIFIED, bounded(unknown)
    verdict, reason = _not_worse(evidence)
    if evidence.outdated.accepted:
        verdict, reason = _with_outdated(evidence, verdict, unknown or reason)
    return verdict, bounded(reason)


def _with_outdated(evidence: VerdictEvidence, verdict: Verdict, reason: str) -> tuple[Verdict, str]:
    """Outdated tests are excused beside a reproduction that holds, and by nothing else."""
    new = evidence.new_tests
    if verdict is Verdict.VERIFIED and new is not None and new.standing is Standing.PROVES:
        return verdict, f"{evidence.outdated.words} {reason}\n\n{evidence.outdated.review}"
    assert evidence.after is not None
    told = _newly_failing(evidence.outdated.accepted, evidence.after)
    first, _, rest = told.partition("\n")
    why = (
        "The reply calls them outdated, which counts only beside a reproduction test that holds, "
        f"and: {reason}"
    )
    return Verdict.REGRESSED, f"{first} {why}\n{rest}"


def _not_worse(evidence: VerdictEvidence) -> tuple[Verdict, str]:
    proof = "" if evidence.only_tests else _proof(evidence)
    if proof and evidence.weakened:
        passes = f"Fails on the base, passes with the patch: {proof}"
        return Verdict.NOT_REGRESSED, f"The patch {evidence.weakened}. {passes}."
    if proof:
        edited = evidence.edited_tests
        words = f" The patch also edits existing tests: {listed(edited)}." if edited else ""
        return Verdict.VERIFIED, f"Fails on the base, passes with the patch: {proof}.{words}"
    counted = _project_counts(evidence, "test")
    if evidence.proof and _is_command(evidence):
        counted = "the test command fails on the base and passes with the patch, and names no test"
    reason = f"No test fails newly ({counted}), but none shows the fix{_why(evidence)}."
    if evidence.weakened:
        reason += f" The patch {evidence.weakened}."
    return Verdict.NOT_REGRESSED, reason


def _by_known(known: KnownJudgement, doubt: str) -> tuple[Verdict, str]:
    if doubt and known.verdict is not Verdict.REGRESSED:
        return Verdict.SUSPECT, bounded(doubt)
    return known.verdict, bounded(known.reason)


def _regression(evidence: VerdictEvidence, *, only_seen: bool) -> str:
    """Return what got worse, or "". With `only_seen`, a test that is merely gone does not count."""
    parts = []
    after, comparison = evidence.after, evidence.comparison
    if comparison and after:
        failing = comparison.newly_failing
        seen = tuple(t for t in failing if not only_seen or after.outcomes.get(t) in BAD_OUTCOMES)
        if seen:
            parts.append(_refused(evidence.outdated) + _newly_failing(seen, after))
    if evidence.lost and evidence.whole:
        parts.append(_lost(evidence.lost, evidence.before, evidence.whole))
    if evidence.new_tests and evidence.new_tests.standing is Standing.STILL_FAILS:
        parts.append(evidence.new_tests.text)
    return "\n\n".join(parts)


def _refused(outdated: OutdatedJudgement) -> str:
    """Say why tests that the reply calls outdated count all the same, as a sentence, or ""."""
    if not outdated.refusal:
        return ""
    count = number(len(outdated.findings), "failing test")
    return f"The reply calls {count} outdated, which is not accepted: {outdated.refusal}. "


def _newly_failing(tests: tuple[str, ...], after: TestRun) -> str:
    blamed = to_blame(after, tests)
    if is_whole(after):
        summary = f"{number(len(tests), 'test')} that passed on the base"
        summary += f" {'fails' if len(tests) == 1 else 'fail'} with the patch: "
        summary += f"{first_failure(after, blamed)}."
    else:
        summary = f"With the patch the test run {how_it_ended(after)}; "
        summary += f"{number(len(tests), 'test')} did not pass any more: {listed(blamed)}."
    return _with_details(summary, tests, after)


def _lost(tests: tuple[str, ...], before: TestRun | None, whole: TestRun) -> str:
    """Describe lost tests: they passed on the base, or they pass with the patch's source only."""
    where = "with the source of the patch"
    if before is not None and all(before.outcomes.get(t) is Outcome.PASSED for t in tests):
        where = "on the base"
    summary = (
        f"With the patch's own changes to tests and configuration, {number(len(tests), 'test')} "
        f"that passed {where} did not (failing, skipped or gone): {listed(to_blame(whole, tests))}."
    )
    if not is_whole(whole):
        summary = f"{summary} The run {how_it_ended(whole)}."
    return _with_details(summary, tests, whole)


def _with_details(summary: str, tests: tuple[str, ...], run: TestRun) -> str:
    last = tuple(test for test in run.failures if test not in run.outcomes)
    details = failure_texts(run, (*to_blame(run, tests), *last)) or tail(run.output_tail)
    return f"{summary}\n\n{details}" if details else summary


def _silenced(evidence: VerdictEvidence) -> str:
    """Return which failing tests the patch removes or skips, and how, or ""."""
    tests, whole = evidence.silenced, evidence.whole
    if not tests or whole is None:
        return ""
    states = {None: "gone", Outcome.SKIPPED: "skipped", Outcome.PASSED: "passes as changed"}
    named = [f"{test} ({states.get(whole.outcomes.get(test), 'as changed')})" for test in tests]
    what = f"The patch changes or takes away {number(len(tests), 'failing test')} without a fix"
    only = "; the patch changes nothing but tests" if evidence.only_tests else ""
    return f"{what}: {listed(named)}{only}."


def _suspicion(evidence: VerdictEvidence) -> str:
    """Return why the patch is not credible, or ""."""
    doubts = [suspicion(evidence.before, evidence.after)]
    if evidence.new_tests and evidence.new_tests.standing is Standing.SUSPECT:
        doubts.append(evidence.new_tests.text)
    doubts.extend(evidence.tricks)
    doubts.extend(one.doubt for one in evidence.again)
    found = "; ".join(dict.fromkeys(filter(None, doubts)))
    return f"The tests cannot be believed: {found}." if found else ""


def _unknown(evidence: VerdictEvidence) -> str:
    """Return why nothing can be concluded, or ""."""
    after = evidence.after
    if doubtful_on_both(evidence.before, after) or (after is not None and after.ended in _CUT):
        assert after is not None
        ended = "; ".join(after.channels.disagreements) or f"the test run {how_it_ended(after)}"
        both = "as on the base" if doubtful_on_both(evidence.before, after) else "with the patch"
        return f"The project's tests cannot be trusted, {both}: {ended}."
    if evidence.named_command and _command_shows_nothing(evidence):
        return f"The test command shows nothing: {_why_not_run(evidence)}."
    standing = evidence.new_tests.standing if evidence.new_tests else Standing.SAYS_NOTHING
    if standing is not Standing.SAYS_NOTHING or (
        evidence.comparison and evidence.comparison.executed
    ):
        return ""
    parts = [f"No test could be run: {evidence.needs or _why_not_run(evidence)}"]
    if evidence.new_tests:
        parts.append(evidence.new_tests.text)
    return "; ".join(parts) + ". Only the syntax was checked."


def _command_shows_nothing(evidence: VerdictEvidence) -> bool:
    """Whether the command ran no test, or is only known to fail with and without the patch."""
    comparison = evidence.comparison
    if comparison is None or not comparison.executed:
        return True
    return _is_command(evidence) and comparison.still_red > 0


def _why_not_run(evidence: VerdictEvidence) -> str:
    before, after = evidence.before, evidence.after
    if before is not None and after is not None and is_command(before) and is_command(after):
        return f"it fails on the base and with the patch (exit code {after.exit_code})"
    if before is not None and after is None:
        return f"on the base the run {how_it_ended(before)}, so that nothing else was run"
    if before is None or after is None:
        return "no test file of the project is tied to the change"
    if executed(before):
        return f"with the patch the run {how_it_ended(after)} ({counts(after)})"
    if before.outcomes:
        return (
            f"on the base no selected test runs ({counts(before)}; the run {how_it_ended(before)})"
        )
    what = first_error(before.output_tail) or "no output"
    return f"on the base the run {how_it_ended(before)} without an outcome ({what})"


def _proof(evidence: VerdictEvidence) -> str:
    parts = []
    if evidence.new_tests and evidence.new_tests.standing is Standing.PROVES:
        parts.append(evidence.new_tests.text)
    if evidence.proof and not _is_command(evidence):  # an exit code does not say what passed
        tests = number(len(evidence.proof), "test")
        parts.append(f"{tests} of the project: {listed(evidence.proof)}")
    return "; ".join([*parts, _project_counts(evidence, "other test")]) if parts else ""


def _is_command(evidence: VerdictEvidence) -> bool:
    return evidence.after is not None and is_command(evidence.after)


def _project_counts(evidence: VerdictEvidence, noun: str) -> str:
    """Return how the project's tests did; `noun` is "other test" where some were named before."""
    comparison = evidence.comparison
    if comparison is None or not comparison.executed:
        return "no test of the project was run"
    if _is_command(evidence):
        return f"the test command {'passes' if comparison.still_passing else 'fails'} as before"
    verb = "pass" if comparison.still_passing > 1 else "passes"
    words = f"{number(comparison.still_passing, noun)} of the project still {verb}"
    if comparison.still_red:
        still = "fail" if comparison.still_red > 1 else "fails"
        words += f", {comparison.still_red} failed before and still {still}"
    return words


def _why(evidence: VerdictEvidence) -> str:
    if evidence.only_tests:
        return ": the patch changes nothing but tests and their configuration"
    if evidence.new_tests is None:
        return ": no test came with it"
    return f": {evidence.new_tests.text}"
