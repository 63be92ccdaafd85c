"""`agent reproduce`, and the independent test of `--evidence independent`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.support.sandboxes import require_bwrap
from tests.support.user import User

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(150)]

FILES = {
    "shop.py": "def price(count):\n    return 10 * count - (count >= 3)\n",
    "tests/test_shop.py": "from shop import price\n\n\ndef test_one():\n    assert price(1) == 10",
}
ISSUE = "# The discount starts too early\n\nprice(3) is 29, but only 5 and more pieces get one.\n"
RED = "assert price(3) == 30\n    assert price(4) == 40"


def red(asserted: str, *names: str) -> str:
    name = names[0] if names else "price"
    content = f"from shop import {name}\n\n\ndef test_issue():\n    {asserted}\n"
    return json.dumps({"reproduction_test": {"path": "tests/test_shop.py", "content": content}})


@pytest.fixture
def user(make_repository: Callable[[Mapping[str, str | bytes]], Path], tmp_path: Path) -> User:
    require_bwrap()
    return User(tmp_path / "home", make_repository(FILES), ISSUE)


@pytest.mark.parametrize(
    ("script", "code", "said"),
    [
        ([red(RED)], 0, "fails on the base: tests/test_shop_2.py::test_issue"),
        ([red("assert price(1) == 10"), red(RED)], 0, "fails on the base"),
        ([red("assert cost(3) == 30", "cost")] * 2, 6, "cannot be collected"),
        ([red("assert price('3', 4) == 30")] * 2, 6, "an error of its own: TypeError"),
        (['{"reproduction_test": null}'], 3, "the reply holds no test"),
    ],
)
def test_an_issue_becomes_a_red_test(user: User, script: list[str], code: int, said: str) -> None:
    done, provider = user.ask(script, "reproduce", *user.task, "--json", "--apply")
    result = json.loads(done.stdout)
    assert (done.returncode, result["exit_code"]) == (code, code), done.stderr
    assert said in result["message"]
    assert len(provider.chats) == len(script)
    if len(script) == 2:
        assert "It does not show the issue" in provider.chats[1].prompt
    written = user.repository / "tests/test_shop_2.py"
    assert written.exists() == (code == 0)
    if code == 0:
        assert written.read_text() == result["reproduction_test"]["content"]
        assert result["diff"] in user.ok("show", cwd=user.repository)


def test_the_model_sees_no_patch_and_the_diff_goes_to_stdout(user: User) -> None:
    done, provider = user.ask([red(RED)], "reproduce", *user.task)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("diff --git a/tests/test_shop_2.py")
    assert not (user.repository / "tests/test_shop_2.py").exists()
    [chat] = provider.chats
    assert "return 10 * count" in chat.prompt
    assert "Do not fix it" in chat.prompt


def reply(line: str, asserted: str = "assert price(3) == 30") -> str:
    edit = {"path": "shop.py", "search": "    return 10 * count - (count >= 3)", "replace": line}
    return json.dumps({"edits": [edit], **json.loads(red(asserted))})


FIX = reply("    return 10 * count - (count >= 5)")
NO_TEST = json.dumps({**json.loads(FIX), "reproduction_test": None})
SPECIAL = reply("    return 30 if count == 3 else 10 * count - (count >= 3)")
WRONG = red("assert price(9) == 1")


@pytest.mark.parametrize(
    ("script", "headline", "said"),
    [
        ([FIX, red(RED)], "VERIFIED (independent test)", "passes with the patch: tests/"),
        ([NO_TEST, red(RED)], "VERIFIED (independent test)", "passes with the patch: tests/"),
        ([FIX, *[red("assert price(1) == 10")] * 2], "VERIFIED (own test)", "not fail on the base"),
        ([SPECIAL, red(RED), FIX], "VERIFIED (independent test)", "passes with the patch: tests/"),
        ([FIX, WRONG, '{"edits": "same"}'], "VERIFIED (own test)", "which rejects nothing"),
    ],
)
def test_an_independent_test_grades_a_patch_and_rejects_none(
    user: User, script: list[str], headline: str, said: str
) -> None:
    done, provider = user.solve(script, "--evidence", "independent")
    assert done.returncode == 0, done.stderr
    assert headline in done.stderr
    assert said in done.stderr.partition(headline)[2]
    assert len(provider.chats) == len(script)
    if len(script) == 3 and script[1] != script[2]:
        assert "written from the issue alone fails with your edits" in provider.chats[2].prompt
