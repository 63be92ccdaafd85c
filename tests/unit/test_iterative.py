from __future__ import annotations

import asyncio
import json

from agent import actions, iterative
from agent.context.builder import PackingOptions
from agent.context.packing import pack
from agent.index.chunking import TreeSitterChunker
from agent.iterative import IterativeOptions
from agent.protocols import Services
from agent.result import Attempt
from agent.types import ParseFailure, Problem, Ranking, Verdict
from tests.support.fakes import (
    EventLog,
    MemorySnapshot,
    ScriptedValidator,
    WholeFileRetriever,
    report,
)
from tests.support.scripted_model import ScriptedChatModel
from tests.support.tokens import ApproximateCounter

FILES = {
    ".env": "PASSWORD=hunter2\n",
    "pkg/calc.py": "def add(a, b):\n    return a - b\n",
    "pkg/other.py": "X = 1\n",
}


def act(**fields) -> str:
    return json.dumps(fields)


def edit(search: str, replace: str, path: str = "pkg/calc.py") -> str:
    return act(action="edit", edits=[{"path": path, "search": search, "replace": replace}])


FINISH = act(action="finish", thought="sign")


def run(*replies, **options):
    snapshot = MemorySnapshot(FILES)
    chat = ScriptedChatModel(replies)
    validator = ScriptedValidator([report(Verdict.VERIFIED)])
    counter = ApproximateCounter()
    services = Services(
        WholeFileRetriever(), TreeSitterChunker(), counter, chat, validator, EventLog()
    )
    problem = Problem("add subtracts", "")
    bundle = pack(problem, Ranking((), (), 0), snapshot, counter, PackingOptions())
    kept: list[Attempt] = []
    earlier = [Attempt("one-shot", parse_failure=ParseFailure("malformed", "it was no JSON"))]
    attempt = asyncio.run(
        iterative.run(
            problem, snapshot, bundle, earlier, services, IterativeOptions(**options), kept.append
        )
    )
    return attempt, chat, validator


def results(chat) -> list[str]:
    """What the model was shown after each of its actions."""
    return [call.prompt.messages[-1].content for call in chat.calls[1:]]


def test_actions_are_carried_out_and_finish_gives_the_patch():
    attempt, chat, validator = run(
        act(action="list"),
        act(action="search", query="add"),
        act(action="read", path="pkg/calc.py"),
        edit("return a - b", "return a + b"),
        act(action="run_tests", paths=["tests/test_calc.py"]),
        FINISH,
    )
    listed, found, read, edited, tested = results(chat)
    assert "pkg/calc.py\npkg/other.py" in listed
    assert "pkg/calc.py:L1-2" in found
    assert "### pkg/calc.py:L1-3 of 3\ndef add(a, b):\n    return a - b\n" in read
    assert "applied:\nchanged pkg/calc.py at line 2" in edited
    assert "1 passed, 0 failed" in tested
    assert validator.runs[0][1] == ("tests/test_calc.py",)
    assert validator.runs[0][0].changes == attempt.patch.changes
    assert attempt.proposal.thought == "sign"
    assert b"+    return a + b" in attempt.patch.diff


def test_the_earlier_failure_is_told():
    _, chat, _ = run(FINISH)
    assert "A reply that was no usable patch (malformed)." in chat.prompts[0].messages[-1].content


def test_edits_see_each_other_and_the_diff_is_against_the_base():
    attempt, _, _ = run(edit("a - b", "a * b"), edit("a * b", "a + b"), FINISH)
    assert b"-    return a - b\n+    return a + b\n" in attempt.patch.diff
    assert b"a * b" not in attempt.patch.diff


def test_edits_that_undo_each_other_are_no_patch():
    attempt, _, _ = run(edit("a - b", "a + b"), edit("a + b", "a - b"), FINISH)
    assert attempt.patch is None
    assert attempt.parse_failure.kind == "no-edit"


def test_a_failed_edit_is_explained_and_changes_nothing():
    attempt, chat, _ = run(edit("a / b", "a + b"), FINISH)
    assert "not applied" in results(chat)[0]
    assert attempt.patch is None
    assert attempt.apply_failure.failures[0].kind == "no-match"


def test_a_whole_patch_counts_as_an_edit():
    whole = act(edits=[{"path": "pkg/calc.py", "search": "a - b", "replace": "a + b"}])
    attempt, _, _ = run(whole, FINISH)
    assert attempt.patch is not None


def test_the_reproduction_test_joins_the_patch_only_when_asked_for():
    test = {"path": "tests/test_add.py", "content": "def test_add(): pass\n"}
    finish = act(action="finish", reproduction_test=test)
    without, _, _ = run(edit("a - b", "a + b"), finish)
    assert without.proposal.reproduction_test.path == "tests/test_add.py"
    assert b"test_add.py" not in without.patch.diff
    included, _, _ = run(edit("a - b", "a + b"), finish, include_test=True)
    assert b"+++ b/tests/test_add.py" in included.patch.diff


