"""From evidence to a verdict. Pure; the rules are those of `agent.types.Verdict`.

In this order, the first that applies:

    REGRESSED      a test is seen to fail that passed on the base; the reply's own test still fails;
                   tests that pass without the patch's own changes to tests are gone, skipped or
                   red with them
    SUSPECT        with the patch the accounts of a run contradict each other, the test runner is
                   changed, or the patch adds what only serves to pass tests; the patch changes
                   or takes away a test that fails before and after
    REGRESSED      a test that passed on the base is gone
    UNVERIFIED     the base's own runs cannot be believed; nothing could be run
    VERIFIED       a test fails on the base (twice, if it is the project's) and passes with the fix,
                   and the patch changes more than tests
    NOT_REGRESSED  the rest

Where the deciding tests are given (`agent.validation.judging.known`), they take the place of all
but the second.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.types import Outcome, TestRun, Verdict
from agent.validation.judging.compare import Comparison, executed, is_command, is_whole
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
    brought. `whole`, `lost` and `taken` belong to D: what passes in A or C and not there; what is
    red in A and C and is not red there, because the patch changes it or takes it away. `tricks` are
    those of `agent.validation.judging.tricks`; `needs` says what the tests need and have not here,
    "" for nothing. `only_tests`: the patch changes nothing that could fix an issue.
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
    taken: tuple[str, ...] = ()
    only_tests: bool = False


def decide(evidence: Evidence) -> tuple[Verdict, str]:
    """The verdict and its reason, whose first line is a summary."""
    known, doubt = evidence.known, _suspicion(evidence)
    if known is not None:
        return _by_known(known, doubt)
    found = _regression(evidence, only_seen=bool(doubt))
    if found:
        return Verdict.REGRESSED, bounded(found)
    doubt = "\n\n".join(filter(None, (_taken(evidence), doubt)))
    if doubt:
        return Verdict.SUSPECT, bounded(doubt)
    unknown = _unknown(evidence)
    if unknown:
        return Verdict.UNVERIFIED, bounded(unknown)
    verdict, reason = _not_worse(evidence)
    lacking = f" {evidence.needs[:1].upper()}{evidence.needs[1:]}." if evidence.needs else ""
    return verdict, bounded(f"{_cut_off(evidence)}{reason}{lacking}")


def _not_worse(evidence: Evidence) -> tuple[Verdict, str]:
    proof = "" if evidence.only_tests else _proof(evidence)
    if proof:
        return Verdict.VERIFIED, f"Fails on the base, passes with the patch: {proof}."
    counted = _project_counts(evidence, "test")
    reason = f"No test fails newly ({counted}), but none shows the fix{_why(evidence)}."
    return Verdict.NOT_REGRESSED, reason


def _cut_off(evidence: Evidence) -> str:
    """That only a part of the project's tests was seen, or "": a verdict covers only what ran."""
    runs = (("on the base", evidence.before), ("with the patch", evidence.after))
    cut = [(where, how_it_ended(run)) for where, run in runs if run and not is_whole(run)]
    if not cut:
        return ""
    who = "Both test runs were" if len(cut) > 1 else "One test run was"
    ends = "; ".join(f"{where} it {how}" for where, how in cut)
    return f"{who} cut off, and only what came before is known ({ends}). "


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
        parts.append(_lost(evidence.lost, evidence.before, evidence.whole))
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


def _lost(tests: tuple[str, ...], before: TestRun | None, whole: TestRun) -> str:
    """Those that passed on the base, and those that pass thanks to the source of the patch."""
    one = len(tests) == 1
    was = f"{'passes' if one else 'pass'} with the source of the patch"
    if before is not None and all(before.outcomes.get(t) is Outcome.PASSED for t in tests):
        was = "passed on the base"
    summary = f"{number(len(tests), 'test')} that {was} {'does' if one else 'do'} not pass "
    summary += "any more with " if was.startswith("passed") else "with "
    summary += "the patch's own changes to tests and configuration (failing, skipped or gone): "
    if not is_whole(whole):
        summary = f"With them the run {how_it_ended(whole)}. {summary}"
    return _with_details(f"{summary}{listed(to_blame(whole, tests))}.", tests, whole)


def _with_details(summary: str, tests: tuple[str, ...], run: TestRun) -> str:
    last = tuple(test for test in run.failures if test not in run.outcomes)
    details = failure_texts(run, (*to_blame(run, tests), *last)) or tail(run.output_tail)
    return f"{summary}\n\n{details}" if details else summary


def _taken(evidence: Evidence) -> str:
    """Which failing tests the patch gets rid of, and what became of them, or ""."""
    tests, whole = evidence.taken, evidence.whole
    if not tests or whole is None:
        return ""
    states = {Outcome.SKIPPED: "skipped", Outcome.PASSED: "passes as changed"}
    named = [
        f"{test} ({'gone' if now is None else states.get(now, 'as changed')})"
        for test, now in ((test, whole.outcomes.get(test)) for test in tests)
    ]
    what = "the failing test" if len(tests) == 1 else f"{len(tests)} failing tests"
    verb = "changes" if all(whole.outcomes.get(t) is Outcome.PASSED for t in tests) else "takes"
    out = f"{verb} {what}{' out of the run' if verb == 'takes' else ''} instead of fixing"
    only = "; the patch changes nothing but tests" if evidence.only_tests else ""
    it = "it" if len(tests) == 1 else "them"
    return f"The patch {out} {it}: {listed(named)}{only}."


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
        parts.append(_proving(evidence))
    if evidence.proof and _is_command(evidence):
        return "; ".join(parts)  # it is all that there is of the project's tests
    return "; ".join([*parts, _project_counts(evidence, "other test")]) if parts else ""


def _proving(evidence: Evidence) -> str:
    if _is_command(evidence):
        return "the test command of the project"
    return f"{number(len(evidence.proof), 'test')} of the project: {listed(evidence.proof)}"


def _is_command(evidence: Evidence) -> bool:
    return evidence.after is not None and is_command(evidence.after)


def _project_counts(evidence: Evidence, noun: str) -> str:
    """How the project's tests fared; `noun` is "other test" where some were named before."""
    comparison = evidence.comparison
    if comparison is None or not comparison.executed:
        return "no test of the project was run"
    if _is_command(evidence):
        return f"the test command {'passes' if comparison.still_passing else 'fails'} as before"
    words = f"{number(comparison.still_passing, noun)} of the project still "
    words += "pass" if comparison.still_passing > 1 else "passes"
    if comparison.still_red:
        still = "fail" if comparison.still_red > 1 else "fails"
        words += f", {comparison.still_red} failed before and still {still}"
    return words


def _why(evidence: Evidence) -> str:
    if evidence.only_tests:
        return ": the patch changes nothing but tests and their configuration"
    if evidence.new_tests is None:
        return ": the reply brought no test of its own"
    return f": {evidence.new_tests.text}"
