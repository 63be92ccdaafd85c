"""Which of several replies is chosen, and what each decision costs."""

from __future__ import annotations

import asyncio
import json

import pytest

from agent.errors import BudgetExceeded, Status
from agent.run.attempts import Attempt, is_repeated, lasting_tests
from agent.run.samples import CrossEvaluation, best_sample, effect_of
from agent.types import AppliedPatch, Verdict
from agent.types.events import Notice
from tests.support.fakes import report
from tests.support.validation import edit
from tests.unit.run.test_pipeline import EMPTY, GOOD, ONCE, UNMATCHED, Bench, reply

OTHER = reply(edits=[{"path": "calc.py", "search": "a - b", "replace": "b + a"}])
COMMENTED = reply(
    edits=[{"path": "calc.py", "search": "return a - b", "replace": "return a + b  # plus"}]
)


def kinds(result) -> list[str]:
    return [attempt.kind for attempt in result.attempts]


def test_the_same_patch_is_validated_once_and_every_reply_is_listed():
    bench = Bench(GOOD, COMMENTED, OTHER, samples=3, **ONCE)
    result = bench.solve()
    assert len(bench.validator.seen) == 2
    assert (result.status, kinds(result)) == (Status.ACCEPTED, ["sample", "sample", "one-shot"])
    assert "+    return a + b" in result.diff


def test_a_reply_without_a_patch_is_not_chosen():
    bench = Bench(EMPTY, UNMATCHED, GOOD, samples=3, **ONCE)
    result = bench.solve()
    assert result.attempts[-1].status == "accepted"
    assert len(bench.validator.seen) == 1


def test_calls_that_the_budget_refuses_leave_the_other_replies():
    refused = BudgetExceeded("the next call may cost too much")
    bench = Bench(GOOD, refused, refused, samples=3, **ONCE)
    assert bench.solve().status is Status.ACCEPTED
    notices = [event.message for event in bench.log.events if isinstance(event, Notice)]
    assert any(text.startswith("1 of 3 samples: the next call") for text in notices)
    alone = Bench(refused, refused, samples=2, **ONCE)
    assert alone.solve().status is Status.BUDGET


def test_a_repair_follows_the_chosen_reply():
    bench = Bench(UNMATCHED, EMPTY, GOOD, samples=2)
    result = bench.solve()
    assert kinds(result) == ["sample", "one-shot", "repair"]
    assert result.status is Status.ACCEPTED
    repeated = json.loads(bench.chat.prompts[-1].messages[2].content)
    assert repeated["thought"] == json.loads(UNMATCHED)["thought"]


def made(after: str, verdict: Verdict = Verdict.VERIFIED, path: str = "calc.py") -> Attempt:
    change = edit(path, "x = 1\n", after)
    patch = AppliedPatch((change,), after.encode(), ())
    return Attempt("sample", patch=patch, report=report(verdict))


def crossed(*passed: tuple[Attempt, str]) -> CrossEvaluation:
    return CrossEvaluation((), tuple((effect_of(a), frozenset(p.split())) for a, p in passed))


def test_the_verdict_then_the_tests_then_the_majority_then_the_size_decide():
    one, two, three = made("x = 2\n"), made("x = 33\n"), made("x = 4\n", Verdict.NOT_REGRESSED)
    everything = crossed((one, "a"), (two, "a b"), (three, "a b c d"))
    assert best_sample([one, two, three], everything) is two
    assert best_sample([one, two, three], CrossEvaluation()) is one
    again = made("x = 33  # again\n")
    assert best_sample([one, two, again], CrossEvaluation()) is two
    # Two patches that pass the same test support each other against one that passes another.
    supported = crossed((one, "a"), (two, "b"), (three, "b"))
    supporter = replaced(three)
    assert best_sample([one, two, supporter], supported) in (two, supporter)
    assert best_sample([one, two], supported) is one


def replaced(attempt: Attempt) -> Attempt:
    assert attempt.patch is not None
    return Attempt("sample", patch=attempt.patch, report=report(Verdict.VERIFIED))


@pytest.mark.parametrize(
    ("left", "right", "path", "same"),
    [
        ("x = 2\n", "x = 2  # two\n", "calc.py", True),
        ("x = 2\n", "x = 3\n", "calc.py", False),
        ("x = (\n", "x =  (\n", "calc.py", False),
        ("a\nb\n", "a  \nb", "notes.txt", True),
        ("a\n b\n", "a\nb\n", "notes.txt", False),
    ],
)
def test_patches_are_compared_by_what_they_do(left, right, path, same):
    assert (effect_of(made(left, path=path)) == effect_of(made(right, path=path))) is same


def test_what_was_not_chosen_holds_no_one_to_its_test():
    test = {"path": "tests/test_a.py", "content": "def test_a(): assert 0\n"}
    bench = Bench(
        reply(reproduction_test=test), OTHER, GOOD,
        samples=2, verdicts=(Verdict.NOT_REGRESSED, Verdict.REGRESSED),
    )  # fmt: skip
    bench.solve()
    attempts = bench.ledger.attempts
    assert lasting_tests([*attempts, attempts[-1]]) == ()
    assert not is_repeated(attempts)
    assert json.loads(attempts[-1].completion.text)["edits"][0]["replace"] == "b + a"


def test_a_cancelled_draw_ends_the_run():
    bench = Bench(GOOD, asyncio.CancelledError(), samples=2)
    assert bench.solve().status is Status.INTERRUPTED