def test_the_step_limit_keeps_what_was_edited():
    attempt, chat, _ = run(
        edit("a - b", "a + b"), act(action="list"), act(action="list"), max_steps=2
    )
    assert len(chat.calls) == 2
    assert attempt.patch is not None
    assert attempt.ended == "the limit of 2 steps was reached (--max-steps)"
    assert "1 action left. Finish now." in results(chat)[0]


def test_nonsense_ends_the_mode():
    attempt, chat, _ = run("what?", "no", "never", FINISH)
    assert len(chat.calls) == 3
    assert attempt.parse_failure.kind in ("malformed", "schema")
    assert "That was not one JSON action" in results(chat)[0]


def test_the_same_action_three_times_ends_the_mode():
    attempt, chat, _ = run(*[act(action="search", query="add")] * 3, FINISH)
    assert len(chat.calls) == 3
    assert attempt.ended == "the model repeated one action 3 times (search 'add')"
    assert attempt.parse_failure.kind == "no-edit"


def test_an_action_may_be_repeated_after_an_edit():
    tests = act(action="run_tests", paths=["t.py"])
    attempt, chat, _ = run(tests, tests, edit("a - b", "a + b"), tests, tests, FINISH)
    assert len(chat.calls) == 6
    assert (attempt.ended, attempt.patch is None) == ("", False)


def test_unknown_and_malformed_actions_are_told_apart_from_the_rest():
    _, chat, _ = run(act(action="dance"), act(action="read"), FINISH)
    assert "dance" in results(chat)[0] or "action" in results(chat)[0]
    assert "files" in results(chat)[1]


def test_reading_beyond_the_end_and_absent_files_is_answered():
    _, chat, _ = run(
        act(action="read", path="pkg/none.py"),
        act(action="read", path="pkg/calc.py", start=99),
        act(action="list", path="nowhere"),
        FINISH,
    )
    absent, beyond, nowhere = results(chat)
    assert "no such file" in absent
    assert "has 3 lines" in beyond
    assert "no files below" in nowhere


def test_several_regions_are_read_at_once_within_one_limit(monkeypatch):
    monkeypatch.setattr(actions, "MAX_READ_LINES", 4)
    regions = [
        {"path": "pkg/calc.py"},
        {"path": "pkg/none.py"},
        {"path": "pkg/other.py"},
        {"path": "pkg/other.py"},
    ]
    _, chat, _ = run(act(action="read", files=regions), FINISH)
    shown = results(chat)[0]
    assert "### pkg/calc.py:L1-3 of 3" in shown
    assert "no such file: pkg/none.py" in shown
    assert "### pkg/other.py:L1-1 of 2\nX = 1\n[cut: go on at line 2]" in shown
    assert "pkg/other.py: not shown, 4 lines are the most" in shown


def test_exact_search_lists_lines_of_the_edited_files():
    _, chat, _ = run(
        edit("a - b", "a + b"),
        act(action="search", query="a + b", exact=True),
        act(action="search", query="a - b", exact=True),
        FINISH,
    )
    assert "pkg/calc.py:2: return a + b" in results(chat)[1]
    assert "no line holds this text" in results(chat)[2]


def test_a_test_that_the_model_created_is_its_reproduction_and_no_part_of_the_fix():
    create = act(
        action="edit", edits=[{"path": "tests/test_add.py", "create": "def test_add(): pass\n"}]
    )
    finish = act(action="finish", reproduction_test={"path": "tests/test_add.py"})
    attempt, chat, _ = run(create, edit("a - b", "a + b"), finish)
    assert "created tests/test_add.py" in results(chat)[0]
    assert attempt.proposal.reproduction_test.content == "def test_add(): pass\n"
    assert b"test_add.py" not in attempt.patch.diff


def test_files_that_hold_secrets_are_not_shown():
    _, chat, _ = run(
        act(action="read", path=".env"), act(action="search", query="hunter", exact=True), FINISH
    )
    assert ".env is not shown" in results(chat)[0]
    assert "no line holds this text" in results(chat)[1]
    assert not any("hunter2" in m.content for p in chat.prompts for m in p.messages)


def test_reading_a_part_of_a_key_shows_none_of_it(monkeypatch):
    """The lines that say that it is a key are not among those that are read."""
    body = "MIIEpAIBAAKCAQEA7bq" + "q7Rf2Zx9Lm4Tb8Wn" * 3
    lines = ("KEY = '-----BEGIN PRIVATE KEY-----", *[body] * 4, "-----END PRIVATE KEY-----'")
    monkeypatch.setitem(FILES, "pkg/keys.py", "\n".join(lines))
    _, chat, _ = run(
        act(action="read", files=[{"path": "pkg/keys.py", "start": 3, "end": 5}]),
        act(action="search", query="MIIEpAIBAAKCAQEA7bq", exact=True),
        FINISH,
    )
    assert "<secret removed>\n<secret removed>" in results(chat)[0]
    assert not any(body[:30] in m.content for p in chat.prompts for m in p.messages)


def test_old_results_are_elided_when_the_conversation_grows():
    _, chat, _ = run(*[act(action="read", path="pkg/calc.py")] * 4, FINISH, history_tokens=900)
    last = chat.prompts[-1]
    assert "[this result was elided to save space]" in last.messages[3].content
    assert "return a - b" in last.messages[-1].content
