from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import ContextTooLong, Status
from agent.run.attempts import Attempt, AttemptKind, furthest, outcome
from agent.run.policy import NextStep, SolveOptions, next_step, room_after
from agent.types import AppliedPatch, ApplyFailure, EditFailure, FileChange, ParseFailure, Verdict
from tests.support.fakes import report

PATCH = AppliedPatch((), b"", ())
NO_EDIT = ParseFailure("no-edit", "the reply has no edit")
_THERE = EditFailure(0, "a.py", "already-applied", "the replacement is in the file already")
THERE = Attempt("repair", apply_failure=ApplyFailure((_THERE,)))


def parsed_badly(kind: AttemptKind = "one-shot") -> Attempt:
    return Attempt(kind, parse_failure=ParseFailure("malformed", "no JSON"))


def judged(verdict: Verdict, kind: AttemptKind = "one-shot", failing: tuple[str, ...] = ()):
    return Attempt(kind, patch=PATCH, report=report(verdict, failing=failing))


def asking(kind: AttemptKind = "one-shot") -> Attempt:
    reason = "the reply asks for code: b.py"
    return Attempt(kind, parse_failure=ParseFailure("needs-code", reason, ("b.py",)))


def test_code_is_sent_twice_at_most_and_costs_no_repair():
    kinds: tuple[AttemptKind, ...] = ("more-code", "more-code", "repair", "iterative")
    attempts, steps = [asking()], []
    for kind in kinds:
        steps.append(next_step(attempts, SolveOptions()))
        attempts.append(asking(kind))
    assert steps == [NextStep.SEND_CODE, NextStep.SEND_CODE, NextStep.REPAIR, NextStep.ITERATE]
    assert next_step([asking("repair")], SolveOptions()) is NextStep.SEND_CODE
    assert next_step([asking()], SolveOptions(code_rounds=0)) is NextStep.REPAIR


def test_a_patch_that_is_repeated_ends_the_run():
    first = judged(Verdict.REGRESSED, failing=("a", "b"))
    again = judged(Verdict.REGRESSED, "repair", failing=("a", "b"))
    assert next_step([first, again], SolveOptions()) is NextStep.GIVE_UP
    status, message = outcome([first, again])
    assert status is Status.BROKEN
    assert message.startswith("two replies gave the same patch, and the same tests fail; ")
    better = judged(Verdict.REGRESSED, "repair", failing=("a",))
    assert next_step([first, better, again], SolveOptions(repairs=3)) is NextStep.GIVE_UP
    assert next_step([first, better], SolveOptions()) is NextStep.ITERATE
    other = replace(again, patch=replace(PATCH, changes=(FileChange("a.py", b"", b"x"),)))
    assert next_step([first, other], SolveOptions()) is NextStep.ITERATE


def test_a_finished_patch_that_fails_is_worked_on_twice_more_at_most():
    def finished(*failing: str, ended: str = "") -> Attempt:
        return replace(judged(Verdict.REGRESSED, "iterative", failing), ended=ended)

    attempts = [judged(Verdict.REGRESSED, "repair", ("a", "b", "c", "d")), finished("a", "b", "c")]
    assert next_step(attempts, SolveOptions()) is NextStep.ITERATE
    assert next_step([attempts[0], finished("a", ended="lost")], SolveOptions()) is (
        NextStep.GIVE_UP
    )
    assert next_step([*attempts, attempts[-1]], SolveOptions()) is NextStep.GIVE_UP
    attempts += [finished("a", "b")]
    assert next_step(attempts, SolveOptions()) is NextStep.ITERATE
    assert next_step([*attempts, finished("a")], SolveOptions()) is NextStep.GIVE_UP


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("empty", Status.NO_EDIT),
        ("no-edit", Status.NO_EDIT),
        ("needs-code", Status.NO_EDIT),
        ("truncated", Status.UNPARSEABLE),
        ("malformed", Status.UNPARSEABLE),
        ("schema", Status.UNPARSEABLE),
    ],
)
def test_a_reply_that_is_no_patch_has_the_status_of_its_kind(kind, status):
    assert Attempt("one-shot", parse_failure=ParseFailure(kind, "why")).status is status


@pytest.mark.parametrize("verdict", [Verdict.VERIFIED, Verdict.NOT_REGRESSED, Verdict.UNVERIFIED])
def test_what_another_call_cannot_improve_ends_the_run(verdict):
    assert next_step([judged(verdict)], SolveOptions()) is NextStep.ACCEPT


