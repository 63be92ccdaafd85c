"""A model that asks for code before it edits, with the real command and a scripted server."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.e2e.test_commands import User
from tests.support.behaviours import Good
from tests.support.solve_command import require_sandbox

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(150)]

MakeRepository = Callable[[Mapping[str, str | bytes]], Path]

# The table stands after many functions, so that a small context does not reach it.
FILLER = "".join(f"def rate_of_zone_{n}(weight):\n    return weight * {n}\n\n\n" for n in range(90))
TABLE = 'RATES = {\n    "north": 3,\n    "south": 0,\n}\n'
FILES = {
    "shop/__init__.py": "",
    "shop/rates.py": f"{FILLER}def rate(place):\n    return RATES[place]\n\n\n{TABLE}",
    "shop/names.py": "def clean(name):\n    return name.strip()\n",
    "tests/test_names.py": (
        "from shop.names import clean\n\n\ndef test_clean():\n    assert clean(' a ') == 'a'\n"
    ),
}
ISSUE = "# Parcels to Spain are free\n\nrate_of_zone_1 to rate_of_zone_5 are right.\n"
TEST = {
    "path": "tests/test_south.py",
    "content": (
        "from shop.rates import rate\n\n\ndef test_south():\n    assert rate('south') == 4\n"
    ),
}
EDIT = {"path": "shop/rates.py", "search": '    "south": 0,', "replace": '    "south": 4,'}
SMALL = ("--context-tokens", "200", "--locate", "never", "--json")


def asking(*names: str) -> Good:
    fields = {"thought": "a table", "edits": [], "missing": names, "reproduction_test": TEST}
    return Good(json.dumps(fields))


@pytest.fixture
def user(tmp_path: Path) -> User:
    user = User(tmp_path / "home")
    user.issue.write_text(ISSUE)
    return user


@pytest.fixture
def repository(make_repository: MakeRepository) -> Path:
    return make_repository(FILES)


def test_the_code_is_sent_and_the_next_reply_is_verified(user: User, repository: Path) -> None:
    require_sandbox()
    edits = Good(json.dumps({"thought": "4", "edits": [EDIT], "missing": ["shop/rates.py"]}))
    script = [asking("RATES", "shop/names.py"), edits]
    tape = user.home / "tape.jsonl"
    done, provider = user.solve(repository, script, *SMALL, "--record", str(tape))
    result = json.loads(done.stdout)
    assert (done.returncode, result["verdict"]) == (0, "verified"), done.stderr
    kinds = [(a["kind"], a["failure_kinds"], a["missing"]) for a in result["attempts"]]
    assert kinds == [
        ("one-shot", ["needs-code"], ["RATES", "shop/names.py"]),
        ("more-code", [], ["shop/rates.py"]),
    ]
    assert result["usage"]["calls"] == len(provider.chats) == 2
    assert result["reproduction_test"] == TEST
    first, second = (chat.body["messages"] for chat in provider.chats)
    assert '"south": 0' not in first[-1]["content"]
    assert second[: len(first)] == first
    assert '"south": 0' in second[-1]["content"]
    assert "def clean" in second[-1]["content"]
    assert "at most 1 + 2 + 1 + 40 + 1 calls" in done.stderr
    assert "the reply asks for code (RATES, shop/names.py); round 1 of 2" in done.stderr
    again = user.run(
        "solve", "--problem", str(user.issue), "--repo", str(repository), *SMALL,
        "--replay", str(tape),
    )  # fmt: skip
    assert json.loads(again.stdout)["verdict"] == "verified", again.stderr


def test_a_model_that_only_asks_is_told_and_then_named(user: User, repository: Path) -> None:
    script = [asking("RATES"), asking("RATTES"), asking("shop/names.py"), asking("RATES")]
    done, provider = user.solve(repository, script, *SMALL, "--no-iterative")
    result = json.loads(done.stdout)
    kinds = [attempt["kind"] for attempt in result["attempts"]]
    assert kinds == ["one-shot", "more-code", "more-code", "repair"]
    assert (done.returncode, result["status"]) == (3, "no-edit")
    asked = [chat.body["messages"][-1]["content"] for chat in provider.chats]
    assert "One more round is possible" in asked[1]
    assert "not found: RATTES" in asked[2]
    assert "This was the last round" in asked[2]
    assert "No further round is left" in asked[3]
    assert not any("could not be accepted" in text for text in asked)
    last = done.stderr.splitlines()[-1]
    assert "the model asked for code 4 times and edited nothing" in last
