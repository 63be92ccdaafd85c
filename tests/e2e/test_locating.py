"""The locating call, with the real command and a scripted server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.parcels import EDIT, TEST
from tests.e2e.test_commands import User
from tests.support.behaviours import Good
from tests.support.solve_command import require_sandbox

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(150)]

NAMES = Good(json.dumps({"places": ["shop/rates.py:RATES", "rate"], "words": ["south"]}))
PATCH = Good(json.dumps({"thought": "4", "edits": [EDIT], "reproduction_test": TEST}))
ALWAYS = ("--locate", "always", "--context-tokens", "400", "--json")


def test_named_code_is_shown_counted_recorded_and_replayed(
    parcel_user: User, parcel_shop: Path
) -> None:
    require_sandbox()
    tape = parcel_user.home / "tape.jsonl"
    options = ALWAYS
    own = parcel_user.home / ".config/patchshot/patchshot.toml"
    own.parent.mkdir(parents=True)
    own.write_text('side_model = "small"\n')
    done, provider = parcel_user.solve(parcel_shop, [NAMES, PATCH], *options, "--record", str(tape))
    result = json.loads(done.stdout)
    assert (done.returncode, result["verdict"]) == (0, "verified"), done.stderr
    first, second = provider.chats
    assert (first.body["model"], second.body["model"]) == ("small", provider.model)
    assert "RATES" in first.body["messages"][-1]["content"]
    assert '"south": 0' in second.body["messages"][-1]["content"]
    assert result["usage"]["calls"] == 2
    assert result["timings"]["locate"] > 0
    assert "the locating call named 2 places" in result["notes"]
    again = parcel_user.run(
        "solve", "--problem", str(parcel_user.issue), "--repo", str(parcel_shop), *options,
        "--replay", str(tape),
    )  # fmt: skip
    assert json.loads(again.stdout)["diff"] == result["diff"], again.stderr
