"""From evidence to a verdict. Pure; the rules are those of `agent.types.Verdict`."""

from __future__ import annotations

from dataclasses import dataclass

from agent.types import TestRun, Verdict
from agent.validation.compare import Comparison, executed, is_whole
from agent.validation.report import INCOMPLETE, INCONSISTENT, counts
from agent.validation.reproduction import Judgement, Standing
from agent.validation.wording import (
    bounded,
    failure_texts,
    how_it_ended,
    listed,
    number,
    tail,
    to_blame,
)
from sandbox.types import Ended

# Endings that code under test can bring about to hide its outcome.
_SUSPICIOUS = (INCOMPLETE, INCONSISTENT, Ended.SIGNALLED, Ended.CANCELLED)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was found out. `before`, `after`, `comparison` belong to the project's tests.

    `proof` are newly passing project tests that the patch did not touch. `new_tests` is the
    judgement of tests that the patch brought.
    """

    before: TestRun | None = None
    after: TestRun | None = None
    comparison: Comparison | None = None
    proof: tuple[str, ...] = ()
    new_tests: Judgement | None = None


def decide(evidence: Evidence) -> tuple[Verdict, str]:
    """The verdict and its reason, whose first line is a summary."""
    found = _regression(evidence)
    if found:
        return Verdict.REGRESSED, bounded(found)
    doubt = _doubt(evidence)
    if doubt:
        return Verdict.UNVERIFIED, bounded(doubt)
    proof = _proof(evidence)
    if proof:
        return Verdict.VERIFIED, bounded(f"Fails on the base, passes with the patch: {proof}.")
    counted = _project_counts(evidence)
    reason = f"No test fails newly ({counted}), but none shows the fix{_why(evidence)}."
    return Verdict.NOT_REGRESSED, bounded(reason)


def _regression(evidence: Evidence) -> str:
    parts = []
    if evidence.comparison and evidence.comparison.newly_failing and evidence.after:
        parts.append(_newly_failing(evidence.comparison.newly_failing, evidence.after))
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
    last = tuple(test for test in after.failures if test not in after.outcomes)
    details = failure_texts(after, (*blamed, *last)) or tail(after.output_tail)
    return f"{summary}\n\n{details}" if details else summary


def _doubt(evidence: Evidence) -> str:
    """Why nothing can be concluded, or ""."""
    after = evidence.after
    if after is not None and after.ended in _SUSPICIOUS:
        return f"With the patch the test run {how_it_ended(after)}: its outcome cannot be trusted."
    standing = evidence.new_tests.standing if evidence.new_tests else Standing.SAYS_NOTHING
    if standing is not Standing.SAYS_NOTHING or (
        evidence.comparison and evidence.comparison.executed
    ):
        return ""
    parts = [f"No test could be run: {_why_not_run(evidence)}"]
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
