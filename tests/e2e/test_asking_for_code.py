"""A model that asks for code before it edits, with the real command and a scripted server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.parcels import EDIT, TEST
from tests.e2e.test_commands import User
from tests.support.behaviours import Good
from tests.support.solve_command import require_sandbox

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(150)]

SMALL = ("--context-tokens", "200", "--locate", "never", "--json")


def asking(*names: str) -> Good:
    fields = {"thought": "a table", "edits": [], "missing": names, "reproduction_test": TEST}
    return Good(json.dumps(fields))


def test_the_code_is_sent_and_the_next_reply_is_verified(
    parcel_user: User, parcel_shop: Path
) -> None:
    require_sandbox()
    edits = Good(json.dumps({"thought": "4", "edits": [EDIT], "missing": ["shop/rates.py"]}))
    script = [asking("RATES", "shop/names.py"), edits]
    tape = parcel_user.home / "tape.jsonl"
    done, provider = parcel_user.solve(parcel_shop, script, *SMALL, "--record", str(tape))
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
    assert "usually 1 or 2 calls, never more than 45 calls" in done.stderr
    assert "the reply asks for code (RATES, shop/names.py); round 1 of 2" in done.stderr
    again = parcel_user.run(
        "solve", "--problem", str(parcel_user.issue), "--repo", str(parcel_shop), *SMALL,
        "--replay", str(tape),
    )  # fmt: skip
    assert json.loads(again.stdout)["verdict"] == "verified", again.stderr
