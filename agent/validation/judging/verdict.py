"""From evidence to a verdict. Pure; the rules are those of `agent.types.Verdict`.

In this order, the first that applies:

    REGRESSED      a test is seen to fail that passed on the base; the reply's own test still fails;
                   tests are gone, skipped or red with the patch's own changes to tests
    SUSPECT        with the patch the accounts of a run contradict each other, the test runner is
                   changed, or the patch adds what only serves to pass tests
    REGRESSED      a test that passed on the base is gone
    UNVERIFIED     the base's own runs cannot be believed; nothing could be run
    VERIFIED       a test fails on the base (twice, if it is the project's) and passes with the fix
    NOT_REGRESSED  the rest

Where the deciding tests are given (`agent.validation.judging.known`), they take the place of all
but the second.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.types import Outcome, TestRun, Verdict
from agent.validation.judging.compare import Comparison, executed, is_whole
from agent.validation.judging.known import KnownJudgement
from agent.validation.judging.reproduction import Judgement, Standing
from agent.validation.judging.trust import lies_on_both, suspicion
from agent.validation.judging.wording import (
    bounded,
    failure_texts,
    how_it_ended,
    listed,
    number,
    tail,
    to_blame,
)
from agent.validation.reports.report import counts
from sandbox.types import Ended

# Endings that say nothing about the tests themselves.
_CUT = (Ended.SIGNALLED, Ended.CANCELLED)

_BAD = (Outcome.FAILED, Outcome.ERROR)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was found out. `before`, `after`, `comparison` belong to the project's tests (A and C).

    `proof` are newly passing project tests. `new_tests` is the judgement of tests that the patch
    brought. `whole` and `lost` belong to D: what passed in A and does not pass there. `tricks` are
    those of `agent.validation.judging.tricks`; `needs` says what the tests need and have not here,
    "" for nothing.
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


def decide(evidence: Evidence) -> tuple[Verdict, str]:
    """The verdict and its reason, whose first line is a summary."""
    known, doubt = evidence.known, _suspicion(evidence)
    if known is not None:
        return _by_known(known, doubt)
    found = _regression(evidence, only_seen=bool(doubt))
    if found:
        return Verdict.REGRESSED, bounded(found)
    if doubt:
        return Verdict.SUSPECT, bounded(doubt)
    unknown = _unknown(evidence)
    if unknown:
        return Verdict.UNVERIFIED, bounded(unknown)
    proof = _proof(evidence)
    if proof:
        return Verdict.VERIFIED, bounded(f"Fails on the base, passes with the patch: {proof}.")
    counted = _project_counts(evidence)
    reason = f"No test fails newly ({counted}), but none shows the fix{_why(evidence)}."
    return Verdict.NOT_REGRESSED, bounded(reason)


def _by_known(known: KnownJudgement, doubt: str) -> tuple[Verdict, str]:
    if doubt and known.verdict is not Verdict.REGRESSED:
        return Verdict.SUSPECT, bounded(doubt)
    return known.verdict, bounded(known.reason)


def _regression(evidence: Evidence, *, only_seen: bool) -> str:
    """What got worse, or "". `only_seen`: a test that is merely gone does not count."""
    parts = []
    after, comparison = evidence.after, evidence.comparison
    if comparison and after:
        failing = comparison.newly_failing
        seen = tuple(t for t in failing if not only_seen or after.outcomes.get(t) in _BAD)
        if seen:
            parts.append(_newly_failing(seen, after))
    if evidence.lost and evidence.whole:
        parts.append(_lost(evidence.lost, evidence.whole))
    if evidence.new_tests and evidence.new_tests.standing is Standing.STILL_FAILS:
        parts.append(evidence.new_tests.text)
    return "\n\n".join(parts)


def _newly_failing(tests: tuple[str, ...], after: TestRun) -> str:
    blamed = to_blame(after, tests)
    if is_whole(after):
        summary = f"{number(len(tests), 'test')} that passed on the base"
        summary += f" {'fails' if len(tests) == 1 else 'fail'} with the patch: {listed(blamed)}."
    else:
        summary = f"With the patch the test run {how_it_ended(after)}; "
        summary += f"{number(len(tests), 'test')} did not pass any more: {listed(blamed)}."
    return _with_details(summary, tests, after)


def _lost(tests: tuple[str, ...], whole: TestRun) -> str:
    verb = "does" if len(tests) == 1 else "do"
    summary = f"{number(len(tests), 'test')} that passed on the base {verb} not pass any more with "
    summary += "the patch's own changes to tests and configuration (failing, skipped or gone): "
    if not is_whole(whole):
        summary = f"With them the run {how_it_ended(whole)}. {summary}"
    return _with_details(f"{summary}{listed(to_blame(whole, tests))}.", tests, whole)


def _with_details(summary: str, tests: tuple[str, ...], run: TestRun) -> str:
    last = tuple(test for test in run.failures if test not in run.outcomes)
    details = failure_texts(run, (*to_blame(run, tests), *last)) or tail(run.output_tail)
    return f"{summary}\n\n{details}" if details else summary


def _suspicion(evidence: Evidence) -> str:
    """Why the patch is not believed, or ""."""
    doubts = [suspicion(evidence.before, evidence.after)]
    if evidence.new_tests and evidence.new_tests.standing is Standing.SUSPECT:
        doubts.append(evidence.new_tests.text)
    doubts.extend(evidence.tricks)
    found = "; ".join(filter(None, doubts))
    return f"The tests cannot be believed: {found}." if found else ""


def _unknown(evidence: Evidence) -> str:
    """Why nothing can be concluded, or ""."""
    after = evidence.after
    if lies_on_both(evidence.before, after) or (after is not None and after.ended in _CUT):
        assert after is not None
        ended = "; ".join(after.channels.disagreements) or f"the test run {how_it_ended(after)}"
        both = "as on the base" if lies_on_both(evidence.before, after) else "with the patch"
        return f"The project's tests cannot be trusted, {both}: {ended}."
    standing = evidence.new_tests.standing if evidence.new_tests else Standing.SAYS_NOTHING
    if standing is not Standing.SAYS_NOTHING or (
        evidence.comparison and evidence.comparison.executed
    ):
        return ""
    parts = [f"No test could be run: {evidence.needs or _why_not_run(evidence)}"]
    if evidence.new_tests:
        parts.append(evidence.new_tests.text)
    return "; ".join(parts) + ". Only the syntax was checked."


def _why_not_run(evidence: Evidence) -> str:
    before, after = evidence.before, evidence.after
    if before is None or after is None:
        return "no test file of the project is tied to the change"
    if executed(before):
        return f"with the patch the run {how_it_ended(after)} ({counts(after)})"
    if before.outcomes:
        return (
            f"on the base no selected test runs ({counts(before)}; the run {how_it_ended(before)})"
        )
    return f"on the base the run {how_it_ended(before)} without an outcome ({_last_line(before)})"


def _last_line(run: TestRun) -> str:
    lines = [line for line in run.output_tail.splitlines() if line.strip()]
    return lines[-1].strip()[:200] if lines else "no output"


def _proof(evidence: Evidence) -> str:
    parts = []
    if evidence.new_tests and evidence.new_tests.standing is Standing.PROVES:
        parts.append(evidence.new_tests.text)
    if evidence.proof:
        parts.append(
            f"{number(len(evidence.proof), 'test')} of the project: {listed(evidence.proof)}"
        )
    return "; ".join([*parts, _project_counts(evidence)]) if parts else ""


def _project_counts(evidence: Evidence) -> str:
    comparison = evidence.comparison
    if comparison is None or not comparison.executed:
        return "no test of the project was run"
    words = f"{number(comparison.still_passing, 'other test')} of the project still "
    words += "pass" if comparison.still_passing != 1 else "passes"
    if comparison.red_before:
        words += f", {comparison.red_before} failed before"
    return words


def _why(evidence: Evidence) -> str:
    if evidence.new_tests is None:
        return ": the reply brought no test of its own"
    return f": {evidence.new_tests.text}"
