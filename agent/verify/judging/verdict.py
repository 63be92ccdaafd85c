"""Reaches the verdict from the evidence: the first rule of `_decide` that applies. Pure.

`agent.types.Verdict` has the meaning of each verdict. Where the deciding tests are given
(`agent.verify.judging.compare`), they replace all rules but that of SUSPECT.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.types import BAD_OUTCOMES, TestRun, Verdict
from agent.verify.judging.compare import (
    Comparison,
    KnownJudgement,
    doubtful,
    executed,
    is_command,
    is_whole,
    suspicion,
    to_blame,
)
from agent.verify.judging.outdated import OutdatedJudgement
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

    `comparison` is of the project's tests, without failures that are excused as `outdated`. Tests
    that pass newly are `proof` if they also do so in the second runs, `flaky` if they do
    not, and `unrelated` if they do so for another reason. The patch's changes to existing tests
    make `lost` tests fail and `silenced` tests pass. `tricks` say why the patch is not credible,
    `weakened` what it takes away from existing tests, and `held` which files were kept as on the
    base.
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

    @property
    def standing(self) -> Standing:
        """What the reply's own tests show."""
        return self.new_tests.standing if self.new_tests else Standing.SAYS_NOTHING

    @property
    def is_command(self) -> bool:
        """Whether a command was run that names no test."""
        return self.after is not None and is_command(self.after)

    @property
    def ran_tests(self) -> bool:
        """Whether tests of the project can be compared."""
        return self.comparison is not None and self.comparison.executed


def decide(evidence: VerdictEvidence) -> tuple[Verdict, str]:
    """Return the verdict and its reason, whose first line is a summary."""
    verdict, reason = _decide(evidence)
    reason, paths = bounded(reason), sorted(evidence.held)
    if paths and verdict is not Verdict.VERIFIED:
        why = "; ".join(f"{path}: {evidence.held[path]}" for path in paths[:_SHOWN])
        reason += (
            f"\n\nThe tests were run with {listed(paths, _SHOWN)} as on the base ({why}). If the "
            "issue is about such a file, --allow PATH lets the patch's own take part."
        )
    return verdict, reason


def grade(evidence: VerdictEvidence) -> str:
    """Return how strong the evidence of a VERIFIED patch is: "given" or "own"."""
    named = evidence.known is not None or (evidence.proof and not evidence.is_command)
    return "given" if named else "own"


def _decide(evidence: VerdictEvidence) -> tuple[Verdict, str]:
    known, doubt = evidence.known, _suspicion(evidence)
    if known is not None and (known.verdict is Verdict.REGRESSED or not doubt):
        return known.verdict, known.reason
    worse = "" if known else _regression(evidence, only_seen=bool(doubt))
    if worse:
        return Verdict.REGRESSED, worse
    if evidence.silenced:
        what = f"changes or takes away {number(len(evidence.silenced), 'failing test')}"
        only = "; the patch changes nothing but tests" if evidence.only_tests else ""
        gone = f"The patch {what} without a fix: {listed(evidence.silenced)}{only}."
        doubt = f"{gone}\n\n{doubt}".rstrip()
    if doubt:
        return Verdict.SUSPECT, doubt
    unknown = _unknown(evidence)
    verdict, reason = (Verdict.UNVERIFIED, unknown) if unknown else _not_worse(evidence)
    if not evidence.outdated.accepted or evidence.after is None:
        return verdict, reason
    return _with_outdated(evidence, evidence.after, verdict, reason)


def _with_outdated(
    evidence: VerdictEvidence, after: TestRun, verdict: Verdict, reason: str
) -> tuple[Verdict, str]:
    """Outdated tests are excused beside a reproduction that holds, and by nothing else."""
    outdated = evidence.outdated
    if verdict is Verdict.VERIFIED and evidence.standing is Standing.PROVES:
        tests = number(outdated.around, "existing test")
        lines = [f"- {one.id}: {one.why} ({one.shown})" for one in outdated.findings]
        review = "\n".join(["Called outdated by the reply, to be reviewed:", *lines])
        count = f"Outdated are {len(lines)} of {tests} of their files."
        return verdict, f"{count} {reason}\n\n{review}"
    only = "The reply calls them outdated, which counts only beside a reproduction test that holds"
    why = f"{only}, and: {reason}"
    return Verdict.REGRESSED, _newly_failing(outdated.accepted, after, why)


def _not_worse(evidence: VerdictEvidence) -> tuple[Verdict, str]:
    proof = "" if evidence.only_tests else _proof(evidence)
    taken = f"The patch {evidence.weakened}." if evidence.weakened else ""
    if proof:
        passes = f"Fails on the base, passes with the patch: {proof}."
        if taken:
            return Verdict.NOT_REGRESSED, f"{taken} {passes}"
        edited = listed(evidence.edited_tests)
        words = f" The patch also edits existing tests: {edited}." if edited else ""
        return Verdict.VERIFIED, f"{passes}{words}"
    count = _project_counts(evidence, "test")
    if evidence.proof and evidence.is_command:
        count = "the test command fails on the base and passes with the patch, and names no test"
    why = evidence.new_tests.text if evidence.new_tests else "no test came with it"
    if evidence.only_tests:
        why = "the patch changes nothing but tests and their configuration"
    reason = f"No test fails newly ({count}), but none shows the fix: {why}."
    return Verdict.NOT_REGRESSED, f"{reason} {taken}".rstrip()


