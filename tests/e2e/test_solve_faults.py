"""`agent solve` as a subprocess on a small repository: every way the model can misbehave."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from agent.errors import Status
from tests.e2e.test_commands import FILES, ISSUE, REPLY, TEST
from tests.support.behaviours import (
    MALFORMED,
    Step,
    count_tokens,
    drop_connection,
    html_error,
    rate_limited,
    schema_refused,
    slow,
    truncated,
    unauthorized,
    unknown_model,
    wrong_path,
)
from tests.support.fingerprint import fingerprint
from tests.support.sandboxes import require_bwrap
from tests.support.user import User

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(150)]

# It fails a test that passed before.
BREAKING = json.dumps(
    {
        "edits": [{"path": "shop/names.py", "search": "name.strip()", "replace": "name"}],
        "reproduction_test": TEST,
    }
)
# One repair call and no iterative mode: how many requests a case takes is then fixed.
OPTIONS = ("--repairs", "1", "--no-iterative")
LIMITS = {"slow": ("--timeout", "8"), "no call left": ("--max-calls", "0")}

# The script, how the run ends, and the chat requests (None: it may ask for a schema or not).
CASES: Mapping[str, tuple[list[Step], Status, int | None]] = {
    "good": ([REPLY], Status.ACCEPTED, 1),
    "malformed, then good": ([MALFORMED, REPLY], Status.ACCEPTED, 2),
    "wrong path, then good": ([wrong_path(), REPLY], Status.ACCEPTED, 2),
    "breaks tests, then good": ([BREAKING, REPLY], Status.ACCEPTED, 2),
    "malformed": ([MALFORMED], Status.UNPARSEABLE, 2),
    "truncated": ([truncated(REPLY)], Status.UNPARSEABLE, 4),  # it is continued
    "empty": ([""], Status.NO_EDIT, 2),
    "no edits": (['{"edits": []}'], Status.NO_EDIT, 2),
    "wrong path": ([wrong_path()], Status.NOT_APPLIED, 2),
    "breaks tests": ([BREAKING], Status.BROKEN, 2),
    "slow": ([slow(90, REPLY)], Status.TIME_LIMIT, 1),
    "rate limited, then good": ([rate_limited(1), REPLY], Status.ACCEPTED, 2),
    "dropped, then good": ([drop_connection, REPLY], Status.ACCEPTED, 2),
    "gateway, then good": ([html_error, REPLY], Status.ACCEPTED, 2),
    "schema refused": ([schema_refused(REPLY)], Status.ACCEPTED, None),
    "unauthorized": ([unauthorized], Status.PROVIDER, 1),
    "unknown model": ([unknown_model], Status.PROVIDER, 1),
    "no call left": ([REPLY], Status.BUDGET, 0),
}


@pytest.fixture
def user(make_repository: Callable[[Mapping[str, str | bytes]], Path], tmp_path: Path) -> User:
    require_bwrap()
    return User(tmp_path / "home", make_repository(FILES), ISSUE)


@pytest.mark.parametrize("name", CASES)
def test_end_of_run(name: str, user: User) -> None:
    script, status, requests = CASES[name]
    before = fingerprint(user.repository)
    done, provider = user.solve(script, "--json", *OPTIONS, *LIMITS.get(name, ()))
    result = json.loads(done.stdout)
    assert result["status"] == status.value, done.stderr
    assert done.returncode == result["exit_code"] == status.exit_code
    assert requests in (None, len(provider.chats))
    assert fingerprint(user.repository) == before


def test_repair_call_says_what_was_wrong_and_is_paid_for(user: User) -> None:
    wrong = wrong_path("shop/gone.py")
    done, provider = user.solve([wrong, REPLY], "--json")
    first, second = provider.chats
    assert "shop/gone.py" not in first.prompt
    assert "shop/gone.py" in second.prompt
    usage = json.loads(done.stdout)["usage"]
    assert usage["calls"] == 2, done.stderr
    assert usage["input_tokens"] == count_tokens(first.prompt) + count_tokens(second.prompt)
    assert usage["output_tokens"] == count_tokens(wrong) + count_tokens(REPLY)


def test_a_base_that_does_not_import_is_named_before_a_call(user: User) -> None:
    """Data of tests that no module imports may be broken."""
    (user.repository / "tests" / "data_names.py").write_text("def half(:\n")
    done, provider = user.solve([REPLY], *OPTIONS)
    assert (done.returncode, len(provider.chats)) == (0, 1), done.stderr
    with (user.repository / "shop" / "names.py").open("a") as file:
        file.write("\n\ndef half(:\n")
    done, provider = user.solve([REPLY], "--accept-unverified", *OPTIONS)
    assert (done.returncode, len(provider.chats)) == (Status.UNVERIFIED.exit_code, 0)
    assert "the base does not import: shop/names.py:5 SyntaxError" in done.stderr


def test_same_input_gives_the_same_prompt(user: User) -> None:
    first, second = (
        user.solve([unauthorized], PYTHONHASHSEED=seed)[1].chats[0].body["messages"]
        for seed in ("1", "2")
    )
    assert first == second
