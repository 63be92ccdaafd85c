"""A call for another reproduction test of an accepted patch, with the real command."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.e2e.test_commands import User
from tests.support.behaviours import Good
from tests.support.solve_command import require_sandbox

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(150)]

FILES = {
    "calc.py": "def add(a, b):\n    return a - b\n",
    "tests/test_calc.py": "from calc import add\n\n\ndef test_zero():\n    assert add(1, 0) == 1\n",
}
MakeRepository = Callable[[Mapping[str, str | bytes]], Path]


def test_of(asserted: str) -> dict[str, str]:
    content = f"from calc import add\n\n\ndef test_issue():\n    assert {asserted}\n"
    return {"path": "tests/test_issue.py", "content": content}


test_of.__test__ = False  # type: ignore[attr-defined]

EDIT = {"path": "calc.py", "search": "    return a - b", "replace": "    return a + b"}
WEAK = Good(
    json.dumps({"thought": "sign", "edits": [EDIT], "reproduction_test": test_of("add(1, 0) == 1")})
)
PROVES = Good(json.dumps({"reproduction_test": test_of("add(2, 3) == 5")}))
STILL_WEAK = Good(json.dumps({"reproduction_test": test_of("add(3, 0) == 3")}))
#  It fails on the base and passes with the patch, and runs nothing of it.
BOUGHT = Good(
    json.dumps(
        {
            "reproduction_test": {
                "path": "tests/test_issue.py",
                "content": "def test_issue():\n    assert 'a + b' in open('calc.py').read()\n",
            }
        }
    )
)


@pytest.fixture
def user(tmp_path: Path) -> User:
    require_sandbox()
    user = User(tmp_path / "home")
    user.issue.write_text("# add() subtracts\n\nadd(2, 3) gives -1.\n")
    return user


def test_another_test_verifies_the_same_patch_and_a_replay_repeats_it(
    user: User, make_repository: MakeRepository
) -> None:
    repository, tape = make_repository(FILES), user.home / "tape.jsonl"
    prices = {"PATCHSHOT_PRICES": "2,8"}
    done, provider = user.solve(
        repository, [WEAK, PROVES], "--json", "--record", str(tape), **prices
    )
    result = json.loads(done.stdout)
    assert (done.returncode, result["verdict"]) == (0, "verified"), done.stderr
    assert "usually 1 or 2 calls, never more than " in done.stderr
    kinds = [(one["kind"], one["validation"]["verdict"]) for one in result["attempts"]]
    assert kinds == [("one-shot", "not-regressed"), ("another-test", "verified")]
    assert result["reproduction_test"]["content"].endswith("add(2, 3) == 5\n")
    assert result["usage"]["calls"] == len(provider.chats) == 2
    first, second = (sum(len(m["content"]) for m in c.body["messages"]) for c in provider.chats)
    assert second < first / 2
    assert "passes on the base already" in provider.chats[1].body["messages"][1]["content"]
    again = user.run(
        "solve", "--problem", str(user.issue), "--repo", str(repository), "--replay", str(tape),
        "--json", **prices,
    )  # fmt: skip
    replayed = json.loads(again.stdout)
    for name in ("diff", "verdict", "usage", "reproduction_test"):
        assert replayed[name] == result[name]


@pytest.mark.parametrize("answer", [STILL_WEAK, BOUGHT], ids=["weak", "with an edit"])
def test_a_second_test_buys_no_verdict_and_there_is_no_third(
    user: User, make_repository: MakeRepository, answer: Good
) -> None:
    done, provider = user.solve(make_repository(FILES), [WEAK, answer], "--json")
    result = json.loads(done.stdout)
    assert (done.returncode, result["verdict"]) == (0, "not-regressed"), done.stderr
    assert len(provider.chats) == 2
