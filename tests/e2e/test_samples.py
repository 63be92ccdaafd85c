"""Several replies to one prompt, with the real command and a scripted server."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.e2e.test_commands import User
from tests.support.behaviours import Answer, ChatRequest, Good, json_answer
from tests.support.solve_command import require_sandbox

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(150)]

BUG = "def add(a, b):\n    return a - b\n"
FILES = {
    "calc.py": BUG,
    "tests/test_calc.py": "from calc import add\n\n\ndef test_zero():\n    assert add(1, 0) == 1\n",
}


def sample(body: str, asserted: str) -> Good:
    test = f"from calc import add\n\n\ndef test_issue():\n    assert {asserted}\n"
    edit = {"path": "calc.py", "search": "    return a - b", "replace": body}
    reply = {
        "thought": "sign",
        "edits": [edit],
        "reproduction_test": {"path": "tests/test_issue.py", "content": test},
    }
    return Good(json.dumps(reply))


NARROW = sample("    return 2 if a == b == 1 else a - b", "add(1, 1) == 2")
RIGHT = sample("    return a + b", "add(2, 3) == 5")
SAME = sample("    return a + b  # was a - b", "add(5, 5) == 10")


class Several:
    """A server that gives as many replies as it is asked for, the next of the samples each."""

    def answer(self, request: ChatRequest) -> Answer:
        answers = [json.loads(s.answer(request).body) for s in (NARROW, RIGHT, SAME)]
        count = request.body.get("n", 1)
        choices = [one["choices"][0] for one in answers[:count]]
        usage = {"prompt_tokens": 1000, "completion_tokens": 90, "total_tokens": 1090}
        return json_answer({**answers[0], "choices": choices, "usage": usage})


def test_the_tests_of_all_replies_choose_and_a_replay_chooses_the_same(
    tmp_path: Path, make_repository: Callable[[Mapping[str, str | bytes]], Path]
) -> None:
    require_sandbox()
    user, repository = User(tmp_path / "home"), make_repository(FILES)
    user.issue.write_text("# add() subtracts\n\nadd(2, 3) gives -1.\n")
    tape = user.home / "tape.jsonl"
    options = ("--samples", "3", "--json")
    done, provider = user.solve(repository, [NARROW, RIGHT, SAME], *options, "--record", str(tape))
    result = json.loads(done.stdout)
    assert (done.returncode, result["verdict"]) == (0, "verified"), done.stderr
    assert "+    return a + b\n" in result["diff"]
    assert [one["kind"] for one in result["attempts"]] == ["sample", "sample", "one-shot"]
    assert result["usage"]["calls"] == len(provider.chats) == 3  # the server knows no `n`
    assert all(chat.body["temperature"] == 0.8 for chat in provider.chats)
    told = "3 replies, 2 different patches; the chosen one passes 3 of 3 tests of the replies"
    assert told in result["attempts"][-1]["validation"]["notes"]
    assert "usually 3 or 4 calls, never more than " in done.stderr
    again = user.run(
        "solve", "--problem", str(user.issue), "--repo", str(repository), "--replay", str(tape),
        *options,
    )  # fmt: skip
    assert json.loads(again.stdout)["diff"] == result["diff"], again.stderr