@pytest.mark.parametrize(
    "first", [parsed_badly(), judged(Verdict.REGRESSED), judged(Verdict.SUSPECT)]
)
def test_failure_is_repaired_once_then_iterated_then_given_up(first):
    options = SolveOptions(repairs=1)
    attempts = [first]
    assert next_step(attempts, options) is NextStep.REPAIR
    attempts.append(parsed_badly("repair"))
    assert next_step(attempts, options) is NextStep.ITERATE
    attempts.append(parsed_badly("iterative"))
    assert next_step(attempts, options) is NextStep.GIVE_UP


@pytest.mark.parametrize("second", [THERE, Attempt("repair", parse_failure=NO_EDIT)])
def test_two_replies_that_say_that_nothing_is_left_to_edit_end_the_run(second):
    first = replace(THERE, kind="one-shot")
    assert next_step([first], SolveOptions()) is NextStep.REPAIR
    assert next_step([first, second], SolveOptions()) is NextStep.GIVE_UP
    status, message = outcome([first, second])
    assert (status, status.exit_code) == (Status.ALREADY_FIXED, 3)
    assert message == (
        "the issue seems to be fixed already (a.py: the replacement is in the file already)"
    )
    assert next_step([first, parsed_badly("repair")], SolveOptions()) is NextStep.ITERATE


def test_the_message_names_what_ended_the_run():
    red = judged(Verdict.REGRESSED)
    lost = Attempt("iterative", parse_failure=NO_EDIT, ended="the model repeated one action")
    assert outcome([red, lost]) == (
        Status.BROKEN,
        "the model repeated one action; the best patch: regressed",
    )
    assert outcome([parsed_badly(), lost]) == (Status.NO_EDIT, "the model repeated one action")
    assert outcome([red, parsed_badly("repair")])[1].startswith(
        "the last attempt (repair) failed: "
    )
    good = replace(judged(Verdict.VERIFIED, "iterative"), ended="the step limit")
    assert outcome([red, good]) == (Status.ACCEPTED, "verified")


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
    assert furthest([two, judged(Verdict.SUSPECT)]) is two
    assert furthest([one, other_one]) is other_one
    assert furthest([judged(Verdict.BROKEN_SYNTAX), two, unmatched]) is two


@pytest.mark.parametrize(
    ("limit", "counted", "room"),
    [
        (None, None, (2500, 8192)),  # nothing told: half the context
        (8192, None, (3836, 2048)),  # 8192 - 2048, less 5%, less 2000 around the context
        (8192, 14_000, (918, 2048)),  # its tokens are half of ours
        (4096, 3500, (3836, 1024)),  # its tokens are twice ours
        (4096, 1, (918, 1024)),  # no count of this prompt
        (100_000, None, (2500, 8192)),  # it should have fitted: half
        (12_000, None, (5000, 3000)),  # the reply alone was too long
    ],
)
def test_room_for_a_prompt_that_was_too_long(limit, counted, room):
    error = ContextTooLong("too long", limit=limit, counted=counted)
    assert (
        room_after(error, prompt_tokens=7000, context_tokens=5000, max_output_tokens=8192) == room
    )


@given(
    limit=st.none() | st.integers(1, 300_000),
    counted=st.none() | st.integers(1, 400_000),
    fixed=st.integers(0, 20_000),
    context=st.integers(0, 100_000),
    output=st.integers(64, 64_000),
)
def test_the_second_prompt_is_smaller_and_fits(limit, counted, fixed, context, output):
    error = ContextTooLong("too long", limit=limit, counted=counted)
    room = room_after(
        error, prompt_tokens=fixed + context, context_tokens=context, max_output_tokens=output
    )
    if room is None:
        return
    assert room[0] <= context
    assert room[1] <= output
    assert room != (context, output)
    if limit is not None:
        scale = (counted or fixed + context) / max(1, fixed + context)
        scale = scale if scale >= 0.4 else 1.0
        assert (fixed + room[0]) * scale + room[1] <= limit


def test_another_test_is_asked_for_once_where_only_a_test_is_lacking():
    open_ = replace(report(Verdict.NOT_REGRESSED), lacks_test=True)
    for kind in ("one-shot", "iterative"):
        attempts = [Attempt(kind, patch=PATCH, report=open_)]
        assert next_step(attempts, SolveOptions()) is NextStep.ANOTHER_TEST
        assert next_step(attempts, SolveOptions(another_test=False)) is NextStep.ACCEPT
    assert next_step([judged(Verdict.NOT_REGRESSED)], SolveOptions()) is NextStep.ACCEPT
