"""Calls beside the one for the patch, each with a replay: locating, more code, another test."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.sandboxes import require_bwrap
from tests.support.user import User

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(150)]

# The table stands after many functions, so that a small context does not reach it.
FILLER = "".join(f"def rate_of_zone_{n}(weight):\n    return weight * {n}\n\n\n" for n in range(90))
FILES = {
    "shop/__init__.py": "",
    "shop/rates.py": (
        f"{FILLER}def rate(place):\n    return RATES[place]\n\n\n"
        'RATES = {\n    "north": 3,\n    "south": 0,\n}\n'
    ),
    "shop/names.py": "def clean(name):\n    return name.strip()\n",
    "tests/test_names.py": (
        "from shop.names import clean\n\n\ndef test_clean():\n    assert clean(' a ') == 'a'\n"
    ),
}
ISSUE = "# Parcels to Spain are free\n\nrate_of_zone_1 to rate_of_zone_5 are right.\n"


def test_of(asserted: str) -> dict[str, str]:
    content = f"from shop.rates import rate\n\n\ndef test_south():\n    assert {asserted}\n"
    return {"path": "tests/test_south.py", "content": content}


test_of.__test__ = False  # type: ignore[attr-defined]


def reply(rate: int | str = 4, asserted: str = "rate('south') == 4", **more: Any) -> str:
    edit = {
        "path": "shop/rates.py",
        "search": '    "south": 0,',
        "replace": f'    "south": {rate},',
    }
    return json.dumps(
        {"thought": "4", "edits": [edit], "reproduction_test": test_of(asserted), **more}
    )


@pytest.fixture
def user(make_repository: Callable[[Mapping[str, str | bytes]], Path], tmp_path: Path) -> User:
    require_bwrap()
    return User(tmp_path / "home", make_repository(FILES), ISSUE)


def solved(user: User, script: list[str], *options: str) -> tuple[dict[str, Any], str, Any]:
    """The result, stderr and the calls of a run; its replay gives the same patch."""
    tape = str(user.home / "tape.jsonl")
    done, provider = user.solve(script, "--json", *options, "--record", tape)
    result = json.loads(done.stdout)
    assert (done.returncode, result["verdict"]) == (0, "verified"), done.stderr
    assert result["usage"]["calls"] == len(provider.chats) == len(script)
    replayed = user.read("solve", *user.task, *options, "--replay", tape)
    for name in ("diff", "verdict", "usage", "reproduction_test"):
        assert replayed[name] == result[name]
    return result, done.stderr, [chat.body for chat in provider.chats]


def text_of(body: Mapping[str, Any]) -> str:
    return str(body["messages"][-1]["content"])


def test_located_code_is_shown(user: User) -> None:
    own = user.home / ".config/patchshot/patchshot.toml"
    own.parent.mkdir(parents=True)
    own.write_text('side_model = "small"\n')
    names = json.dumps({"places": ["shop/rates.py:RATES", "rate"], "words": ["south"]})
    options = ("--locate", "always", "--context-tokens", "400")
    result, _, (first, second) = solved(user, [names, reply()], *options)
    assert (first["model"], second["model"]) == ("small", "scripted")
    assert '"south": 0' in text_of(second)
    assert "the locating call named 2 places" in result["notes"]


def test_code_that_is_asked_for_is_sent(user: User) -> None:
    missing = ["RATES", "shop/names.py"]
    asking = json.dumps({"edits": [], "missing": missing, "reproduction_test": test_of("False")})
    options = ("--context-tokens", "200", "--locate", "never")
    result, stderr, (first, second) = solved(user, [asking, reply()], *options)
    kinds = [(a["kind"], a["failure_kinds"], a["missing"]) for a in result["attempts"]]
    assert kinds == [("one-shot", ["needs-code"], missing), ("more-code", [], [])]
    assert '"south": 0' not in text_of(first)
    assert second["messages"][: len(first["messages"])] == first["messages"]
    assert '"south": 0' in text_of(second)
    assert "def clean" in text_of(second)
    assert "usually 1 or 2 calls, never more than " in stderr
    assert "the reply asks for code (RATES, shop/names.py); round 1 of 2" in stderr


WEAK = reply(asserted="rate('north') == 3")


def test_another_test_verifies_the_same_patch(user: User) -> None:
    proof = json.dumps({"reproduction_test": test_of("rate('south') == 4")})
    result, _, (first, second) = solved(user, [WEAK, proof])
    kinds = [(one["kind"], one["validation"]["verdict"]) for one in result["attempts"]]
    assert kinds == [("one-shot", "not-regressed"), ("another-test", "verified")]
    assert len(json.dumps(second)) < len(json.dumps(first)) / 2
    assert "but none shows the fix: " in text_of(second)


@pytest.mark.parametrize(
    "asserted", ["rate('north') + 1 == 4", """'"south": 4' in open('shop/rates.py').read()"""]
)
def test_a_second_test_that_shows_nothing_buys_no_verdict(user: User, asserted: str) -> None:
    again = json.dumps({"reproduction_test": test_of(asserted)})
    done, provider = user.solve([WEAK, again], "--json")
    assert (done.returncode, json.loads(done.stdout)["verdict"]) == (0, "not-regressed")
    assert len(provider.chats) == 2


def test_no_code_is_sent_only_if_the_user_insists(user: User) -> None:
    (user.repository / "wide.py").write_text(f"WIDE = [{'1, ' * 4000}]\n")
    user.issue.write_text("# WIDE in wide.py is wrong\n")
    for path in FILES:
        (user.repository / path).unlink()
    options = ("--context-tokens", "200", "--preset", "original", "--embed", "off", "--no-tests")
    options += ("--no-iterative",)
    refused, provider = user.solve(["I see no code"], *options)
    assert (refused.returncode, provider.chats) == (2, []), refused.stderr
    assert "no code fits into the context" in refused.stderr
    _, provider = user.solve(["I see no code"], *options, PATCHSHOT_ALLOW_EMPTY_CONTEXT="1")
    assert provider.chats