def _regression(evidence: VerdictEvidence, *, only_seen: bool) -> str:
    """Return what got worse, or "". With `only_seen`, a test that is merely gone does not count."""
    parts = []
    after, whole, outdated = evidence.after, evidence.whole, evidence.outdated
    failing = evidence.comparison.newly_failing if evidence.comparison and after else ()
    if only_seen and after:
        failing = tuple(test for test in failing if after.outcomes.get(test) in BAD_OUTCOMES)
    if failing and after:
        count = number(len(outdated.findings), "failing test")
        refused = f"The reply calls {count} outdated, which is not accepted: {outdated.refusal}."
        parts.append(_newly_failing(failing, after, refused if outdated.refusal else ""))
    if evidence.lost and whole:
        cut = "" if is_whole(whole) else f" The run {how_it_ended(whole)}."
        summary = (
            f"With the patch's own changes to tests and configuration, "
            f"{number(len(evidence.lost), 'test')} that passed without them did not (failing, "
            f"skipped or gone): {listed(to_blame(whole, evidence.lost))}.{cut}"
        )
        parts.append(_with_details(summary, evidence.lost, whole))
    if evidence.new_tests and evidence.standing is Standing.STILL_FAILS:
        parts.append(evidence.new_tests.text)
    return "\n\n".join(parts)


def _newly_failing(tests: tuple[str, ...], after: TestRun, more: str) -> str:
    count, blamed = number(len(tests), "test"), to_blame(after, tests)
    summary = (
        f"With the patch the test run {how_it_ended(after)}; "
        f"{count} did not pass any more: {listed(blamed)}."
    )
    if is_whole(after):
        verb, failures = "fails" if len(tests) == 1 else "fail", first_failure(after, blamed)
        summary = f"{count} that passed on the base {verb} with the patch: {failures}."
    return _with_details(f"{summary} {more}".rstrip(), tests, after)


def _with_details(summary: str, tests: tuple[str, ...], run: TestRun) -> str:
    last = tuple(test for test in run.failures if test not in run.outcomes)
    details = failure_texts(run, (*to_blame(run, tests), *last)) or tail(run.output_tail)
    return f"{summary}\n\n{details}" if details else summary


def _suspicion(evidence: VerdictEvidence) -> str:
    """Return why the patch is not credible, or ""."""
    new = evidence.new_tests
    doubts = (
        suspicion(evidence.before, evidence.after),
        new.text if new and new.standing is Standing.SUSPECT else "",
        *evidence.tricks,
    )
    named = "; ".join(dict.fromkeys(filter(None, doubts)))
    return f"The tests cannot be believed: {named}." if named else ""


def _unknown(evidence: VerdictEvidence) -> str:
    """Return why nothing can be concluded, or ""."""
    before, after = evidence.before, evidence.after
    both = before is not None and after is not None and doubtful(before) and doubtful(after)
    if after is not None and (both or after.ended in _CUT):
        ended = "; ".join(after.channels.disagreements) or f"the test run {how_it_ended(after)}"
        where = "as on the base" if both else "with the patch"
        return f"The project's tests cannot be trusted, {where}: {ended}."
    red = evidence.is_command and evidence.comparison and evidence.comparison.still_red
    if evidence.named_command and (red or not evidence.ran_tests):
        return f"The test command shows nothing: {_why_not_run(before, after)}."
    if evidence.ran_tests or evidence.standing is not Standing.SAYS_NOTHING:
        return ""
    more = f"; {evidence.new_tests.text}" if evidence.new_tests else ""
    why = evidence.needs or _why_not_run(before, after)
    return f"No test could be run: {why}{more}. Only the syntax was checked."


def _why_not_run(before: TestRun | None, after: TestRun | None) -> str:
    if before is None:
        return "no test file of the project is tied to the change"
    if after is not None and is_command(before) and is_command(after):
        return f"it fails on the base and with the patch (exit code {after.exit_code})"
    run = after if after and executed(before) else before
    where = "with the patch" if run is after else "on the base"
    what = counts(run) if run.outcomes else first_error(run.output_tail) or "no output"
    return f"{where} the run {how_it_ended(run)} ({what})"


def _proof(evidence: VerdictEvidence) -> str:
    parts = []
    if evidence.new_tests and evidence.standing is Standing.PROVES:
        parts.append(evidence.new_tests.text)
    if evidence.proof and not evidence.is_command:  # an exit code does not say what passed
        tests = number(len(evidence.proof), "test")
        parts.append(f"{tests} of the project: {listed(evidence.proof)}")
    return "; ".join([*parts, _project_counts(evidence, "other test")]) if parts else ""


def _project_counts(evidence: VerdictEvidence, noun: str) -> str:
    """Return how the project's tests did; `noun` is "other test" where some were named before."""
    comparison = evidence.comparison
    if comparison is None or not comparison.executed:
        return "no test of the project was run"
    passing, red = comparison.still_passing, comparison.still_red
    if evidence.is_command:
        return f"the test command {'passes' if passing else 'fails'} as before"
    words = f"{number(passing, noun)} of the project still {'pass' if passing > 1 else 'passes'}"
    still = "fail" if red > 1 else "fails"
    return f"{words}, {red} failed before and still {still}" if red else words
