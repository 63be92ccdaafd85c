"""The whole path with fakes at the seams: what is called, what is kept, how it ends."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from agent.errors import BudgetExceeded, ContextTooLong, ProviderUnreachable, Status
from agent.patching import reply_schema, schema_of_test
from agent.retrieval.context.builder import PackingOptions
from agent.run.prompting import make_prompt
from agent.types import CommandRun, Completion, Message, Outcome, ReproductionTest, Usage, Verdict
from agent.types import TestRun as RunOfTests
from agent.types.events import StageFinished, StageStarted
from tests.support import solving
from tests.support.fakes import (
    MemorySnapshot,
    ScriptedValidator,
    WholeFileRetriever,
    report,
)
from tests.support.scripted_model import ScriptedChatModel
from tests.support.solving import PROBLEM
from tests.support.tokens import ApproximateCounter

SOURCE = "def add(a, b):\n    return a - b\n"
FIXED = "def add(a, b):\n    return a + b\n"


def reply(**fields) -> str:
    edit = {"path": "calc.py", "search": "return a - b", "replace": "return a + b"}
    return json.dumps({"thought": "wrong sign", "edits": [edit], **fields})


GOOD = reply()
UNMATCHED = reply(edits=[{"path": "calc.py", "search": "return a * b", "replace": "x"}])
EMPTY = reply(edits=[])


class Bench(solving.Bench):
    """A run on two small files."""

    def __init__(self, *replies, **options) -> None:
        blind = options.get("packing") is BLIND
        files = {"calc.py": FILLED if blind else SOURCE, "util.py": "def helper():\n    pass\n"}
        super().__init__(*replies, files=files, **options)


ONCE = {"repairs": 0, "max_steps": 0}
REPAIR_ONLY = {"repairs": 1, "max_steps": 0}


def test_what_a_check_changes_in_the_files_of_the_patch_joins_it():
    bench = Bench(GOOD, checks=("tidy {files}",), **ONCE)
    tidied = FIXED.replace("a + b", "(a + b)").encode()
    written = {"calc.py": tidied, "util.py": b"", "new.py": b"x = 1\n"}
    bench.validator.command_run = CommandRun("one problem is left", 1, written=written)
    result = bench.solve()
    assert bench.validator.scripts == ["tidy calc.py"]
    assert "+    return (a + b)\n" in result.diff
    assert "new.py" not in result.diff
    assert "one problem is left" in bench.notices[-1]


def test_code_that_the_user_names_is_shown_although_it_ranks_low():
    files = {**solving.modules(40), "z.py": "def z():\n" + "    return 7  # or so\n" * 60}
    shown = []
    for named in ((), ("z.py",)):
        bench = solving.Bench(EMPTY, files=files, packing=PackingOptions(budget=1500), **ONCE)
        bench.options = replace(bench.options, files=named)
        bench.solve()
        shown.append("return 7" in bench.chat.prompts[0].messages[1].content)
    assert shown == [False, True]


def test_a_good_reply_is_accepted_after_one_call():
    bench = Bench(GOOD)
    result = bench.solve()
    assert (result.status, result.exit_code, result.verdict) == (Status.ACCEPTED, 0, "verified")
    assert "-    return a - b\n+    return a + b\n" in result.diff
    assert len(bench.chat.calls) == 1
    assert bench.chat.calls[0].schema == reply_schema()
    assert [a.kind for a in result.attempts] == ["one-shot"]
    assert bench.patches == [result.diff.encode()]


def test_the_reproduction_test_goes_to_the_validator_and_not_into_the_diff():
    test = {"path": "tests/test_new.py", "content": "def test_it(): assert True\n"}
    bench = Bench(reply(reproduction_test=test))
    result = bench.solve()
    assert bench.validator.seen[0][1].path == "tests/test_new.py"
    assert "test_new" not in result.diff
    assert result.reproduction_test == ReproductionTest(**test)


def test_a_repair_may_send_only_what_changes():
    test = {"path": "tests/test_0.py", "content": "x = 0\n"}
    more = {"path": "new.py", "create": "y = 1\n"}
    bench = Bench(
        reply(edits=[*json.loads(UNMATCHED)["edits"], more], reproduction_test=test),
        json.dumps({"thought": "t", "edits": [{"edit": 1, "search": "return a - b"}]}),
        json.dumps({"thought": "u", "edits": "same", "reproduction_test": None}),
        verdicts=(Verdict.REGRESSED, Verdict.VERIFIED),
        repairs=2,
        max_steps=0,
    )
    result = bench.solve()
    assert result.status is Status.ACCEPTED
    assert "new.py" in result.diff
    assert result.reproduction_test == ReproductionTest(**test)
    schemas = [call.schema for call in bench.chat.calls]
    assert schemas == [reply_schema(), reply_schema(partial=True), reply_schema(partial=True)]
    third = bench.chat.prompts[2].messages
    replies = [json.loads(one.content) for one in third if one.role == "assistant"]
    assert replies[0] == {"thought": "wrong sign", "edits": "as your next reply has them"}
    numbered = [(one["edit"], one["path"]) for one in replies[1]["edits"]]
    assert numbered == [(1, "calc.py"), (2, "new.py")]
    assert '"edits": "same" keeps every edit' in third[-1].content


def test_of_a_long_reply_that_did_not_apply_only_the_failed_edits_are_repeated():
    long = [{"path": f"n{n}.py", "create": "x = 1\n" * 500} for n in range(5)]
    first = reply(edits=[*json.loads(UNMATCHED)["edits"], *long])
    bench = Bench(first, EMPTY, max_steps=0)
    bench.solve()
    said = json.loads(bench.chat.prompts[1].messages[-2].content)["edits"]
    assert said[0]["search"] == "return a * b"
    assert said[1] == {"edit": 2, "path": "n0.py", "applies": True}


OPEN = replace(report(Verdict.NOT_REGRESSED, "none shows the fix"), lacks_test=True)
WEAK = {"path": "tests/test_0.py", "content": "x = 0\n"}
STRONG = {"path": "tests/test_1.py", "content": "y = 1\n"}


def asked_for_a_test(answer, last=Verdict.VERIFIED, **options) -> Bench:
    bench = Bench(reply(reproduction_test=WEAK), answer, **options)
    bench.validator.reports = [OPEN, report(last, "what the runs show.\nMore.")]
    return bench


def test_another_test_is_asked_for_once_and_changes_no_code():
    other = {"path": "calc.py", "search": "return a - b", "replace": "return 0"}
    for answer in ({}, {"edits": [other], "thought": "t"}):
        bench = asked_for_a_test(json.dumps({**answer, "reproduction_test": STRONG}))
        result = bench.solve()
        assert (result.status, result.verdict) == (Status.ACCEPTED, "verified")
        assert [one.kind for one in result.attempts] == ["one-shot", "another-test"]
        assert result.reproduction_test == ReproductionTest(**STRONG)
        assert "+    return a + b" in result.diff
        assert "return 0" not in result.diff
        assert bench.chat.calls[1].schema == schema_of_test()
        (earlier,) = bench.validator.earlier[1]  # the first test is run with the second
        assert earlier.content == WEAK["content"]


def test_the_prompt_for_another_test_is_small_and_names_what_was_wrong():
    bench = asked_for_a_test(json.dumps({"reproduction_test": STRONG}))
    bench.solve()
    first, second = bench.chat.prompts
    assert second.tokens < first.tokens
    text = second.messages[1].content
    for part in (PROBLEM.text, "+    return a + b", "tests/test_0.py", "x = 0", "none shows the"):
        assert text.count(part) == 1


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (BudgetExceeded("no model call is left"), ""),
        (ProviderUnreachable("gone"), ""),
        ("I cannot.", "\nAnother reproduction test was asked for: the reply holds no test."),
        ('{"reproduction_test": null}', "\nAnother reproduction test was asked for: the reply"),
        (
            json.dumps({"reproduction_test": STRONG}),
            "\nAnother reproduction test was asked for: what the runs show.",
        ),
    ],
)
def test_what_comes_of_another_test_never_costs_the_accepted_patch(answer, told):
    bench = asked_for_a_test(answer, Verdict.REGRESSED)
    result = bench.solve()
    assert (result.status, result.verdict) == (Status.ACCEPTED, "not-regressed")
    assert result.message.startswith(f"none shows the fix{told}")
    assert result.reproduction_test == ReproductionTest(**WEAK)
    assert len(bench.chat.calls) == 2


def test_a_time_limit_while_another_test_runs_keeps_the_accepted_patch():
    bench = asked_for_a_test(json.dumps({"reproduction_test": STRONG}), timeout=0.5)
    bench.validator = HangsLater(bench.validator.reports)
    result = bench.solve()
    assert (result.status, result.verdict) == (Status.ACCEPTED, "not-regressed")


class HangsLater(ScriptedValidator):
    async def validate(self, *given):
        self.hang = bool(self.seen)
        return await super().validate(*given)


def test_a_kept_test_is_replaced_and_one_that_could_not_run_no_longer_counts():
    bench = asked_for_a_test(json.dumps({"reproduction_test": STRONG}), include_test=True)
    silent = RunOfTests(("pytest",), {"t": Outcome.ERROR}, 2, 0.1, "exited", "no module x")
    bench.validator.reports[0] = replace(OPEN, reproduction_after=silent)
    result = bench.solve()
    assert "tests/test_1.py" in result.diff
    assert "tests/test_0.py" not in result.diff
    assert bench.validator.earlier[1] == ()
    told = "the earlier test tests/test_0.py no longer counts: it could not be run"
    assert told in result.attempts[1].validation.notes


def test_a_reply_that_was_cut_off_is_continued():
    for at in (30, 60, len(GOOD) - 1):
        begun, rest = GOOD[:at], GOOD[at:]
        bench = Bench(Completion(begun, "scripted", "length", Usage(), 0.0), rest)
        result = bench.solve()
        assert result.status is Status.ACCEPTED
        assert [attempt.kind for attempt in result.attempts] == ["one-shot", "repair"]
        call = bench.chat.calls[1]
        assert call.schema is None
        assert call.prompt.messages[-2] == Message("assistant", begun.rstrip())
        assert "Continue it exactly where it stopped" in call.prompt.messages[-1].content


def test_a_reply_that_is_cut_off_again_is_continued_again_while_rounds_are_left():
    parts = [GOOD[:30], GOOD[30:60], GOOD[60:90], GOOD[90:]]
    cut = [Completion(part, "scripted", "length", Usage(), 0.0) for part in parts[:3]]
    for rounds, status in ((2, Status.ACCEPTED), (1, Status.UNPARSEABLE)):
        bench = Bench(*cut, parts[3], code_rounds=rounds, max_steps=0)
        assert bench.solve().status is status
    last = Bench(*cut, parts[3], repairs=3, max_steps=0)
    last.solve()
    messages = last.chat.prompts[3].messages
    assert [message.role for message in messages] == ["system", "user", "assistant", "user"]
    assert messages[2].content == GOOD[:90].rstrip()


def test_outdated_tests_are_refused_shown_or_edited():
    given = {"id": "test_calc.py::test_add", "why": "it asserts the bug"}
    edited = {**given, "replacement": "def test_add():\n    assert 1\n"}
    edits = [{"path": "test_calc.py", "search": "assert 0", "replace": "assert 1"}]
    diffs = {}
    for mode, test in (
        *(("refuse", edited), ("show", edited), ("edit", {**given, "edits": edits})),
        ("edit", edited),
    ):
        assert "edit" not in diffs or "+    assert 1" in diffs["edit"]
        bench = Bench(reply(outdated_tests=[test]), outdated_tests=mode)
        bench.snapshot = MemorySnapshot(
            {"calc.py": SOURCE, "test_calc.py": "def test_add():\n    assert 0\n"}
        )
        diffs[mode] = bench.solve().diff
        told = [[one.id for one in listed] for listed in bench.validator.outdated]
        assert told == [[] if mode == "refuse" else ["test_calc.py::test_add"]]
        asked = bench.chat.prompts[0].messages[1].content
        assert ('Rules for "outdated_tests"' in asked) is (mode != "refuse")
        assert ('"edits": [edits of its file' in asked) is (mode == "edit")
    assert "+    assert 1" in diffs["edit"]
    assert "test_calc.py" not in diffs["show"] == diffs["refuse"]


def test_the_repair_prompt_offers_outdated_tests_when_existing_tests_fail():
    for mode, offered in (("show", True), ("refuse", False)):
        bench = Bench(GOOD, GOOD, outdated_tests=mode, max_steps=0)
        bench.validator.reports = [report(Verdict.REGRESSED, failing=("t.py::test_a",))]
        result = bench.solve()
        asked = bench.chat.prompts[1].messages[-1].content
        assert ('name it in "outdated_tests"' in asked) is offered
        assert result.message.startswith("two replies gave the same patch, and the same tests fail")


def test_the_tests_of_earlier_replies_count_until_one_is_taken_back_with_a_reason():
    tests = [{"path": f"tests/test_{n}.py", "content": f"x = {n}\n"} for n in range(2)]
    wrong = [{"path": "tests/test_0.py", "reason": "it asserts\nthe bug"}]
    bench = Bench(
        reply(reproduction_test=tests[0]),
        reply(reproduction_test=tests[1], wrong_tests=[{"path": "tests/test_0.py"}]),
        reply(wrong_tests=wrong),
        verdicts=(Verdict.REGRESSED, Verdict.REGRESSED, Verdict.VERIFIED),
        repairs=2,
        max_steps=0,
    )
    result = bench.solve()
    counted = [[test.path for test in earlier] for earlier in bench.validator.earlier]
    assert counted == [[], ["tests/test_0.py"], ["tests/test_1.py"]]
    told = "the earlier test tests/test_0.py no longer counts: it asserts the bug"
    assert result.attempts[-1].validation.notes == (told,)
    assert "wrong_tests" in bench.chat.prompts[1].messages[-1].content


@pytest.mark.parametrize("bad", ["this is no JSON", UNMATCHED, EMPTY])
def test_one_repair_call_carries_the_reply_and_the_reason(bad):
    bench = Bench(bad, GOOD)
    result = bench.solve()
    assert result.status is Status.ACCEPTED
    first, second = bench.chat.prompts
    assert second.messages[: len(first.messages)] == first.messages
    assert second.messages[-2].role == "assistant"
    assert bad.replace('{"path"', '{"edit": 1, "path"') in second.messages[-2].content
    assert result.attempts[0].reason.splitlines()[0] in second.messages[-1].content


@pytest.mark.parametrize(
    ("replies", "status"),
    [
        (["nothing"] * 2, Status.UNPARSEABLE),
        ([EMPTY] * 2, Status.NO_EDIT),
        (["", ""], Status.NO_EDIT),
        ([UNMATCHED] * 2, Status.NOT_APPLIED),
        (['{"edits": [{"path": "a'] * 2, Status.UNPARSEABLE),
    ],
)
def test_giving_up_says_how_far_it_came(replies, status):
    result = Bench(*replies, **REPAIR_ONLY).solve()
    assert (result.status, result.diff) == (status, "")
    assert result.message


def test_a_red_patch_is_given_but_not_accepted():
    result = Bench(GOOD, verdicts=(Verdict.REGRESSED,), **ONCE).solve()
    assert (result.status, result.exit_code) == (Status.BROKEN, 6)
    assert "return a + b" in result.diff


@pytest.mark.parametrize(
    ("error", "status"),
    [(ProviderUnreachable("down"), Status.PROVIDER), (BudgetExceeded("too dear"), Status.BUDGET)],
)
def test_a_later_failure_of_the_world_keeps_the_patch(error, status):
    result = Bench(GOOD, error, verdicts=(Verdict.REGRESSED,)).solve()
    assert (result.status, result.message) == (status, str(error))
    assert "return a + b" in result.diff


def test_the_time_limit_keeps_the_patch():
    bench = Bench(GOOD, hang=True, timeout=0.2)
    result = bench.solve()
    assert (result.status, result.exit_code) == (Status.TIME_LIMIT, 7)
    assert "return a + b" in result.diff
    assert bench.patches == [result.diff.encode()]


def test_what_was_waited_for_others_does_not_count_for_the_time_limit():
    bench = Bench(GOOD, hang=True, timeout=0.2)

    async def run():
        solving = asyncio.ensure_future(bench.run())
        started = asyncio.get_running_loop().time()
        await asyncio.sleep(0.1)
        bench.ledger.wait(0.5)
        result = await solving
        bench.ledger.wait(0.5)  # too late to matter
        return result, asyncio.get_running_loop().time() - started

    result, seconds = asyncio.run(run())
    assert result.status is Status.TIME_LIMIT
    assert seconds > 0.65
    assert bench.ledger.waited == 1.0


def test_what_the_iterative_mode_has_edited_survives_a_later_failure():
    action = json.loads(GOOD) | {"action": "edit"}
    bench = Bench("no", "no", json.dumps(action), ProviderUnreachable("down"))
    result = bench.solve()
    assert (result.status, result.message) == (Status.PROVIDER, "down")
    assert "return a + b" in result.diff
    assert bench.patches == [result.diff.encode()]
    assert [a.kind for a in result.attempts] == ["one-shot", "repair", "iterative"]


def test_cancellation_keeps_the_patch():
    bench = Bench(GOOD, hang=True)

    async def interrupted():
        task = asyncio.create_task(bench.run())
        while not bench.validator.seen:
            await asyncio.sleep(0.01)
        task.cancel()
        return await task

    result = asyncio.run(interrupted())
    assert (result.status, result.exit_code) == (Status.INTERRUPTED, 130)
    assert "return a + b" in result.diff


# So small a context that only the file that is beside the point fits into it.
BLIND = PackingOptions(budget=120, part_ranks=0)
FILLED = SOURCE + "\n\ndef other():\n" + "    print('a line')\n" * 200
ASKING = reply(edits=[], missing=["calc.py:add"])
ASKING_MORE = reply(edits=[], missing=["other", "nowhere"])


def test_code_that_is_asked_for_costs_a_call_and_no_repair():
    test = {"path": "tests/test_new.py", "content": "def test_it(): assert True\n"}
    asking = reply(edits=[], missing=["calc.py:add"], reproduction_test=test)
    bench = Bench(asking, GOOD, packing=BLIND, **ONCE)
    result = bench.solve()
    assert result.status is Status.ACCEPTED
    assert [a.kind for a in result.attempts] == ["one-shot", "more-code"]
    assert result.attempts[0].failure_kinds == ("needs-code",)
    first, second = (prompt.messages for prompt in bench.chat.prompts)
    assert "return a - b" not in first[-1].content
    assert second[: len(first)] == first
    assert "return a - b" in second[-1].content
    assert "One more round is possible" in second[-1].content
    assert "could not be accepted" not in second[-1].content
    assert "one-shot: the reply asks for code (calc.py:add); round 1 of 2" in bench.notices
    # The test of the reply that only asked is the one that counts.
    assert bench.validator.seen[0][1].path == "tests/test_new.py"
    assert result.reproduction_test == ReproductionTest(**test)


def test_a_second_request_continues_the_conversation():
    bench = Bench(ASKING, ASKING_MORE, GOOD, packing=BLIND, **ONCE)
    result = bench.solve()
    assert [a.kind for a in result.attempts] == ["one-shot", "more-code", "more-code"]
    second, third = (prompt.messages for prompt in bench.chat.prompts[1:])
    assert third[: len(second)] == second
    assert "def other" in third[-1].content
    assert "return a - b" not in third[-1].content
    assert "not found: nowhere" in third[-1].content
    assert "This was the last round" in third[-1].content


def test_a_third_request_is_repaired_and_then_ends_with_the_reason():
    bench = Bench(ASKING, ASKING_MORE, ASKING, ASKING, packing=BLIND, **REPAIR_ONLY)
    result = bench.solve()
    assert [a.kind for a in result.attempts] == ["one-shot", "more-code", "more-code", "repair"]
    assert "No further round is left" in bench.chat.prompts[-1].messages[-1].content
    assert (result.status, len(bench.chat.calls)) == (Status.NO_EDIT, 4)
    assert "calc.py:add" in result.message


def test_the_iterative_mode_starts_with_the_code_that_was_sent():
    finish = json.dumps({"action": "finish", "thought": "nothing"})
    bench = Bench(ASKING, EMPTY, finish, packing=BLIND, repairs=0)
    bench.solve()
    system, start = bench.chat.prompts[2].messages
    assert "step by step" in system.content
    assert "return a - b" in start.content
    assert "the reply asks for code: calc.py:add; its thought: wrong sign" in start.content


def test_code_that_was_asked_for_shrinks_when_the_prompt_is_too_long():
    error = ContextTooLong("too long", limit=None)
    long = (
        "def add(a, b):\n" + "".join(f"    a += {n} * b\n" for n in range(600)) + "    return a\n"
    )
    bench = Bench(reply(edits=[], missing=["add"]), error, EMPTY, packing=BLIND, **ONCE)
    bench.snapshot = MemorySnapshot({"calc.py": long, "util.py": "def helper():\n    pass\n"})
    bench.solve()
    _, refused, shorter = bench.chat.prompts
    assert shorter.tokens < refused.tokens * 0.7
    assert "a += 0 * b" in shorter.messages[-1].content
    assert "only the lines up to" in shorter.messages[-1].content


def test_no_call_is_paid_for_without_any_code():
    bench = Bench(GOOD, packing=PackingOptions(budget=30))
    result = bench.solve()
    assert (result.status, bench.chat.calls) == (Status.USAGE, [])
    assert result.message.startswith("no code fits into the context of 25 tokens")


def test_every_stage_is_reported_and_timed():
    bench = Bench(GOOD)
    result = bench.solve()
    started = [e.stage for e in bench.log.events if isinstance(e, StageStarted)]
    finished = [e.stage for e in bench.log.events if isinstance(e, StageFinished)]
    assert started == finished == ["retrieve", "pack", "call", "apply", "validate"]
    assert set(result.timings) == set(started)


class Clueless(WholeFileRetriever):
    """Finds no word of the problem."""

    note = "no word of the problem occurs in the code: ordered by other signals"

    async def rank(self, problem, snapshot):
        return replace(await super().rank(problem, snapshot), notes=(self.note, "said elsewhere"))


def test_that_no_word_of_the_problem_occurs_is_told_and_changes_no_prompt():
    plain, bench = Bench(GOOD), Bench(GOOD)
    plain.solve()
    bench.retriever = Clueless()
    result = bench.solve()
    assert bench.notices == [Clueless.note]
    assert Clueless.note in result.notes
    assert Clueless.note in result.receipt.notes
    assert bench.chat.prompts == plain.chat.prompts


def test_the_stronger_model_makes_repairs_and_steps_only():
    finish = json.dumps({"action": "finish", "thought": ""})
    stronger = ScriptedChatModel([UNMATCHED, finish], model="strong")
    bench = Bench(ASKING, EMPTY, escalation=stronger)
    result = bench.solve()
    assert [a.kind for a in result.attempts] == ["one-shot", "more-code", "repair", "iterative"]
    assert (len(bench.chat.calls), len(stronger.calls)) == (2, 2)
    assert result.model == "scripted, strong"


def test_the_same_input_gives_the_same_prompt():
    first, second = Bench(GOOD), Bench(GOOD)
    first.solve()
    second.solve()
    assert first.chat.prompts == second.chat.prompts


def test_a_conversation_that_goes_on_is_sent_code_that_only_this_run_has_packed():
    bench = Bench(ASKING, GOOD, **REPAIR_ONLY)
    opened = make_prompt([Message("user", "an earlier run, and a comment")], ApproximateCounter())
    result = bench.solve(going_on=lambda _: opened)
    assert [a.kind for a in result.attempts] == ["repair", "more-code"]
    assert "return a - b" in bench.chat.prompts[1].messages[-1].content


def test_the_step_by_step_mode_may_call_tests_outdated():
    edit = {"path": "calc.py", "search": "return a - b", "replace": "return a + b"}
    named = {
        "id": "util.py::helper",
        "why": "it helps",
        "replacement": "def helper():\n    return 1\n",
    }
    finish = json.dumps(
        {"action": "finish", "thought": "t", "edits": [edit], "outdated_tests": [named]}
    )
    for mode in ("refuse", "show", "edit"):
        bench = Bench(EMPTY, finish, outdated_tests=mode, repairs=0)
        result = bench.solve()
        assert result.status is Status.ACCEPTED
        claims = [one.id for one in bench.validator.outdated[-1]]
        assert claims == ([] if mode == "refuse" else ["util.py::helper"])
        assert ("return 1" in result.diff) is (mode == "edit")


def test_what_the_step_by_step_mode_finishes_and_tests_refute_is_worked_on_again():
    def finish(**fields) -> str:
        return json.dumps({"action": "finish", "thought": "t", **fields})

    comment = {"path": "calc.py", "search": "def add", "replace": "# sum\ndef add"}
    refuted = Verdict.REGRESSED
    bench = Bench(GOOD, finish(edits=[comment]), finish(), repairs=0)
    bench.validator = ScriptedValidator([report(refuted, failing=("tests/test_x.py::test_y",))])
    result = bench.solve()
    # The second time it finishes with the same patch, and the same tests fail.
    assert [a.kind for a in result.attempts] == ["one-shot", "iterative", "iterative"]
    assert result.status is Status.BROKEN
    first, second = (call.prompt.messages[1].content for call in bench.chat.calls[1:])
    assert "have the edits of reply 1 already" in first
    assert "have the edits of reply 2 already" in second
    assert "# sum" in result.diff
    assert bench.ledger.bundle is not None
    assert not any("widened" in note for note in bench.ledger.bundle.notes)

    better = Bench(GOOD, finish(edits=[comment]), verdicts=(refuted, Verdict.VERIFIED), repairs=0)
    assert better.solve().status is Status.ACCEPTED
    short = Bench(
        GOOD, finish(edits=[comment]), verdicts=(refuted, refuted), repairs=0, max_steps=1
    )
    assert [a.kind for a in short.solve().attempts] == ["one-shot", "iterative"]


def test_a_repair_prompt_shows_the_tests_that_the_patch_breaks():
    old_test = "def test_helper():\n" + "    assert helper() is None\n" * 400 + "    # as ever\n"
    bench = Bench(GOOD, GOOD, **REPAIR_ONLY, packing=PackingOptions(budget=2000))
    bench.snapshot = MemorySnapshot({"calc.py": SOURCE, "tests/test_util.py": old_test})
    failed = report(Verdict.REGRESSED, failing=("tests/test_util.py::test_helper[1]",))
    bench.validator = ScriptedValidator([failed, report(Verdict.VERIFIED)])
    bench.solve()
    assert "    # as ever" in bench.chat.prompts[1].messages[-1].content
