from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from agent import iterative
from agent.errors import BudgetExceeded
from agent.iterative import working_copy
from agent.retrieval.context.builder import PackingOptions
from agent.retrieval.context.packing import pack
from agent.retrieval.index.chunking import TreeSitterChunker
from agent.run.attempts import Attempt
from agent.run.policy import SolveOptions
from agent.types import (
    AppliedPatch,
    CommandRun,
    FileChange,
    Outcome,
    ParseFailure,
    Problem,
    Ranking,
    Verdict,
)
from agent.types import TestRun as Run
from agent.types.protocols import Services
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


EARLIER = [Attempt("one-shot", parse_failure=ParseFailure("malformed", "it was no JSON"))]
FINISH = act(action="finish", thought="sign")


EXCERPTS = (
    "### pkg/calc.py:L1-2\n```python\ndef add(a, b):\n    return a - b\n```\n\n"
    "### pkg/other.py:L1-3\n````markdown\n### x:L1\n```\nX = 1\n```\n````\n"
)


def run(*replies, validator=None, earlier=EARLIER, context="", long=False, **options):
    snapshot = MemorySnapshot({**FILES, "pkg/calc.py": FILES["pkg/calc.py"] + "# x\n" * 50 * long})
    chat = ScriptedChatModel(replies)
    validator = validator or ScriptedValidator([report(Verdict.VERIFIED)])
    counter = ApproximateCounter()
    services = Services(
        WholeFileRetriever(), TreeSitterChunker(), counter, chat, validator, EventLog()
    )
    problem = Problem("add subtracts", "")
    bundle = pack(problem, Ranking((), (), 0), snapshot, counter, PackingOptions())
    bundle = replace(bundle, text=context or bundle.text)
    kept: list[Attempt] = []
    attempt = asyncio.run(
        iterative.run(
            problem, snapshot, bundle, earlier, services, SolveOptions(**options), kept.append
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
    assert "### pkg/calc.py:L1-3 of 3\n" in read
    assert "\n1\tdef add(a, b):\n2\t    return a - b\n3\t" in read
    assert "applied:\nchanged pkg/calc.py at line 2" in edited
    assert "1 passed, 0 failed" in tested
    assert validator.runs[0][1] == ("tests/test_calc.py",)
    assert validator.runs[0][0].changes == attempt.patch.changes
    assert attempt.proposal.thought == "sign"
    assert b"+    return a + b" in attempt.patch.diff


def test_the_mode_starts_with_the_edits_that_tests_refuted_and_no_others():
    fixed = FILES["pkg/calc.py"].replace("-", "+")
    change = FileChange("pkg/calc.py", FILES["pkg/calc.py"].encode(), fixed.encode())
    tried = Attempt("repair", patch=AppliedPatch((change,), b"the diff", ()))
    for verdict, kept in ((Verdict.REGRESSED, True), (Verdict.SUSPECT, False)):
        earlier = [*EARLIER, replace(tried, report=report(verdict))]
        attempt, chat, _ = run(act(action="read", path="pkg/calc.py"), FINISH, earlier=earlier)
        assert ("return a + b" in results(chat)[0]) is kept
        assert (attempt.patch is not None) is kept
        opening = chat.prompts[0].messages[-1].content
        assert ("have the edits of reply 2 already" in opening) is kept
        assert ("None of it is in effect" in opening) is not kept
    assert attempt.patch is None


def test_a_failed_edit_is_explained_and_changes_nothing():
    attempt, chat, _ = run(edit("a / b", "a + b"), FINISH)
    assert "not applied" in results(chat)[0]
    assert attempt.patch is None
    assert attempt.apply_failure.failures[0].kind == "no-match"


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
    assert "Turns left: 1. Finish now." in results(chat)[0]


def test_nonsense_ends_the_mode():
    attempt, chat, _ = run("what?", "no", "never", FINISH)
    assert len(chat.calls) == 3
    assert attempt.parse_failure.kind in ("malformed", "schema")
    assert "That was no action" in results(chat)[0]


def test_the_same_action_three_times_ends_the_mode():
    attempt, chat, _ = run(*[act(action="search", query="add")] * 3, FINISH)
    assert len(chat.calls) == 3
    assert attempt.ended == "the model repeated one action 3 times (search 'add')"
    assert attempt.parse_failure.kind == "no-edit"


def test_several_actions_of_one_reply_are_answered_together():
    reads = [{"action": "read", "path": "pkg/calc.py"}, {"action": "dance"}, {"action": "list"}]
    _, chat, _ = run(json.dumps({"thought": "look", "actions": reads}), FINISH)
    (answer,) = results(chat)
    assert answer.count("<result>") == 3
    assert (
        answer.index("1\tdef add") < answer.index("That was no action") < answer.index("other.py")
    )


def test_a_finish_whose_edits_do_not_apply_is_answered():
    edits = [{"path": "pkg/calc.py", "search": "nowhere", "replace": "a + b"}]
    _, chat, _ = run(act(action="finish", thought="?", edits=edits), FINISH)
    assert "not applied" in results(chat)[0]
    assert len(chat.calls) == 2


def test_a_command_is_run_and_what_it_writes_is_an_edit():
    wrote = {"pkg/calc.py": b"def add(a, b):\n    return a + b\n", ".env": b"x", ".cache/x": b"1"}
    ran = CommandRun("fixed it", 0, written=wrote, left_out=("big.bin",))
    validator = ScriptedValidator([report(Verdict.VERIFIED)], command_run=ran)
    attempt, chat, _ = run(act(action="run", command="sed -i s/-/+/"), FINISH, validator=validator)
    (answer,) = results(chat)
    assert "exit code 0\nfixed it\nnow edits: changed pkg/calc.py" in answer
    assert "not kept (files such as this hold secrets): '.env'" in answer
    assert "not kept (it was not read: see the limits): 'big.bin'" in answer
    assert "Edited so far: pkg/calc.py." in answer
    assert [change.path for change in attempt.patch.changes] == ["pkg/calc.py"]
    assert validator.scripts == ["sed -i s/-/+/"]


def test_no_command_is_offered_or_run_where_nothing_isolates_it():
    class Open(ScriptedValidator):
        why_no_commands = "the sandbox 'process' does not isolate commands"

    validator = Open([report(Verdict.VERIFIED)])
    _, chat, _ = run(act(action="run", command="id"), FINISH, validator=validator)
    assert "no command is run: the sandbox 'process'" in results(chat)[0]
    assert validator.scripts == []
    prompt = chat.prompts[0]
    assert '"action": "run",' not in prompt.messages[0].content
    assert "run" not in [tool.name for tool in prompt.dialogue.tools]


def test_what_fails_is_named_at_the_end_of_each_turn():
    class Red(ScriptedValidator):
        async def run_tests(self, patch, paths):
            return Run(("pytest",), {"t::a": Outcome.FAILED}, 1, 0.1, "exited", "")

    validator = Red([report(Verdict.VERIFIED)])
    _, chat, _ = run(act(action="run_tests"), act(action="list"), FINISH, validator=validator)
    assert results(chat)[1].endswith("Turns left: 38. No edits. Failed in the last test run: t::a.")


def test_a_spent_budget_ends_the_mode_with_the_edits():
    attempt, _, _ = run(edit("a - b", "a + b"), BudgetExceeded("$0 is left"))
    assert attempt.patch is not None
    assert attempt.ended == "$0 is left"
    with pytest.raises(BudgetExceeded):
        run(BudgetExceeded("$0 is left"))


def test_several_regions_are_read_at_once_within_one_limit(monkeypatch):
    monkeypatch.setattr(working_copy, "MAX_READ_LINES", 4)
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
    assert "\n1\tX = 1\n[cut: go on at line 2]" in shown
    assert "pkg/other.py: not shown," in shown


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
    assert "<secret removed>\n4\t<secret removed>" in results(chat)[0]
    assert not any(body[:30] in m.content for p in chat.prompts for m in p.messages)


def test_results_are_left_out_by_their_worth():
    """A list goes before what was read, an edit and the last test run stay."""
    _, chat, _ = run(
        act(action="read", path="pkg/calc.py"),
        edit("a - b", "a + b"),
        act(action="run_tests", paths=["t.py"]),
        act(action="search", query="add " * 200, exact=True),
        act(action="list"),
        act(action="read", path="pkg/other.py"),
        FINISH,
        history_tokens=1400,
    )
    shown = [m.content for m in chat.prompts[-1].messages[3::2]]
    elided = ["elided" in text for text in shown]
    assert elided[1:3] == [False, False]
    assert elided[4]
    assert not elided[-1]
    assert all("Turns left" in text for text in shown)
