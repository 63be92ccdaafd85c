from __future__ import annotations

import pytest

from agent.errors import Status
from agent.policy import PolicyOptions, Step, next_step
from agent.result import Attempt, AttemptKind, furthest
from agent.types import AppliedPatch, ApplyFailure, EditFailure, ParseFailure, Verdict
from tests.support.fakes import report

PATCH = AppliedPatch((), b"", ())


def parsed_badly(kind: AttemptKind = "one-shot") -> Attempt:
    return Attempt(kind, parse_failure=ParseFailure("malformed", "no JSON"))


def judged(verdict: Verdict, kind: AttemptKind = "one-shot", failing: tuple[str, ...] = ()):
    return Attempt(kind, patch=PATCH, report=report(verdict, failing=failing))


@pytest.mark.parametrize(
    ("verdict", "status"),
    [
        (Verdict.VERIFIED, Status.ACCEPTED),
        (Verdict.NOT_REGRESSED, Status.ACCEPTED),
        (Verdict.UNVERIFIED, Status.UNVERIFIED),
        (Verdict.REGRESSED, Status.BROKEN),
        (Verdict.BROKEN_SYNTAX, Status.BROKEN),
    ],
)
def test_a_verdict_decides_the_status(verdict, status):
    assert judged(verdict).status is status


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("empty", Status.NO_EDIT),
        ("no-edit", Status.NO_EDIT),
        ("truncated", Status.UNPARSEABLE),
        ("malformed", Status.UNPARSEABLE),
        ("schema", Status.UNPARSEABLE),
    ],
)
def test_a_reply_that_is_no_patch_has_the_status_of_its_kind(kind, status):
    assert Attempt("one-shot", parse_failure=ParseFailure(kind, "why")).status is status


@pytest.mark.parametrize("verdict", [Verdict.VERIFIED, Verdict.NOT_REGRESSED, Verdict.UNVERIFIED])
def test_what_another_call_cannot_improve_ends_the_run(verdict):
    assert next_step([judged(verdict)], PolicyOptions()) is Step.ACCEPT


@pytest.mark.parametrize("first", [parsed_badly(), judged(Verdict.REGRESSED)])
def test_failure_is_repaired_once_then_iterated_then_given_up(first):
    options = PolicyOptions(repairs=1)
    attempts = [first]
    assert next_step(attempts, options) is Step.REPAIR
    attempts.append(parsed_badly("repair"))
    assert next_step(attempts, options) is Step.ITERATE
    attempts.append(parsed_badly("iterative"))
    assert next_step(attempts, options) is Step.GIVE_UP


def test_without_repairs_and_iterations_one_failure_is_the_end():
    options = PolicyOptions(repairs=0, iterative=False)
    assert next_step([parsed_badly()], options) is Step.GIVE_UP


def test_the_furthest_attempt_is_by_verdict_then_by_fewest_new_failures_then_the_later():
    unmatched = Attempt(
        "repair", apply_failure=ApplyFailure((EditFailure(0, "a", "no-match", "not there"),))
    )
    two = judged(Verdict.REGRESSED, failing=("a", "b"))
    one = judged(Verdict.REGRESSED, failing=("a",))
    other_one = judged(Verdict.REGRESSED, "repair", failing=("b",))
    assert furthest([]) is None
    assert furthest([unmatched, parsed_badly()]) is unmatched
    assert furthest([one, two]) is one
    assert furthest([one, other_one]) is other_one
    assert furthest([judged(Verdict.BROKEN_SYNTAX), two, unmatched]) is two
